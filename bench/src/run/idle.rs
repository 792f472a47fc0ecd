//! Target 12, the shop's half: how soon it is ready, and what it holds while nobody asks.
//!
//! It is started as a newcomer starts it, with the relay and the demo's receivers.

use tokio::time::sleep;

use super::{
    Bench,
    folder::Folder,
    report::{Section, Series, Unit, Verdict},
    shop::start_whole,
};

/// Starts that are timed, of each kind.
const STARTS: usize = 9;

/// Starts shops and leaves them alone.
pub(super) async fn idle(bench: &Bench) -> anyhow::Result<Section> {
    let mut new = Series::new("start to ready, new database", Unit::Millis);
    let mut again = Series::new("start to ready, after a kill", Unit::Millis);
    for _ in 0..STARTS {
        let folder = Folder::make(&bench.dir, "start")?;
        for series in [&mut new, &mut again] {
            let service = start_whole(bench.shop()?, folder.path()).await?;
            series.push(service.ready_after.as_secs_f64() * 1e3);
        }
    }
    let mut fresh = Series::new("memory once ready", Unit::Mebibytes);
    let mut rested = Series::new(
        format!("memory after {:?} idle", bench.idle),
        Unit::Mebibytes,
    );
    let mut idling = Vec::new();
    for shop in 0..bench.rounds {
        let folder = Folder::make(&bench.dir, &format!("idle-{shop}"))?;
        let service = start_whole(bench.shop()?, folder.path()).await?;
        fresh.push(service.resident()?);
        idling.push((service, folder));
    }
    sleep(bench.idle).await;
    for (service, _) in &idling {
        rested.push(service.resident()?);
    }
    drop(idling);
    let verdicts = vec![
        Verdict::below("12", &new, 150.0),
        Verdict::below("12", &again, 150.0),
        Verdict::below("12", &fresh, 48.0),
        Verdict::below("12", &rested, 48.0),
    ];
    Ok(Section {
        title: "Target 12: the shop at rest".to_owned(),
        how: format!(
            "`shop` with its relay and its demo. Start to ready is from the start of the process \
             until `/readyz` says 200, {STARTS} times each; memory is VmRSS of {} shops.",
            bench.rounds
        ),
        series: vec![new, again, fresh, rested],
        verdicts,
        ..Section::default()
    })
}
