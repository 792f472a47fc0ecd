//! What is known once a run is over: what was promised, and what is there.
//!
//! The clients' journal and the receiver's ledger were never in danger; the
//! rest is asked of the shop over its own API, page by page, and of its
//! folder. Here nothing is judged.

use std::{collections::BTreeMap, fs, time::Duration};

use futures_util::{StreamExt as _, stream};
use serde_json::Value;

use super::{
    answer::Answer,
    client::Client,
    journal::{Attempt, History, Intent, Operation, Outcome},
    receiver::Ledger,
    shop::Home,
};

/// The tenants of the run.
const TENANTS: [&str; 2] = ["alice", "bob"];
/// Reads of single orders at a time.
const READS: usize = 8;

/// One death of the shop: it lay between two moments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Death {
    pub(super) earliest: Duration,
    pub(super) latest: Duration,
}

/// Everything that is known about a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Evidence {
    pub(super) history: History,
    pub(super) deaths: Vec<Death>,
    /// Moments at which a destination may have changed hands, or the database was away, although
    /// no instance died.
    pub(super) upheavals: Vec<Death>,
    /// What the receiver got, and what came of it.
    pub(super) received: Ledger,
    /// The orders of each tenant, as listed.
    pub(super) orders: Vec<(&'static str, Value)>,
    /// What reading an acknowledged order by its id answers.
    pub(super) read: BTreeMap<String, Outcome>,
    /// The ledger entries of each tenant.
    pub(super) entries: Vec<(&'static str, Value)>,
    /// What the payment provider's own ledger holds.
    pub(super) provider: Vec<Value>,
    /// What the demo's receivers say they got, one of each instance.
    pub(super) demo: Vec<Value>,
    /// The addresses that caught mail went to, a line of a mail each.
    pub(super) mails: Vec<String>,
}

/// An intent whose success was acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acknowledged<'a> {
    pub(super) intent: &'a Intent,
    pub(super) answer: &'a Answer,
}

impl Evidence {
    /// Asks the shop, each instance and its folder for what is there.
    pub(super) async fn gather(&mut self, client: &Client, homes: &[Home]) {
        for tenant in TENANTS {
            let tag = |row| (tenant, row);
            let orders = pages(client, tenant, "/orders?limit=200", "items").await;
            self.orders.extend(orders.into_iter().map(tag));
            let entries = pages(client, tenant, "/ledger?limit=200", "entries").await;
            self.entries.extend(entries.into_iter().map(tag));
        }
        for home in homes {
            self.demo
                .extend(demo_events(&client.at(home.address)).await);
        }
        self.mails = mails(homes).into_values().collect();
        let wanted =
            self.acknowledged()
                .into_iter()
                .filter_map(|Acknowledged { intent, answer }| {
                    let id = (intent.operation == Operation::Order).then(|| answer.id())?;
                    Some((intent.tenant, id?))
                });
        let wanted: Vec<_> = wanted.collect();
        let read = stream::iter(wanted).map(|(tenant, id)| async move {
            let found = client.get(tenant, &format!("/orders/{id}")).await;
            (id, found)
        });
        self.read = read.buffer_unordered(READS).collect().await;
    }

    /// The attempts of each intent, in the order in which they ended; none that was altered.
    pub(super) fn attempts(&self) -> Vec<Vec<&Attempt>> {
        let mut attempts = vec![Vec::new(); self.history.intents.len()];
        for attempt in self
            .history
            .attempts
            .iter()
            .filter(|attempt| !attempt.altered)
        {
            attempts[attempt.intent].push(attempt);
        }
        attempts
    }

    /// Every intent whose success was acknowledged, once.
    pub(super) fn acknowledged(&self) -> Vec<Acknowledged<'_>> {
        let both = self.history.intents.iter().zip(self.attempts());
        let success = both.filter_map(|(intent, attempts)| {
            let mut answers = attempts.into_iter().filter_map(Attempt::answer);
            Some(Acknowledged {
                intent,
                answer: answers.find(|answer| answer.is_success())?,
            })
        });
        success.collect()
    }
}

/// What the demo's receiver has got so far.
pub(super) async fn demo_events(client: &Client) -> Vec<Value> {
    pages(client, TENANTS[0], "/demo/receiver?limit=10000", "events").await
}

/// Every row of a list, page by page.
async fn pages(client: &Client, tenant: &str, path: &str, member: &str) -> Vec<Value> {
    let mut rows = Vec::new();
    let mut next = path.to_owned();
    loop {
        let Outcome::Answered(answer) = client.get(tenant, &next).await else {
            panic!("GET {next} is not answered");
        };
        assert_eq!(answer.status, 200, "GET {next}: {:?}", answer.body);
        let mut page = answer.json();
        match page[member].take() {
            Value::Array(page) => rows.extend(page),
            other => panic!("GET {next} lists no {member}: {other}"),
        }
        match &page["next"] {
            Value::String(after) => next = format!("{path}&after={after}"),
            _ => return rows,
        }
    }
}

/// Whom each caught mail is to, by its event: of two instances, both may have caught it.
pub(super) fn mails(homes: &[Home]) -> BTreeMap<String, String> {
    let folders = homes.iter().map(|home| home.folder().join("mail"));
    let files = folders.flat_map(|folder| fs::read_dir(folder).into_iter().flatten());
    let paths = files.map(|file| file.expect("a folder can be read").path());
    let caught = paths.filter(|path| path.extension().is_some_and(|kind| kind == "eml"));
    let to = caught.map(|path| {
        let text = fs::read_to_string(&path).expect("a caught mail can be read");
        let to = text
            .lines()
            .find(|line| line.to_ascii_lowercase().starts_with("to:"));
        let event = path.file_stem().expect("a file has a name");
        let event = event.to_string_lossy().into_owned();
        (event, to.unwrap_or_default().to_owned())
    });
    to.collect()
}
