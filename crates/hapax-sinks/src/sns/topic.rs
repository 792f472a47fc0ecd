//! The API of a topic: `PublishBatch` and `Publish` of the query protocol.
//!
//! A request is a form. Its values are percent-encoded, so that no text of an event becomes a further
//! parameter.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header::CONTENT_TYPE};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::response;
use crate::{
    api::{Failure, Response},
    aws::{
        Call, hash,
        messages::{Entry, Message, MessageApi, STRING},
    },
    limits::SNS_TOPIC_BYTES_MAX,
    settings::SettingError,
};

const FORM: HeaderValue =
    HeaderValue::from_static("application/x-www-form-urlencoded; charset=utf-8");
/// The version of the API.
const VERSION: &str = "2010-03-31";
/// Characters that are escaped in a form.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
/// The end of the name of a FIFO topic.
const FIFO: &str = ".fifo";

/// A topic.
#[derive(Debug)]
pub(super) struct Topic {
    arn: String,
    region: String,
}

/// The body of a request.
#[derive(Default)]
struct Form {
    text: String,
}

impl Topic {
    /// Parses the ARN of a topic: `arn:PARTITION:sns:REGION:ACCOUNT:NAME`.
    pub(super) fn parse(arn: &str) -> Result<Self, SettingError> {
        let parts: Vec<&str> = arn.split(':').collect();
        if let ["arn", partition, "sns", region, account, name] = parts[..]
            && is_word(partition)
            && is_word(region)
            && (account.is_empty() || is_word(account))
            && is_name(name)
        {
            return Ok(Self {
                arn: arn.to_owned(),
                region: region.to_owned(),
            });
        }
        let problem = "is not the ARN of a topic: expected a text such as \
                       \"arn:aws:sns:eu-central-1:123456789012:events\"";
        Err(SettingError::new("topic_arn", problem))
    }

    /// The region of the topic.
    pub(super) fn region(&self) -> &str {
        &self.region
    }

    /// Whether it is a FIFO topic.
    pub(super) fn is_fifo(&self) -> bool {
        self.arn.ends_with(FIFO)
    }
}

impl MessageApi for Topic {
    const SERVICE: &'static str = "sns";

    fn call(&self, messages: &[Message]) -> Call {
        let mut form = Form::default();
        form.push("Version", VERSION);
        form.push("TopicArn", &self.arn);
        // The action is last: a form that was cut off on the way names none, even if the service does
        // not compare the hash of the body.
        if let [one] = messages {
            form.push_message("", one);
            form.push("Action", "Publish");
        } else {
            for (number, message) in (1_usize..).zip(messages) {
                let prefix = format!("PublishBatchRequestEntries.member.{number}.");
                form.push(&format!("{prefix}Id"), &message.index.to_string());
                form.push_message(&prefix, message);
            }
            form.push("Action", "PublishBatch");
        }
        let body = Bytes::from(form.text);
        Call {
            method: Method::POST,
            path: "/".to_owned(),
            headers: HeaderMap::from_iter([(CONTENT_TYPE, FORM)]),
            body_hash: hash(&body),
            body,
        }
    }

    fn entries(&self, response: &Response, messages: &[Message]) -> Option<Vec<Entry>> {
        match messages {
            [one] => response::published(response, one.index),
            _ => response::entries(response),
        }
    }

    fn failure(&self, response: &Response) -> Failure {
        response::failure(response)
    }
}

impl Form {
    /// Appends a parameter. Its name needs no escaping.
    fn push(&mut self, name: &str, value: &str) {
        if !self.text.is_empty() {
            self.text.push('&');
        }
        self.text.push_str(name);
        self.text.push('=');
        self.text.extend(utf8_percent_encode(value, ESCAPED));
    }

    fn push_message(&mut self, prefix: &str, message: &Message) {
        self.push(&format!("{prefix}Message"), &message.body);
        for (number, (name, value)) in (1_usize..).zip(&message.attributes) {
            let entry = format!("{prefix}MessageAttributes.entry.{number}.");
            self.push(&format!("{entry}Name"), name);
            self.push(&format!("{entry}Value.DataType"), STRING);
            self.push(&format!("{entry}Value.StringValue"), value);
        }
        for (name, value) in [
            ("MessageGroupId", &message.group),
            ("MessageDeduplicationId", &message.deduplication),
        ] {
            if let Some(value) = value {
                self.push(&format!("{prefix}{name}"), value);
            }
        }
    }
}

fn is_word(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    !text.is_empty() && text.len() <= SNS_TOPIC_BYTES_MAX && text.bytes().all(plain)
}

fn is_name(text: &str) -> bool {
    text.len() <= SNS_TOPIC_BYTES_MAX && is_word(text.strip_suffix(FIFO).unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const ARN: &str = "arn:aws:sns:eu-central-1:123456789012:events";

    #[test]
    fn an_arn_has_six_parts_and_the_name_tells_whether_the_topic_is_a_fifo_topic() {
        let topic = Topic::parse(ARN).unwrap();
        assert_eq!((topic.region(), topic.is_fifo()), ("eu-central-1", false));
        assert!(Topic::parse(&format!("{ARN}.fifo")).unwrap().is_fifo());
        // Services other than Amazon's have other accounts, or none.
        assert!(Topic::parse("arn:aws:sns:default::events").is_ok());
        let long = format!("{ARN}{}", "x".repeat(256));
        for wrong in [
            "",
            "events",
            "https://sns.eu-central-1.amazonaws.com/events",
            "arn:aws:sqs:eu-central-1:123456789012:events",
            "arn:aws:sns::123456789012:events",
            "arn:aws:sns:eu-central-1:123456789012",
            "arn:aws:sns:eu-central-1:123456789012:",
            "arn:aws:sns:eu-central-1:123456789012:.fifo",
            "arn:aws:sns:eu-central-1:123456789012:a b",
            "arn:aws:sns:eu/central:123456789012:events",
            "arn:aws:sns:eu-central-1:123456789012:events:4d1e8a6c-subscription",
            &long,
        ] {
            let error = Topic::parse(wrong).unwrap_err();
            assert_eq!(error.setting, "topic_arn", "{wrong}");
        }
    }

    #[test]
    fn several_messages_are_entries_of_one_request() {
        let call = topic().call(&[message(3, "1"), message(5, "2")]);
        let form = decoded(&call);
        let get = |name: &str| form.get(name).map(String::as_str);
        assert_eq!(get("Action"), Some("PublishBatch"));
        assert_eq!(get("Version"), Some("2010-03-31"));
        assert_eq!(get("TopicArn"), Some(ARN));
        for (number, index, body) in [(1, "3", "1"), (2, "5", "2")] {
            let of = |name: &str| {
                form[&format!("PublishBatchRequestEntries.member.{number}.{name}")].as_str()
            };
            assert_eq!((of("Id"), of("Message")), (index, body));
            assert_eq!(of("MessageAttributes.entry.1.Name"), "id");
            assert_eq!(of("MessageAttributes.entry.1.Value.DataType"), "String");
            assert_eq!(of("MessageAttributes.entry.1.Value.StringValue"), "e-1");
            assert_eq!(of("MessageAttributes.entry.2.Name"), "type");
            assert_eq!(of("MessageGroupId"), "order/o-1");
            assert_eq!(of("MessageDeduplicationId"), "e-1");
        }
        assert_eq!(form.len(), 3 + 2 * 10);
        assert!(call.body.ends_with(b"&Action=PublishBatch"));
        assert_eq!(call.body_hash, hash(&call.body));
    }

    #[test]
    fn a_single_message_is_published_without_entries() {
        let standard = Message {
            group: None,
            deduplication: None,
            ..message(3, "1")
        };
        let form = decoded(&topic().call(&[standard]));
        let names: Vec<_> = form.keys().map(String::as_str).collect();
        let expected = [
            "Action",
            "Message",
            "MessageAttributes.entry.1.Name",
            "MessageAttributes.entry.1.Value.DataType",
            "MessageAttributes.entry.1.Value.StringValue",
            "MessageAttributes.entry.2.Name",
            "MessageAttributes.entry.2.Value.DataType",
            "MessageAttributes.entry.2.Value.StringValue",
            "TopicArn",
            "Version",
        ];
        assert_eq!(names, expected);
        assert_eq!(form["Action"], "Publish");
    }

    #[test]
    fn no_text_of_an_event_becomes_a_parameter() {
        let hostile = "\"a&TopicArn=b+c%20;\r\n\u{e9}\u{1f980}\"";
        let mut message = message(0, hostile);
        message.attributes.insert("tenant", hostile.to_owned());
        let call = topic().call(&[message]);
        let text = std::str::from_utf8(&call.body).unwrap();
        assert!(
            text.is_ascii() && !text.contains(['+', ' ', '\n']),
            "{text}"
        );
        assert_eq!(text.matches("TopicArn=").count(), 1);
        let form = decoded(&call);
        assert_eq!(form["Message"], hostile);
        assert_eq!(form.values().filter(|it| *it == hostile).count(), 2);
    }

    fn topic() -> Topic {
        Topic::parse(ARN).unwrap()
    }

    fn message(index: usize, body: &str) -> Message {
        let attributes = [
            ("id", "e-1".to_owned()),
            ("type", "order.created".to_owned()),
        ];
        Message {
            index,
            body: body.to_owned(),
            attributes: BTreeMap::from(attributes),
            group: Some("order/o-1".to_owned()),
            deduplication: Some("e-1".to_owned()),
            bytes: 50,
        }
    }

    /// The parameters of a request.
    fn decoded(call: &Call) -> BTreeMap<String, String> {
        let text = std::str::from_utf8(&call.body).unwrap();
        let pairs = text.split('&').map(|pair| {
            let (name, value) = pair.split_once('=').unwrap();
            let value = percent_encoding::percent_decode_str(value).decode_utf8();
            (name.to_owned(), value.unwrap().into_owned())
        });
        pairs.collect()
    }
}
