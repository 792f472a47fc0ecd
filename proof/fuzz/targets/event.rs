//! Fuzz target for outbox rows that a service in another language writes: the columns are read as
//! an event, or rejected with a message.
//!
//! The lines of the input are the id, the tenant, the type, the aggregate's kind and id, and the
//! headers as JSON; the rest is the payload. If the event is valid, it can be emitted again, and
//! the same headers and payload are read back.
#![no_main]

use hapax::{
    Clock, Random, Timestamp,
    event::{EventId, Headers, NewEvent, Payload},
    key::Tenant,
    keyring::{ENCRYPTED_UNDER, Keyring},
    outbox::{Draft, EventCheck, decode_columns},
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let mut lines = text.splitn(7, '\n');
    let mut line = || lines.next().unwrap_or_default();
    let [id, tenant, kind, about, of, columns, payload] = std::array::from_fn(|_| line());
    let id = match id.parse::<EventId>() {
        Ok(id) => {
            let again = id.to_string().parse::<EventId>();
            assert_eq!(again.ok(), Some(id), "an id must be read back unchanged");
            id
        }
        Err(_) => EventId::mint(Timestamp::from_millis(0), &random()),
    };
    let keyring = Keyring::default();
    let (headers, payload) = match decode_columns(id, columns, payload.to_owned(), &keyring) {
        Ok(read) => read,
        Err(wrong) => return assert!(!wrong.is_empty(), "an error has a message"),
    };
    if headers.contains_key(ENCRYPTED_UNDER) {
        // The headers claim that the payload is encrypted, but no keyring encrypted it. The payload
        // is kept as it is, and the relay makes the event a dead letter.
        return;
    }
    let mut new = NewEvent::new(kind, payload.clone());
    if !about.is_empty() {
        new = new.about(about, of);
    }
    for (name, value) in &headers {
        new = new.header(name, value);
    }
    emitted(new, Tenant::new(tenant).ok(), (headers, payload));
});

/// Checks that an event that can be emitted is read back unchanged.
fn emitted(new: NewEvent, tenant: Option<Tenant>, expected: (Headers, Payload)) {
    let (keyring, clock) = (Keyring::default(), Clock::new(|| Timestamp::from_millis(0)));
    let aggregate = new.aggregate.clone();
    let mut draft = Draft::new(tenant.clone(), Headers::new());
    let id = match draft.add(new, &clock, &random(), &keyring, &EventCheck::none()) {
        Ok(id) => id,
        Err(refused) => return assert!(!refused.to_string().is_empty()),
    };
    for sealed in draft.into_events() {
        let read = decode_columns(id, &sealed.headers, sealed.payload().to_owned(), &keyring);
        assert_eq!(
            read,
            Ok(expected.clone()),
            "an event must be read back unchanged"
        );
        assert_eq!(sealed.event.tenant, tenant);
        let key = sealed.event.order_key();
        assert_eq!(
            key.is_some(),
            aggregate.is_some(),
            "an event has an order key if and only if it has an aggregate"
        );
    }
}

fn random() -> Random {
    Random::new(|| 7)
}
