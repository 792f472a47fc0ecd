//! Tests of operational events: which are emitted, to whom they belong, and what they contain.

use serde_json::{Value, json};

use super::*;
use crate::{
    Random, Timestamp,
    delivery::Exhausted,
    event::{Event, EventId},
    keyring::Keyring,
};

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

fn all() -> OperationalEvents {
    OperationalEvents::new(PREFIX, OperationalKind::ALL).unwrap()
}

fn sealed(events: &OperationalEvents, occurrences: Vec<Occurrence>) -> Vec<Event> {
    let (random, keyring) = (Random::new(|| 7), Keyring::default());
    let sealed = events.build(occurrences, NOW, &random, &keyring);
    sealed.into_iter().map(|it| it.event).collect()
}

fn payload(event: &Event) -> Value {
    serde_json::from_slice(event.payload.bytes()).unwrap()
}

fn endpoint(id: &str) -> Receiver {
    Receiver::Endpoint {
        id: id.to_owned(),
        tenant: "acme".to_owned(),
    }
}

fn exhausted(receiver: Receiver, event_type: &str) -> Occurrence {
    Occurrence::Exhausted {
        receiver,
        delivery: Exhausted {
            event_id: EventId::mint(NOW, &Random::new(|| 9)),
            event_type: event_type.to_owned(),
            event_tenant: Some("acme".to_owned()),
            attempts: 3,
            error: Some("status 503".to_owned()),
        },
    }
}

fn every_kind() -> Vec<Occurrence> {
    let (id, tenant) = ("ep_1".to_owned(), "acme".to_owned());
    let lag = |is_lagging| {
        Occurrence::Lag(Lag {
            destination: "billing".to_owned(),
            is_lagging,
            lag: std::time::Duration::from_mins(5),
            backlog: 12,
        })
    };
    vec![
        Occurrence::EndpointDisabled {
            endpoint: id.clone(),
            tenant: tenant.clone(),
            reason: "it failed".to_owned(),
        },
        Occurrence::EndpointRecovered {
            endpoint: id,
            tenant,
        },
        Occurrence::DestinationDisabled {
            destination: "billing".to_owned(),
            reason: "410".to_owned(),
        },
        exhausted(endpoint("ep_1"), "order.created"),
        exhausted(Receiver::Destination("billing".to_owned()), "order.created"),
        lag(true),
        lag(false),
    ]
}

#[test]
fn nothing_is_emitted_unless_its_kind_is_configured() {
    assert!(sealed(&OperationalEvents::none(), every_kind()).is_empty());
    let one = OperationalEvents::new("ops/", [OperationalKind::RelayLag]).unwrap();
    let events = sealed(&one, every_kind());
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].kind, "ops/relay.lag");
    assert!(one.emits(OperationalKind::RelayLag) && !one.emits(OperationalKind::RelayCaughtUp));
    let none = OperationalEvents::new(PREFIX, []).unwrap();
    assert!(sealed(&none, every_kind()).is_empty());
}

#[test]
fn what_concerns_an_endpoint_belongs_to_its_tenant_and_nothing_else_does() {
    for event in sealed(&all(), every_kind()) {
        let about = event.aggregate.as_ref().unwrap();
        let tenant = event.tenant.as_ref().map(|it| it.as_str().to_owned());
        match about.kind.as_str() {
            "endpoint" => assert_eq!(tenant.as_deref(), Some("acme"), "{event:?}"),
            _ => assert_eq!(tenant, None, "{event:?}"),
        }
    }
}

#[test]
fn a_failed_delivery_of_an_operational_event_has_none() {
    for kind in OperationalKind::ALL {
        let own = format!("{PREFIX}{}", kind.name());
        let occurrence = exhausted(endpoint("ep_1"), &own);
        assert!(sealed(&all(), vec![occurrence]).is_empty(), "{own}");
    }
    let other = exhausted(endpoint("ep_1"), "hapax.test");
    assert_eq!(sealed(&all(), vec![other]).len(), 1);
}

#[test]
fn a_storm_of_failures_is_a_few_events_and_a_count() {
    let events = all();
    let storm = (0..1_000).map(|_| exhausted(endpoint("ep_1"), "order.created"));
    let sealed = sealed(&events, storm.collect());
    assert_eq!(sealed.len(), 10);
    let omitted = sealed.iter().map(|it| payload(it)["omitted"].clone());
    let mut expected = vec![json!(0); 9];
    expected.push(json!(990));
    assert_eq!(omitted.collect::<Vec<_>>(), expected);
}

#[test]
fn a_prefix_is_part_of_an_event_type() {
    for bad in ["a b", "\n", &"x".repeat(PREFIX_BYTES_MAX + 1)] {
        assert!(
            OperationalEvents::new(bad, OperationalKind::ALL).is_err(),
            "{bad:?}"
        );
    }
    for good in ["", "hapax.", "ops/"] {
        assert!(
            OperationalEvents::new(good, OperationalKind::ALL).is_ok(),
            "{good:?}"
        );
    }
}

#[test]
fn a_receiver_with_a_long_name_has_an_event_all_the_same() {
    let name = "d".repeat(1_000);
    let occurrence = exhausted(Receiver::Destination(name.clone()), "order.created");
    let events = sealed(&all(), vec![occurrence]);
    assert_eq!(payload(&events[0])["destination"], json!(name));
    assert_eq!(events[0].aggregate, None);
}

#[test]
fn the_catalogue_has_each_kind_with_the_prefix() {
    let catalogue = catalogue("ops/");
    let events = catalogue["events"].as_array().unwrap();
    let types: Vec<_> = events.iter().map(|it| it["type"].clone()).collect();
    let expected = OperationalKind::ALL.map(|kind| json!(format!("ops/{}", kind.name())));
    assert_eq!(types, expected);
}

#[cfg(feature = "catalogue")]
#[test]
fn each_payload_matches_the_catalogue() {
    use crate::catalogue::{Catalogue, OtherTypes};

    let text = catalogue(PREFIX).to_string();
    let catalogue = Catalogue::parse(&text).unwrap();
    let events = sealed(&all(), every_kind());
    assert_eq!(events.len(), 7);
    for event in events {
        catalogue.check(&event, OtherTypes::Refused).unwrap();
    }
}
