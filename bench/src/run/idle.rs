//! Target 12 for the shop: time until it is ready, and memory while it is idle.
//!
//! It is started with its defaults, which include the relay and the receivers of the demo.

use tokio::time::sleep;

use super::{
    Bench,
    folder::Folder,
    report::{Section, Series, Unit, Verdict},
    shop::start_whole,
};

/// Number of timed starts of each kind.
const STARTS: usize = 9;

/// Starts shops and measures them while they are idle.
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
        title: "Target 12: the idle shop".to_owned(),
        how: format!(
            "`shop` with its relay and its demo. Start to ready is measured from the start of the \
             process until `/readyz` returns 200, {STARTS} times each. Memory is the VmRSS of {} \
             shops.",
            bench.rounds
        ),
        series: vec![new, again, fresh, rested],
        verdicts,
        ..Section::default()
    })
}
