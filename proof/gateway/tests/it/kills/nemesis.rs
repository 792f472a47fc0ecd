//! The cause of the faults of a load, and the count of those that took effect.
//!
//! A fault stays until the clients or the network between gateway and service show its effect, within
//! a limit. The next fault comes only after a request was answered.

use std::{collections::BTreeMap, time::Duration};

use fastrand::Rng;
use hapax_testkit::{
    proxy::{Direction, Fault, Proxy, Tally},
    wait::pace,
};
use tokio::time::Instant;

use super::traffic::Traffic;
use crate::{
    gateway::{Gateway, Store},
    ledger::Results,
    upstream::Upstream,
    wire::PATIENCE,
};

/// How long a fault lasts at least.
const FAULT: Duration = Duration::from_millis(40);
/// How often, and at which interval, the effect of a fault is looked for: three seconds in all.
const LOOKS: usize = 300;
const LOOK: Duration = Duration::from_millis(10);
/// How often a fault is tried until it takes effect.
const TRIES: usize = 3;
/// A gateway is killed at one of the first occurrences of a failpoint.
const NTH_MAX: u8 = 12;

/// A place at which a gateway is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// Whatever it does at that moment.
    AnyMoment,
    BeforeSend,
    AfterSend,
    ResponseRead,
    BeforeCommit,
    AfterCommit,
}

impl Place {
    /// The failpoint; `None` for any moment.
    pub(super) fn failpoint(self, on: Store) -> Option<&'static str> {
        match (self, on) {
            (Self::AnyMoment, _) => None,
            (Self::BeforeSend, _) => Some("gateway.send.before"),
            (Self::AfterSend, _) => Some("gateway.send.after"),
            (Self::ResponseRead, _) => Some("gateway.response.read"),
            (Self::BeforeCommit, Store::Sqlite) => Some("sqlite.commit.before"),
            (Self::BeforeCommit, Store::Postgres) => Some("postgres.commit.before"),
            (Self::AfterCommit, Store::Sqlite) => Some("sqlite.commit.after"),
            (Self::AfterCommit, Store::Postgres) => Some("postgres.commit.after"),
        }
    }
}

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Injection {
    KillGateway(Place),
    /// The service is killed at any moment.
    KillUpstream,
    /// The service is killed by a request before it has acted.
    KillUpstreamBefore,
    /// The service is killed by a request after it has acted, and before it answers.
    KillUpstreamAfter,
    /// The service is stopped for longer than the route waits.
    HangUpstream,
    Refuse,
    Reset,
    CutRequest,
    CutResponse,
    /// The network swallows everything for longer than the route waits.
    Silence,
}

impl Injection {
    pub(super) const ALL: [Self; 15] = [
        Self::KillGateway(Place::AnyMoment),
        Self::KillGateway(Place::BeforeSend),
        Self::KillGateway(Place::AfterSend),
        Self::KillGateway(Place::ResponseRead),
        Self::KillGateway(Place::BeforeCommit),
        Self::KillGateway(Place::AfterCommit),
        Self::KillUpstream,
        Self::KillUpstreamBefore,
        Self::KillUpstreamAfter,
        Self::HangUpstream,
        Self::Refuse,
        Self::Reset,
        Self::CutRequest,
        Self::CutResponse,
        Self::Silence,
    ];

    /// The name in a report.
    pub(super) fn name(self, on: Store) -> String {
        let place = match self {
            Self::KillGateway(place) => place.failpoint(on),
            _ => None,
        };
        if let Some(failpoint) = place {
            return format!("gateway killed at `{failpoint}`");
        }
        let name = match self {
            Self::KillGateway(_) => "gateway killed at any moment",
            Self::KillUpstream => "service killed at any moment",
            Self::KillUpstreamBefore => "service killed before its effect",
            Self::KillUpstreamAfter => "service killed after its effect",
            Self::HangUpstream => "service stopped",
            Self::Refuse => "connections to the service refused",
            Self::Reset => "connections to the service reset",
            Self::CutRequest => "requests to the service cut",
            Self::CutResponse => "responses of the service cut",
            Self::Silence => "network swallows everything",
        };
        name.to_owned()
    }
}

/// The faults of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    /// How often each kind took effect.
    pub(super) took_effect: BTreeMap<Injection, usize>,
    /// How often each kind was caused.
    pub(super) rounds: usize,
    /// How often a gateway was killed. One that is to be killed at a failpoint is killed once more, to
    /// be started with it.
    pub(super) kills: usize,
}

/// The processes, the network between them, and their clients.
pub(super) struct Deployment<'a> {
    pub(super) on: Store,
    pub(super) gateways: &'a mut [Gateway],
    pub(super) upstream: &'a mut Upstream,
    /// Between the gateways and the service.
    pub(super) proxy: &'a Proxy,
    pub(super) traffic: &'a Traffic,
}

/// What the network and the clients have seen.
#[derive(Clone, Copy, Debug)]
struct Signs {
    tally: Tally,
    results: Results,
}

impl Deployment<'_> {
    /// Causes faults in rounds, each kind once in a round, until gateways were killed this often.
    pub(super) async fn disturb(&mut self, kills: usize, random: &mut Rng) -> Faults {
        let mut faults = Faults::default();
        let mut order = Injection::ALL;
        while faults.kills < kills {
            random.shuffle(&mut order);
            faults.rounds += 1;
            for injection in order {
                for _ in 0..TRIES {
                    self.recovers().await;
                    pace(Duration::from_millis(random.u64(..80))).await;
                    if self.inject(injection, &mut faults, random).await {
                        *faults.took_effect.entry(injection).or_default() += 1;
                        break;
                    }
                }
            }
        }
        faults
    }

    /// Waits until another request is answered.
    async fn recovers(&mut self) {
        let before = self.signs().results.answered;
        let deadline = Instant::now() + PATIENCE;
        while self.signs().results.answered <= before {
            assert!(Instant::now() < deadline, "no request is answered");
            // A request that had to kill the service may have been late.
            if self.upstream.has_ended() {
                self.upstream.restart();
            }
            pace(Duration::from_millis(10)).await;
        }
    }

    /// Causes a fault, ends it, and returns whether it took effect.
    async fn inject(
        &mut self,
        injection: Injection,
        faults: &mut Faults,
        random: &mut Rng,
    ) -> bool {
        if let Injection::KillGateway(place) = injection {
            return self.kill_gateway(place, faults, random).await;
        }
        let before = self.signs();
        match injection {
            Injection::KillGateway(_) => {}
            Injection::KillUpstream => self.upstream.kill(),
            Injection::KillUpstreamBefore => self.traffic.ask("kill-before"),
            Injection::KillUpstreamAfter => self.traffic.ask("kill-after"),
            Injection::HangUpstream => self.upstream.signal("STOP"),
            Injection::Refuse => self.proxy.shut().await,
            Injection::Reset => self.proxy.reset(),
            Injection::CutRequest => {
                let fault = Fault::CutAfter(random.usize(..400));
                self.proxy.set(Direction::ToServer, fault);
            }
            Injection::CutResponse => {
                let fault = Fault::CutAfter(random.usize(..250));
                self.proxy.set(Direction::ToClient, fault);
            }
            Injection::Silence => self.proxy.black_hole(),
        }
        pace(FAULT).await;
        let has_hit = self.takes_effect(injection, before).await;
        if injection == Injection::HangUpstream {
            self.upstream.signal("CONT");
        }
        if self.upstream.has_ended() {
            self.upstream.restart();
        }
        self.proxy.heal().await;
        has_hit
    }

    async fn kill_gateway(&mut self, place: Place, faults: &mut Faults, random: &mut Rng) -> bool {
        let at = random.usize(..self.gateways.len());
        let gateway = &mut self.gateways[at];
        faults.kills += 1;
        let Some(failpoint) = place.failpoint(self.on) else {
            gateway.restart().await;
            return true;
        };
        let nth = random.u8(1..=NTH_MAX);
        let mut has_ended = !gateway
            .restart_at(Some(&format!("{failpoint}:{nth}")))
            .await;
        for _ in 0..LOOKS {
            if has_ended {
                break;
            }
            pace(LOOK).await;
            has_ended = gateway.has_ended();
        }
        let was_there = gateway.log().contains(&format!("{failpoint} reached"));
        faults.kills += usize::from(has_ended);
        gateway.restart().await;
        has_ended && was_there
    }

    /// Waits until a fault has taken effect.
    async fn takes_effect(&mut self, injection: Injection, before: Signs) -> bool {
        for _ in 0..LOOKS {
            if self.has_taken_effect(injection, before) {
                return true;
            }
            if injection == Injection::Reset {
                self.proxy.reset();
            }
            pace(LOOK).await;
        }
        self.has_taken_effect(injection, before)
    }

    fn has_taken_effect(&mut self, injection: Injection, before: Signs) -> bool {
        let now = self.signs();
        let (tally, results) = (now.tally, now.results);
        let is_cut = results.cut > before.results.cut;
        let is_late = results.late > before.results.late;
        let is_not_sent = results.not_sent > before.results.not_sent;
        match injection {
            Injection::KillGateway(_) => false,
            Injection::KillUpstream => is_cut || is_not_sent,
            Injection::KillUpstreamBefore | Injection::KillUpstreamAfter => {
                self.upstream.has_ended() && is_cut
            }
            Injection::HangUpstream => is_late,
            Injection::Refuse => tally.reset > before.tally.reset && is_not_sent,
            Injection::Reset => tally.reset > before.tally.reset && is_cut,
            Injection::CutRequest | Injection::CutResponse => {
                tally.cut > before.tally.cut && is_cut
            }
            Injection::Silence => tally.swallowed > before.tally.swallowed && is_late,
        }
    }

    fn signs(&self) -> Signs {
        Signs {
            tally: self.proxy.tally(),
            results: self.traffic.history().results(),
        }
    }
}
