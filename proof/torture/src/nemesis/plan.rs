//! Plan: the choice of the next fault.

use std::time::Duration;

use fastrand::Rng;
use hapax_testkit::proxy::Deed;

use super::{
    flood::Flood,
    injection::{Injection, Link, LinkFault, Who},
    shop_failpoints::SHOP,
};
use crate::deployment::{Deployment, LEASE, Store};

/// The maximum by which a clock is wrong, in milliseconds, in both directions.
const JUMP: i64 = 10_000;
/// One fault in this many is a rare one, which takes long or would seldom be chosen at random:
/// these are drawn from a shuffled list.
const RARE: u8 = 11;
/// The commits of a shop at which an exhaustive run injects a fault.
const COMMITS: [u64; 10] = [2, 5, 7, 9, 11, 14, 17, 20, 24, 30];
const OPERATIONS: [&str; 7] = [
    "charge",
    "refund",
    "authorize",
    "capture",
    "void",
    "ship",
    "cancel",
];
pub(crate) const MODES: [&str; 6] = [
    "applied_then_lost",
    "lost_before",
    "error_before",
    "error_after",
    "slow",
    "duplicate",
];
const TABLES: [&str; 3] = ["shop_order", "shop_charge", "hapax.idempotency_key"];

/// Every failpoint of a shop on this store.
pub(crate) fn failpoints(store: Store) -> Vec<String> {
    SHOP.iter()
        .map(|&it| it.to_owned())
        .chain(commits(store))
        .collect()
}

/// Failpoints of a relay.
fn of_relay() -> impl Iterator<Item = &'static str> {
    SHOP.into_iter().filter(|it| it.starts_with("relay."))
}

/// The failpoints before and after a commit, in any process.
fn commits(store: Store) -> [String; 2] {
    ["before", "after"].map(|when| format!("{}.commit.{when}", store.name()))
}

/// The next failpoint and the next rare fault: every failpoint and every rare fault comes once
/// before any comes again.
#[derive(Debug, Default)]
pub(super) struct Deck {
    failpoints: Vec<Injection>,
    rare: Vec<Injection>,
}

/// A random fault.
pub(super) fn draw(random: &mut Rng, deployment: &Deployment, deck: &mut Deck) -> Injection {
    let millis = |random: &mut Rng, from, to| Duration::from_millis(random.u64(from..to));
    let has_server = deployment.server.is_some();
    let tested = |random: &mut Rng| {
        let at = random.usize(..deployment.shops.len() + deployment.relays.len());
        match at.checked_sub(deployment.shops.len()) {
            None => Who::Shop(at),
            Some(relay) => Who::Relay(relay),
        }
    };
    if deployment.has_releases && random.u8(0..6) == 0 {
        return Injection::ReleaseChange(tested(random));
    }
    if random.u8(0..RARE) == 0 {
        return deck.draw_rare(random, deployment);
    }
    match random.u8(0..100) {
        0..16 => Injection::Kill(tested(random), millis(random, 0, 800)),
        16..22 => Injection::KillAgain(tested(random), millis(random, 0, 300)),
        22..26 => Injection::Kill(
            Who::Clients(random.usize(..deployment.clients.len())),
            millis(random, 0, 400),
        ),
        26..32 => Injection::Kill(
            Who::Remote(random.usize(..deployment.remotes.len())),
            millis(random, 0, 600),
        ),
        32..38 => {
            let time = LEASE / 2 + millis(random, 0, 3_500);
            Injection::Pause(tested(random), time)
        }
        38..42 => Injection::Term(tested(random), None),
        42..46 => Injection::Term(tested(random), Some(millis(random, 0, 120))),
        46..66 => deck.draw(random, deployment),
        66..69 if has_server => Injection::Crash,
        69..71 if has_server => Injection::Terminate,
        71..72 if has_server => Injection::ConnectionLimit(millis(random, 200, 1_500)),
        72..74 if has_server => {
            let table = TABLES[random.usize(..TABLES.len())];
            Injection::Lock(table, millis(random, 100, 1_200))
        }
        74..80 if has_server => commit(random, deployment),
        80..81 if has_server => Injection::Replay,
        66..88 => network(random, deployment),
        88..90 => {
            let whose = Some(tested(random)).filter(|_| random.u8(0..3) > 0);
            // Longer than the lease, and shorter than the remaining retention of a key that clients
            // still use.
            let ahead = random.i64(-JUMP..JUMP);
            Injection::Clock(whose, ahead, millis(random, 200, 2_500))
        }
        90 => Injection::Full(millis(random, 200, 2_000)),
        91 if has_server => Injection::ReceiverGone,
        _ => {
            let operation = OPERATIONS[random.usize(..OPERATIONS.len())];
            let mode = MODES[random.usize(..MODES.len())];
            Injection::Provider(operation, mode, random.u64(1..4))
        }
    }
}

/// Every failpoint alone, at its first and at a later hit; then each while a shop recovers from
/// another.
pub(crate) fn exhaustive(store: Store, pairs: bool) -> Vec<Injection> {
    let failpoints = failpoints(store);
    let shop = |failpoint: String| Injection::Failpoint(Who::Shop(0), failpoint);
    // The shop is killed, fails, or waits for longer than its lease.
    let actions = [":1", ":3", ":1:on purpose", ":1:wait"];
    let mut injections: Vec<_> = failpoints
        .iter()
        .flat_map(|failpoint| actions.map(|action| shop(format!("{failpoint}{action}"))))
        .collect();
    // Every kind of request commits, and each of these commits has to be hit.
    for failpoint in commits(store) {
        injections.extend(COMMITS.map(|nth| shop(format!("{failpoint}:{nth}"))));
        // The next fault kills the process while it waits.
        injections.extend(COMMITS.map(|nth| shop(format!("{failpoint}:{nth}:wait"))));
    }
    if store == Store::Postgres {
        let relay = |it: &str| Injection::Failpoint(Who::Relay(0), format!("{it}:1"));
        injections.extend(of_relay().map(relay));
    }
    if pairs {
        // The second process starts after the kill of the first, so its recovery is hit.
        for first in &failpoints {
            for second in &failpoints {
                injections.push(shop(format!("{first}:1")));
                injections.push(shop(format!("{second}:1")));
            }
        }
    }
    injections
}

impl Deck {
    fn draw(&mut self, random: &mut Rng, deployment: &Deployment) -> Injection {
        if self.failpoints.is_empty() {
            self.failpoints = Self::shuffled(
                random,
                deployment.store,
                deployment.shops.len(),
                deployment.relays.len(),
            );
        }
        self.failpoints.pop().unwrap_or(Injection::Crash)
    }

    fn draw_rare(&mut self, random: &mut Rng, deployment: &Deployment) -> Injection {
        if self.rare.is_empty() {
            self.rare = Self::rare(random, deployment);
        }
        self.rare.pop().unwrap_or(Injection::Restore)
    }

    fn rare(random: &mut Rng, deployment: &Deployment) -> Vec<Injection> {
        let shop = |random: &mut Rng| random.usize(..deployment.shops.len());
        let mut injections = vec![
            Injection::Restore,
            Injection::Flood(Flood::Members(shop(random))),
            Injection::Flood(Flood::Nested(shop(random))),
            Injection::Flood(Flood::Parts(shop(random))),
            Injection::Flood(Flood::Halves(shop(random))),
            Injection::Full(Duration::from_millis(random.u64(200..2_000))),
            Injection::EarlyConflict(shop(random)),
        ];
        if deployment.server.is_some() {
            injections.extend([Who::Shop(0), Who::Relay(0)].map(|who| {
                let time = LEASE * 4 + Duration::from_millis(random.u64(..4_000));
                Injection::DuplicateNode(who, time)
            }));
            let floods = [
                Injection::Flood(Flood::RelayHalves),
                Injection::SilentNameServer,
            ];
            injections.extend(floods);
            injections.extend([
                Injection::Purge,
                Injection::ClockStep,
                Injection::Replay,
                Injection::ReceiverGone,
                Injection::Silence,
            ]);
            injections.push(Injection::ConnectionLimit(Duration::from_millis(
                random.u64(200..1_500),
            )));
        }
        random.shuffle(&mut injections);
        injections
    }

    /// Every failpoint with each of the actions, in rounds. Each round contains every failpoint, so a
    /// run that ends in the second round has hit all of them.
    fn shuffled(random: &mut Rng, store: Store, shops: usize, relays: usize) -> Vec<Injection> {
        // Half of them kill the process; the others let it fail, or wait for longer than its lease.
        let mut actions = ["", "", ":on purpose", ":wait"];
        let mut rounds = vec![Vec::new(); actions.len()];
        let at = |random: &mut Rng, who: Who, failpoint: &str, nth: u64, action: &str| {
            Injection::Failpoint(who, format!("{failpoint}:{}{action}", random.u64(1..nth)))
        };
        for failpoint in failpoints(store) {
            random.shuffle(&mut actions);
            for (round, action) in rounds.iter_mut().zip(actions) {
                let shop = Who::Shop(random.usize(..shops));
                round.push(at(random, shop, &failpoint, 4, action));
            }
        }
        for round in &mut rounds[1..] {
            for failpoint in commits(store) {
                let shop = Who::Shop(random.usize(..shops));
                round.push(at(random, shop, &failpoint, 25, ""));
            }
            for failpoint in of_relay().filter(|_| relays > 0) {
                let relay = Who::Relay(random.usize(..relays));
                round.push(at(random, relay, failpoint, 4, ""));
            }
        }
        for round in &mut rounds {
            random.shuffle(round);
        }
        // The deck is drawn from its end.
        rounds.concat().into_iter().rev().collect()
    }
}

fn commit(random: &mut Rng, deployment: &Deployment) -> Injection {
    let deed = match random.u8(0..5) {
        0..2 => Deed::CutBefore,
        2..4 => Deed::CutAfter,
        _ => Deed::SwallowAfter,
    };
    // The number after those of the shops stands for the relays.
    let link = match random.usize(..=deployment.links.databases.len()) {
        shop if shop < deployment.links.databases.len() => Link::Database(shop),
        _ => Link::RelayDatabase,
    };
    Injection::Commit(link, deed)
}

fn network(random: &mut Rng, deployment: &Deployment) -> Injection {
    // Without a server no relay delivers to the second receiver.
    let receivers = if deployment.server.is_some() { 3 } else { 1 };
    let links = [
        Link::Shop(random.usize(..deployment.links.shops.len())),
        Link::Receiver(random.usize(..receivers)),
        Link::Database(random.usize(..deployment.links.databases.len().max(1))),
        Link::RelayDatabase,
    ];
    let known = if deployment.server.is_some() {
        links.len()
    } else {
        2
    };
    let link = links[random.usize(..known)];
    let fault = match random.u8(0..6) {
        0 => LinkFault::Slow(Duration::from_millis(random.u64(1..60))),
        1 => LinkFault::Reset,
        2 => LinkFault::Cut(random.usize(0..4_000)),
        3 => LinkFault::BlackHole,
        4 => LinkFault::Slice(random.usize(1..200)),
        _ => LinkFault::Refused,
    };
    Injection::Network(link, fault, Duration::from_millis(random.u64(100..2_500)))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_failpoint_is_drawn_before_any_is_drawn_again() {
        for store in [Store::Postgres, Store::Sqlite] {
            let expected: HashSet<_> = failpoints(store).into_iter().collect();
            for seed in 0..32 {
                let mut drawn = Deck::shuffled(&mut Rng::with_seed(seed), store, 2, 2);
                let first: Vec<_> = drawn.drain(drawn.len() - expected.len()..).collect();
                let names = first.iter().map(|injection| match injection {
                    Injection::Failpoint(_, failpoint) => {
                        failpoint.split(':').next().unwrap().to_owned()
                    }
                    other => panic!("{other:?}"),
                });
                assert_eq!(names.collect::<HashSet<_>>(), expected);
            }
        }
    }
}
