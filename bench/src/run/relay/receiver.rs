//! A webhook receiver beside the harness, and what it saw.

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

/// Between two looks at what came.
const LOOK: Duration = Duration::from_millis(2);

/// `bench receive`, in a process of its own.
#[derive(Debug)]
pub(super) struct Receiver {
    service: Service,
}

/// What a receiver saw.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Different events.
    pub(super) events: u64,
    /// Deliveries, repeated ones included.
    pub(super) deliveries: u64,
}

impl Receiver {
    /// Starts one that knows the numbers below `events`.
    pub(super) async fn start(
        folder: &Path,
        events: u64,
        per_second: Option<u32>,
    ) -> anyhow::Result<Self> {
        Self::start_on(free_address()?, folder, events, per_second).await
    }

    /// Starts one on a given address.
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

    /// What a relay is told, for a destination of this name.
    pub(super) fn named(&self, name: &str) -> String {
        named(name, self.service.address)
    }

    /// What came so far; fails when an event came under two ids, or two under one.
    pub(super) async fn seen(&self) -> anyhow::Result<Seen> {
        let body = self.ask("/seen").await?;
        let figures = str::from_utf8(&body)?.split(' ').map(str::parse);
        let figures: Vec<u64> = figures.collect::<Result<_, _>>()?;
        let [events, deliveries, ids] = figures[..] else {
            bail!("the receiver said {figures:?}");
        };
        ensure!(ids == events, "{events} events came under {ids} ids");
        Ok(Seen { events, deliveries })
    }

    /// Waits until so many different events came; says how long that took.
    pub(super) async fn until(&self, events: u64, most: Duration) -> anyhow::Result<Duration> {
        let start = Instant::now();
        loop {
            let seen = self.seen().await?;
            if seen.events >= events {
                return Ok(start.elapsed());
            }
            if start.elapsed() > most {
                bail!("after {most:?} {} events of {events} had come", seen.events);
            }
            sleep(LOOK).await;
        }
    }

    /// When each event came, by its number; 0 where it did not.
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
        ensure!(head.status == 200, "GET {path} is answered {}", head.status);
        Ok(connection.body().to_vec())
    }
}

/// What a relay is told of a destination.
pub(super) fn named(name: &str, address: SocketAddr) -> String {
    format!("{name}=http://{address}/")
}

/// How long after its commit each event came; fails where one did not come.
pub(super) fn delays(commits: &[(u64, u64)], arrivals: &[u64]) -> anyhow::Result<Histogram> {
    let mut delays = Histogram::new();
    for (number, committed) in commits {
        let place = usize::try_from(*number)?;
        let arrived = arrivals.get(place).copied().unwrap_or(0);
        ensure!(arrived > 0, "event {number} did not come");
        // The far side may have it before its writer hears of its commit.
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
