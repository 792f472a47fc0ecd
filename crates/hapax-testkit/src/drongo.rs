//! Drongo: a stand-in for Google Cloud Pub/Sub, as a private process of the test.
//!
//! It stores messages as Pub/Sub does, and checks neither tokens nor sizes. Its packages are installed
//! by `cargo x packages`.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::{
    http::{HttpClient, HttpResponse},
    program::packages,
    servers::Server,
};

/// The project of all topics.
const PROJECT: &str = "projects/shop";

/// A running drongo with its topics, each with one subscription.
#[derive(Debug)]
pub struct Drongo {
    server: Server,
    client: HttpClient,
}

impl Drongo {
    /// Starts drongo. `target_tmp` is the test's `env!("CARGO_TARGET_TMPDIR")`.
    ///
    /// # Panics
    /// Panics if its packages are not installed, or if it does not start.
    pub async fn start(target_tmp: &str) -> Self {
        Self {
            server: Server::drongo(&packages(target_tmp, "drongo")).await,
            client: HttpClient::new(),
        }
    }

    /// The address, as `host:port`.
    pub fn address(&self) -> String {
        self.server.address()
    }

    /// Creates a topic and a subscription of the same name, unless they exist. Returns the name of
    /// the topic, such as `projects/shop/topics/events`.
    ///
    /// # Panics
    /// Panics if drongo refuses it.
    pub async fn create_topic(&self, name: &str) -> String {
        let topic = format!("{PROJECT}/topics/{name}");
        let subscription = format!("{PROJECT}/subscriptions/{name}");
        for (path, settings) in [
            (topic.as_str(), json!({})),
            (subscription.as_str(), json!({ "topic": topic })),
        ] {
            let created = self.call(Method::PUT, path, &settings).await;
            assert!(matches!(created.status, 200 | 409), "{}", created.text());
        }
        topic
    }

    /// Deletes a topic. Its subscription stays, with its messages.
    ///
    /// # Panics
    /// Panics if it does not exist.
    pub async fn delete_topic(&self, name: &str) {
        let topic = format!("{PROJECT}/topics/{name}");
        let deleted = self.call(Method::DELETE, &topic, &json!({})).await;
        assert_eq!(deleted.status, 200, "{}", deleted.text());
    }

    /// Receives all messages of a subscription, and acknowledges them.
    ///
    /// # Panics
    /// Panics if it does not exist.
    pub async fn receive(&self, name: &str) -> Vec<Value> {
        let mut all = Vec::new();
        loop {
            let received = self.receive_some(name, 1_000).await;
            if received.is_empty() {
                return all;
            }
            all.extend(received);
        }
    }

    /// Receives up to `most` messages of a subscription in one call, and acknowledges them.
    ///
    /// # Panics
    /// Panics if it does not exist.
    pub async fn receive_some(&self, name: &str, most: usize) -> Vec<Value> {
        let subscription = format!("{PROJECT}/subscriptions/{name}");
        let settings = json!({ "maxMessages": most });
        let pull = format!("{subscription}:pull");
        let pulled = self.call(Method::POST, &pull, &settings).await;
        assert_eq!(pulled.status, 200, "{}", pulled.text());
        let pulled = pulled.json().expect("drongo responds with JSON");
        let received = pulled["receivedMessages"].as_array();
        let received = received.map_or(&[][..], Vec::as_slice);
        if received.is_empty() {
            return Vec::new();
        }
        let ids: Vec<_> = received.iter().map(|it| &it["ackId"]).collect();
        let settings = json!({ "ackIds": ids });
        let acknowledge = format!("{subscription}:acknowledge");
        let acknowledged = self.call(Method::POST, &acknowledge, &settings).await;
        assert_eq!(acknowledged.status, 200, "{}", acknowledged.text());
        received.iter().map(|it| it["message"].clone()).collect()
    }

    async fn call(&self, method: Method, path: &str, body: &Value) -> HttpResponse {
        let url = format!("http://{}/v1/{path}", self.address());
        let headers = [("content-type", "application/json")];
        let body = Bytes::from(body.to_string());
        let answer = self.client.send(method, &url, &headers, body).await;
        answer.expect("drongo responds")
    }
}
