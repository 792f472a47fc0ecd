//! Fuzz target for mappings of webhooks: every text is a mapping, or is refused with a message; and every
//! payload becomes JSON of a bounded size, or fails with a message.
//!
//! The first line of the input is the mapping, the rest is the payload.
#![no_main]

use hapax::{
    Random, Timestamp,
    event::{Headers, NewEvent, Payload},
    limits::MAPPED_BYTES_MAX,
    mapping::Mapping,
    outbox::build_event,
};
use libfuzzer_sys::fuzz_target;
use serde_json::value::RawValue;

fuzz_target!(|text: &str| {
    let (mapping, payload) = text.split_once('\n').unwrap_or((text, "{}"));
    let mapping = match Mapping::parse(mapping) {
        Ok(mapping) => mapping,
        Err(wrong) => return assert!(!wrong.to_string().is_empty(), "an error has a message"),
    };
    let new = NewEvent::new("order.created", Payload::Json(payload.to_owned()));
    let now = Timestamp::from_millis(0);
    let Ok(event) = build_event(new, None, &Headers::new(), now, &Random::new(|| 7)) else {
        return;
    };
    let made = mapping.apply(&event);
    assert_eq!(made, mapping.apply(&event), "the result is the same");
    match made {
        Ok(made) => {
            assert!(made.len() <= MAPPED_BYTES_MAX);
            let read = serde_json::from_str::<&RawValue>(&made);
            assert!(read.is_ok(), "{made:?} is not JSON");
        }
        Err(failure) => assert!(!failure.to_string().is_empty(), "a failure has a message"),
    }
});
