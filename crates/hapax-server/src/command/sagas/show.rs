//! Prints one saga: its state, why it is not moving, and all steps.

use hapax::{
    admin::SagaView,
    saga::{Signal, StepRecord, StepState},
};
use serde_json::Value;

use crate::{admin::command_context::CommandContext, command::Failure};

pub(super) fn tell(cx: &CommandContext, saga: SagaView) -> Result<(), Failure> {
    if cx.output.json {
        return Ok(cx.output.json(&saga)?);
    }
    let out = cx.output;
    let fact = |name: &str, value: String| [name.to_owned(), value];
    let direction = if saga.compensating {
        ", being undone"
    } else {
        ""
    };
    let mut facts = vec![
        fact("id", saga.id),
        fact("kind", format!("{} version {}", saga.name, saga.version)),
        fact("state", format!("{}{direction}", saga.state)),
        fact("why", saga.why),
        fact("epoch", saga.epoch.to_string()),
    ];
    facts.extend(saga.reason.map(|it| fact("reason", it.to_string())));
    facts.extend(saga.waiting_for.map(|it| fact("waits for", it)));
    facts.extend(saga.tenant.map(|it| fact("tenant", it)));
    facts.push(fact("began", saga.created_at.to_string()));
    facts.push(fact("deadline", saga.deadline_at.to_string()));
    facts.extend(saga.ended_at.map(|it| fact("ended", it.to_string())));
    facts.extend(
        saga.headers
            .into_iter()
            .map(|(name, value)| fact(&format!("header {name}"), value)),
    );
    if !saga.input.is_empty() {
        facts.push(fact("input", text(&saga.input)));
    }
    out.side_table(["SAGA", ""], &facts)?;
    out.line("")?;
    let rows: Vec<_> = saga.steps.into_iter().flatten().map(step).collect();
    let header = [
        "STEP",
        "WAY",
        "STATE",
        "TRIES",
        "BEGAN",
        "KEY",
        "WHAT CAME OF IT",
    ];
    out.table(header, &rows)?;
    let signals: Vec<_> = saga.signals.into_iter().flatten().map(signal).collect();
    if !signals.is_empty() {
        out.line("")?;
        out.side_table(["TOLD", "WHEN", "WHAT"], &signals)?;
    }
    Ok(())
}

fn step(step: StepRecord) -> [String; 7] {
    let came = match step.error {
        Some(error) => error.to_string(),
        None => text(&step.made),
    };
    let came = match step.state {
        StepState::Open => format!("{came} (not before {})", step.next_at),
        _ => came,
    };
    [
        step.name,
        step.direction.as_str().to_owned(),
        step.state.as_str().to_owned(),
        step.attempts.to_string(),
        step.began_at.to_string(),
        step.provider_key.unwrap_or_default(),
        came.trim_start().to_owned(),
    ]
}

fn signal(signal: Signal) -> [String; 3] {
    let payload = text(&signal.payload);
    [signal.name, signal.received_at.to_string(), payload]
}

/// A masked value as JSON on one line.
fn text(value: &[u8]) -> String {
    let value: Option<Value> = serde_json::from_slice(value).ok();
    value.map(|value| value.to_string()).unwrap_or_default()
}
