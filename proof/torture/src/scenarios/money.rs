//! Money: one payment, refund or checkout at a time, each with a fault: the shop is killed at one of
//! its steps, a provider fails, or both. The request is repeated under its key until it has its final
//! response, and once more when nothing is in progress.
//!
//! The cases run in several parts at once, each with a separate deployment, because a shop mostly
//! waits.

use std::time::Duration;

use anyhow::{Context as _, bail};
use futures_util::future::try_join_all;
use hapax_testkit::wait::pace;
use serde_json::Value;
use tokio::time::{Instant, timeout};

use crate::{
    clients::{Operation, Script, body},
    nemesis::{Injection, MODES, Nemesis, Who},
    report::{Verdict, print},
    run::{Setup, deploy, play},
    stored_rows::StoredRows,
};

use super::Common;

/// The maximum time of an operation: the faults of a provider end before.
const REST: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(50);
/// Number of parts, and the minimum number of cases of one.
const PARTS: usize = 4;
const PART: usize = 4;
/// The minimum share of faults that must have taken effect, in percent.
const TOOK_EFFECT: usize = 70;
/// The failpoints of a checkout, and how often it reaches each.
const SAGA: [(&str, u64); 10] = [
    ("checkouts.started", 1),
    ("saga.local.before", 2),
    ("saga.local.after", 2),
    ("saga.intent.before", 3),
    ("saga.intent.after", 3),
    ("saga.call.before", 3),
    ("saga.call.after", 3),
    ("saga.outcome.after", 3),
    ("saga.end.before", 1),
    ("saga.end.after", 1),
];
/// The calls to a provider: the kind of request, the call, and the failpoint and hit at which the shop
/// may be killed too.
const CALLS: [(RequestKind, &str, &str, u64); 6] = [
    (RequestKind::Payment, "charge", "payments.call.after", 1),
    (RequestKind::Refund, "refund", "refunds.call.after", 1),
    (RequestKind::Checkout, "authorize", "saga.call.after", 1),
    (RequestKind::Checkout, "ship", "saga.call.after", 2),
    (RequestKind::Checkout, "capture", "saga.call.after", 3),
    (RequestKind::Undeliverable, "void", "saga.call.after", 3),
];

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Flags {
    #[command(flatten)]
    common: Common,
    /// Runs one in this many cases
    #[arg(long, default_value_t = 1)]
    every: usize,
    /// The first case
    #[arg(long, default_value_t = 0)]
    first: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestKind {
    Payment,
    /// A refund of half of a payment that was made before.
    Refund,
    Checkout,
    /// A checkout that cannot be shipped, so its authorization has to be voided.
    Undeliverable,
}

/// A request, and the faults during it.
#[derive(Clone, Debug)]
struct Case {
    request: RequestKind,
    /// A provider fails: the call, the mode, and how many times.
    fault: Option<(&'static str, &'static str, u64)>,
    /// The shop is killed at a failpoint, at this hit.
    kill: Option<(&'static str, u64)>,
}

pub(super) async fn run(flags: Flags) -> anyhow::Result<Verdict> {
    let cases: Vec<_> = cases()
        .into_iter()
        .skip(flags.first)
        .step_by(flags.every)
        .collect();
    let more = format!("--every {} --first {}", flags.every, flags.first);
    // Each fault has its line in the table instead of a gate.
    let setup = flags.common.setup("money", &more, Vec::new())?;
    print("| request | faults | took effect | response |\n|---|---|---|---|");
    let parts = (cases.len() / PART).clamp(1, PARTS);
    let parts = cases.chunks(cases.len().div_ceil(parts)).enumerate();
    let parts = parts.map(|(number, cases)| part(&setup, number, cases));
    let parts = try_join_all(parts.map(Box::pin)).await?;
    let effective: usize = parts.iter().map(|(_, effective)| effective).sum();
    print(&format!(
        "in {effective} of {} cases the faults took effect",
        cases.len()
    ));
    if parts
        .iter()
        .any(|(verdict, _)| *verdict == Verdict::Violated)
    {
        return Ok(Verdict::Violated);
    }
    let is_known = effective * 100 >= cases.len() * TOOK_EFFECT;
    Ok(if is_known {
        Verdict::Holds
    } else {
        Verdict::Unknown
    })
}

/// Runs some of the cases, on a deployment with one shop; also returns in how many the faults took
/// effect.
async fn part(setup: &Setup, number: usize, cases: &[Case]) -> anyhow::Result<(Verdict, usize)> {
    let mut setup = setup.clone();
    setup.folder.push(format!("part-{number}"));
    std::fs::create_dir(&setup.folder)?;
    let mut deployment = deploy(&setup).await?;
    deployment.shops.truncate(1);
    let history = setup.folder.join("clients-0.jsonl");
    let client = Script::begin(&history, deployment.shop_address(0))?;
    deployment.clients.clear();
    let mut effective = 0;
    let verdict = play(&setup, deployment, async |nemesis| {
        nemesis.deployment.up().await?;
        for case in cases {
            effective += usize::from(case.run(nemesis, &client).await?);
        }
        Ok(())
    });
    Ok((verdict.await?, effective))
}

fn cases() -> Vec<Case> {
    let kill = |request| {
        move |(failpoint, nth)| Case {
            request,
            fault: None,
            kill: Some((failpoint, nth)),
        }
    };
    let hits = |failpoints: &'static [(&str, u64)]| {
        failpoints
            .iter()
            .flat_map(|(failpoint, hits)| (1..=*hits).map(move |nth| (*failpoint, nth)))
    };
    let payment = &[
        ("payments.call.before", 1),
        ("payments.call.after", 1),
        ("payments.charged", 1),
    ];
    let refund = &[
        ("refunds.reserved", 1),
        ("refunds.call.before", 1),
        ("refunds.call.after", 1),
    ];
    let mut cases: Vec<_> = hits(payment).map(kill(RequestKind::Payment)).collect();
    cases.extend(hits(refund).map(kill(RequestKind::Refund)));
    cases.extend(hits(&SAGA).map(kill(RequestKind::Checkout)));
    cases.extend(hits(&SAGA).map(kill(RequestKind::Undeliverable)));
    for (request, call, ..) in CALLS {
        for mode in MODES {
            // One failure is handled by one retry, and often by one lookup.
            let fault = |count| Case {
                request,
                fault: Some((call, mode, count)),
                kill: None,
            };
            cases.extend([1, 12].map(fault));
        }
    }
    for (request, call, failpoint, nth) in CALLS {
        // The response of the provider is lost, and the shop that waits for it is killed.
        let both = |mode| Case {
            request,
            fault: Some((call, mode, 1)),
            kill: Some((failpoint, nth)),
        };
        cases.extend(["applied_then_lost", "lost_before", "error_after"].map(both));
    }
    cases
}

impl Case {
    /// Sends the request and injects the faults; whether they took effect.
    async fn run(&self, nemesis: &mut Nemesis, client: &Script) -> anyhow::Result<bool> {
        let operation = self.operation(client).await?;
        let mut took_effect = true;
        if let Some((call, mode, count)) = self.fault {
            took_effect &= nemesis
                .inject(0, &Injection::Provider(call, mode, count))
                .await?;
        }
        let sending = timeout(REST, client.until_final(&operation));
        let response = match self.kill {
            None => sending.await,
            Some((failpoint, nth)) => {
                let kill = Injection::Failpoint(Who::Shop(0), format!("{failpoint}:{nth}"));
                let (injected, response) = tokio::join!(nemesis.inject(0, &kill), sending);
                took_effect &= injected?;
                response
            }
        };
        let response = response.with_context(|| format!("{self:?} got no final response"))??;
        at_rest(nemesis)
            .await
            .with_context(|| format!("{self:?}"))?;
        client.until_final(&operation).await?;
        if self.request == RequestKind::Refund {
            report_twice(client, &body(&response)).await?;
        }
        let effect = if took_effect { "yes" } else { "no" };
        let (fault, kill) = (self.fault, self.kill);
        let faults = fault.map(|it| format!("{it:?}")).into_iter();
        let faults =
            faults.chain(kill.map(|(failpoint, nth)| format!("kill at {failpoint}:{nth}")));
        let faults = faults.collect::<Vec<_>>().join(", ");
        print(&format!(
            "| {:?} | {faults} | {effect} | {} |",
            self.request, response["status"]
        ));
        Ok(took_effect)
    }

    async fn operation(&self, client: &Script) -> anyhow::Result<Operation> {
        Ok(match self.request {
            RequestKind::Payment => client.new_operation(Operation::payment),
            RequestKind::Checkout => {
                client.new_operation(|tenant, it| Operation::checkout(tenant, it, true))
            }
            RequestKind::Undeliverable => {
                client.new_operation(|tenant, it| Operation::checkout(tenant, it, false))
            }
            RequestKind::Refund => {
                let payment = client.new_operation(Operation::payment);
                let made = body(&client.until_final(&payment).await?);
                let charge = made["id"].as_str().context("a payment has an id")?;
                let amount = payment.body["amount"].as_u64().unwrap_or_default();
                client.new_operation(|tenant, it| Operation::refund(tenant, it, charge, amount))
            }
        })
    }
}

/// Sends two webhooks about a refund that the shop has made.
async fn report_twice(client: &Script, refund: &Value) -> anyhow::Result<()> {
    for _ in 0..2 {
        let notice = client.new_operation(|tenant, it| Operation::notice(tenant, it, refund));
        client.until_final(&notice).await?;
    }
    Ok(())
}

/// Waits until no checkout is in progress.
async fn at_rest(nemesis: &Nemesis) -> anyhow::Result<()> {
    let stored_rows = StoredRows::of(&nemesis.deployment);
    let began = Instant::now();
    loop {
        let running = "SELECT id FROM @saga WHERE state = 'running'";
        let running = stored_rows.read(running).await?;
        if running.is_empty() {
            return Ok(());
        }
        if began.elapsed() > REST {
            bail!("still running: {running:?}");
        }
        pace(LOOK).await;
    }
}
