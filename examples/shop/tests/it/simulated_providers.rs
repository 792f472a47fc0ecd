//! Fixture: simulated providers, which are separate from the shops and keep running when a shop is
//! killed.

use std::{
    net::SocketAddr,
    thread::{self, JoinHandle},
};

use hapax_testkit::http::HttpClient;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{net::TcpListener, runtime, sync::oneshot};

/// A payment provider and a shipping provider, each with a ledger.
#[derive(Debug)]
pub(crate) struct Providers {
    payment: String,
    shipping: String,
    client: HttpClient,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    _folder: TempDir,
}

impl Providers {
    /// Starts both providers with empty ledgers.
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let payment = providers::payment(&folder.path().join("payment.jsonl")).unwrap();
        let shipping = providers::shipping(&folder.path().join("shipping.jsonl")).unwrap();
        let (stop, stopped) = oneshot::channel();
        let (tell, outcome) = std::sync::mpsc::channel();
        // They run on a separate thread, because a test that starts a process blocks its runtime.
        let thread = thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let listen = async || TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
                let (pay, ship) = (listen().await, listen().await);
                let addresses = [&pay, &ship].map(|it| it.local_addr().unwrap());
                tell.send(addresses).unwrap();
                tokio::select! {
                    () = providers::serve(pay, payment, std::future::pending()) => {}
                    () = providers::serve(ship, shipping, std::future::pending()) => {}
                    _ = stopped => {}
                }
            });
        });
        let [payment, shipping]: [SocketAddr; 2] = outcome.recv().unwrap();
        Self {
            payment: format!("http://{payment}"),
            shipping: format!("http://{shipping}"),
            client: HttpClient::new(),
            stop: Some(stop),
            thread: Some(thread),
            _folder: folder,
        }
    }

    /// The flags of a shop that uses these providers.
    pub(crate) fn flags(&self) -> [String; 4] {
        [
            "--payment-provider".to_owned(),
            self.payment.clone(),
            "--shipping-provider".to_owned(),
            self.shipping.clone(),
        ]
    }

    /// Sets the behaviour of the next calls of a provider's operation.
    pub(crate) async fn misbehave(&self, operation: &str, mode: &str, count: u64) {
        let fault = json!({ "operation": operation, "mode": mode, "count": count });
        let outcome = match operation {
            "ship" | "cancel" => {
                let url = format!("{}/faults", self.shipping);
                let outcome = self
                    .client
                    .post(&url, &[], fault.to_string())
                    .await
                    .unwrap();
                (outcome.status, outcome.json().unwrap())
            }
            _ => self.pay("/faults", "-", &fault).await,
        };
        assert_eq!(outcome.0, 200, "{}", outcome.1);
    }

    /// Calls the payment provider directly.
    pub(crate) async fn pay(&self, path: &str, key: &str, body: &Value) -> (u16, Value) {
        let url = format!("{}{path}", self.payment);
        let headers = [("idempotency-key", key)];
        let answer = self.client.post(&url, &headers, body.to_string()).await;
        let answer = answer.unwrap();
        (answer.status, answer.json().unwrap())
    }

    /// The ledger of the payment provider.
    pub(crate) async fn entries(&self) -> Vec<Value> {
        self.ledger().await["entries"].as_array().unwrap().clone()
    }

    /// The entries of this kind in the ledger of the payment provider.
    pub(crate) async fn made(&self, kind: &str) -> Vec<Value> {
        let mut entries = self.entries().await;
        entries.retain(|entry| entry["kind"] == kind);
        entries
    }

    /// The number of calls of an operation.
    pub(crate) async fn calls(&self, operation: &str) -> u64 {
        self.ledger().await["calls"][operation]
            .as_u64()
            .unwrap_or_default()
    }

    /// The number of entries of this kind in the ledger of the shipping provider.
    pub(crate) async fn shipped(&self, kind: &str) -> usize {
        let ledger = self.client.get(&format!("{}/ledger", self.shipping)).await;
        let ledger: Value = ledger.unwrap().json().unwrap();
        let entries = ledger["entries"].as_array().unwrap().iter();
        entries.filter(|entry| entry["kind"] == kind).count()
    }

    async fn ledger(&self) -> Value {
        let ledger = self.client.get(&format!("{}/ledger", self.payment)).await;
        ledger.unwrap().json().unwrap()
    }
}

impl Drop for Providers {
    fn drop(&mut self) {
        let _stopped = self.stop.take().map(|stop| stop.send(()));
        let _ended = self.thread.take().map(JoinHandle::join);
    }
}
