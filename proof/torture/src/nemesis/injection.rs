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
    Storm, delivering, doubles, flood::Flood, memories, restore::restore, silence::silence,
};
use crate::{
    deployment::{Deployment, FEED, LEASE, PATIENCE, Program, died},
    lines::{moment, now},
    stored_rows::StoredRows,
};

/// How long a shop or a relay may take to reach a named place under load.
pub(super) const REACH: Duration = Duration::from_secs(8);
/// How long only one shop runs: a failpoint that only the owner of a partition reaches may be in
/// another shop, and is reached here when that one stops.
const SHARED: Duration = Duration::from_secs(3);
pub(super) const LOOK: Duration = Duration::from_millis(10);
/// How long a response may take to appear in the stored rows without a fault.
const SETTLED: Duration = Duration::from_millis(500);
/// Events of so many nanoseconds are replayed.
pub(crate) const REPLAYED: u64 = 5_000_000_000;

/// The target of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Clients(usize),
    Shop(usize),
    Relay(usize),
    Far(usize),
}

/// A network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// From the clients to a shop.
    Shop(usize),
    /// From a shop to the server.
    Rows(usize),
    /// From the relays to the server.
    RelayRows,
    /// To a receiver.
    Hook(usize),
}

/// The kind of fault.
#[derive(Clone, Debug)]
pub(crate) enum Injection {
    /// SIGKILL, and back after a while.
    Kill(Who, Duration),
    /// SIGKILL while it recovers from SIGKILL.
    KillAgain(Who, Duration),
    /// SIGKILL of all shops while an event is being delivered.
    KillDelivering,
    /// SIGSTOP for so long, which may be past its lease.
    Pause(Who, Duration),
    /// SIGTERM, and SIGKILL in the middle of its drain where that is asked for.
    Term(Who, Option<Duration>),
    /// SIGTERM, and back as another release.
    ChangeOver(Who),
    /// A shop or relay acts on itself at a failpoint: `name:nth` and the action.
    Place(Who, String),
    /// The server stops as in a crash, and recovers.
    Crash,
    /// Every connection of the shops and relays is ended by the server.
    Terminate,
    /// The server has no connection left for a while.
    Crowd(Duration),
    /// Somebody else locks a table for a while.
    Lock(&'static str, Duration),
    /// The next commit on this line ends so.
    Commit(Line, Deed),
    /// A line is bad for a while.
    Net(Line, Bad, Duration),
    /// A provider misbehaves for some calls.
    Provider(&'static str, &'static str, u64),
    /// An operator replays what one destination has had.
    Replay,
    /// A receiver responds that it is gone, until an operator resumes its destination.
    Gone,
    /// The disk of the rows is full for a while.
    Full(Duration),
    /// A clock is wrong by so many milliseconds for a while: that of a shop or a relay, or the server's.
    Clock(Option<Who>, i64, Duration),
    /// A backup takes the place of the rows.
    Restore,
    /// Other processes run under the names of the shops, or of the relays, for a while.
    Double(Who, Duration),
    /// Keys are deleted that every shop has in its memory.
    Purge,
    /// The clock of a shop that keeps answers for seconds steps an hour, either way.
    Hour,
    /// Hostile requests in great numbers.
    Flood(Flood),
    /// A destination whose name server never answers.
    Silence,
}

/// How a line is bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bad {
    Slow(Duration),
    Reset,
    Cut(usize),
    Slice(usize),
    Hole,
    Refused,
}

impl Injection {
    /// The name in the log, by which explanations and fault coverage count.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Kill(..) => "kill",
            Self::KillAgain(..) => "kill again",
            Self::KillDelivering => "kill delivering",
            Self::Pause(..) => "pause",
            Self::Term(_, None) => "term",
            Self::Term(_, Some(_)) => "kill in drain",
            Self::ChangeOver(_) => "change over",
            Self::Place(..) => "place",
            Self::Crash => "crash",
            Self::Terminate => "terminate",
            Self::Crowd(_) => "crowd",
            Self::Lock(..) => "lock",
            Self::Commit(_, Deed::CutBefore) => "commit unheard",
            Self::Commit(..) => "commit untold",
            Self::Net(..) => "net",
            Self::Provider(..) => "provider",
            Self::Replay => "replay",
            Self::Gone => "gone",
            Self::Full(_) => "full disk",
            Self::Clock(..) => "clock",
            Self::Restore => "restore",
            Self::Double(..) => "double",
            Self::Purge => "purge",
            Self::Hour => "hour",
            Self::Flood(flood) => flood.word(),
            Self::Silence => "silence",
        }
    }

    /// Does it, and has everything as it was before; whether it bit, and details.
    pub(super) async fn strike(&self, nemesis: &mut Storm) -> anyhow::Result<Value> {
        let from = now();
        let mut line = json!({ "blow": self.word(), "how": format!("{self:?}"), "from": from });
        let deployment = &mut nemesis.deployment;
        let bit = match self {
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
            Self::ChangeOver(who) => {
                let program = who.of(deployment)?;
                program.stop().await?;
                let bit = program.change_over();
                program.start()?;
                line["to"] = json!(program.binary());
                bit
            }
            Self::Place(who, place) => strike_itself(deployment, *who, place).await?,
            Self::Crash => {
                if let Some(server) = &mut deployment.server {
                    server.cluster.stop_immediate().await;
                    server.cluster.start_again().await;
                }
                true
            }
            Self::Terminate => terminate(deployment).await? > 0,
            Self::Crowd(time) => crowd(deployment, *time).await?,
            Self::Lock(table, time) => lock(deployment, table, *time).await?,
            Self::Commit(at, deed) => commit(deployment, *at, *deed).await,
            Self::Net(at, bad, time) => net(deployment, *at, *bad, *time).await,
            Self::Provider(operation, mode, count) => {
                misbehave(deployment, operation, mode, *count).await?
            }
            Self::Replay => replay(nemesis).await?,
            Self::Gone => gone(nemesis).await?,
            Self::Full(time) => full(deployment, *time).await?,
            Self::Clock(whose, ahead, time) => clock(deployment, *whose, *ahead, *time).await?,
            Self::Restore => restore(nemesis, &mut line).await?,
            Self::Double(who, time) => doubles::namesakes(nemesis, *who, *time).await?,
            Self::Purge => memories::purge(nemesis).await?,
            Self::Hour => memories::hour(nemesis, &mut line).await?,
            Self::Flood(flood) => flood.strike(nemesis, &mut line).await?,
            Self::Silence => silence(nemesis, &mut line).await?,
        };
        line["bit"] = json!(bit);
        line["until"] = json!(now());
        Ok(line)
    }
}

impl Deployment {
    /// The trouble of a shop or a relay, or of where the rows are.
    fn trouble(&self, whose: Option<Who>) -> Option<&MachineFaults> {
        match (whose, &self.server) {
            (Some(Who::Shop(at)), _) => self.shops[at].trouble(),
            (Some(Who::Relay(at)), _) => self.relays[at].trouble(),
            (Some(_), _) => None,
            (None, Some(server)) => server.cluster.trouble(),
            (None, None) => self.shops[0].trouble(),
        }
    }
}

impl Who {
    pub(super) fn of(self, deployment: &mut Deployment) -> anyhow::Result<&mut Program> {
        let program = self.as_it_is(deployment);
        program.revive()?;
        Ok(program)
    }

    /// Whether it runs or has ended of what was done to it.
    fn as_it_is(self, deployment: &mut Deployment) -> &mut Program {
        match self {
            Self::Clients(at) => &mut deployment.clients[at],
            Self::Shop(at) => &mut deployment.shops[at],
            Self::Relay(at) => &mut deployment.relays[at],
            Self::Far(at) => &mut deployment.far[at],
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
async fn strike_itself(deployment: &mut Deployment, who: Who, place: &str) -> anyhow::Result<bool> {
    let program = who.of(deployment)?;
    program.kill()?;
    let said = program.said();
    program.start_with(&[("HAPAX_FAILPOINT", place)])?;
    let name = place.split(':').next().unwrap_or_default();
    let word = format!("struck at {name}");
    let is_deadly = place.split(':').count() == 2;
    let began = Instant::now();
    let mut is_struck = false;
    let mut stopped = Vec::new();
    while began.elapsed() < REACH && !is_struck {
        pace(LOOK).await;
        if stopped.is_empty() && began.elapsed() > SHARED {
            stopped = others(deployment, who);
            for other in &stopped {
                deployment.shops[*other].signal("TERM")?;
            }
        }
        let program = who.as_it_is(deployment);
        if let Some(status) = program.ended()? {
            // One whose first commit fails on purpose gives up, as it should.
            let has_failed = !is_deadly && program.has_said(said, &word)?;
            if !died(status) && !has_failed {
                bail!("{} ended before it reached {place}: {status}", program.name);
            }
            is_struck = true;
        }
        is_struck |= !is_deadly && program.has_said(said, &word)?;
    }
    let program = who.as_it_is(deployment);
    if is_deadly && !is_struck {
        program.kill()?;
    }
    program.start()?;
    for other in stopped {
        deployment.shops[other].has_stopped().await?;
        deployment.shops[other].start()?;
    }
    Ok(is_struck)
}

/// The shops beside this one.
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

/// Takes every connection that the server has left.
async fn crowd(deployment: &Deployment, time: Duration) -> anyhow::Result<bool> {
    let Some(server) = &deployment.server else {
        return Ok(false);
    };
    let mut held = Vec::new();
    for _ in 0..100 {
        match tokio_postgres::connect(&server.cluster.url(), tokio_postgres::NoTls).await {
            Ok((client, connection)) => {
                tokio::spawn(connection);
                held.push(client);
            }
            Err(_) => break,
        }
    }
    let is_full = held.len() < 100;
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

async fn commit(deployment: &Deployment, at: Line, deed: Deed) -> bool {
    let Some(proxy) = at.of(deployment) else {
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

async fn net(deployment: &Deployment, at: Line, bad: Bad, time: Duration) -> bool {
    let Some(proxy) = at.of(deployment) else {
        return false;
    };
    let before = proxy.tally();
    match bad {
        Bad::Slow(each_way) => proxy.delay(each_way),
        Bad::Reset => proxy.reset(),
        Bad::Cut(bytes) => proxy.set(Direction::ToClient, Fault::CutAfter(bytes)),
        Bad::Slice(piece) => {
            proxy.set(Direction::ToServer, Fault::Slice(piece));
            proxy.set(Direction::ToClient, Fault::Slice(piece));
        }
        Bad::Hole => proxy.black_hole(),
        Bad::Refused => proxy.refuse(true).await,
    }
    pace(time).await;
    proxy.heal().await;
    if bad == Bad::Hole {
        proxy.reset();
    }
    let after = proxy.tally();
    match bad {
        Bad::Slow(_) | Bad::Slice(_) | Bad::Refused => true,
        Bad::Reset => after.reset > before.reset,
        Bad::Cut(_) => after.cut > before.cut,
        Bad::Hole => after.swallowed > before.swallowed,
    }
}

async fn misbehave(
    deployment: &Deployment,
    operation: &str,
    mode: &str,
    count: u64,
) -> anyhow::Result<bool> {
    let is_payment = !matches!(operation, "ship" | "cancel");
    let url = deployment.provider(is_payment, "/faults");
    let fault = json!({ "operation": operation, "mode": mode, "count": count });
    // One that was killed just now takes a moment to listen again.
    let patience = Patience::within(PATIENCE);
    loop {
        match deployment.http.post(&url, &[], fault.to_string()).await {
            Ok(outcome) if outcome.status == 200 => return Ok(true),
            Ok(outcome) => bail!("a provider refuses a fault: {}", outcome.text()),
            Err(_) => patience.pause().await,
        }
    }
}

/// Replays events of the last seconds while the run continues.
async fn replay(nemesis: &Storm) -> anyhow::Result<bool> {
    let since = moment(now().saturating_sub(REPLAYED))?;
    let words = ["replay", "--destination", "feed", "--since", &since];
    admin(nemesis, &[&["events"], &words[..]].concat()).await
}

/// The receiver answers 410 until its destination is disabled; then it is back, and is resumed.
async fn gone(nemesis: &Storm) -> anyhow::Result<bool> {
    if nemesis.deployment.server.is_none() {
        return Ok(false);
    }
    // Requests resumed earlier have continued by now.
    is_disabled(nemesis, false).await?;
    nemesis.deployment.tell_receiver(FEED, "/gone").await?;
    let bit = is_disabled(nemesis, true).await?;
    nemesis.deployment.tell_receiver(FEED, "/back").await?;
    // The last to hear of it have written it down.
    pace(SETTLED).await;
    admin(nemesis, &["destinations", "resume", "feed"]).await?;
    Ok(bit)
}

/// Waits until some partition of a destination is disabled, or none; false if that does not happen.
async fn is_disabled(nemesis: &Storm, expected: bool) -> anyhow::Result<bool> {
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

/// An operator does something, as soon as there is a server.
pub(super) async fn admin(nemesis: &Storm, words: &[&str]) -> anyhow::Result<bool> {
    let Some(server) = &nemesis.deployment.server else {
        return Ok(false);
    };
    let patience = Patience::within(PATIENCE);
    loop {
        let outcome = std::process::Command::new(nemesis.binaries.path("hapax"))
            .args(words)
            .args(["--yes", "--database", &server.url, "--config"])
            .arg(nemesis.deployment.folder.join("hapax.toml"))
            .output()?;
        if outcome.status.success() {
            return Ok(true);
        }
        let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
        if !said.contains("unavailable") {
            bail!("hapax {}: {said}", words.join(" "));
        }
        patience.pause().await;
    }
}

async fn full(deployment: &mut Deployment, time: Duration) -> anyhow::Result<bool> {
    let Some(trouble) = deployment.trouble(None) else {
        return Ok(false);
    };
    let before = trouble.refused();
    trouble.fill_disk(true);
    pace(time).await;
    trouble.fill_disk(false);
    let is_refused = trouble.refused() > before;
    if let Some(server) = &mut deployment.server {
        server.cluster.is_up().await;
    }
    // One that was just starting found no room to open its database.
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
    let Some(trouble) = deployment.trouble(whose) else {
        return Ok(false);
    };
    trouble.set_clock(ahead * 1_000_000);
    pace(time).await;
    trouble.set_clock(0);
    Ok(true)
}

impl Line {
    fn of(self, deployment: &Deployment) -> Option<&hapax_testkit::proxy::Proxy> {
        match self {
            Self::Shop(at) => deployment.links.shops.get(at),
            Self::Rows(at) => deployment.links.rows.get(at),
            Self::RelayRows => deployment.links.relay_rows.as_ref(),
            Self::Hook(at) => deployment.links.hooks.get(at),
        }
    }
}
