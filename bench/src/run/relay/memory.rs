//! Target 12 for the relay on PostgreSQL: memory with a deep backlog, and the time from its start
//! until it is ready.

use std::{fs, process::Command};

use super::{
    super::{
        Bench,
        folder::Folder,
        report::{Section, Series, Unit, Verdict},
        service::{Service, free_address},
    },
    many,
};

/// Number of timed starts.
const STARTS: usize = 9;

/// Reads the memory of the deep drains, and measures starts of `hapax relay`.
pub(in crate::run) async fn memory(bench: &Bench) -> anyhow::Result<Section> {
    let deep = bench.deep().await?;
    let name = format!("relay's memory, backlog of {}", many(deep.events));
    let mut peak = Series::new(name, Unit::Mebibytes);
    for drained in &deep.drained {
        peak.push(drained.peak);
    }
    let folder = Folder::make(&bench.dir, "relay-start")?;
    let database = bench.server().await?.database().await?;
    let mut new = Series::new("hapax relay: start to ready, new database", Unit::Millis);
    let mut again = Series::new("hapax relay: start to ready, after a kill", Unit::Millis);
    let mut idle = Series::new("hapax relay: memory once ready", Unit::Mebibytes);
    for start in 0..STARTS {
        let address = free_address()?;
        let file = folder.path().join("hapax.toml");
        let events = folder.path().join("events.jsonl");
        fs::write(&file, configuration(&database.url(), address, &events))?;
        let mut command = Command::new(bench.hapax()?);
        command.arg("--config").arg(&file).arg("relay");
        let service = Service::start(command, address, &folder.path().join("hapax.log")).await?;
        let series = if start == 0 { &mut new } else { &mut again };
        series.push(service.ready_after.as_secs_f64() * 1e3);
        idle.push(service.resident()?);
    }
    let verdicts = vec![
        Verdict::below("12", &peak, 96.0),
        Verdict::below("12", &again, 150.0),
    ];
    Ok(Section {
        title: "Target 12: memory and start of the relay on PostgreSQL".to_owned(),
        how: format!(
            "Memory is VmHWM, the peak of the process, in the drains of a backlog of {} in \
             target 7. `hapax relay` with one destination is started {STARTS} times and killed, \
             the first time on a database without tables. Start to ready is measured until \
             `/readyz` returns 200.",
            many(deep.events)
        ),
        series: vec![peak, new, again, idle],
        verdicts,
        ..Section::default()
    })
}

fn configuration(url: &str, address: std::net::SocketAddr, events: &std::path::Path) -> String {
    format!(
        "[database]\nurl = \"{url}\"\nschema = \"apply\"\n\n[relay]\nlisten = \"{address}\"\n\n\
         [destinations.bench]\nsink.file = {{ path = \"{}\" }}\n",
        events.display()
    )
}
