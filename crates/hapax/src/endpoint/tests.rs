//! Tests of the index: which endpoints take an event.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    filtering::Filtering,
    index::Index,
    record::{EndpointChange, EndpointColumns},
};
use crate::{
    clock::{Random, Timestamp},
    event::{Event, Headers, NewEvent},
    key::Tenant,
    limits::ENDPOINT_INDEX_TYPES,
    outbox::{OutboxEvent, build_event},
};

#[test]
fn an_event_is_for_the_endpoints_of_its_tenant_that_take_its_type() {
    let mut index = Index::default();
    index.apply(change("a", "acme", 1, "[\"order.*\"]"));
    index.apply(change(
        "b",
        "acme",
        2,
        "[\"refund.created\",\"order.created\"]",
    ));
    index.apply(change("c", "other", 3, "[\"*\"]"));
    assert_eq!(
        select(&mut index, Some("acme"), "order.created"),
        ["a", "b"]
    );
    assert_eq!(select(&mut index, Some("acme"), "order.paid"), ["a"]);
    assert_eq!(select(&mut index, Some("other"), "order.created"), ["c"]);
    assert!(select(&mut index, Some("third"), "order.created").is_empty());
    assert!(select(&mut index, None, "order.created").is_empty());
    assert_eq!(index.version(), 3);
    assert_eq!(index.last_change(), (2, Some("c".to_owned())));
    assert!(index.find("acme", "c").is_none());
    assert!(index.find("other", "c").is_some());
}

#[test]
fn a_change_takes_effect_for_types_that_were_looked_up_before() {
    let mut index = Index::default();
    index.apply(change("a", "acme", 1, "[\"*\"]"));
    assert_eq!(select(&mut index, Some("acme"), "x"), ["a"]);
    let disabled = EndpointColumns {
        is_enabled: false,
        ..columns("a", "acme", 2, "[\"*\"]")
    };
    index.apply(disabled.read());
    assert!(select(&mut index, Some("acme"), "x").is_empty());
    index.apply(change("a", "acme", 3, "[\"x\"]"));
    assert_eq!(select(&mut index, Some("acme"), "x"), ["a"]);
    let deleted = EndpointColumns {
        is_deleted: true,
        ..columns("a", "acme", 4, "")
    };
    index.apply(deleted.read());
    assert!(select(&mut index, Some("acme"), "x").is_empty());
    assert_eq!(index.version(), 4);
}

#[test]
fn a_filter_selects_events_by_their_content() {
    let mut index = Index::default();
    let large = EndpointColumns {
        filter: Some(r#"{"/n": {"$gte": 10}}"#.to_owned()),
        ..columns("a", "acme", 1, "[\"*\"]")
    };
    index.apply(large.read());
    for (n, expected) in [(9, 0), (10, 1)] {
        let event = event(Some("acme"), "x", n);
        let of_type = index.of_type(&event).unwrap();
        assert_eq!(of_type.len(), 1);
        let taking = of_type.iter().filter(|it| it.takes(&event));
        assert_eq!(taking.count(), expected, "{n}");
    }
}

#[tokio::test]
async fn other_tasks_run_while_filters_of_many_endpoints_are_applied() {
    let mut index = Index::default();
    let slow = r#"{"$or": [{"/z": {"$contains": "a"}}, {"/z": {"$contains": "b"}}]}"#;
    for version in 1..=10 {
        let columns = EndpointColumns {
            filter: Some(slow.to_owned()),
            ..columns(&format!("ep_{version}"), "acme", version, "[\"*\"]")
        };
        index.apply(columns.read());
    }
    let event = event_of(
        Some("acme"),
        "x",
        &serde_json::json!({ "z": vec![1; 100_000] }),
    );
    let of_type = index.of_type(&event).unwrap();
    let event = Arc::new(OutboxEvent { position: 1, event });
    // The test has one thread, which the task gets only if it is given away.
    let task = tokio::spawn(async {});
    let filtering = Filtering::default();
    let begin_by = Instant::now() + Duration::from_mins(1);
    let taking = filtering.taking(&of_type, &event, begin_by).await;
    assert!(taking.unwrap().is_empty());
    assert!(task.is_finished());
}

#[test]
fn an_endpoint_that_cannot_be_read_holds_up_the_events_of_its_tenant_alone() {
    let mut index = Index::default();
    index.apply(change("a", "acme", 1, "[\"*\"]"));
    index.apply(change("b", "acme", 2, "not JSON"));
    index.apply(change("c", "other", 3, "[\"*\"]"));
    assert!(index.of_type(&event(Some("acme"), "x", 1)).is_err());
    assert_eq!(select(&mut index, Some("other"), "x"), ["c"]);
    index.apply(change("b", "acme", 4, "[\"*\"]"));
    assert_eq!(select(&mut index, Some("acme"), "x"), ["a", "b"]);
}

#[test]
fn the_number_of_types_that_are_remembered_is_bounded() {
    let mut index = Index::default();
    index.apply(change("a", "acme", 1, "[\"*\"]"));
    for number in 0..3 * ENDPOINT_INDEX_TYPES {
        let kind = format!("t{number}");
        assert_eq!(select(&mut index, Some("acme"), &kind), ["a"]);
    }
}

fn change(id: &str, tenant: &str, version: i64, types: &str) -> EndpointChange {
    columns(id, tenant, version, types).read()
}

fn columns(id: &str, tenant: &str, version: i64, types: &str) -> EndpointColumns {
    EndpointColumns {
        id: id.to_owned(),
        tenant: tenant.to_owned(),
        types: types.to_owned(),
        payload_mode: "full".to_owned(),
        is_enabled: true,
        version,
        ..EndpointColumns::default()
    }
}

#[track_caller]
fn select(index: &mut Index, tenant: Option<&str>, kind: &str) -> Vec<String> {
    let of_type = index.of_type(&event(tenant, kind, 1)).unwrap();
    of_type.iter().map(|it| it.id.clone()).collect()
}

fn event(tenant: Option<&str>, kind: &str, n: i64) -> Event {
    event_of(tenant, kind, &serde_json::json!({ "n": n }))
}

fn event_of(tenant: Option<&str>, kind: &str, payload: &serde_json::Value) -> Event {
    let tenant = tenant.map(|it| Tenant::new(it).unwrap());
    let new = NewEvent::json(kind, payload);
    let now = Timestamp::from_millis(0);
    build_event(
        new,
        tenant.as_ref(),
        &Headers::new(),
        now,
        &Random::new(|| 1),
    )
    .unwrap()
}
