//! One of the programs that are compared, and the requests that it gets.
//!
//! A round fails if a response has another status than 201, if a first request got a replay, or if a replay was none.

use std::net::SocketAddr;

use anyhow::ensure;

use crate::{
    load::{self, Keys, Plan, Request, Tally, Until},
    run::{Bench, shop::TOKEN, speed::Speed},
};

/// Number of keys that are replayed in a cycle.
pub(super) const KEYS: u64 = 4_096;
/// The seed of the keys that are replayed. Those of first requests have a seed for each run.
const REPLAYED: u64 = 3;
const FIRST: u64 = 1_000;

/// The kind of the requests to a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// They pass a program that knows nothing of keys.
    Plain,
    /// Each has a new key.
    First,
    /// All of them have keys whose responses are stored.
    Replay,
}

/// One of the programs.
pub(super) struct Side {
    address: SocketAddr,
    kind: Kind,
    pub(super) speed: Speed,
}

impl Side {
    pub(super) fn new(name: &str, address: SocketAddr, kind: Kind) -> Self {
        Self {
            address,
            kind,
            speed: Speed::new(name),
        }
    }

    /// Sends requests for one round. Every run has a number, so that its first requests have new keys.
    pub(super) async fn run(
        &self,
        bench: &Bench,
        run: u64,
        pace: Option<f64>,
    ) -> anyhow::Result<Tally> {
        let plan = Plan {
            pace,
            ..self.plan(bench, run, bench.window())
        };
        let tally = load::run(&plan).await?;
        self.check(&tally)?;
        Ok(tally)
    }

    fn plan(&self, bench: &Bench, run: u64, until: Until) -> Plan {
        let (seed, keys) = match self.kind {
            Kind::Replay => (REPLAYED, Keys::Cycle(KEYS)),
            Kind::Plain | Kind::First => (FIRST + run, Keys::Fresh),
        };
        Plan {
            address: self.address,
            connections: bench.connections,
            threads: 1,
            request: Request::post("/orders", TOKEN, crate::ORDER, seed),
            keys,
            pace: None,
            until,
        }
    }

    /// Fails if a response is not one of this kind.
    fn check(&self, tally: &Tally) -> anyhow::Result<()> {
        tally.only(201)?;
        let expected = match self.kind {
            Kind::Replay => tally.count(),
            Kind::Plain | Kind::First => 0,
        };
        ensure!(
            tally.replayed == expected,
            "{:?}: expected {expected} replays: {tally}",
            self.kind
        );
        Ok(())
    }
}

/// Stores the responses that are replayed.
pub(super) async fn fill(bench: &Bench, replays: &Side) -> anyhow::Result<()> {
    let plan = replays.plan(bench, 0, Until::Count(KEYS));
    load::run(&plan).await?.only(201)
}

/// The order of the sides in a round. Every second round has the reverse order.
pub(super) fn order(round: usize, sides: usize) -> impl Iterator<Item = usize> {
    (0..sides).map(move |turn| {
        if round.is_multiple_of(2) {
            turn
        } else {
            sides - 1 - turn
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_round_has_the_reverse_order() {
        assert_eq!(order(0, 3).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(order(1, 3).collect::<Vec<_>>(), [2, 1, 0]);
    }
}
