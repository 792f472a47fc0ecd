//! Injection of one fault: what is done, to which process, and what the log records of it.

use std::time::Duration;

use anyhow::bail;
use hapax_testkit::{
    machine_faults::MachineFaults,
    proxy::{Deed, Direction, Fault, Moment},
    wait::{Patience, pace},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Nemesis, delivering, duplicate_nodes, early_conflicts, flood::Flood, restore::restore, silence,
    stale_caches, unresolved,
};
use crate::{
    deployment::{Deployment, FEED, LEASE, PATIENCE, Program, died},
    lines::{now, rfc3339},
    stored_rows::StoredRows,
};

/// How long a shop or a relay may take to reach a failpoint under load.
pub(super) const REACH: Duration = Duration::from_secs(8);
/// How long only one shop runs: a failpoint that only the owner of a partition reaches may be in
/// another shop, and is reached here when that one stops.
const SHARED: Duration = Duration::from_secs(3);
pub(super) const LOOK: Duration = Duration::from_millis(10);
/// How long a response may take to appear in the stored rows without a fault.
const SETTLED: Duration = Duration::from_millis(500);
/// The age of the oldest event that is replayed, in nanoseconds.
pub(crate) const REPLAY_WINDOW: u64 = 5_000_000_000;

/// The target of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Clients(usize),
    Shop(usize),
    Relay(usize),
    /// A receiver, the mailbox, a provider, the broker or its reader.
    Remote(usize),
}

/// A network link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// From the clients to a shop.
    Shop(usize),
    /// From a shop to the server.
    Database(usize),
    /// From the relays to the server.
    RelayDatabase,
    /// To a receiver.
    Receiver(usize),
}

/// The kind of fault.
#[derive(Clone, Debug)]
pub(crate) enum Injection {
    /// SIGKILL, and a start after a while.
    Kill(Who, Duration),
    /// SIGKILL again while it recovers from SIGKILL.
    KillAgain(Who, Duration),
    /// SIGKILL of all shops while an event is being delivered.
    KillDelivering,
    /// SIGSTOP for a time that may be longer than its lease.
    Pause(Who, Duration),
    /// SIGTERM, and optionally SIGKILL during its drain.
    Term(Who, Option<Duration>),
    /// SIGTERM, and a start as the other release.
    ReleaseChange(Who),
    /// A shop or relay is killed, fails or waits at a failpoint: `name:nth` and the action.
    Failpoint(Who, String),
    /// The server stops as in a crash, and recovers.
    Crash,
    /// The server ends every connection of the shops and relays.
    Terminate,
    /// The server has no connection left for a while.
    ConnectionLimit(Duration),
    /// Another session locks a table for a while.
    Lock(&'static str, Duration),
    /// The next commit on this link loses its request or its response.
    Commit(Link, Deed),
    /// A link is disturbed for a while.
    Network(Link, LinkFault, Duration),
    /// A provider misbehaves for some calls.
    Provider(&'static str, &'static str, u64),
    /// An operator replays the last events of one destination.
    Replay,
    /// A receiver responds 410 (Gone) until an operator resumes its destination.
    ReceiverGone,
    /// The disk of the store is full for a while.
    Full(Duration),
    /// The clock of a shop or a relay, or that of the store, is wrong by this number of milliseconds for
    /// a while.
    Clock(Option<Who>, i64, Duration),
    /// A backup replaces the database.
    Restore,
    /// Second processes run with the names of the shops, or of the relays, for a while.
    DuplicateNode(Who, Duration),
    /// Keys are purged whose responses every shop has in memory.
    Purge,
    /// Another payload is sent under the keys of requests that are held; the first one is sent to this shop.
    EarlyConflict(usize),
    /// The clock of a shop that keeps responses for seconds steps by an hour, in both directions.
    ClockStep,
    /// A flood of hostile requests.
    Flood(Flood),
    /// Destinations whose name server never responds.
    SilentNameServer,
    /// Clients stop until a relay sleeps; shops and relays are killed, and a burst follows.
    Silence,
}

/// How a link is disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkFault {
    Slow(Duration),
    Reset,
    Cut(usize),
    Slice(usize),
    BlackHole,
    Refused,
}

impl Injection {
    /// The kind of fault in the log, which checkers and fault coverage use.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Kill(..) => "kill",
            Self::KillAgain(..) => "kill again",
            Self::KillDelivering => "kill during delivery",
            Self::Pause(..) => "pause",
            Self::Term(_, None) => "term",
            Self::Term(_, Some(_)) => "kill during drain",
            Self::ReleaseChange(_) => "release change",
            Self::Failpoint(..) => "failpoint",
            Self::Crash => "crash",
            Self::Terminate => "terminate",
            Self::ConnectionLimit(_) => "connection limit",
            Self::Lock(..) => "lock",
            Self::Commit(_, Deed::CutBefore) => "commit request lost",
            Self::Commit(..) => "commit response lost",
            Self::Network(..) => "network",
            Self::Provider(..) => "provider",
            Self::Replay => "replay",
            Self::ReceiverGone => "receiver gone",
            Self::Full(_) => "full disk",
            Self::Clock(..) => "clock",
            Self::Restore => "restore",
            Self::DuplicateNode(..) => "duplicate node",
            Self::Purge => "purge",
            Self::EarlyConflict(_) => "early conflict",
            Self::ClockStep => "clock step",
            Self::Flood(flood) => flood.kind(),
            Self::SilentNameServer => "silent name server",
            Self::Silence => "silence",
        }
    }

    /// Injects the fault and repairs it. Returns the line of the log: the fault, whether it took
    /// effect, and details.
    pub(super) async fn inject(&self, nemesis: &mut Nemesis) -> anyhow::Result<Value> {
        let from = now();
        let mut line =
            json!({ "fault": self.kind(), "injection": format!("{self:?}"), "from": from });
        let deployment = &mut nemesis.deployment;
        let took_effect = match self {
            Self::Kill(who, gap) => kill(deployment, *who, *gap).await?,
            Self::KillAgain(who, gap) => {
                who.of(deployment)?.kill()?;
                who.of(deployment)?.start()?;
                pace(*gap).await;
                kill(deployment, *who, Duration::ZERO).await?
            }
            Self::KillDelivering => delivering::kill(nemesis).await?,
            Self::Pause(who, time) => pause(deployment, *who, *time).await?,
            Self::Term(who, cut) => term(deployment, *who, *cut).await?,
            Self::ReleaseChange(who) => {
                let program = who.of(deployment)?;
                program.stop().await?;
                let has_changed = program.change_release();
                program.start()?;
                line["to"] = json!(program.binary());
                has_changed
            }
            Self::Failpoint(who, failpoint) => reach_failpoint(deployment, *who, failpoint).await?,
            Self::Crash => {
                if let Some(server) = &mut deployment.server {
                    server.cluster.stop_immediate().await;
                    server.cluster.start_again().await;
                }
                true
            }
            Self::Terminate => terminate(deployment).await? > 0,
            Self::ConnectionLimit(time) => exhaust_connections(deployment, *time).await?,
            Self::Lock(table, time) => lock(deployment, table, *time).await?,
            Self::Commit(path, deed) => commit(deployment, *path, *deed).await,
            Self::Network(path, fault, time) => disturb(deployment, *path, *fault, *time).await,
            Self::Provider(operation, mode, count) => {
                fail_provider(deployment, operation, mode, *count).await?
            }
            Self::Replay => replay(nemesis).await?,
            Self::ReceiverGone => receiver_gone(nemesis).await?,
            Self::Full(time) => fill_disk(deployment, *time).await?,
            Self::Clock(whose, ahead, time) => clock(deployment, *whose, *ahead, *time).await?,
            Self::Restore => restore(nemesis, &mut line).await?,
            Self::DuplicateNode(who, time) => duplicate_nodes::run(nemesis, *who, *time).await?,
            Self::Purge => stale_caches::purge(nemesis).await?,
            Self::EarlyConflict(first) => Box::pin(early_conflicts::run(nemesis, *first)).await?,
            Self::ClockStep => stale_caches::step_clock(nemesis, &mut line).await?,
            Self::Flood(flood) => flood.inject(nemesis, &mut line).await?,
            Self::SilentNameServer => unresolved::run(nemesis, &mut line).await?,
            Self::Silence => silence::run(nemesis).await?,
        };
        line["took_effect"] = json!(took_effect);
        line["until"] = json!(now());
        Ok(line)
    }
}

impl Deployment {
    /// The machine faults of a shop or a relay; `None` stands for the process of the store.
    fn machine_faults(&self, whose: Option<Who>) -> Option<&MachineFaults> {
        match (whose, &self.server) {
            (Some(Who::Shop(at)), _) => self.shops[at].machine_faults(),
            (Some(Who::Relay(at)), _) => self.relays[at].machine_faults(),
            (Some(_), _) => None,
            (None, Some(server)) => server.cluster.machine_faults(),
            (None, None) => self.shops[0].machine_faults(),
        }
    }
}

impl Who {
    /// The process, which is started again if it has ended as expected.
    pub(super) fn of(self, deployment: &mut Deployment) -> anyhow::Result<&mut Program> {
        let program = self.program(deployment);
        program.revive()?;
        Ok(program)
    }

    /// The process, whether it runs or not.
    fn program(self, deployment: &mut Deployment) -> &mut Program {
        match self {
            Self::Clients(at) => &mut deployment.clients[at],
            Self::Shop(at) => &mut deployment.shops[at],
            Self::Relay(at) => &mut deployment.relays[at],
            Self::Remote(at) => &mut deployment.remotes[at],
        }
    }
}

async fn kill(deployment: &mut Deployment, who: Who, gap: Duration) -> anyhow::Result<bool> {
    who.of(deployment)?.kill()?;
    pace(gap).await;
    who.of(deployment)?.start()?;
    Ok(true)
}

async fn pause(deployment: &mut Deployment, who: Who, time: Duration) -> anyhow::Result<bool> {
    who.of(deployment)?.signal("STOP")?;
    pace(time).await;
    who.of(deployment)?.signal("CONT")?;
    Ok(time > LEASE)
}

async fn term(
    deployment: &mut Deployment,
    who: Who,
    cut: Option<Duration>,
) -> anyhow::Result<bool> {
    let program = who.of(deployment)?;
    program.signal("TERM")?;
    match cut {
        Some(after) => {
            pace(after).await;
            program.kill()?;
        }
        None => program.has_stopped().await?,
    }
    program.start()?;
    Ok(true)
}

/// Restarts the process with the failpoint set, and waits until it is reached: the process has died
/// or has reported it.
async fn reach_failpoint(
    deployment: &mut Deployment,
    who: Who,
    failpoint: &str,
) -> anyhow::Result<bool> {
    let program = who.of(deployment)?;
    program.kill()?;
    let log_from = program.log_length();
    program.start_with(&[("HAPAX_FAILPOINT", failpoint)])?;
    let name = failpoint.split(':').next().unwrap_or_default();
    let reached = format!("failpoint {name} reached");
    let is_deadly = failpoint.split(':').count() == 2;
    let began = Instant::now();
    let mut is_reached = false;
    let mut stopped = Vec::new();
    while began.elapsed() < REACH && !is_reached {
        pace(LOOK).await;
        if stopped.is_empty() && began.elapsed() > SHARED {
            stopped = others(deployment, who);
            for other in &stopped {
                deployment.shops[*other].signal("TERM")?;
            }
        }
        let program = who.program(deployment);
        if let Some(status) = program.ended()? {
            // A process whose first commit fails at the failpoint exits.
            let has_failed = !is_deadly && program.log_contains(log_from, &reached)?;
            if !died(status) && !has_failed {
                bail!(
                    "{} ended before it reached {failpoint}: {status}",
                    program.name
                );
            }
            is_reached = true;
        }
        is_reached |= !is_deadly && program.log_contains(log_from, &reached)?;
    }
    let program = who.program(deployment);
    if is_deadly && !is_reached {
        program.kill()?;
    }
    program.start()?;
    for other in stopped {
        deployment.shops[other].has_stopped().await?;
        deployment.shops[other].start()?;
    }
    Ok(is_reached)
}

/// The other shops.
fn others(deployment: &Deployment, who: Who) -> Vec<usize> {
    match who {
        Who::Shop(this) => (0..deployment.shops.len())
            .filter(|it| *it != this)
            .collect(),
        _ => Vec::new(),
    }
}

async fn terminate(deployment: &Deployment) -> anyhow::Result<u64> {
    let Some(server) = &deployment.server else {
        return Ok(0);
    };
    let client = server.cluster.client().await;
    let name = server.url.rsplit('/').next().unwrap_or_default().to_owned();
    let ended = client
        .query_one(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = $1",
            &[&name],
        )
        .await?;
    Ok(ended.get::<_, i64>(0).unsigned_abs())
}

/// Opens every connection that the server has left.
async fn exhaust_connections(deployment: &Deployment, time: Duration) -> anyhow::Result<bool> {
    let Some(server) = &deployment.server else {
        return Ok(false);
    };
    let mut connections = Vec::new();
    for _ in 0..100 {
        match tokio_postgres::connect(&server.cluster.url(), tokio_postgres::NoTls).await {
            Ok((client, connection)) => {
                tokio::spawn(connection);
                connections.push(client);
            }
            Err(_) => break,
        }
    }
    let is_full = connections.len() < 100;
    pace(time).await;
    Ok(is_full)
}

async fn lock(deployment: &Deployment, table: &str, time: Duration) -> anyhow::Result<bool> {
    let Some(database) = deployment.server.as_ref().and_then(|it| it.database()) else {
        return Ok(false);
    };
    let client = database.client().await;
    let locked = client
        .batch_execute(&format!(
            "SET lock_timeout = '2s'; BEGIN; LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE"
        ))
        .await;
    pace(time).await;
    Ok(locked.is_ok())
}

async fn commit(deployment: &Deployment, link: Link, deed: Deed) -> bool {
    let Some(proxy) = link.of(deployment) else {
        return false;
    };
    let trap = proxy.once(Moment::commit(), deed);
    let until = Instant::now() + Duration::from_secs(2);
    while trap.count() == 0 && Instant::now() < until {
        pace(Duration::from_millis(10)).await;
    }
    // A proxy that swallowed a response must close its connection.
    pace(Duration::from_millis(200)).await;
    proxy.heal().await;
    if matches!(deed, Deed::SwallowAfter | Deed::SwallowBefore) {
        proxy.reset();
    }
    trap.count() > 0
}

async fn disturb(deployment: &Deployment, link: Link, fault: LinkFault, time: Duration) -> bool {
    let Some(proxy) = link.of(deployment) else {
        return false;
    };
    let before = proxy.tally();
    match fault {
        LinkFault::Slow(each_way) => proxy.delay(each_way),
        LinkFault::Reset => proxy.reset(),
        LinkFault::Cut(bytes) => proxy.set(Direction::ToClient, Fault::CutAfter(bytes)),
        LinkFault::Slice(piece) => {
            proxy.set(Direction::ToServer, Fault::Slice(piece));
            proxy.set(Direction::ToClient, Fault::Slice(piece));
        }
        LinkFault::BlackHole => proxy.black_hole(),
        LinkFault::Refused => proxy.refuse(true).await,
    }
    pace(time).await;
    proxy.heal().await;
    if fault == LinkFault::BlackHole {
        proxy.reset();
    }
    let after = proxy.tally();
    match fault {
        LinkFault::Slow(_) | LinkFault::Slice(_) | LinkFault::Refused => true,
        LinkFault::Reset => after.reset > before.reset,
        LinkFault::Cut(_) => after.cut > before.cut,
        LinkFault::BlackHole => after.swallowed > before.swallowed,
    }
}

/// Configures a fault of a provider.
async fn fail_provider(
    deployment: &Deployment,
    operation: &str,
    mode: &str,
    count: u64,
) -> anyhow::Result<bool> {
    let is_payment = !matches!(operation, "ship" | "cancel");
    let url = deployment.provider(is_payment, "/faults");
    let fault = json!({ "operation": operation, "mode": mode, "count": count });
    // A provider that was just killed takes a moment until it listens again.
    let patience = Patience::within(PATIENCE);
    loop {
        match deployment.http.post(&url, &[], fault.to_string()).await {
            Ok(outcome) if outcome.status == 200 => return Ok(true),
            Ok(outcome) => bail!("a provider rejects a fault: {}", outcome.text()),
            Err(_) => patience.pause().await,
        }
    }
}

/// Replays events of the last seconds while the run continues.
async fn replay(nemesis: &Nemesis) -> anyhow::Result<bool> {
    let since = rfc3339(now().saturating_sub(REPLAY_WINDOW))?;
    let arguments = ["replay", "--destination", "feed", "--since", &since];
    admin(nemesis, &[&["events"], &arguments[..]].concat()).await
}

/// The receiver responds 410 until its destination is disabled. Then the receiver is available again,
/// and the destination is resumed.
async fn receiver_gone(nemesis: &Nemesis) -> anyhow::Result<bool> {
    if nemesis.deployment.server.is_none() {
        return Ok(false);
    }
    // The destination may still be disabled by an earlier fault.
    is_disabled(nemesis, false).await?;
    nemesis.deployment.tell_receiver(FEED, "/gone").await?;
    let took_effect = is_disabled(nemesis, true).await?;
    nemesis.deployment.tell_receiver(FEED, "/available").await?;
    // Partitions that saw the 410 last have recorded it by then.
    pace(SETTLED).await;
    admin(nemesis, &["destinations", "resume", "feed"]).await?;
    Ok(took_effect)
}

/// Waits until some partition of a destination is disabled, or none; false if that does not happen.
async fn is_disabled(nemesis: &Nemesis, expected: bool) -> anyhow::Result<bool> {
    const DISABLED: &str = "SELECT name FROM @destination WHERE disabled_at IS NOT NULL";
    let stored_rows = StoredRows::of(&nemesis.deployment);
    let until = Instant::now() + REACH;
    while Instant::now() < until {
        if stored_rows.read(DISABLED).await?.is_empty() != expected {
            return Ok(true);
        }
        pace(LOOK).await;
    }
    Ok(false)
}

/// Runs a command of an operator, as soon as the server is available.
pub(super) async fn admin(nemesis: &Nemesis, arguments: &[&str]) -> anyhow::Result<bool> {
    let Some(server) = &nemesis.deployment.server else {
        return Ok(false);
    };
    let patience = Patience::within(PATIENCE);
    loop {
        let outcome = std::process::Command::new(nemesis.binaries.path("hapax"))
            .args(arguments)
            .args(["--yes", "--database", &server.url, "--config"])
            .arg(nemesis.deployment.folder.join("hapax.toml"))
            .output()?;
        if outcome.status.success() {
            return Ok(true);
        }
        let error = String::from_utf8_lossy(&outcome.stderr).into_owned();
        if !error.contains("unavailable") {
            bail!("hapax {}: {error}", arguments.join(" "));
        }
        patience.pause().await;
    }
}

async fn fill_disk(deployment: &mut Deployment, time: Duration) -> anyhow::Result<bool> {
    let Some(faults) = deployment.machine_faults(None) else {
        return Ok(false);
    };
    let before = faults.refused();
    faults.fill_disk(true);
    pace(time).await;
    faults.fill_disk(false);
    let is_refused = faults.refused() > before;
    if let Some(server) = &mut deployment.server {
        server.cluster.is_up().await;
    }
    // A shop that was starting meanwhile could not open its database, and exited.
    for shop in &mut deployment.shops {
        shop.revive()?;
    }
    Ok(is_refused)
}

async fn clock(
    deployment: &Deployment,
    whose: Option<Who>,
    ahead: i64,
    time: Duration,
) -> anyhow::Result<bool> {
    let Some(faults) = deployment.machine_faults(whose) else {
        return Ok(false);
    };
    faults.set_clock(ahead * 1_000_000);
    pace(time).await;
    faults.set_clock(0);
    Ok(true)
}

impl Link {
    fn of(self, deployment: &Deployment) -> Option<&hapax_testkit::proxy::Proxy> {
        match self {
            Self::Shop(at) => deployment.links.shops.get(at),
            Self::Database(at) => deployment.links.databases.get(at),
            Self::RelayDatabase => deployment.links.relay_database.as_ref(),
            Self::Receiver(at) => deployment.links.receivers.get(at),
        }
    }
}
