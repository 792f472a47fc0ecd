//! `hapax listen`: prints events as they are committed, or forwards them to a URL as signed webhooks.
//!
//! It reads the outbox as an operator does. It is not a destination: it settles nothing, no event
//! waits for it, and events that are committed while it does not run are left out.

mod forward;

use std::{
    io::{self, Write as _},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context as _;
use hapax::{
    admin::{EventDetail, EventSummary},
    delivery::Attempt,
    outbox::OutboxEvent,
};
use hapax_runtime::shutdown::Signals;
use serde::Serialize;

use self::forward::Forward;
use super::{
    Context, Failure,
    filters::EventArgs,
    follow::{Follow, with_patience},
    secrets,
};
use crate::{
    admin::{command_context::CommandContext, test_event::masked},
    config::Span,
};

/// Maximum number of events that `--since` begins with.
const SINCE_MAX: usize = 10_000;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// URL that each event is posted to as a signed webhook; it may be on this machine
    #[arg(long, value_name = "URL")]
    to: Option<String>,
    /// Secret that signs the webhooks (whsec_... or whsk_...) [default: a new one, which is printed]
    #[arg(long, value_name = "SECRET", requires = "to")]
    secret: Option<String>,
    /// Print the payload of each event too, with sensitive values masked, as --json does
    #[arg(long)]
    payload: bool,
    #[command(flatten)]
    events: EventArgs,
}

/// An event as it is printed in JSON: once, or once for each attempt to forward it.
#[derive(Debug, Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    event: &'a EventSummary,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<Attempt>,
}

/// Prints and forwards events until a signal arrives.
pub(crate) async fn run(args: Args, context: Context) -> Result<ExitCode, Failure> {
    let mut signals = Signals::listen().context("cannot install signal handlers")?;
    tokio::select! {
        ended = listen(args, &context) => ended?,
        _ = signals.stopped() => {}
    }
    Ok(ExitCode::SUCCESS)
}

async fn listen(args: Args, context: &Context) -> Result<(), Failure> {
    let filter = args.events.query().of_events()?;
    let (forward, announcement) = match &args.to {
        None => (None, "listening for events".to_owned()),
        Some(url) => {
            let (forward, announcement) = forwarding(url, args.secret)?;
            (Some(forward), announcement)
        }
    };
    let cx = CommandContext::open(context).await?;
    let listener = Listener {
        cx: &cx,
        forward,
        has_payload: args.payload || cx.output.json,
    };
    let is_since = filter.since.is_some();
    let count = is_since.then_some(SINCE_MAX);
    let (mut follow, old) = Follow::start(&cx, filter, count).await?;
    // Standard output is for the events.
    writeln!(io::stderr(), "{announcement}")?;
    cx.output.header(&listener.columns())?;
    // Without a time to begin at, events that exist already are not printed.
    let mut events = if is_since { old } else { Vec::new() };
    loop {
        for event in events {
            listener.take(&event).await?;
        }
        events = follow.new_events(&cx).await?;
    }
}

/// Returns the forwarder to a URL, and the line that is printed about it.
fn forwarding(url: &str, secret: Option<String>) -> Result<(Forward, String), Failure> {
    let (secret, shown) = if let Some(secret) = secret {
        (secret, "the given secret".to_owned())
    } else {
        let new = secrets::new_secret()?;
        (new.clone(), new)
    };
    let announcement = format!("forwarding events, signed with {shown}");
    Ok((Forward::new(url, &secret)?, announcement))
}

/// Prints events, and forwards them if there is a URL.
struct Listener<'a> {
    cx: &'a CommandContext,
    forward: Option<Forward>,
    has_payload: bool,
}

impl Listener<'_> {
    /// The names of the cells of a row in CSV.
    fn columns(&self) -> Vec<&'static str> {
        let mut columns = vec!["CREATED", "TYPE", "ID"];
        if self.forward.is_some() {
            columns.extend(["OUTCOME", "DURATION", "ERROR"]);
        }
        if self.has_payload {
            columns.push("PAYLOAD");
        }
        columns
    }

    async fn take(&self, event: &EventSummary) -> Result<(), Failure> {
        if self.forward.is_none() && !self.has_payload {
            return self.print(event, None, None);
        }
        let (store, actor) = (self.cx.store(), &self.cx.actor);
        let found = async || store.event_at(actor, event.position).await;
        let Some(found) = with_patience(found).await? else {
            // It was purged since it was listed.
            return Ok(());
        };
        let payload = self.has_payload.then(|| self.payload(&found));
        let payload = payload.as_deref();
        let Some(forward) = &self.forward else {
            return self.print(event, payload, None);
        };
        let report = |attempt, wait| self.print(event, payload, Some((attempt, wait)));
        forward.send(&found, report).await
    }

    /// The payload, masked. Of a payload that is not JSON, the size and the type.
    fn payload(&self, found: &OutboxEvent) -> String {
        let detail = EventDetail::of(found, Vec::new(), Some(&self.cx.mask));
        detail.payload_text().unwrap_or_else(|| {
            let (bytes, kind) = (detail.payload_bytes, &detail.content_type);
            format!("{bytes} bytes of {kind}")
        })
    }

    /// Prints a line about an event, or about an attempt to forward it and the wait until the next
    /// one.
    fn print(
        &self,
        event: &EventSummary,
        mut payload: Option<&str>,
        tried: Option<(Attempt, Option<Duration>)>,
    ) -> Result<(), Failure> {
        let out = self.cx.output;
        if out.json {
            let attempt = tried.map(|(attempt, _)| masked(attempt, &self.cx.mask));
            return Ok(out.json_line(&Line {
                event,
                payload,
                attempt,
            })?);
        }
        let mut cells = vec![
            event.created_at.to_string(),
            event.kind.clone(),
            event.id.clone(),
        ];
        // The payload is the same for every attempt. In CSV it is a column.
        if let Some((attempt, wait)) = tried {
            payload = payload.filter(|_| out.csv || attempt.number == 1);
            cells.extend(said(attempt, wait));
        }
        if out.csv {
            cells.extend(payload.take().map(str::to_owned));
        }
        out.cells(&cells)?;
        if let Some(payload) = payload {
            out.cells(&[String::new(), payload.to_owned()])?;
        }
        Ok(())
    }
}

/// The status or the outcome of an attempt, its duration, and what follows if it failed.
fn said(attempt: Attempt, wait: Option<Duration>) -> [String; 3] {
    let status = attempt.status.map(|it| it.to_string());
    let outcome = status.unwrap_or_else(|| attempt.outcome.as_str().to_owned());
    let error = attempt.error.map(|error| {
        let next = match wait {
            Some(wait) => format!("again in {}", Span(wait)),
            None => "given up".to_owned(),
        };
        format!("{next}: {error}")
    });
    let duration = format!("{} ms", attempt.duration.as_millis());
    [outcome, duration, error.unwrap_or_default()]
}
