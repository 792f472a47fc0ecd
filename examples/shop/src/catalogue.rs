//! The event catalogue of the shop, which is checked with the feature `catalogue`.
//!
//! The file is compiled in: the events of a version of the shop are those that its catalogue describes.
//! With the feature, an event that the catalogue does not describe fails its request.

use hapax::{catalogue::Catalogue, outbox::EventCheck};

/// The catalogue, which the console and the customer portal show.
pub(crate) fn published() -> Catalogue {
    let catalogue = Catalogue::parse(include_str!("../catalogue.json"));
    catalogue.expect("a test reads the same file")
}

/// The check of all events that the shop emits.
#[cfg(feature = "catalogue")]
pub(crate) fn event_check() -> EventCheck {
    published().event_check(hapax::catalogue::OtherTypes::Refused)
}

/// No check: the shop is built without the feature.
#[cfg(not(feature = "catalogue"))]
pub(crate) const fn event_check() -> EventCheck {
    EventCheck::none()
}

#[cfg(all(test, feature = "catalogue"))]
mod tests {
    use hapax::{
        Random, Timestamp,
        event::{Headers, NewEvent},
        outbox::{EventError, build_event},
    };
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_catalogue_has_the_types_and_the_members_of_the_openapi_description() {
        let catalogue = Catalogue::parse(include_str!("../catalogue.json")).unwrap();
        let described: Value = serde_json::from_str(include_str!("routes/openapi.json")).unwrap();
        let webhooks = described["webhooks"].as_object().unwrap();
        assert_eq!(catalogue.types().len(), webhooks.len());
        for event in catalogue.types() {
            let body = &webhooks[&event.kind]["post"]["requestBody"]["content"];
            let data = &body["application/json"]["schema"]["properties"]["data"]["$ref"];
            let expected = described.pointer(&data.as_str().unwrap()[1..]).unwrap();
            let schema = catalogue.schema(event.latest().unwrap());
            let schema = match schema["$ref"].as_str() {
                Some(reference) => schema.pointer(&reference[1..]).unwrap(),
                None => &schema,
            };
            for member in ["type", "required", "properties"] {
                assert_eq!(schema[member], expected[member], "{}", event.kind);
            }
        }
    }

    #[test]
    fn an_event_that_the_catalogue_does_not_describe_is_refused() {
        let check = |new: NewEvent| {
            let (at, random) = (Timestamp::from_millis(1), Random::new(|| 7));
            let event = build_event(new, None, &Headers::new(), at, &random).unwrap();
            event_check().check(&event)
        };
        let refund = |amount: Value| {
            let payload = json!({"refund_id": "re_1", "charge_id": "ch_1", "amount": amount});
            NewEvent::json("refund.succeeded", &payload)
        };
        assert_eq!(check(refund(json!(1))), Ok(()));
        let refused = check(refund(json!("much"))).unwrap_err().to_string();
        assert!(
            refused.contains("\"/amount\" does not match \"type\""),
            "{refused}"
        );
        let other = check(NewEvent::json("order.deleted", &1));
        assert!(matches!(other, Err(EventError::NotInCatalogue { .. })));
    }
}
