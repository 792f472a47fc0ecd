//! Warnings about a declaration that is valid, but is probably not what was meant.
//!
//! Nothing is refused, because a service other than Amazon's may have other rules. `hapax config
//! check` and `hapax doctor` print the warnings.

use std::fmt;

use hapax_sinks::settings::SnsSettings;
use http::Uri;
use secrecy::ExposeSecret as _;

use super::{Spec, sinks::Sink, spec::Order};
use crate::config::Secret;

/// The domains of Amazon's services.
const AMAZON: [&str; 4] = [
    ".amazonaws.com",
    ".amazonaws.com.cn",
    ".api.aws",
    ".api.amazonwebservices.com.cn",
];
/// The labels of SNS in the names of its hosts.
const SNS: [&str; 2] = ["sns", "sns-fips"];
/// The end of the name of a FIFO topic or queue.
const FIFO: &str = ".fifo";
/// Number of digits of an account at Amazon.
const ACCOUNT_DIGITS: usize = 12;

/// A setting that is probably wrong.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Warning {
    /// The setting, such as `sink.sns.endpoint`.
    pub(crate) field: String,
    /// What is wrong; continues a sentence that begins with the setting.
    pub(crate) problem: String,
    /// What to do about it.
    pub(crate) remedy: &'static str,
}

impl Warning {
    fn new(field: impl Into<String>, problem: impl Into<String>, remedy: &'static str) -> Self {
        Self {
            field: field.into(),
            problem: problem.into(),
            remedy,
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (field, problem, remedy) = (&self.field, &self.problem, self.remedy);
        write!(f, "{field} {problem}: {remedy}")
    }
}

/// The warnings about a declaration.
pub(crate) fn warnings(spec: &Spec) -> Vec<Warning> {
    let kind = spec.sink.kind();
    let found = match &spec.sink {
        Sink::Sns(it) => vec![
            order(spec, it.topic_arn.ends_with(FIFO)),
            service(it),
            region_of_topic(it),
            account_of_topic(it),
            key(kind, &it.secret_access_key),
        ],
        Sink::Sqs(it) => vec![
            order(spec, it.queue_url.trim_end_matches('/').ends_with(FIFO)),
            slash(&it.queue_url),
            region_of_queue(&it.queue_url, &it.region),
            account_of_queue(&it.queue_url),
            key(kind, &it.secret_access_key),
        ],
        Sink::S3(it) => vec![key(kind, &it.secret_access_key)],
        Sink::Pubsub(it) => vec![order(spec, it.ordering)],
        _ => Vec::new(),
    };
    found.into_iter().flatten().collect()
}

/// The warning about a receiver that keeps the order in which it receives the events.
fn order(spec: &Spec, is_kept: bool) -> Option<Warning> {
    (is_kept && spec.order == Order::None).then(|| {
        let problem = "is \"none\", so events of an aggregate can reach the receiver in another \
                       order, which it then keeps";
        Warning::new("order", problem, "set order = \"key\"")
    })
}

/// The warning about an endpoint that is another service of Amazon.
fn service(settings: &SnsSettings) -> Option<Warning> {
    let host = amazon_host(settings.endpoint.as_deref()?)?;
    let is_sns = host.split('.').any(|label| SNS.contains(&label));
    (!is_sns).then(|| {
        let problem = format!("is {host}, which is not a host of SNS");
        let remedy = "use an endpoint of SNS, or leave it out";
        Warning::new("sink.sns.endpoint", problem, remedy)
    })
}

/// The warning about the URL of a FIFO queue that is not taken for one, because it ends with a slash.
fn slash(queue_url: &str) -> Option<Warning> {
    let name = queue_url.strip_suffix('/')?.trim_end_matches('/');
    name.ends_with(FIFO).then(|| {
        let problem = "ends with a slash, so the queue is not known as a FIFO queue";
        Warning::new("sink.sqs.queue_url", problem, "remove the slash")
    })
}

fn region_of_topic(settings: &SnsSettings) -> Option<Warning> {
    let of_endpoint = region(settings.endpoint.as_deref()?)?;
    let of_topic = settings.topic_arn.split(':').nth(3)?;
    (of_endpoint != of_topic).then(|| {
        let problem = format!("is in {of_endpoint}, but topic_arn is in {of_topic}");
        let remedy = "use the endpoint of the region of the topic";
        Warning::new("sink.sns.endpoint", problem, remedy)
    })
}

fn region_of_queue(queue_url: &str, signed_for: &str) -> Option<Warning> {
    let of_queue = region(queue_url)?;
    (of_queue != signed_for).then(|| {
        let problem = format!("is {signed_for}, but queue_url is in {of_queue}");
        let remedy = "set it to the region of the queue";
        Warning::new("sink.sqs.region", problem, remedy)
    })
}

/// The warning about an ARN whose account cannot be one of Amazon's.
fn account_of_topic(settings: &SnsSettings) -> Option<Warning> {
    amazon_host(&settings.url())?;
    let account = settings.topic_arn.split(':').nth(4)?;
    let remedy = "copy the ARN of the topic again";
    check_account(account, "sink.sns.topic_arn", remedy)
}

/// The warning about a URL of a queue whose account cannot be one of Amazon's.
fn account_of_queue(queue_url: &str) -> Option<Warning> {
    amazon_host(queue_url)?;
    let url: Uri = queue_url.parse().ok()?;
    let account = url.path().split('/').nth(1)?;
    let remedy = "copy the URL of the queue again";
    check_account(account, "sink.sqs.queue_url", remedy)
}

fn check_account(account: &str, field: &str, remedy: &'static str) -> Option<Warning> {
    let is_account =
        account.len() == ACCOUNT_DIGITS && account.bytes().all(|byte| byte.is_ascii_digit());
    (!is_account).then(|| {
        let problem = format!("has an account id that is not a number of {ACCOUNT_DIGITS} digits");
        Warning::new(field, problem, remedy)
    })
}

/// The warning about a key that was copied with a line break or a space. One that cannot be read is
/// an error elsewhere.
fn key(kind: &str, secret: &Secret) -> Option<Warning> {
    let text = secret.reveal().ok()?;
    let text = text.expose_secret();
    let is_wrong = text.trim() != text || text.chars().any(char::is_control);
    is_wrong.then(|| {
        let problem = "begins or ends with a space, or contains a control character such as a line \
                       break";
        let field = format!("sink.{kind}.secret_access_key");
        Warning::new(field, problem, "copy the key again")
    })
}

/// The region in the name of a host of Amazon, such as `sns.eu-central-1.amazonaws.com`.
fn region(url: &str) -> Option<String> {
    let host = amazon_host(url)?;
    let mut labels = host.split('.');
    labels.find(|label| is_region(label)).map(str::to_owned)
}

fn amazon_host(url: &str) -> Option<String> {
    let url: Uri = url.parse().ok()?;
    let host = url.host()?.to_ascii_lowercase();
    let is_amazon = AMAZON.iter().any(|domain| host.ends_with(domain));
    is_amazon.then_some(host)
}

/// Whether a label of a host name is a region, such as `eu-central-1` or `us-gov-west-1`.
fn is_region(label: &str) -> bool {
    let parts: Vec<&str> = label.split('-').collect();
    let [country, middle @ .., number] = &parts[..] else {
        return false;
    };
    let is_word = |text: &&str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_lowercase());
    let is_country = country.len() == 2 && is_word(country);
    let is_number = !number.is_empty() && number.bytes().all(|it| it.is_ascii_digit());
    is_country && !middle.is_empty() && middle.iter().all(is_word) && is_number
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ARN: &str = "arn:aws:sns:eu-central-1:123456789012:events";
    const QUEUE: &str = "https://sqs.eu-central-1.amazonaws.com/123456789012/events";

    #[test]
    fn an_ordered_receiver_needs_an_ordered_destination() {
        for sink in [
            sns(json!({"topic_arn": format!("{ARN}.fifo")})),
            sqs(json!({"queue_url": format!("{QUEUE}.fifo")})),
            pubsub(true),
        ] {
            let mut spec = json!({"sink": sink});
            check(&spec, &["order"]);
            for order in ["key", "key_skip"] {
                spec["order"] = json!(order);
                check(&spec, &[]);
            }
        }
        for sink in [sns(json!({})), sqs(json!({})), pubsub(false)] {
            check(&json!({"sink": sink}), &[]);
        }
    }

    #[test]
    fn an_endpoint_of_another_region_is_probably_wrong() {
        let topic_at = |endpoint: &str| json!({"sink": sns(json!({"endpoint": endpoint}))});
        let other = topic_at("https://sns.us-east-1.amazonaws.com");
        check(&other, &["sink.sns.endpoint"]);
        let other = topic_at("https://sns.us-east-1.api.aws");
        check(&other, &["sink.sns.endpoint"]);
        for endpoint in [
            "https://sns.eu-central-1.api.aws",
            "https://sns.eu-central-1.amazonaws.com",
            "https://vpce-0a-1b.sns.eu-central-1.vpce.amazonaws.com",
            "https://sns.us-east-1.example.com",
            "http://localhost:4566",
        ] {
            check(&topic_at(endpoint), &[]);
        }
        let queue_in = |region: &str| json!({"sink": sqs(json!({"region": region}))});
        check(&queue_in("us-east-1"), &["sink.sqs.region"]);
        check(&queue_in("eu-central-1"), &[]);
        let url = "https://sqs.us-east-1.api.aws/123456789012/events";
        let queue = json!({"sink": sqs(json!({"queue_url": url}))});
        check(&queue, &["sink.sqs.region"]);
    }

    #[test]
    fn an_endpoint_of_another_service_is_probably_wrong() {
        for (host, is_wrong) in [
            ("sqs.eu-central-1.amazonaws.com", true),
            ("sqs.eu-central-1.api.aws", true),
            ("sns-fips.eu-central-1.amazonaws.com", false),
            ("sqs.eu-central-1.example.com", false),
        ] {
            let endpoint = format!("https://{host}");
            let spec = json!({"sink": sns(json!({"endpoint": endpoint}))});
            let fields: &[&str] = if is_wrong {
                &["sink.sns.endpoint"]
            } else {
                &[]
            };
            check(&spec, fields);
        }
    }

    #[test]
    fn the_url_of_a_fifo_queue_ends_with_its_name() {
        let at = |url: String| json!({"order": "key", "sink": sqs(json!({"queue_url": url}))});
        let slash = at(format!("{QUEUE}.fifo/"));
        check(&slash, &["sink.sqs.queue_url"]);
        for url in [format!("{QUEUE}.fifo"), format!("{QUEUE}/")] {
            check(&at(url), &[]);
        }
    }

    #[test]
    fn an_account_of_amazon_has_twelve_digits() {
        let arn = "arn:aws:sns:eu-central-1:12345:events";
        let mut settings = json!({"topic_arn": arn});
        let at_amazon = json!({"sink": sns(settings.clone())});
        check(&at_amazon, &["sink.sns.topic_arn"]);
        settings["endpoint"] = json!("http://localhost:4566");
        check(&json!({"sink": sns(settings)}), &[]);
        let queue_at = |url: &str| json!({"sink": sqs(json!({"queue_url": url}))});
        for path in ["12345/events", "123456789o12/events", "events"] {
            let url = format!("https://sqs.eu-central-1.amazonaws.com/{path}");
            check(&queue_at(&url), &["sink.sqs.queue_url"]);
        }
        check(&queue_at("http://localhost:4566/12345/events"), &[]);
    }

    #[test]
    fn a_key_with_a_line_break_is_named_and_not_shown() {
        for key in ["hunter2\n", " hunter2", "hun\u{7}ter2"] {
            let secret = json!({"secret_access_key": key});
            let s3 = json!({"s3": {"endpoint": "https://e", "region": "auto", "bucket": "e",
                "access_key_id": "e", "secret_access_key": key}});
            for (sink, field) in [
                (sns(secret.clone()), "sink.sns.secret_access_key"),
                (sqs(secret), "sink.sqs.secret_access_key"),
                (s3, "sink.s3.secret_access_key"),
            ] {
                let found = check(&json!({"sink": sink}), &[field]);
                assert!(!found[0].to_string().contains("hunter2"));
            }
        }
    }

    #[test]
    fn a_region_is_known_by_its_form() {
        for label in ["eu-central-1", "us-gov-west-1", "ap-southeast-2"] {
            assert!(is_region(label), "{label}");
        }
        for label in ["", "sns", "sns-fips", "vpce-a-1", "eu-1", "eu-west-a"] {
            assert!(!is_region(label), "{label}");
        }
    }

    fn sns(settings: Value) -> Value {
        let usual =
            json!({"topic_arn": ARN, "access_key_id": "key", "secret_access_key": "secret"});
        json!({"sns": with(usual, settings)})
    }

    fn sqs(settings: Value) -> Value {
        let usual = json!({"queue_url": QUEUE, "region": "eu-central-1", "access_key_id": "key",
            "secret_access_key": "secret"});
        json!({"sqs": with(usual, settings)})
    }

    fn pubsub(ordering: bool) -> Value {
        let topic = "projects/shop/topics/events";
        json!({"pubsub": {"topic": topic, "endpoint": "https://p", "ordering": ordering}})
    }

    fn with(mut usual: Value, settings: Value) -> Value {
        let Value::Object(settings) = settings else {
            panic!("settings are an object");
        };
        for (name, value) in settings {
            usual[name] = value;
        }
        usual
    }

    #[track_caller]
    fn check(spec: &Value, fields: &[&str]) -> Vec<Warning> {
        let spec: Spec = serde_json::from_value(spec.clone()).unwrap();
        let found = warnings(&spec);
        let names: Vec<&str> = found.iter().map(|it| it.field.as_str()).collect();
        assert_eq!(names, fields, "{spec:?}");
        found
    }
}
