//! Deep backlog that several measurements share: it is filled and drained only once.

use hapax_testkit::postgres::Database;
use tokio_postgres::Client;

use super::{
    super::{Bench, folder::Folder, postgres::connect},
    parts,
};
use crate::relay::Drained;

/// Number of drains of the deep backlog. Each takes about a minute.
const DRAINS: usize = 3;

/// Size of the outbox, and of everything else in the store, in mebibytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Space {
    pub(super) outbox: f64,
    pub(super) rest: f64,
}

/// The results of the deep backlog.
#[derive(Debug)]
pub(in crate::run) struct Deep {
    pub(super) events: u64,
    pub(super) drained: Vec<Drained>,
    /// The sizes after filling, after draining and after purging.
    pub(super) space: [Space; 3],
    /// The number of purged events, and the duration of the purge in seconds.
    pub(super) purged: (u64, f64),
}

impl Deep {
    /// Fills a database, drains it to several destinations in turn, and purges it.
    pub(in crate::run) async fn of(bench: &Bench) -> anyhow::Result<Self> {
        let events = bench.relay.deep;
        let folder = Folder::make(&bench.dir, "relay-deep")?;
        let database: Database = bench.server().await?.database().await?;
        let url = database.url();
        parts::fill(folder.path(), &url, events).await?;
        super::super::say("  the deep backlog is filled\n");
        let client = connect(&url).await?;
        let filled = Space::of(&client).await?;
        let mut drained = Vec::new();
        for drain in 0..bench.relay.rounds.min(DRAINS) {
            let name = format!("deep-{drain}");
            drained.push(parts::drain(folder.path(), &url, &name, events).await?);
            super::super::say("  the deep backlog is drained\n");
        }
        let after = Space::of(&client).await?;
        let said = parts::run(folder.path(), &["relay", "purge", "--database", &url]).await?;
        let figures: Vec<&str> = said.split_whitespace().collect();
        let [rows, seconds] = figures[..] else {
            anyhow::bail!("cannot parse the output of relay purge: {said:?}");
        };
        let recycled = Space::of(&client).await?;
        Ok(Self {
            events,
            drained,
            space: [filled, after, recycled],
            purged: (rows.parse()?, seconds.parse()?),
        })
    }
}

impl Space {
    /// The current size of the tables and indexes of the store.
    pub(super) async fn of(client: &Client) -> anyhow::Result<Self> {
        const SPACE: &str = "\
SELECT coalesce(sum(pg_relation_size(oid)) FILTER (WHERE name LIKE 'outbox_event%'), 0)::float8,
       coalesce(sum(pg_relation_size(oid)) FILTER (WHERE name NOT LIKE 'outbox_event%'), 0)::float8
FROM (SELECT class.oid, coalesce(owner.relname, class.relname) AS name
      FROM pg_class AS class
      LEFT JOIN pg_index AS of ON of.indexrelid = class.oid
      LEFT JOIN pg_class AS owner ON owner.oid = of.indrelid
      WHERE class.relnamespace = 'hapax'::regnamespace AND class.relkind IN ('r', 'i')) AS every";
        let row = client.query_one(SPACE, &[]).await?;
        let mebibytes = |column| row.get::<_, f64>(column) / f64::from(1 << 20);
        Ok(Self {
            outbox: mebibytes(0),
            rest: mebibytes(1),
        })
    }
}
