//! Money: a payment, a refund or a checkout at a time, and at each a fault: the shop dies at a step
//! of it, a provider fails, or both. The same request goes on under its key until it has its
//! response, and once more when nothing is under way.
//!
//! Parts of the cases run side by side, each with a separate deployment: a shop mostly waits.

use std::time::Duration;

use anyhow::{Context as _, bail};
use futures_util::future::try_join_all;
use hapax_testkit::wait::pace;
use tokio::time::{Instant, timeout};

use crate::{
    artifacts::body,
    clients::{Operation, Script},
    nemesis::{Injection, MODES, Storm, Who},
    report::{Verdict, say},
    run::{Setup, deploy, play},
    stored_rows::StoredRows,
};

use super::Common;

/// The longest that an operation may take: the faults of a provider end before.
const REST: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(50);
/// Parts at once, and the fewest cases of one.
const PARTS: usize = 4;
const PART: usize = 4;
/// The least share of faults that must have happened, in percent.
const STRUCK: usize = 70;
/// The failpoints of a checkout, and how often it gets to each.
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
/// The calls to a provider: of what, which, and after which failpoint and hit the shop may die too.
const CALLS: [(Asked, &str, &str, u64); 6] = [
    (Asked::Payment, "charge", "payments.call.after", 1),
    (Asked::Refund, "refund", "refunds.call.after", 1),
    (Asked::Checkout, "authorize", "saga.call.after", 1),
    (Asked::Checkout, "ship", "saga.call.after", 2),
    (Asked::Checkout, "capture", "saga.call.after", 3),
    (Asked::Undeliverable, "void", "saga.call.after", 3),
];

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Flags {
    #[command(flatten)]
    common: Common,
    /// Runs one of so many cases
    #[arg(long, default_value_t = 1)]
    every: usize,
    /// Which of them is the first
    #[arg(long, default_value_t = 0)]
    first: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Payment,
    /// A refund of half of a payment that was made before.
    Refund,
    Checkout,
    /// A checkout that cannot be shipped, so its authorization has to be voided.
    Undeliverable,
}

/// A request, and what happens during it.
#[derive(Clone, Debug)]
struct Case {
    asked: Asked,
    /// A provider fails in a call, so, and so many times.
    fault: Option<(&'static str, &'static str, u64)>,
    /// The shop dies at a failpoint, at this hit.
    death: Option<(&'static str, u64)>,
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
    say("| asked | fault | struck | response |\n|---|---|---|---|");
    let parts = (cases.len() / PART).clamp(1, PARTS);
    let parts = cases.chunks(cases.len().div_ceil(parts)).enumerate();
    let parts = parts.map(|(number, cases)| part(&setup, number, cases));
    let parts = try_join_all(parts.map(Box::pin)).await?;
    let struck: usize = parts.iter().map(|(_, struck)| struck).sum();
    say(&format!("{struck} of {} faults happened", cases.len()));
    if parts
        .iter()
        .any(|(verdict, _)| *verdict == Verdict::Violated)
    {
        return Ok(Verdict::Violated);
    }
    let is_known = struck * 100 >= cases.len() * STRUCK;
    Ok(if is_known {
        Verdict::Holds
    } else {
        Verdict::Unknown
    })
}

/// Plays some of the cases, on a deployment with one shop; also returns in how many the faults
/// happened.
async fn part(setup: &Setup, number: usize, cases: &[Case]) -> anyhow::Result<(Verdict, usize)> {
    let mut setup = setup.clone();
    setup.folder.push(format!("part-{number}"));
    std::fs::create_dir(&setup.folder)?;
    let mut deployment = deploy(&setup).await?;
    deployment.shops.truncate(1);
    let history = setup.folder.join("clients-0.jsonl");
    let client = Script::begin(&history, deployment.shop_address(0))?;
    deployment.clients.clear();
    let mut struck = 0;
    let verdict = play(&setup, deployment, async |nemesis| {
        nemesis.deployment.up().await?;
        for case in cases {
            struck += usize::from(case.play(nemesis, &client).await?);
        }
        Ok(())
    });
    Ok((verdict.await?, struck))
}

fn cases() -> Vec<Case> {
    let death = |asked| {
        move |(place, nth)| Case {
            asked,
            fault: None,
            death: Some((place, nth)),
        }
    };
    let hits = |places: &'static [(&str, u64)]| {
        places
            .iter()
            .flat_map(|(place, hits)| (1..=*hits).map(move |nth| (*place, nth)))
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
    let mut cases: Vec<_> = hits(payment).map(death(Asked::Payment)).collect();
    cases.extend(hits(refund).map(death(Asked::Refund)));
    cases.extend(hits(&SAGA).map(death(Asked::Checkout)));
    cases.extend(hits(&SAGA).map(death(Asked::Undeliverable)));
    for (asked, call, ..) in CALLS {
        for mode in MODES {
            // One failure is handled by one retry, and often by one lookup.
            let fault = |count| Case {
                asked,
                fault: Some((call, mode, count)),
                death: None,
            };
            cases.extend([1, 12].map(fault));
        }
    }
    for (asked, call, place, nth) in CALLS {
        // The response of the provider is lost, and so is the shop that waits for it.
        let both = |mode| Case {
            asked,
            fault: Some((call, mode, 1)),
            death: Some((place, nth)),
        };
        cases.extend(["applied_then_lost", "lost_before", "error_after"].map(both));
    }
    cases
}

impl Case {
    /// Sends the request, and lets the faults happen; whether they did.
    async fn play(&self, nemesis: &mut Storm, client: &Script) -> anyhow::Result<bool> {
        let operation = self.operation(client).await?;
        let mut bit = true;
        if let Some((call, mode, count)) = self.fault {
            bit &= nemesis
                .strike(0, &Injection::Provider(call, mode, count))
                .await?;
        }
        let answered = timeout(REST, client.until_answered(&operation));
        let answer = match self.death {
            None => answered.await,
            Some((place, nth)) => {
                let death = Injection::Place(Who::Shop(0), format!("{place}:{nth}"));
                let (struck, answer) = tokio::join!(nemesis.strike(0, &death), answered);
                bit &= struck?;
                answer
            }
        };
        let answer = answer.with_context(|| format!("{self:?} was never answered"))??;
        at_rest(nemesis)
            .await
            .with_context(|| format!("{self:?}"))?;
        client.until_answered(&operation).await?;
        let struck = if bit { "yes" } else { "no" };
        let (fault, death) = (self.fault, self.death);
        let faults = fault.map(|it| format!("{it:?}")).into_iter();
        let faults = faults.chain(death.map(|(place, nth)| format!("death at {place}:{nth}")));
        let faults = faults.collect::<Vec<_>>().join(", ");
        say(&format!(
            "| {:?} | {faults} | {struck} | {} |",
            self.asked, answer["status"]
        ));
        Ok(bit)
    }

    async fn operation(&self, client: &Script) -> anyhow::Result<Operation> {
        Ok(match self.asked {
            Asked::Payment => client.want(Operation::payment),
            Asked::Checkout => client.want(|tenant, it| Operation::checkout(tenant, it, true)),
            Asked::Undeliverable => {
                client.want(|tenant, it| Operation::checkout(tenant, it, false))
            }
            Asked::Refund => {
                let payment = client.want(Operation::payment);
                let made = body(&client.until_answered(&payment).await?);
                let charge = made["id"].as_str().context("a payment has an id")?;
                let amount = payment.body["amount"].as_u64().unwrap_or_default();
                client.want(|tenant, it| Operation::refund(tenant, it, charge, amount))
            }
        })
    }
}

/// Waits until no checkout is under way.
async fn at_rest(nemesis: &Storm) -> anyhow::Result<()> {
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
