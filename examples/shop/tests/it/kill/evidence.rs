//! Evidence of a run: what the shop has acknowledged, and what exists at the end.
//!
//! The clients' journal and the receiver's ledger are in the process of the test, which is not
//! killed. The other data comes from the shop's API, page by page, and from its folder. The
//! checkers in `invariants` compare them.

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
/// The number of concurrent reads of single orders.
const READS: usize = 8;

/// A death of the shop, which happened between two points in time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Death {
    pub(super) earliest: Duration,
    pub(super) latest: Duration,
}

/// All data about a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Evidence {
    pub(super) history: History,
    pub(super) deaths: Vec<Death>,
    /// Periods in which a destination may have got another owner or the database was unavailable,
    /// although no instance was killed.
    pub(super) upheavals: Vec<Death>,
    /// The deliveries that the receiver got, and their effects.
    pub(super) received: Ledger,
    /// The orders of each tenant, as listed.
    pub(super) orders: Vec<(&'static str, Value)>,
    /// The responses to reads of single acknowledged orders, by order id.
    pub(super) read: BTreeMap<String, Outcome>,
    /// The ledger entries of each tenant.
    pub(super) entries: Vec<(&'static str, Value)>,
    /// The ledger of the payment provider.
    pub(super) provider: Vec<Value>,
    /// The events that the demo receiver of each instance reports.
    pub(super) demo: Vec<Value>,
    /// The recipients of the caught mails, one `To` line per mail.
    pub(super) mails: Vec<String>,
}

/// An intent whose success was acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acknowledged<'a> {
    pub(super) intent: &'a Intent,
    pub(super) answer: &'a Answer,
}

impl Evidence {
    /// Reads the data from the shop, each of its instances and its folder.
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

    /// The attempts of each intent in the order in which they ended, without the altered ones.
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

    /// All intents whose success was acknowledged, once each.
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

/// The events that the demo receiver has got so far.
pub(super) async fn demo_events(client: &Client) -> Vec<Value> {
    pages(client, TENANTS[0], "/demo/receiver?limit=10000", "events").await
}

/// All rows of a list, read page by page.
async fn pages(client: &Client, tenant: &str, path: &str, member: &str) -> Vec<Value> {
    let mut rows = Vec::new();
    let mut next = path.to_owned();
    loop {
        let Outcome::Answered(answer) = client.get(tenant, &next).await else {
            panic!("GET {next} got no response");
        };
        assert_eq!(answer.status, 200, "GET {next}: {:?}", answer.body);
        let mut page = answer.json();
        match page[member].take() {
            Value::Array(page) => rows.extend(page),
            other => panic!("GET {next}: expected the member {member}, got {other}"),
        }
        match &page["next"] {
            Value::String(after) => next = format!("{path}&after={after}"),
            _ => return rows,
        }
    }
}

/// The recipient of each caught mail, by event. If there are two instances, both may have caught
/// the same mail.
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
