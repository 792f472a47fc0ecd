//! Charts of the overview: lag, throughput, and the outcomes of requests if this process counts
//! them.

use std::time::Duration;

use crate::{
    chart::Chart,
    fields::{Fields, url},
    format::{cell, span},
    html::{Element, Html, el, link},
    sample::{LiveFigures, Sample},
};

/// Number of points above which a chart is thinned out.
const POINTS: usize = 180;

/// The time that the charts cover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Range {
    /// A quarter of an hour.
    #[default]
    Quarter,
    /// Three hours.
    Hours,
    /// A day.
    Day,
}

impl Range {
    const ALL: [Self; 3] = [Self::Quarter, Self::Hours, Self::Day];

    /// The range of a request.
    pub(crate) fn of(fields: &Fields) -> Self {
        let text = fields.text("range");
        let found = Self::ALL.into_iter().find(|it| it.as_str() == text);
        found.unwrap_or_default()
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Quarter => "15min",
            Self::Hours => "3h",
            Self::Day => "24h",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Quarter => "15 min",
            Self::Hours => "3 h",
            Self::Day => "24 h",
        }
    }

    /// The samples of this range, thinned out if there are many.
    fn samples(self, look: &LiveFigures) -> Vec<Sample> {
        let since = match self {
            Self::Quarter => return thinned(&look.kept),
            Self::Hours => Duration::from_hours(3),
            Self::Day => Duration::from_hours(24),
        };
        let is_inside = |it: &&Sample| look.at.since(it.at()) <= since;
        let inside: Vec<Sample> = look.long.iter().filter(is_inside).cloned().collect();
        thinned(&inside)
    }
}

/// At most [`POINTS`] samples. Each stands for those before it, with their highest lag.
fn thinned(samples: &[Sample]) -> Vec<Sample> {
    let size = samples.len().div_ceil(POINTS).max(1);
    let of = |chunk: &[Sample]| {
        let lag = chunk.iter().map(|it| it.lag).fold(0.0, f64::max);
        let mut last = chunk.last()?.clone();
        last.lag = lag;
        Some(last)
    };
    samples.chunks(size).filter_map(of).collect()
}

/// The charts, with links to other ranges.
pub(super) fn all(look: &LiveFigures, range: Range) -> Html {
    let samples = range.samples(look);
    let of = |value: fn(&Sample) -> Option<f64>| samples.iter().map(value).collect::<Vec<_>>();
    let first = samples.first().map_or(look.at, Sample::at);
    let since = span(look.at.since(first));
    let seconds = |value: f64| span(Duration::from_secs_f64(value.clamp(0.0, 1e9)));
    // One event per minute is not zero.
    let rate = |value: f64| {
        let digits = if value > 0.0 && value < 0.1 { 2 } else { 1 };
        format!("{value:.digits$}/s")
    };
    let percent = |value: f64| format!("{:.1} %", value * 100.0);
    let lag = vec![of(|it| Some(it.lag))];
    let events = vec![of(|it| Some(it.delivered)), of(|it| Some(it.committed))];
    let mut charts = el("div")
        .class("charts")
        .add(draw(
            "Lag",
            "how long the oldest undelivered event has been due",
            &since,
            lag,
            &seconds,
        ))
        .add(draw(
            "Throughput",
            "events delivered; dashed: committed",
            &since,
            events,
            &rate,
        ));
    // A process that serves no requests does not know these.
    if look.kept.last().is_some_and(Sample::counts_requests) {
        let (replays, conflicts) = (of(|it| it.reuse), of(|it| it.conflicts));
        charts = charts
            .add(draw(
                "Replays",
                "requests that got a stored response",
                &since,
                vec![replays],
                &percent,
            ))
            .add(draw(
                "Conflicts",
                "requests that got a 409",
                &since,
                vec![conflicts],
                &percent,
            ));
    }
    cell(ranges(range)).add(charts)
}

fn ranges(range: Range) -> Element {
    let item = |it: Range| {
        let item = if it == range {
            el("strong").attr("aria-current", "true").add(it.name())
        } else if it == Range::default() {
            link("/console", it.name())
        } else {
            let to = url("/console", &[("range", it.as_str())]);
            link(&to, it.name())
        };
        Html::default().add(" ").add(item)
    };
    el("p")
        .class("ranges soft")
        .add("Charts of the last")
        .all(Range::ALL.map(item))
}

fn draw(
    title: &'static str,
    note: &'static str,
    since: &str,
    lines: Vec<Vec<Option<f64>>>,
    say: &dyn Fn(f64) -> String,
) -> Element {
    let known = lines.iter().flatten().flatten().copied();
    let most = known.reduce(f64::max);
    let now = lines
        .first()
        .and_then(|line| line.last().copied().flatten());
    Chart {
        title,
        note,
        now: now.map(say),
        most: most.map(say),
        // Only the charts of requests can be without a value.
        nothing: "no requests",
        since: since.to_owned(),
        lines,
    }
    .draw()
}
