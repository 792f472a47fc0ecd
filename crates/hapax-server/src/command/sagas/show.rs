//! Prints one saga: its state, why it is not moving, and all steps.

use serde_json::Value;

use crate::{
    admin::{ReasonView, SagaView, SignalView, StepView, command_context::CommandContext},
    command::Failure,
};

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
    facts.extend(saga.reason.map(|it| fact("reason", it.words())));
    facts.extend(saga.waiting_for.map(|it| fact("waits for", it)));
    facts.extend(saga.tenant.map(|it| fact("tenant", it)));
    facts.push(fact("began", saga.created_at));
    facts.push(fact("deadline", saga.deadline_at));
    facts.extend(saga.ended_at.map(|it| fact("ended", it)));
    facts.extend(
        saga.headers
            .into_iter()
            .map(|(name, value)| fact(&format!("header {name}"), value)),
    );
    facts.extend(saga.input.map(|it| fact("input", it.to_string())));
    out.table(["SAGA", ""], &facts)?;
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
        out.table(["TOLD", "WHEN", "WHAT"], &signals)?;
    }
    Ok(())
}

fn step(step: StepView) -> [String; 7] {
    let came = match (step.error, step.made) {
        (Some(error), _) => error.words(),
        (None, made) => words(made),
    };
    let came = match step.state {
        "open" => format!("{came} (not before {})", step.next_at),
        _ => came,
    };
    [
        step.name,
        step.direction.to_owned(),
        step.state.to_owned(),
        step.attempts.to_string(),
        step.began_at,
        step.provider_key.unwrap_or_default(),
        came.trim_start().to_owned(),
    ]
}

fn signal(signal: SignalView) -> [String; 3] {
    [signal.name, signal.received_at, words(signal.payload)]
}

impl ReasonView {
    fn words(&self) -> String {
        format!("{}: {}", self.code, self.detail)
    }
}

fn words(said: Option<Value>) -> String {
    said.map(|it| it.to_string()).unwrap_or_default()
}
