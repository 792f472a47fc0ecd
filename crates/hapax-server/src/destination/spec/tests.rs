//! The settings of a destination: what they say, what is refused, and which of them are secret.

use serde_json::json;

use super::*;

#[test]
fn what_is_left_out_has_its_default() {
    let spec = Spec::read(&webhook()).unwrap();
    assert_eq!(spec.events, ["*"]);
    assert_eq!(
        (spec.order, spec.partitions, spec.start, spec.paused),
        (Order::None, 1, None, false)
    );
    spec.check("orders", Written::InConfiguration).unwrap();
}

#[test]
fn a_list_or_a_word_is_no_destination() {
    let settings = "must be a table of settings";
    let sink = webhook()["sink"].clone();
    check(&json!([sink]), "spec", settings);
    check(&json!("webhook"), "spec", settings);
    let listed = json!({"sink": {"file": ["-"]}});
    check(&listed, "sink.file", settings);
}

#[test]
fn an_unknown_setting_is_refused_with_the_nearest_name() {
    let mut json = webhook();
    json["evnts"] = json!(["order.*"]);
    check(&json, "evnts", "is unknown: did you mean events?");
    let json = json!({"sink": {"webhook": {"ulr": "https://example.com/"}}});
    check(&json, "sink.webhook.ulr", "is unknown: did you mean url?");
    let json = json!({"sink": {"webook": {"url": "https://example.com/"}}});
    check(&json, "sink.webook", "is unknown: did you mean webhook?");
}

#[test]
fn a_value_that_cannot_work_is_refused_by_its_setting() {
    let cases = [
        ("partitions", json!(3), "partitions"),
        ("partitions", json!(0), "partitions"),
        ("partitions", json!("two"), "partitions"),
        ("events", json!([]), "events"),
        ("events", json!([""]), "events[0]"),
        ("events", json!([7]), "events[0]"),
        ("filter", json!({}), "filter"),
        ("filter", json!({"/a": {"$gtt": 1}}), "filter./a.$gtt"),
        ("filter", json!({"/a": 1e300}), "filter./a"),
        ("tenant", json!(""), "tenant"),
        ("order", json!("keys"), "order"),
        ("schedule", json!(["0s", "5"]), "schedule[1]"),
        ("schedule", json!([]), "schedule"),
        ("timeout", json!("0s"), "timeout"),
        ("timeout", json!("6m"), "timeout"),
        ("concurrency", json!(0), "concurrency"),
        ("per_second", json!(0), "per_second"),
        ("start", json!("yesterday"), "start"),
        ("start", json!(7), "start"),
        ("paused", json!("true"), "paused"),
    ];
    for (setting, value, field) in cases {
        let mut json = webhook();
        json[setting] = value.clone();
        let error = read(&json).unwrap_err();
        assert_eq!(error.field, field, "{setting} = {value}: {error}");
    }
}

#[test]
fn a_timeout_of_the_destination_for_endpoints_is_refused() {
    let mut json = json!({"sink": {"endpoints": {}}});
    assert!(read(&json).is_ok());
    json["timeout"] = json!("1s");
    let error = read(&json).unwrap_err();
    assert_eq!(error.field, "timeout");
    assert!(error.problem.contains("endpoints.timeout"), "{error}");
}

#[test]
fn a_filter_is_kept_as_it_was_written_and_changes_the_mark() {
    let mut json = webhook();
    let plain = read(&json).unwrap();
    assert_eq!(plain.filter().unwrap(), None);
    for filter in [
        json!({"/amount": {"$gte": 0.1}}),
        json!("{\"/amount\": {\"$gte\": 12345678901234567890.10}}"),
    ] {
        json["filter"] = filter.clone();
        let spec = read(&json).unwrap();
        assert_eq!(spec.to_json()["filter"], filter);
        assert_ne!(spec.mark(), plain.mark());
        assert!(spec.filter().unwrap().is_some());
    }
}

#[test]
fn a_name_is_a_label_and_never_a_part() {
    let spec = Spec::read(&webhook()).unwrap();
    for bad in ["", "a/b", "a b", "é", &"a".repeat(65)] {
        let error = spec.check(bad, Written::InConfiguration).unwrap_err();
        assert_eq!(error.field, "name", "{bad:?}");
    }
}

#[test]
fn secrets_are_taken_out_and_put_back() {
    let mut spec = Spec::read(&webhook()).unwrap();
    let whole = spec.clone();
    let secrets = spec.take_secrets().unwrap();
    assert_eq!(secrets.keys().collect::<Vec<_>>(), ["sink.webhook.secret"]);
    assert_eq!(spec.to_json()["sink"]["webhook"]["secret"], "***");
    let mut kept = Spec::read(&spec.to_json()).unwrap();
    assert_eq!(
        kept.put_secrets(&BTreeMap::new()).unwrap_err().field,
        "sink.webhook.secret"
    );
    kept.put_secrets(&secrets).unwrap();
    assert_eq!(kept, whole);
}

#[test]
fn the_url_of_a_webhook_holds_no_password() {
    for bad in [
        "https://user:hunter2@example.com/",
        "https://user@example.com",
        "https:user:hunter2@example.com/",
        "https:///user:hunter2@example.com/",
        "https:\\\\user:hunter2@example.com/",
        "https://user:hunter2@example.com?a",
    ] {
        let mut json = webhook();
        json["sink"]["webhook"]["url"] = json!(bad);
        let error = read(&json).unwrap_err();
        assert_eq!(error.field, "sink.webhook.url", "{bad}");
        assert!(!error.problem.contains("hunter2"));
    }
    for good in [
        "https://example.com/@user",
        "https://example.com?to=a@b",
        "https://example.com/#a@b",
    ] {
        let mut json = webhook();
        json["sink"]["webhook"]["url"] = json!(good);
        read(&json).unwrap();
    }
}

#[test]
fn the_url_of_an_object_store_or_of_a_queue_holds_no_password() {
    let url = "https://user:hunter2@example.com/1/a";
    for (kind, setting) in [
        ("s3", "endpoint"),
        ("sqs", "queue_url"),
        ("sns", "endpoint"),
    ] {
        let mut json = of_amazon(kind);
        json["sink"][kind][setting] = json!(url);
        let error = read(&json).unwrap_err();
        assert_eq!(error.field, format!("sink.{kind}.{setting}"));
        assert!(!error.problem.contains("hunter2"));
    }
}

#[test]
fn the_url_of_a_pubsub_holds_no_password() {
    let json = json!({"sink": {"pubsub": {
        "topic": "projects/shop/topics/events",
        "endpoint": "https://user:hunter2@example.com",
    }}});
    let error = read(&json).unwrap_err();
    assert_eq!(error.field, "sink.pubsub.endpoint");
    assert!(!error.problem.contains("hunter2"));
}

#[test]
fn the_url_of_a_token_endpoint_holds_no_password() {
    let mut json = webhook();
    json["sink"]["webhook"]["oauth"] = oauth("https://user:hunter2@example.com/");
    let error = read(&json).unwrap_err();
    assert_eq!(error.field, "sink.webhook.oauth.token_url");
    assert!(!error.problem.contains("hunter2"));
}

#[test]
fn the_url_of_a_nats_is_a_secret() {
    let json = json!({"sink": {"nats": {"url": "nats://user:hunter2@h:4222"}}});
    let mut spec = Spec::read(&json).unwrap();
    assert!(!format!("{spec:?} {}", spec.to_json()).contains("hunter2"));
    let secrets = spec.take_secrets().unwrap();
    assert_eq!(secrets.keys().collect::<Vec<_>>(), ["sink.nats.url"]);
}

#[test]
fn what_authenticates_a_webhook_is_taken_out_and_put_back() {
    let mut json = webhook();
    json["sink"]["webhook"]["headers"] = json!({"x-api-key": "hunter2-key"});
    json["sink"]["webhook"]["basic"] = json!({"user": "hapax", "password": "hunter2-basic"});
    json["sink"]["webhook"]["oauth"] = oauth("https://example.com/token");
    json["sink"]["webhook"]["client_certificate"] =
        json!({"certificate": "hunter2-certificate", "key": "hunter2-key"});
    check_secrets(
        &json,
        &[
            "sink.webhook.basic.password",
            "sink.webhook.client_certificate.certificate",
            "sink.webhook.client_certificate.key",
            "sink.webhook.headers.x-api-key",
            "sink.webhook.oauth.client_secret",
            "sink.webhook.secret",
        ],
    );
}

#[test]
fn what_authenticates_at_amazon_is_taken_out_and_put_back() {
    for kind in ["s3", "sqs", "sns"] {
        let mut json = of_amazon(kind);
        json["sink"][kind]["session_token"] = json!("hunter2-token");
        let paths = ["secret_access_key", "session_token"];
        let paths = paths.map(|name| format!("sink.{kind}.{name}"));
        check_secrets(&json, &paths.each_ref().map(String::as_str));
    }
}

#[test]
fn the_key_of_a_service_account_is_taken_out_and_put_back() {
    let json = json!({"sink": {"pubsub": {
        "topic": "projects/shop/topics/events",
        "service_account": "hunter2-key",
    }}});
    check_secrets(&json, &["sink.pubsub.service_account"]);
}

#[test]
fn an_unknown_setting_of_a_login_is_refused_with_the_nearest_name() {
    let mut json = webhook();
    json["sink"]["webhook"]["basic"] = json!({"user": "a", "passwords": "hunter2"});
    let unknown = "is unknown: did you mean password?";
    check(&json, "sink.webhook.basic.passwords", unknown);
    json["sink"]["webhook"]["basic"] = json!({"user": "a"});
    check(&json, "sink.webhook.basic.password", "is missing");
}

#[test]
fn a_changed_secret_changes_the_mark() {
    let spec = Spec::read(&webhook()).unwrap();
    let mut other = webhook();
    other["sink"]["webhook"]["secret"] = json!("whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    let other = Spec::read(&other).unwrap();
    assert_eq!(spec.mark(), spec.clone().mark());
    assert_ne!(spec.mark(), other.mark());
}

/// Checks that these are the secrets, that no output shows one, and that they can be put back.
#[track_caller]
fn check_secrets(json: &Value, paths: &[&str]) {
    let mut spec = read(json).unwrap();
    let whole = spec.clone();
    assert!(!format!("{spec:?} {}", spec.to_json()).contains("hunter2"));
    let secrets = spec.take_secrets().unwrap();
    assert_eq!(secrets.keys().collect::<Vec<_>>(), paths);
    let mut kept = Spec::read(&spec.to_json()).unwrap();
    assert!(kept.put_secrets(&BTreeMap::new()).is_err());
    kept.put_secrets(&secrets).unwrap();
    assert_eq!(kept, whole);
}

fn webhook() -> Value {
    json!({"sink": {"webhook": {
        "url": "https://example.com/hooks",
        "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    }}})
}

fn of_amazon(kind: &str) -> Value {
    let mut settings = json!({
        "access_key_id": "key",
        "secret_access_key": "hunter2-secret",
    });
    if kind == "sns" {
        settings["topic_arn"] = json!("arn:aws:sns:eu-central-1:123456789012:events");
    } else {
        settings["region"] = json!("eu-central-1");
    }
    if kind == "s3" {
        settings["endpoint"] = json!("https://s3.example.com");
        settings["bucket"] = json!("logs");
    }
    if kind == "sqs" {
        settings["queue_url"] = json!("https://sqs.example.com/1/events");
    }
    json!({"sink": {kind: settings}})
}

fn oauth(token_url: &str) -> Value {
    json!({"token_url": token_url, "client_id": "hapax", "client_secret": "hunter2-client"})
}

fn read(json: &Value) -> Result<Spec, SpecError> {
    let spec = Spec::read(json)?;
    spec.check("orders", Written::InConfiguration)
        .map(|()| spec)
}

#[track_caller]
fn check(json: &Value, field: &str, problem: &str) {
    assert_eq!(
        Spec::read(json).unwrap_err(),
        SpecError::new(field, problem)
    );
}
