//! `hapax status`: the figures of the last minutes, the destinations, and what is stalled.

use std::{process::ExitCode, time::Duration};

use hapax::{
    admin::{Count, CountKind, Destination, DestinationFigures, Overview, Stalled, StateCount},
    retry::parse_duration,
};
use serde::Serialize;
use tokio::time::sleep;

use super::{Context, Failure};
use crate::{admin::command_context::CommandContext, config::Span, output};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print the status again every INTERVAL, until the command is interrupted
    #[arg(
        long,
        value_name = "INTERVAL",
        num_args = 0..=1,
        default_missing_value = "2s",
        value_parser = interval
    )]
    watch: Option<Duration>,
}

/// What is printed as JSON.
#[derive(Debug, Serialize)]
struct Status {
    #[serde(flatten)]
    overview: Overview,
    stalled: Vec<Stalled>,
}

/// The shortest interval. The figures cost a few queries.
const INTERVAL_MIN: Duration = Duration::from_millis(500);

fn interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text).map_err(|error| error.to_string())?;
    if interval < INTERVAL_MIN {
        return Err(format!("expected at least {}", Span(INTERVAL_MIN)));
    }
    Ok(interval)
}

pub(crate) async fn run(args: Args, context: Context) -> Result<ExitCode, Failure> {
    let cx = CommandContext::open(&context).await?;
    let Some(interval) = args.watch else {
        let (status, destinations) = read(&cx).await?;
        if cx.output.json {
            cx.output.json(&status)?;
        } else {
            print(&cx, &status, &destinations)?;
        }
        return Ok(ExitCode::SUCCESS);
    };
    loop {
        let (status, destinations) = read(&cx).await?;
        if cx.output.json {
            cx.output.json_line(&status)?;
        } else {
            if output::is_shown() {
                cx.output.clear()?;
            }
            print(&cx, &status, &destinations)?;
        }
        sleep(interval).await;
    }
}

async fn read(cx: &CommandContext) -> Result<(Status, Vec<Destination>), Failure> {
    let (overview, stalled) = cx.index().overview_and_stalled(&cx.actor).await?;
    let destinations = cx.index().list(&cx.actor).await?;
    Ok((Status { overview, stalled }, destinations))
}

fn print(
    cx: &CommandContext,
    status: &Status,
    destinations: &[Destination],
) -> Result<(), Failure> {
    let (out, overview) = (cx.output, &status.overview);
    out.line(format_args!(
        "{}: in the last {} {} events committed, {} delivered, {} attempts failed",
        overview.at,
        Span(overview.window),
        said(overview.committed),
        said(overview.delivered),
        said(overview.failed)
    ))?;
    out.line(states("keys", &overview.keys))?;
    out.line(states("sagas", &overview.sagas))?;
    out.line("")?;
    let rows: Vec<_> = destinations
        .iter()
        .map(|it| row(it, &overview.destinations))
        .collect();
    out.table(HEADER, &rows)?;
    out.line("")?;
    let dead: u64 = overview.destinations.iter().map(|it| it.dead.number).sum();
    if dead > 0 {
        out.line(format_args!(
            "dead letters that need a decision: {dead} (hapax dead-letters list)"
        ))?;
    }
    if status.stalled.is_empty() {
        out.line("nothing is stalled")?;
    }
    for it in &status.stalled {
        let since = it.since.map(|at| format!(" since {at}"));
        out.line(format_args!(
            "{}: {}{}; {} wait",
            it.what,
            it.cause,
            since.unwrap_or_default(),
            it.waiting
        ))?;
    }
    Ok(())
}

const HEADER: [&str; 8] = [
    "DESTINATION",
    "STATE",
    "BACKLOG",
    "LAG",
    "PARKED",
    "DEAD",
    "DELIVERED",
    "FAILED",
];

fn row(it: &Destination, all: &[DestinationFigures]) -> [String; 8] {
    let figures = figures_of(&it.name, all);
    [
        it.name.clone(),
        it.state.to_owned(),
        said(figures.backlog),
        lag(&figures),
        said(figures.parked),
        said(figures.dead),
        said(figures.delivered),
        said(figures.failed),
    ]
}

/// The figures of a destination; zeros if no relay has opened it.
pub(super) fn figures_of(name: &str, all: &[DestinationFigures]) -> DestinationFigures {
    let found = all.iter().find(|figures| figures.name == name);
    found.cloned().unwrap_or_default()
}

/// How long the oldest event that is not settled has been due, if there is one.
pub(super) fn lag(figures: &DestinationFigures) -> String {
    let Some(lag) = figures.lag else {
        return String::new();
    };
    // Milliseconds matter below a second only.
    let whole = Duration::from_secs(lag.as_secs());
    Span(if whole.is_zero() { lag } else { whole }).to_string()
}

/// The counts of each state, such as `keys: 3 completed, 1 in_progress`.
fn states(name: &str, counts: &[StateCount]) -> String {
    let counts = counts.iter().filter(|it| it.count.number > 0);
    let counts: Vec<String> = counts
        .map(|it| format!("{} {}", said(it.count), it.state))
        .collect();
    if counts.is_empty() {
        return format!("{name}: none");
    }
    format!("{name}: {}", counts.join(", "))
}

/// A number and its precision.
pub(super) fn said(count: Count) -> String {
    let number = count.number;
    match count.kind {
        CountKind::Exact => number.to_string(),
        CountKind::AtLeast => format!("{number}+"),
        CountKind::About => format!("~{number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_shows_how_exact_it_is_and_a_state_without_rows_is_left_out() {
        let count = |number, kind| Count { number, kind };
        let state = |state, number, kind| StateCount {
            state,
            count: count(number, kind),
        };
        let counts = [
            state("completed", 7, CountKind::Exact),
            state("failed", 0, CountKind::Exact),
            state("in_progress", 2_000, CountKind::AtLeast),
            state("running", 9_000, CountKind::About),
        ];
        let said = "keys: 7 completed, 2000+ in_progress, ~9000 running";
        assert_eq!(states("keys", &counts), said);
        assert_eq!(states("sagas", &counts[1..2]), "sagas: none");
    }

    #[test]
    fn an_interval_is_at_least_half_a_second() {
        assert_eq!(interval("5s"), Ok(Duration::from_secs(5)));
        assert!(interval("10ms").is_err() && interval("x").is_err());
    }
}
