//! Report of a run: a page in Markdown.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::{self, Write as _},
};

use crate::{
    artifacts::{Artifacts, Fault, OperationRecord},
    checkers::{INVARIANTS, Violation, causes, violations},
    clients::Kind,
    fault_coverage::{coverage, kills, missing},
};

/// Violations that a page shows of each invariant.
const SHOWN: usize = 5;

/// Result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Holds,
    Violated,
    /// Nothing was violated, and not every fault took effect.
    Unknown,
}

impl Verdict {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Holds => "HOLDS",
            Self::Violated => "VIOLATED",
            Self::Unknown => "UNKNOWN",
        }
    }
}

/// A page of a run, and its verdict.
pub(crate) fn page(artifacts: &Artifacts) -> (Verdict, String) {
    let (violations, coverage) = (violations(artifacts), coverage(artifacts));
    let missing = missing(&coverage);
    let verdict = match (violations.is_empty(), missing.is_empty()) {
        (false, _) => Verdict::Violated,
        (true, false) => Verdict::Unknown,
        (true, true) => Verdict::Holds,
    };
    let run = &artifacts.run;
    let text = |name: &str| run[name].as_str().unwrap_or_default();
    let mut page = format!(
        "## {}: {}\n\n{}, seed {}, {} s with faults; {}.\n\n    {}\n\n",
        text("store"),
        verdict.name(),
        text("when"),
        run["seed"],
        run["seconds"],
        text("machine"),
        text("command"),
    );
    counts(&mut page, artifacts, &violations);
    recoveries(&mut page, artifacts);
    page.push_str("| # | invariant | violations |\n|---:|---|---:|\n");
    for (at, invariant) in INVARIANTS.iter().enumerate() {
        let count = violations.iter().filter(|it| it.of == at + 1).count();
        let _ = writeln!(page, "| {} | {invariant} | {count} |", at + 1);
    }
    page.push('\n');
    for of in 1..=INVARIANTS.len() {
        let found = violations.iter().filter(|it| it.of == of).take(SHOWN);
        found.for_each(|it| {
            let _ = writeln!(page, "- {it}");
        });
    }
    page.push_str("\n| what took effect | times |\n|---|---:|\n");
    for (name, times) in &coverage {
        let _ = writeln!(page, "| {name} | {times} |");
    }
    if !missing.is_empty() {
        let _ = writeln!(page, "\nNever happened: {}.", missing.join(", "));
    }
    (verdict, page)
}

/// The numbers of the violated invariants.
pub(crate) fn broken(artifacts: &Artifacts) -> Vec<usize> {
    let mut broken: Vec<_> = violations(artifacts).iter().map(|it| it.of).collect();
    broken.sort_unstable();
    broken.dedup();
    broken
}

#[expect(
    clippy::print_stdout,
    reason = "the verdict is the output of the command"
)]
pub(crate) fn print(text: &str) {
    println!("{text}");
    let _flushed = io::stdout().flush();
}

/// Time after each kind of fault until the next operation was acknowledged.
fn recoveries(page: &mut String, artifacts: &Artifacts) {
    let mut acknowledged: Vec<_> = artifacts
        .operations
        .iter()
        .flat_map(OperationRecord::unaltered_attempts)
        .filter(|attempt| attempt.end == "ok")
        .filter_map(|attempt| attempt.ended)
        .collect();
    acknowledged.sort_unstable();
    let mut waits: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    let hits_a_shop = |it: &&Fault| it.injection.contains("Shop(") || it.kind == "crash";
    for fault in artifacts
        .faults
        .iter()
        .filter(|it| it.took_effect)
        .filter(hits_a_shop)
    {
        let next = acknowledged.partition_point(|at| *at < fault.until);
        if let Some(at) = acknowledged.get(next) {
            let wait = (at - fault.until) / 1_000_000;
            waits.entry(&fault.kind).or_default().push(wait);
        }
    }
    page.push_str("| available again after | times | median ms | 95 % | longest |\n");
    page.push_str("|---|---:|---:|---:|---:|\n");
    for (kind, mut waits) in waits {
        waits.sort_unstable();
        let part = |percent: usize| waits[(waits.len() - 1) * percent / 100];
        let (median, most, longest) = (part(50), part(95), part(100));
        let _ = writeln!(
            page,
            "| {kind} | {} | {median} | {most} | {longest} |",
            waits.len()
        );
    }
    page.push('\n');
}

fn counts(page: &mut String, artifacts: &Artifacts, violations: &[Violation]) {
    let all = artifacts
        .operations
        .iter()
        .filter(|it| it.acknowledged().is_some())
        .count();
    let lost = violations.iter().filter(|it| it.of == 2).count();
    let faults = artifacts.faults.iter().filter(|it| it.took_effect).count();
    let (requests, indefinite) = requests(artifacts);
    let (deliveries, events) = deliveries(artifacts);
    let repeated: usize = causes(artifacts).values().sum();
    let unexplained = causes(artifacts)
        .get("unexplained")
        .copied()
        .unwrap_or_default();
    // The rule of three: if none of n tries fails, the probability of a failure is at most 3/n,
    // with 95 % confidence.
    #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
    let bound = 3.0 / (all.max(1) as f64);
    let lines = [
        ("operations", artifacts.operations.len().to_string()),
        ("requests", requests.to_string()),
        (
            "requests without a definite response",
            indefinite.to_string(),
        ),
        (
            "acknowledged effects",
            format!("{all} ({})", kinds(artifacts)),
        ),
        (
            "kills, including crashes of the server",
            kills(artifacts).to_string(),
        ),
        ("faults that took effect", faults.to_string()),
        (
            "deliveries to the receivers of webhooks, the mailbox and the broker",
            deliveries.to_string(),
        ),
        ("events delivered to them", events.to_string()),
        ("acknowledged effects that are lost", lost.to_string()),
        ("duplicate deliveries", repeated.to_string()),
        (
            "duplicate deliveries without an explanation",
            unexplained.to_string(),
        ),
        (
            "time to drain the backlog after the last fault",
            format!("{} ms", artifacts.run["drained_ms"]),
        ),
        (
            "upper bound of the probability of a lost or duplicate effect (95 %)",
            format!("{bound:.1e}"),
        ),
    ];
    page.push_str("| | |\n|---|---:|\n");
    for (name, value) in lines {
        let _ = writeln!(page, "| {name} | {value} |");
    }
    page.push('\n');
}

/// Number of requests, and of those without a definite response.
fn requests(artifacts: &Artifacts) -> (usize, usize) {
    let attempts = artifacts.operations.iter().flat_map(|it| &it.attempts);
    let (mut requests, mut indefinite) = (0, 0);
    for attempt in attempts {
        requests += 1;
        indefinite += usize::from(attempt.end == "info");
    }
    (requests, indefinite)
}

/// Number of acknowledged operations of each kind, as text.
fn kinds(artifacts: &Artifacts) -> String {
    let acknowledged = |kind| {
        artifacts
            .of(kind)
            .filter(|it| it.acknowledged().is_some())
            .count()
    };
    let kinds = [
        Kind::Order,
        Kind::Update,
        Kind::Payment,
        Kind::Refund,
        Kind::Checkout,
        Kind::Signup,
        Kind::Message,
        Kind::Market,
        Kind::Notice,
        Kind::Upload,
    ];
    let counts = kinds.map(|kind| format!("{} {kind:?}", acknowledged(kind)).to_lowercase());
    counts.join(", ")
}

/// Number of deliveries to receivers, and of the events in them.
fn deliveries(artifacts: &Artifacts) -> (usize, usize) {
    let receivers = artifacts.receivers().map(|(_, received)| received);
    let deliveries: usize = receivers.iter().map(|it| it.arrivals.len()).sum();
    let events: usize = receivers.iter().map(|it| it.contents.len()).sum();
    (deliveries, events)
}
