//! Fuzz target for bodies of the admin API: every body is parsed, or rejected with a message.
//!
//! The first line of the input names the kind of body, the rest is the body.
#![no_main]

#[path = "../../../crates/hapax-server/src/config/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the binary uses the rest")]
mod config;
mod destination;
mod asked;

use std::collections::BTreeMap;

use asked::{ListQuery, Many, merged};
use destination::{NetworkPolicy, Spec, SpecError, Written};
use hapax::admin::AdminError;
use libfuzzer_sys::fuzz_target;
use secrecy::ExposeSecret;
use serde_json::{Value, value::RawValue};

fuzz_target!(|text: &str| {
    let Some((what, body)) = text.split_once('\n') else {
        return;
    };
    match (what, body.split_once('\n')) {
        ("destination", Some((name, json))) => destination(name, json),
        ("edit", Some((text, patch))) => edit(text, patch),
        ("ask", _) => ask(body),
        ("many", _) => many(body),
        _ => {}
    }
});

/// Checks a destination's declaration: without its secrets it can be shown and parsed again, and
/// the secrets can be put back.
fn destination(name: &str, json: &str) {
    let Ok(json) = serde_json::from_str::<Value>(json) else {
        return;
    };
    let mut spec = match Spec::read(&json) {
        Ok(spec) => spec,
        Err(wrong) => return in_words(&wrong),
    };
    for written in [
        Written::InConfiguration,
        Written::AtRunTime(&network_policy()),
    ] {
        if let Err(wrong) = spec.check(name, written) {
            in_words(&wrong);
        }
    }
    if spec
        .check(name, Written::AtRunTime(&network_policy()))
        .is_err()
    {
        return;
    }
    assert!(
        spec.check(name, Written::InConfiguration).is_ok(),
        "more is allowed at run time"
    );
    spec.tenant().expect("it was checked");
    let (whole, schedule) = (spec.clone(), spec.schedule());
    assert!(schedule.attempts_max() > 0);
    let secrets = spec
        .take_secrets()
        .expect("a destination that is added at run time names no file");
    let shown = spec.to_json();
    let text = shown.to_string();
    for secret in secrets.values().map(ExposeSecret::expose_secret) {
        let is_long = secret.len() > 20 && json.to_string().matches(secret).count() == 1;
        assert!(
            !is_long || !text.contains(secret),
            "the JSON contains a secret"
        );
    }
    let mut again = Spec::read(&shown).expect("the JSON of a destination can be parsed");
    assert_eq!(again, spec);
    assert!(secrets.is_empty() || again.put_secrets(&BTreeMap::new()).is_err());
    // If the declaration itself marks a secret as stored separately, there is nothing to put back.
    if again.put_secrets(&secrets).is_ok() {
        assert_eq!(again, whole);
    }
}

fn network_policy() -> NetworkPolicy {
    let kinds = [
        "webhook", "nats", "amqp", "kafka", "redis", "postgres", "s3", "sqs", "sns", "pubsub",
    ];
    NetworkPolicy {
        allow: vec!["10.0.0.0/8".parse().expect("a valid network")],
        kinds: kinds.map(str::to_owned).to_vec(),
    }
}

/// Checks that a merge patch follows RFC 7396, and keeps digits that a double would lose.
fn edit(text: &str, patch: &str) {
    let is_json = |text: &str| serde_json::from_str::<&RawValue>(text).is_ok();
    if !is_json(text) || !is_json(patch) {
        return;
    }
    let merged = match merged(text, patch) {
        Ok(merged) => merged,
        Err(problem) => return assert!(!problem.is_empty()),
    };
    assert!(is_json(&merged));
    let value = |text: &str| serde_json::from_str::<Value>(text).ok();
    if let (Some(mut whole), Some(patch), Some(merged)) =
        (value(text), value(patch), value(&merged))
    {
        merge(&mut whole, patch);
        assert_eq!(merged, whole);
    }
}

/// Applies a merge patch as the pseudocode of RFC 7396 does.
fn merge(target: &mut Value, patch: Value) {
    let Value::Object(changes) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let members = target.as_object_mut().expect("the target is an object");
    for (name, change) in changes {
        if change.is_null() {
            members.remove(&name);
        } else {
            merge(members.entry(name).or_insert(Value::Null), change);
        }
    }
}

fn ask(body: &str) {
    let Ok(ask) = serde_json::from_str::<ListQuery>(body) else {
        return;
    };
    let _ = ask.limit();
    let wrongs = [
        ask.filter().err(),
        ask.of_events().err(),
        ask.of_deliveries().err(),
        ask.of_dead_letters().err(),
    ];
    wrongs.into_iter().flatten().for_each(refused);
}

fn many(body: &str) {
    if let Ok(many) = serde_json::from_str::<Many>(body) {
        many.filter.filter().err().into_iter().for_each(refused);
    }
}

/// A filter is refused with the field that is not valid.
fn refused(error: AdminError) {
    match error {
        AdminError::Invalid { field, problem } => in_words(&SpecError { field, problem }),
        other => panic!("{other}"),
    }
}

fn in_words(wrong: &SpecError) {
    // The names of Rust types mean nothing to the client that sent the body.
    let is_ours = ["is struct ", "is enum "]
        .iter()
        .any(|it| wrong.problem.starts_with(it));
    assert!(
        !wrong.field.is_empty() && !wrong.problem.is_empty() && !is_ours,
        "{wrong}"
    );
}
