//! Trials end in time, also within a page, and can be continued from where they have ended.

use hapax::{
    admin::{Actor, EventFilter, TryEndpoint, TryMapping, try_endpoint, try_filter, try_mapping},
    event::NewEvent,
    filter::Filter,
    key::Tenant,
    limits::FILTER_TRIAL,
    mapping::Mapping,
    mask::Mask,
};
use hapax_sqlite::SqliteAdmin;
use serde_json::json;

use crate::stage::Stage;

/// The positions of the events of a trial, and where it continues.
type Tried = (Vec<i64>, Option<String>);

#[tokio::test]
async fn a_trial_of_a_filter_ends_in_time_within_a_page() {
    check(async |operator, before| {
        let filter = Filter::parse(r#"{"/n": {"$gte": 2}}"#).unwrap();
        let (ops, all) = (Actor::new("ops"), EventFilter::default());
        let trial = try_filter(operator, &ops, &filter, &all, before, 50, None);
        let trial = trial.await.unwrap();
        let positions = trial.items.iter().map(|it| it.position);
        (positions.collect(), trial.next)
    })
    .await;
}

#[tokio::test]
async fn a_trial_of_an_endpoint_ends_in_time_within_a_page() {
    check(async |operator, before| {
        let types = ["*".to_owned()];
        let ask = TryEndpoint {
            tenant: "acme",
            types: &types,
            filter: None,
            mapping: Some(r#"{"n": "$.data.n"}"#),
            mask: &Mask::default(),
            before,
            limit: 50,
            place: None,
        };
        let ops = Actor::new("ops");
        let trial = try_endpoint(operator, &ops, &ask).await.unwrap();
        let positions = trial.items.iter().map(|it| it.position);
        (positions.collect(), trial.next)
    })
    .await;
}

#[tokio::test]
async fn a_trial_of_a_mapping_ends_in_time_within_a_page() {
    check(async |operator, before| {
        let mapping = Mapping::parse(r#"{"n": "$.data.n"}"#).unwrap();
        let ask = TryMapping {
            mapping: &mapping,
            events: &EventFilter::default(),
            takes: &|_| true,
            mask: &Mask::default(),
        };
        let ops = Actor::new("ops");
        let trial = try_mapping(operator, &ops, &ask, before, 20);
        let trial = trial.await.unwrap();
        let positions = trial.items.iter().map(|it| it.position);
        (positions.collect(), trial.next)
    })
    .await;
}

/// Lets the time of a trial pass while its events are read, and continues it.
async fn check(run: impl AsyncFn(&SqliteAdmin, Option<&str>) -> Tried) {
    let stage = Stage::new();
    for number in 0..4 {
        let event = NewEvent::json("order.paid", &json!({ "n": number }));
        let tenant = Tenant::new("acme").unwrap();
        stage.emit_event(event.tenant(tenant)).await;
    }
    let operator = stage.operator();
    // The events are read on other threads, so that the trial has begun, and not ended, when time passes.
    tokio::time::pause();
    let (tried, ()) = tokio::join!(run(&operator, None), tokio::time::advance(FILTER_TRIAL));
    tokio::time::resume();
    let (mut positions, next) = tried;
    assert!(positions.len() < 4, "{positions:?}");
    assert!(next.is_some(), "the trial can be continued");
    let (rest, next) = run(&operator, next.as_deref()).await;
    positions.extend(rest);
    assert_eq!(positions, [4, 3, 2, 1]);
    assert_eq!(next, None);
}
