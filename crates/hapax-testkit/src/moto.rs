//! Moto: a stand-in for S3, SQS and SNS, as a private process of the test.
//!
//! It stores objects and messages as these services do, and does not verify signatures. Its packages
//! are installed by `cargo x packages`.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::{
    http::{HttpClient, HttpResponse},
    program::packages,
    servers::Server,
};

/// The region in which queues and topics are created.
pub const REGION: &str = "us-east-1";
const ACCOUNT: &str = "123456789012";

/// A running moto with its buckets, queues and topics.
#[derive(Debug)]
pub struct Moto {
    server: Server,
    client: HttpClient,
}

impl Moto {
    /// Starts moto. `target_tmp` is the test's `env!("CARGO_TARGET_TMPDIR")`.
    ///
    /// # Panics
    /// Panics if its packages are not installed, or if it does not start.
    pub async fn start(target_tmp: &str) -> Self {
        Self {
            server: Server::moto(&packages(target_tmp, "moto")).await,
            client: HttpClient::new(),
        }
    }

    /// The address, as `host:port`.
    pub fn address(&self) -> String {
        self.server.address()
    }

    /// Creates a bucket, unless it exists.
    ///
    /// # Panics
    /// Panics if moto refuses it.
    pub async fn create_bucket(&self, name: &str) {
        let answer = self.s3(Method::PUT, &format!("/{name}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    /// Deletes an empty bucket, if it exists.
    ///
    /// # Panics
    /// Panics if it is not empty.
    pub async fn delete_bucket(&self, name: &str) {
        let answer = self.s3(Method::DELETE, &format!("/{name}")).await;
        let is_gone = matches!(answer.status, 204 | 404);
        assert!(is_gone, "{}", answer.text());
    }

    /// The names and the contents of all objects of a bucket; none if it does not exist.
    ///
    /// # Panics
    /// Panics if there are more than 1,000.
    pub async fn objects(&self, bucket: &str) -> Vec<(String, Bytes)> {
        let path = format!("/{bucket}?list-type=2");
        let list = self.s3(Method::GET, &path).await.text();
        assert!(!list.contains("<IsTruncated>true"), "{list}");
        let mut objects = Vec::new();
        for rest in list.split("<Key>").skip(1) {
            let (name, _) = rest.split_once("</Key>").expect("the list is complete");
            let object = self.s3(Method::GET, &format!("/{bucket}/{name}")).await;
            assert_eq!(object.status, 200, "{}", object.text());
            objects.push((name.to_owned(), object.body));
        }
        objects
    }

    /// The complete lines of all objects of a bucket, parsed.
    ///
    /// If a connection breaks, moto stores the part of the object that it has received. S3 compares
    /// the length and the hash, and stores nothing.
    ///
    /// # Panics
    /// Panics if one of them is not JSON.
    pub async fn lines(&self, bucket: &str) -> Vec<Value> {
        let mut lines = Vec::new();
        for (_, body) in self.objects(bucket).await {
            for line in body.split_inclusive(|byte| *byte == b'\n') {
                if line.ends_with(b"\n") {
                    lines.push(serde_json::from_slice(line).expect("a line is JSON"));
                }
            }
        }
        lines
    }

    /// Creates a queue, unless it exists. It is a FIFO queue if its name ends in `.fifo`. Returns the
    /// path of its URL.
    ///
    /// # Panics
    /// Panics if moto refuses it.
    pub async fn create_queue(&self, name: &str) -> String {
        let mut settings = json!({"QueueName": name});
        if is_fifo(name) {
            settings["Attributes"] = json!({"FifoQueue": "true"});
        }
        let created = self.sqs("CreateQueue", &settings).await;
        assert_eq!(created.status, 200, "{}", created.text());
        format!("/{ACCOUNT}/{name}")
    }

    /// Deletes a queue, if it exists.
    pub async fn delete_queue(&self, name: &str) {
        // Fails if there is none.
        let _deleted = self.sqs("DeleteQueue", &self.queue(name)).await;
    }

    /// Receives all messages of a queue, and deletes them there; none if it does not exist.
    ///
    /// # Panics
    /// Panics if moto does not respond with JSON.
    pub async fn receive(&self, name: &str) -> Vec<Value> {
        let mut all = Vec::new();
        loop {
            let received = self.receive_some(name).await;
            if received.is_empty() {
                return all;
            }
            all.extend(received);
        }
    }

    /// Receives up to ten messages of a queue, and deletes them there; none if it does not exist.
    ///
    /// # Panics
    /// Panics if moto does not respond with JSON.
    pub async fn receive_some(&self, name: &str) -> Vec<Value> {
        let mut settings = self.queue(name);
        settings["MaxNumberOfMessages"] = json!(10);
        settings["MessageAttributeNames"] = json!(["All"]);
        settings["MessageSystemAttributeNames"] = json!(["All"]);
        let received = self.sqs("ReceiveMessage", &settings).await;
        let received = received.json().expect("moto responds with JSON");
        let Some(messages) = received["Messages"].as_array() else {
            return Vec::new();
        };
        let entries = messages.iter().enumerate().map(|(index, message)| {
            json!({"Id": index.to_string(), "ReceiptHandle": message["ReceiptHandle"]})
        });
        let mut deleted = self.queue(name);
        deleted["Entries"] = entries.collect();
        let deleted = self.sqs("DeleteMessageBatch", &deleted).await;
        assert_eq!(deleted.status, 200, "{}", deleted.text());
        messages.clone()
    }

    /// Creates a topic, unless it exists, and subscribes the queue of the same name, which must exist.
    /// The queue receives the messages as they were sent, by raw delivery. It is a FIFO topic if its
    /// name ends in `.fifo`. Returns the ARN of the topic.
    ///
    /// # Panics
    /// Panics if moto refuses it.
    pub async fn create_topic(&self, name: &str) -> String {
        let (topic, queue) = (arn("sns", name), arn("sqs", name));
        let mut settings = vec![("Name", name)];
        if is_fifo(name) {
            settings.extend(attribute("FifoTopic"));
        }
        let created = self.sns("CreateTopic", &settings).await;
        assert_eq!(created.status, 200, "{}", created.text());
        let mut settings = vec![
            ("TopicArn", topic.as_str()),
            ("Protocol", "sqs"),
            ("Endpoint", queue.as_str()),
        ];
        settings.extend(attribute("RawMessageDelivery"));
        let subscribed = self.sns("Subscribe", &settings).await;
        assert_eq!(subscribed.status, 200, "{}", subscribed.text());
        topic
    }

    /// Deletes a topic, if it exists, with its subscription.
    ///
    /// # Panics
    /// Panics if moto refuses it.
    pub async fn delete_topic(&self, name: &str) {
        let topic = arn("sns", name);
        let deleted = self
            .sns("DeleteTopic", &[("TopicArn", topic.as_str())])
            .await;
        assert_eq!(deleted.status, 200, "{}", deleted.text());
    }

    fn queue(&self, name: &str) -> Value {
        json!({"QueueUrl": format!("http://{}/{ACCOUNT}/{name}", self.address())})
    }

    async fn s3(&self, method: Method, path: &str) -> HttpResponse {
        let url = format!("http://{}{path}", self.address());
        let authorization = authorization("s3");
        let headers = [("authorization", authorization.as_str())];
        let answer = self.client.send(method, &url, &headers, Bytes::new()).await;
        answer.expect("moto responds")
    }

    async fn sqs(&self, operation: &str, body: &Value) -> HttpResponse {
        let url = format!("http://{}/", self.address());
        let authorization = authorization("sqs");
        let target = format!("AmazonSQS.{operation}");
        let headers = [
            ("authorization", authorization.as_str()),
            ("content-type", "application/x-amz-json-1.0"),
            ("x-amz-target", target.as_str()),
        ];
        let answer = self.client.post(&url, &headers, body.to_string()).await;
        answer.expect("moto responds")
    }

    /// Calls SNS by its query protocol. The values need no escaping.
    async fn sns(&self, operation: &str, settings: &[(&str, &str)]) -> HttpResponse {
        let url = format!("http://{}/", self.address());
        let authorization = authorization("sns");
        let headers = [
            ("authorization", authorization.as_str()),
            ("content-type", "application/x-www-form-urlencoded"),
        ];
        let mut form = format!("Action={operation}&Version=2010-03-31");
        for (name, value) in settings.iter().copied() {
            for piece in ["&", name, "=", value] {
                form.push_str(piece);
            }
        }
        let answer = self.client.post(&url, &headers, form).await;
        answer.expect("moto responds")
    }
}

fn is_fifo(name: &str) -> bool {
    name.rsplit('.').next() == Some("fifo")
}

fn arn(service: &str, name: &str) -> String {
    format!("arn:aws:{service}:{REGION}:{ACCOUNT}:{name}")
}

/// The parameters that set an attribute to true.
fn attribute(name: &str) -> [(&str, &str); 2] {
    [
        ("Attributes.entry.1.key", name),
        ("Attributes.entry.1.value", "true"),
    ]
}

/// A header from which moto learns the service and the region.
fn authorization(service: &str) -> String {
    format!(
        "AWS4-HMAC-SHA256 Credential=test/20231114/{REGION}/{service}/aws4_request, \
         SignedHeaders=host, Signature=none"
    )
}
