//! The API of a queue: `SendMessageBatch` of the JSON protocol.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header::CONTENT_TYPE};
use serde::{Deserialize, Serialize};

use crate::{
    api::Response,
    aws::{
        Call, error_type, hash,
        messages::{Entry, Message, MessageApi, Refusal, STRING},
    },
};

const TARGET: HeaderName = HeaderName::from_static("x-amz-target");
const SEND: HeaderValue = HeaderValue::from_static("AmazonSQS.SendMessageBatch");
const JSON: HeaderValue = HeaderValue::from_static("application/x-amz-json-1.0");

/// A queue.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) url: String,
}

/// The body of a request.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Batch<'a> {
    queue_url: &'a str,
    entries: Vec<Sent<'a>>,
}

/// A message of a request.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Sent<'a> {
    id: String,
    message_body: &'a str,
    message_attributes: BTreeMap<&'static str, Attribute<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_group_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_deduplication_id: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Attribute<'a> {
    data_type: &'static str,
    string_value: &'a str,
}

/// The body of a response.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct BatchResponse {
    successful: Option<Vec<Stored>>,
    failed: Option<Vec<Failed>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Stored {
    id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failed {
    id: String,
    #[serde(default)]
    sender_fault: bool,
    #[serde(default)]
    code: String,
}

impl MessageApi for Queue {
    const SERVICE: &'static str = "sqs";

    fn call(&self, messages: &[Message]) -> Call {
        let batch = Batch {
            queue_url: &self.url,
            entries: messages.iter().map(Sent::of).collect(),
        };
        let body = serde_json::to_vec(&batch).expect("texts can be serialized as JSON in memory");
        let body = Bytes::from(body);
        Call {
            method: Method::POST,
            path: "/".to_owned(),
            headers: HeaderMap::from_iter([(CONTENT_TYPE, JSON), (TARGET, SEND)]),
            body_hash: hash(&body),
            body,
        }
    }

    fn entries(&self, response: &Response, _messages: &[Message]) -> Option<Vec<Entry>> {
        let answer: BatchResponse = serde_json::from_slice(&response.head).ok()?;
        let stored = answer.successful.unwrap_or_default().into_iter();
        let stored = stored.filter_map(|stored| Some((index(&stored.id)?, None)));
        let failed = answer.failed.unwrap_or_default().into_iter();
        let failed = failed.filter_map(|failed| Some((index(&failed.id)?, Some(refusal(failed)))));
        let all = stored.chain(failed);
        Some(
            all.map(|(index, refusal)| Entry { index, refusal })
                .collect(),
        )
    }
}

impl<'a> Sent<'a> {
    fn of(message: &'a Message) -> Self {
        let attribute = |(name, value): (&&'static str, &'a String)| {
            let attribute = Attribute {
                data_type: STRING,
                string_value: value.as_str(),
            };
            (*name, attribute)
        };
        Self {
            id: message.index.to_string(),
            message_body: &message.body,
            message_attributes: message.attributes.iter().map(attribute).collect(),
            message_group_id: message.group.as_deref(),
            message_deduplication_id: message.deduplication.as_deref(),
        }
    }
}

fn refusal(failed: Failed) -> Refusal {
    let status = if failed.sender_fault {
        StatusCode::BAD_REQUEST
    } else {
        StatusCode::INTERNAL_SERVER_ERROR
    };
    Refusal {
        is_of_sender: failed.sender_fault,
        error_type: error_type(status, &failed.code),
        code: failed.code,
    }
}

fn index(id: &str) -> Option<usize> {
    id.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_the_queue_and_has_the_messages_as_entries() {
        let fifo = Message {
            index: 3,
            body: "1".to_owned(),
            attributes: BTreeMap::from([("id", "e-1".to_owned())]),
            group: Some("order/o-1".to_owned()),
            deduplication: Some("e-1".to_owned()),
            bytes: 13,
        };
        let standard = Message {
            index: 4,
            body: "\"é\"".to_owned(),
            attributes: BTreeMap::new(),
            group: None,
            deduplication: None,
            bytes: 4,
        };
        let queue = Queue {
            url: "https://sqs.example.com/1/events".to_owned(),
        };
        let call = queue.call(&[fifo, standard]);
        let sent: serde_json::Value = serde_json::from_slice(&call.body).unwrap();
        let expected = serde_json::json!({
            "QueueUrl": "https://sqs.example.com/1/events",
            "Entries": [
                {
                    "Id": "3",
                    "MessageBody": "1",
                    "MessageAttributes": {"id": {"DataType": "String", "StringValue": "e-1"}},
                    "MessageGroupId": "order/o-1",
                    "MessageDeduplicationId": "e-1",
                },
                {"Id": "4", "MessageBody": "\"é\"", "MessageAttributes": {}},
            ],
        });
        assert_eq!(sent, expected);
        assert_eq!(call.body_hash, hash(&call.body));
    }

    #[test]
    fn each_message_has_its_own_entry() {
        let entries = entries(
            r#"{"Successful": [{"Id": "0", "MessageId": "m"}], "Failed": [
                {"Id": "1", "SenderFault": true, "Code": "InvalidMessageContents"},
                {"Id": "2", "SenderFault": true, "Code": "Other"},
                {"Id": "3", "SenderFault": false, "Code": "InternalError", "Message": "x"},
                {"Id": "4", "SenderFault": true},
                {"Id": "x", "SenderFault": true}]}"#,
        );
        let of: Vec<_> = entries.unwrap().into_iter().map(kind).collect();
        let expected = [
            (0, None),
            (1, Some("content")),
            (2, Some("status_4xx")),
            (3, Some("status_5xx")),
            (4, Some("status_4xx")),
        ];
        assert_eq!(of, expected);
    }

    #[test]
    fn another_document_says_nothing_of_any_message() {
        for text in ["", "<html>", "[]", "{\"Successful\": 7}"] {
            assert!(entries(text).is_none(), "{text}");
        }
        assert!(entries("{}").unwrap().is_empty());
    }

    fn kind(entry: Entry) -> (usize, Option<&'static str>) {
        (entry.index, entry.refusal.map(|it| it.error_type))
    }

    fn entries(body: &str) -> Option<Vec<Entry>> {
        let queue = Queue { url: String::new() };
        queue.entries(&Response::sample(200, body), &[])
    }
}
