//! Starts `bench receive` and reads what it has received.

use std::{
    net::SocketAddr,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use tokio::time::sleep;

use super::super::service::{Service, free_address};
use crate::{
    histogram::Histogram,
    load::{Connection, Request},
};

/// Poll interval of the receiver.
const LOOK: Duration = Duration::from_millis(2);

/// `bench receive` in a separate process.
#[derive(Debug)]
pub(super) struct Receiver {
    service: Service,
}

/// The counts of a receiver.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Number of different events.
    pub(super) events: u64,
    /// Number of deliveries, including repeated ones.
    pub(super) deliveries: u64,
}

impl Receiver {
    /// Starts a receiver for events with numbers below `events`.
    pub(super) async fn start(
        folder: &Path,
        events: u64,
        per_second: Option<u32>,
    ) -> anyhow::Result<Self> {
        Self::start_on(free_address()?, folder, events, per_second).await
    }

    /// Starts a receiver on a given address.
    pub(super) async fn start_on(
        address: SocketAddr,
        folder: &Path,
        events: u64,
        per_second: Option<u32>,
    ) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["receive", "--listen", &address.to_string()]);
        command.args(["--events", &events.to_string()]);
        if let Some(per_second) = per_second {
            command.args(["--per-second", &per_second.to_string()]);
        }
        let log = folder.join(format!("receiver-{}.log", address.port()));
        let service = Service::start(command, address, &log).await?;
        Ok(Self { service })
    }

    /// The value of `--webhook` for a destination of this name.
    pub(super) fn named(&self, name: &str) -> String {
        named(name, self.service.address)
    }

    /// The counts so far. Fails if an event arrived under two ids, or two events under one.
    pub(super) async fn seen(&self) -> anyhow::Result<Seen> {
        let body = self.ask("/seen").await?;
        let figures = str::from_utf8(&body)?.split(' ').map(str::parse);
        let figures: Vec<u64> = figures.collect::<Result<_, _>>()?;
        let [events, deliveries, ids] = figures[..] else {
            bail!("cannot parse the response of the receiver: {figures:?}");
        };
        ensure!(ids == events, "{events} events arrived under {ids} ids");
        Ok(Seen { events, deliveries })
    }

    /// Waits until `events` different events have arrived, and returns how long it waited.
    pub(super) async fn until(&self, events: u64, most: Duration) -> anyhow::Result<Duration> {
        let start = Instant::now();
        loop {
            let seen = self.seen().await?;
            if seen.events >= events {
                return Ok(start.elapsed());
            }
            if start.elapsed() > most {
                bail!(
                    "after {most:?} {} events of {events} had arrived",
                    seen.events
                );
            }
            sleep(LOOK).await;
        }
    }

    /// The arrival time of each event, by its number; 0 if it has not arrived.
    pub(super) async fn arrivals(&self) -> anyhow::Result<Vec<u64>> {
        let body = self.ask("/arrivals").await?;
        let eight = body.chunks_exact(8).map(<[u8; 8]>::try_from);
        let eight: Vec<_> = eight.collect::<Result<_, _>>()?;
        Ok(eight.into_iter().map(u64::from_le_bytes).collect())
    }

    async fn ask(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        let mut connection = Connection::open(self.service.address).await?;
        let head = connection.exchange(Request::get(path, None).bytes()).await;
        let head = head.with_context(|| format!("GET {path}"))?;
        ensure!(
            head.status == 200,
            "GET {path}: expected status 200, got {}",
            head.status
        );
        Ok(connection.body().to_vec())
    }
}

/// The value of `--webhook` for a destination.
pub(super) fn named(name: &str, address: SocketAddr) -> String {
    format!("{name}=http://{address}/")
}

/// The delay between the commit and the arrival of each event. Fails if an event has not arrived.
pub(super) fn delays(commits: &[(u64, u64)], arrivals: &[u64]) -> anyhow::Result<Histogram> {
    let mut delays = Histogram::new();
    for (number, committed) in commits {
        let place = usize::try_from(*number)?;
        let arrived = arrivals.get(place).copied().unwrap_or(0);
        ensure!(arrived > 0, "event {number} did not arrive");
        // The receiver may have the event before the writer knows that its commit has succeeded.
        delays.record(Duration::from_nanos(arrived.saturating_sub(*committed)));
    }
    Ok(delays)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_from_the_commit_and_an_event_that_did_not_come_is_no_delay() {
        let delays_of = |commits: &[(u64, u64)]| delays(commits, &[0, 150, 90]);
        assert_eq!(
            delays_of(&[(1, 100), (2, 100)]).unwrap().max(),
            Duration::from_nanos(50)
        );
        assert!(delays_of(&[(0, 1)]).is_err());
        assert!(delays_of(&[(3, 1)]).is_err());
    }
}
