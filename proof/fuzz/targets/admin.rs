//! What the admin API is sent: any body is understood or refused, in words.
//!
//! The first line of the input says which body the rest is.
#![no_main]

#[path = "../../../crates/hapax-server/src/config/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the binary uses the rest")]
mod config;
mod destination;
mod asked;

use std::collections::BTreeMap;

use asked::{ListQuery, Many, merged};
use destination::{NetworkPolicy, Spec, SpecError, Written};
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

/// A destination as it is declared: shown without its secrets it is read back, and gets them again.
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
    let secrets = spec.take_secrets().expect("no file is named at run time");
    let shown = spec.to_json();
    let text = shown.to_string();
    for secret in secrets.values().map(ExposeSecret::expose_secret) {
        let is_long = secret.len() > 20 && json.to_string().matches(secret).count() == 1;
        assert!(!is_long || !text.contains(secret), "a secret is shown");
    }
    let mut again = Spec::read(&shown).expect("what is shown is read");
    assert_eq!(again, spec);
    assert!(secrets.is_empty() || again.put_secrets(&BTreeMap::new()).is_err());
    // Where one was apart already nobody has it.
    if again.put_secrets(&secrets).is_ok() {
        assert_eq!(again, whole);
    }
}

fn network_policy() -> NetworkPolicy {
    let kinds = ["webhook", "nats", "amqp", "kafka", "redis", "postgres"];
    NetworkPolicy {
        allow: vec!["10.0.0.0/8".parse().expect("it is a network")],
        kinds: kinds.map(str::to_owned).to_vec(),
    }
}

/// A merge patch does what RFC 7396 says; digits that a double would lose are kept.
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

/// The pseudocode of RFC 7396.
fn merge(target: &mut Value, patch: Value) {
    let Value::Object(changes) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let members = target.as_object_mut().expect("it was made one");
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
        ask.states().err(),
        ask.before_number().err(),
        ask.check_of_events().err(),
        ask.check_of_dead().err(),
    ];
    wrongs.iter().flatten().for_each(in_words);
    let again = serde_json::to_string(&ask).expect("a question can be written");
    let again: ListQuery = serde_json::from_str(&again).expect("and read");
    assert_eq!(again.filter(), ask.filter());
}

fn many(body: &str) {
    if let Ok(many) = serde_json::from_str::<Many>(body) {
        let written = serde_json::to_string(&many).expect("an act can be written");
        let again: Many = serde_json::from_str(&written).expect("and read");
        assert_eq!(again.filter.filter(), many.filter.filter());
    }
}

fn in_words(wrong: &SpecError) {
    // A type of the program is nothing to whoever sent it.
    let is_ours = ["is struct ", "is enum "]
        .iter()
        .any(|it| wrong.problem.starts_with(it));
    assert!(
        !wrong.field.is_empty() && !wrong.problem.is_empty() && !is_ours,
        "{wrong}"
    );
}
