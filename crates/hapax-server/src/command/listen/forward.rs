//! Forwards events to one URL, as the webhook sink sends them.
//!
//! The operator names the URL and runs the process, so every network is allowed. An event is
//! offered a few times; after that it is given up, so that later events are not held back.

use std::{sync::Arc, time::Duration};

use hapax::{
    Clock,
    delivery::{Attempt, AttemptOutcome},
    outbox::OutboxEvent,
    relay::{Destination, offer_once},
    retry::Next,
};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    command::Failure,
    destination::{Spec, SpecError, Written},
    environment,
    output::USAGE,
    wiring,
};

/// The name of the destination, which is declared nowhere.
const NAME: &str = "listen";

/// A URL that events are forwarded to.
pub(super) struct Forward {
    destination: Destination,
    clock: Clock,
}

impl Forward {
    /// Signs the webhooks with `secret`.
    pub(super) fn new(url: &str, secret: &str) -> Result<Self, Failure> {
        let clock = environment::clock();
        let destination = destination(url, secret, &clock).map_err(|wrong| {
            let is_secret = wrong.field == "sink.webhook.secret";
            let flag = if is_secret { "--secret" } else { "--to" };
            Failure::new(USAGE, format!("{flag} {}", wrong.problem))
        })?;
        Ok(Self { destination, clock })
    }

    /// Offers an event until it is delivered or no attempt is left. Calls `report` after each
    /// attempt, with the wait until the next one.
    pub(super) async fn send(
        &self,
        event: &Arc<OutboxEvent>,
        report: impl Fn(Attempt, Option<Duration>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        for number in 1.. {
            let event = Arc::clone(event);
            let attempt = offer_once(&self.destination, event, number, &self.clock).await;
            let wait = match attempt.outcome {
                AttemptOutcome::Delivered | AttemptOutcome::Rejected => None,
                _ => match self.destination.schedule.after(number, 0.0, None) {
                    Next::Retry(wait) => Some(wait),
                    Next::DeadLetter => None,
                },
            };
            report(attempt, wait)?;
            let Some(wait) = wait else { break };
            sleep(wait).await;
        }
        Ok(())
    }
}

fn destination(url: &str, secret: &str, clock: &Clock) -> Result<Destination, SpecError> {
    let spec = Spec::read(&json!({
        "sink": {"webhook": {"url": url, "secret": secret, "allow": ["0.0.0.0/0", "::/0"]}},
        "schedule": ["0s", "1s", "2s", "4s"],
    }))?;
    spec.check(NAME, Written::InConfiguration)?;
    wiring::destination(NAME, &spec, clock)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    #[test]
    fn a_url_on_this_machine_is_accepted_and_a_wrong_flag_is_named() {
        for url in [
            "http://localhost:3000/hooks",
            "http://[::1]:3000/",
            "http://10.0.0.1/",
        ] {
            Forward::new(url, SECRET).unwrap();
        }
        check("ftp://localhost/", SECRET, "--to ");
        check("http://me:hunter2@localhost/", SECRET, "--to ");
        check("http://localhost/", "hunter2", "--secret ");
        check("http://localhost/", "", "--secret ");
    }

    #[track_caller]
    fn check(url: &str, secret: &str, begins: &str) {
        let failure = Forward::new(url, secret).err().unwrap();
        assert_eq!(failure.code, USAGE);
        let error_chain = failure.error_chain;
        assert!(error_chain.starts_with(begins), "{error_chain}");
        assert!(!error_chain.contains("hunter2"), "{error_chain}");
    }
}
