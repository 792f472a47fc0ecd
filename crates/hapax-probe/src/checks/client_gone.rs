//! A client that closes the connection as soon as it has sent a request.
//!
//! The probe closes the connection before a byte of the response has arrived. Otherwise the server can have
//! finished the request for a client that was still there, and the check would have tested nothing.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::{
    http::{Cut, Failure, Request},
    plan::Template,
    subject::Subject,
    verdict::Stop,
};

/// How often a request is sent, each time under a new key, if its response arrives too early.
const TRIES: usize = 10;
/// How long the probe waits for the effect of a request whose client is gone.
const COUNTED_MAX: Duration = Duration::from_secs(2);
/// How long the probe waits between two counts.
const BETWEEN: Duration = Duration::from_millis(50);

/// A request whose client is gone.
#[derive(Debug)]
pub(crate) struct Gone {
    pub(crate) request: Request,
    /// The count of effects before the request.
    pub(crate) before: Option<u64>,
}

impl Gone {
    /// Sends a request and closes the connection before a byte of its response has arrived.
    pub(crate) async fn send(subject: &Subject<'_>, template: &Template) -> Result<Self, Stop> {
        for _ in 0..TRIES {
            let before = subject.effects().await?;
            let request = subject.request(&subject.key(), &subject.filled(template));
            if cut_in_time(subject, &request).await? {
                return Ok(Self { request, before });
            }
        }
        Err(Stop::CutTooLate(TRIES))
    }

    /// Waits until the effect of the request is counted, for a limited time: a server may also drop the
    /// request of a client that is gone, and execute its retry.
    pub(crate) async fn counted(&self, subject: &Subject<'_>) -> Result<(), Stop> {
        let Some(before) = self.before else {
            return Ok(());
        };
        if subject.plan.dry_run {
            return Ok(());
        }
        let end = Instant::now() + COUNTED_MAX + subject.known.lag() * 2;
        while subject.count().await? <= before && Instant::now() < end {
            sleep(BETWEEN).await;
        }
        Ok(())
    }
}

/// Sends a request and closes the connection. Returns whether it was closed before the response arrived.
async fn cut_in_time(subject: &Subject<'_>, request: &Request) -> Result<bool, Stop> {
    match subject.exchange(request, Some(Cut::AfterRequest)).await? {
        // A dry run has a response at once.
        Ok(_) | Err(Failure::Cut) => Ok(true),
        Err(Failure::CutTooLate) => Ok(false),
        Err(failure) => Err(Stop::NoResponse {
            request: request.describe(),
            failure,
        }),
    }
}
