//! Targets 1a and 1b: the cost of a safe write on PostgreSQL.
//!
//! Six services write the same order: a bare INSERT; six statements by hand; Hapax with an
//! arbitrary handler, whose claim is sent first, is pipelined or is optimistic; and the shop, which
//! returns a write plan and shares its commits. The run fails unless each safe write has left a key,
//! an order and an event.

use anyhow::ensure;

use super::{
    super::{
        Bench, Store,
        folder::Folder,
        reference::Recorded,
        report::{Section, Series, Verdict},
        shop::Shop,
        speed::Speed,
    },
    server::count,
    side::{Reference, fastest_pool, posted},
};

/// Counts, in one snapshot, how many keys and events there are too many or too few for the orders.
const OURS: &str = "\
SELECT abs((SELECT count(*) FROM shop_order) - (SELECT count(*) FROM hapax.idempotency_key))
     + abs((SELECT count(*) FROM shop_order) - (SELECT count(*) FROM hapax.outbox_event))";
const NAIVE: &str = "\
SELECT abs((SELECT count(*) FROM shop_order) - (SELECT count(*) FROM naive_key))
     + abs((SELECT count(*) FROM shop_order) - (SELECT count(*) FROM naive_event))";
/// Connections of the store, which is its default.
const CONNECTIONS: usize = 16;

/// Runs the services alternately.
pub(in crate::run) async fn writes(bench: &Bench) -> anyhow::Result<Section> {
    let folder = Folder::make(&bench.dir, "postgres-writes")?;
    let answer = Recorded::of(bench, &folder).await?;
    let of = (&answer, &folder);
    let bare = fastest_pool(bench, of, "postgres-insert").await?;
    let naive = fastest_pool(bench, of, "postgres-naive").await?;
    let mut sides = [
        Speed::new("axum + bare INSERT"),
        Speed::new("axum + six statements in turn"),
        Speed::new("axum + Hapax, an arbitrary handler"),
        Speed::new("the same, pipelined claim"),
        Speed::new("the same, optimistic claim"),
        Speed::new("POST /orders of the shop, in groups"),
    ];
    for round in 0..bench.rounds {
        for turn in 0..sides.len() {
            // Every second round has the reverse order.
            let turn = if round % 2 == 0 {
                turn
            } else {
                sides.len() - 1 - turn
            };
            let tally = match turn {
                0 => write_beside(bench, of, ("postgres-insert", bare), None).await?,
                1 => write_beside(bench, of, ("postgres-naive", naive), Some(NAIVE)).await?,
                2..=4 => {
                    let kind = ["postgres-atomic", "postgres-riding", "postgres-optimistic"];
                    let kind = kind[turn - 2];
                    write_beside(bench, of, (kind, CONNECTIONS), Some(OURS)).await?
                }
                _ => {
                    let place = Folder::make(folder.path(), "shop")?;
                    let shop = Shop::bare(bench, Store::Postgres, place, &[]).await?;
                    let tally = posted(bench, shop.address(), bench.connections).await?;
                    ensure!(tally.replayed == 0, "a fresh key was replayed");
                    if let Some(database) = shop.database() {
                        whole(&database.url(), OURS).await?;
                    }
                    tally
                }
            };
            sides[turn].push(&tally);
        }
        bench.progress(round);
    }
    Ok(section(bench, &sides, [bare, naive]))
}

async fn write_beside(
    bench: &Bench,
    of: (&Recorded, &Folder),
    (kind, pool): (&str, usize),
    rows: Option<&str>,
) -> anyhow::Result<crate::load::Tally> {
    let side = Reference::start(bench, of, kind, pool).await?;
    let tally = posted(bench, side.service.address, bench.connections).await?;
    if let Some(rows) = rows {
        whole(&side.database.url(), rows).await?;
    }
    Ok(tally)
}

/// Fails unless every order has its key and its event.
async fn whole(url: &str, rows: &str) -> anyhow::Result<()> {
    let missing = count(url, rows).await?;
    ensure!(
        missing == 0,
        "{missing} keys or events are missing or too many"
    );
    Ok(())
}

fn section(bench: &Bench, sides: &[Speed; 6], [bare_pool, naive_pool]: [usize; 2]) -> Section {
    let [bare, naive, atomic, riding, optimistic, shop] = sides;
    let ratio =
        |name: &str, over: &Speed, under: &Speed| Series::ratio(name, &over.rate, &under.rate);
    let ratios = [
        ratio("optimistic claim / bare INSERT", optimistic, bare),
        ratio("optimistic claim / six statements", optimistic, naive),
        ratio("in groups / bare INSERT", shop, bare),
        ratio("in groups / six statements", shop, naive),
        ratio("pipelined claim / bare INSERT", riding, bare),
        ratio("pipelined claim / six statements", riding, naive),
        ratio("claim first / bare INSERT", atomic, bare),
        ratio("claim first / six statements", atomic, naive),
    ];
    let verdicts = vec![
        Verdict::at_least("1a", &ratios[0], 0.5),
        Verdict::at_least("1a", &ratios[1], 1.8),
        Verdict::at_least("1b", &ratios[2], 1.5),
        Verdict::at_least("1b", &ratios[3], 4.5),
    ];
    let rates = sides.iter().map(|side| side.rate.clone());
    let latencies = sides.iter().flat_map(Speed::latencies);
    Section {
        title: "Targets 1a and 1b: safe writes on PostgreSQL".to_owned(),
        how: format!(
            "An order with a new key each time over {} connections; {} rounds of {:?} after \
             {:?} of warm-up, each on a new process with an empty database, after a checkpoint. \
             The bare INSERT writes the order alone, prepared, with a commit for each. The six \
             statements are begin, claim, order, event, response, commit, prepared, each awaited. \
             Pools of 8, 16 and 32 connections were tried before: the bare INSERT uses \
             {bare_pool}, the six statements use {naive_pool}. Hapax uses its default of \
             {CONNECTIONS}. It was checked that every order of the safe services has its key and \
             its event.",
            bench.connections, bench.rounds, bench.window, bench.warm_up,
        ),
        series: rates.chain(ratios).chain(latencies).collect(),
        verdicts,
        ..Section::default()
    }
}
