//! Target 12 for the relay on SQLite: memory with a backlog, and speed as the backlog grows.

use std::{path::Path, process::Command};

use crate::backlog::Drained;

use super::{
    Bench,
    folder::Folder,
    plot::{Axis, Line, Plot, Scale},
    report::{Section, Series, Unit, Verdict},
    service::Running,
};

/// Fills outboxes of several sizes and drains them alternately.
pub(super) async fn backlog(bench: &Bench) -> anyhow::Result<Section> {
    let folder = Folder::make(&bench.dir, "backlog")?;
    let mut sizes: Vec<Size> = bench
        .backlogs
        .iter()
        .map(|events| Size::new(*events))
        .collect();
    for size in &sizes {
        let said = part(folder.path(), "fill", size, &[]).await?;
        super::say(&format!("  filled: {}\n", said.trim()));
    }
    for round in 0..bench.rounds {
        sizes.reverse();
        for size in &mut sizes {
            let name = format!("round-{round}");
            let said = part(folder.path(), "drain", size, &["--destination", &name]).await?;
            size.push(Drained::read(&said)?);
        }
        bench.progress(round);
    }
    sizes.sort_by_key(|size| size.events);
    let verdicts = match sizes.last() {
        Some(largest) => vec![Verdict::below("12", &largest.peak, 96.0)],
        None => Vec::new(),
    };
    let growth = match (sizes.first(), sizes.last()) {
        (Some(least), Some(most)) => {
            let name = format!("{} / {}", most.rate.name(), least.rate.name());
            Some(Series::ratio(name, &most.rate, &least.rate))
        }
        _ => None,
    };
    let plots = vec![
        plot("", "events drained", &sizes, |size| &size.rate),
        plot("memory", "memory of the relay", &sizes, |size| &size.peak),
    ];
    let rates = sizes.iter().map(|size| size.rate.clone());
    let peaks = sizes.iter().map(|size| size.peak.clone());
    Ok(Section {
        title: "Target 12: the relay with a backlog".to_owned(),
        how: format!(
            "Outboxes of several sizes, with events of 200 bytes, are drained alternately, {} \
             times each, each time by a new process, into a sink that takes batches of a thousand \
             and keeps nothing. A drain ends when the last event is delivered and settled. Memory \
             is VmHWM, the peak of the process.",
            bench.rounds
        ),
        series: rates.chain(growth).chain(peaks).collect(),
        plots,
        verdicts,
        ..Section::default()
    })
}

/// A plot of one figure of the outboxes by their size.
fn plot(
    name: &'static str,
    of: &'static str,
    sizes: &[Size],
    figure: fn(&Size) -> &Series,
) -> Plot {
    let unit = sizes
        .first()
        .map_or(Unit::Count, |size| figure(size).unit());
    let points = sizes.iter().map(|size| (size.count(), figure(size)));
    Plot {
        name,
        title: format!("The relay with a backlog, SQLite: {of}"),
        across: Axis {
            name: "events in the backlog",
            unit: Unit::Count,
            scale: Scale::Log,
        },
        up: Axis {
            name: of,
            unit,
            scale: Scale::Linear,
        },
        lines: vec![Line::new(of, points)],
    }
}

/// An outbox with its results.
struct Size {
    events: u64,
    rate: Series,
    peak: Series,
}

impl Size {
    fn new(events: u64) -> Self {
        let backlog = match events {
            _ if events.is_multiple_of(1_000_000) => format!("{} M", events / 1_000_000),
            _ if events.is_multiple_of(1_000) => format!("{} k", events / 1_000),
            _ => events.to_string(),
        };
        Self {
            events,
            rate: Series::new(format!("drained, backlog of {backlog}"), Unit::PerSecond),
            peak: Series::new(
                format!("relay's memory, backlog of {backlog}"),
                Unit::Mebibytes,
            ),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "events stay far below 2^53")]
    fn count(&self) -> f64 {
        self.events as f64
    }

    fn push(&mut self, drained: Drained) {
        self.rate.push(self.count() / drained.took.as_secs_f64());
        self.peak.push(drained.peak);
    }
}

async fn part(folder: &Path, part: &str, size: &Size, more: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([
        "backlog",
        part,
        "--events",
        &size.events.to_string(),
        "--database",
    ]);
    command
        .arg(folder.join(format!("{}.db", size.events)))
        .args(more);
    Running::start(command, &folder.join("log"))?.ended().await
}
