//! The program of a consumer: it polls, appends the page to its ledger, works, and commits the cursor.
//!
//! It is this test itself, started again with its settings in an environment variable.

use std::{
    env,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use hapax::Random;
use hapax_testkit::{
    clock::seeded_random,
    http::{HttpClient, HttpResponse},
    program::{Program, guarded},
    wait::pace,
};
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::ledger::{Entry, Ledger, Page};

const VARIABLE: &str = "HAPAX_TEST_CONSUMER";
/// The test that calls [`consumed`].
const TEST: &str =
    "polling::kills::killed_consumers_receive_every_event_once_for_each_commit_of_their_cursor";
/// Time before a request that was not answered, or came too early, is sent again.
const PAUSE: Duration = Duration::from_millis(100);
/// Maximum time in milliseconds between the ledger and the commit. An endpoint accepts 20 requests per
/// second.
const WORK_MILLIS: u64 = 200;

/// The arguments of a consumer.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Settings {
    /// The URL of the endpoint.
    pub(super) url: String,
    pub(super) token: String,
    pub(super) ledger: PathBuf,
    /// A file that exists when the writers have ended.
    pub(super) done: PathBuf,
    /// Whether it polls with the cursor of its ledger. Otherwise it polls at the committed position.
    pub(super) keeps_cursor: bool,
    /// Most events of a page.
    pub(super) limit_max: u64,
    pub(super) seed: u64,
}

impl Settings {
    /// Starts a consumer as a process.
    pub(super) fn start(&self, log: &Path) -> Program {
        let mut command = guarded(env::current_exe().unwrap(), "KILL");
        command.args(["--exact", TEST, "--nocapture"]);
        command.env(VARIABLE, serde_json::to_string(self).unwrap());
        Program::start(command, log)
    }
}

/// If this process is a consumer, consumes until nothing is left that was committed before a poll began
/// after the writers had ended. Returns whether it is one.
#[expect(
    clippy::disallowed_methods,
    reason = "the variable is set for a process of this test"
)]
pub(super) async fn consumed() -> bool {
    let Ok(settings) = env::var(VARIABLE) else {
        return false;
    };
    let settings: Settings = serde_json::from_str(&settings).unwrap();
    let consumer = Consumer {
        client: HttpClient::new(),
        ledger: Ledger::open(&settings.ledger),
        random: seeded_random(settings.seed),
        settings,
    };
    consumer.run().await;
    true
}

struct Consumer {
    settings: Settings,
    client: HttpClient,
    ledger: Ledger,
    random: Random,
}

impl Consumer {
    async fn run(mut self) {
        loop {
            let is_over = self.settings.done.exists();
            let Some(page) = self.poll(is_over).await else {
                pace(PAUSE).await;
                continue;
            };
            let is_last = is_over && page.events.is_empty() && !page.has_more;
            let cursor = page.cursor.clone();
            self.ledger.append(&Entry::Page(page));
            pace(Duration::from_millis(self.random.bits() % WORK_MILLIS)).await;
            if self.commit(&cursor).await {
                self.ledger.append(&Entry::Committed { cursor });
            }
            if is_last {
                return;
            }
        }
    }

    async fn poll(&self, is_over: bool) -> Option<Page> {
        let cursor = if self.settings.keeps_cursor {
            self.ledger.cursor()
        } else {
            ""
        };
        let limit = 1 + self.random.bits() % self.settings.limit_max;
        let wait = u8::from(!is_over);
        let path = format!("?limit={limit}&wait={wait}&cursor={cursor}");
        let answer = self.send(Method::GET, &path, String::new()).await?;
        assert_eq!(answer.status, 200, "{}", answer.text());
        Some(serde_json::from_slice(&answer.body).unwrap())
    }

    /// Whether the endpoint has confirmed the commit. It may have committed in any other case.
    async fn commit(&self, cursor: &str) -> bool {
        let body = json!({ "cursor": cursor }).to_string();
        let Some(answer) = self.send(Method::POST, "/commit", body).await else {
            return false;
        };
        // The commit of a process that was killed may have arrived between the poll and this commit.
        let is_refused = answer.status == 409 && !self.settings.keeps_cursor;
        assert!(answer.status == 200 || is_refused, "{}", answer.text());
        !is_refused
    }

    /// The response, if there is one and it does not ask to send the request again later.
    async fn send(&self, method: Method, path: &str, body: String) -> Option<HttpResponse> {
        let bearer = format!("Bearer {}", self.settings.token);
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
        ];
        let url = format!("{}{path}", self.settings.url);
        let sent = self.client.send(method, &url, &headers, Bytes::from(body));
        let answer = sent.await.ok()?;
        (!matches!(answer.status, 429 | 503)).then_some(answer)
    }
}
