//! What a service in another language writes into the outbox: its columns are read, or refused in words.
//!
//! The lines of the input are the id, the tenant, the type, the aggregate's kind and id, and the headers as JSON; the rest
//! is the payload. What was read can be emitted again if it is what an event may be, and is read back as it was.
#![no_main]

use hapax::{
    Clock, Random, Timestamp,
    event::{EventId, Headers, NewEvent, Payload},
    key::Tenant,
    keyring::{ENCRYPTED_UNDER, Keyring},
    outbox::{Draft, unseal},
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let mut lines = text.splitn(7, '\n');
    let mut line = || lines.next().unwrap_or_default();
    let [id, tenant, kind, about, of, columns, payload] = std::array::from_fn(|_| line());
    let id = match id.parse::<EventId>() {
        Ok(id) => {
            let again = id.to_string().parse::<EventId>();
            assert_eq!(again.ok(), Some(id), "an id is read back");
            id
        }
        Err(_) => EventId::mint(Timestamp::from_millis(0), &random()),
    };
    let keyring = Keyring::default();
    let (headers, payload) = match unseal(id, columns, payload.to_owned(), &keyring) {
        Ok(read) => read,
        Err(wrong) => return assert!(!wrong.is_empty(), "an error says what is wrong"),
    };
    if headers.contains_key(ENCRYPTED_UNDER) {
        // No keyring wrote it: it is kept as it is, and the relay makes a dead letter of it.
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

/// What may be emitted comes back as it was.
fn emitted(new: NewEvent, tenant: Option<Tenant>, expected: (Headers, Payload)) {
    let (keyring, clock) = (Keyring::default(), Clock::new(|| Timestamp::from_millis(0)));
    let aggregate = new.aggregate.clone();
    let mut draft = Draft::new(tenant.clone(), Headers::new());
    let id = match draft.seal(new, &clock, &random(), &keyring) {
        Ok(id) => id,
        Err(refused) => return assert!(!refused.to_string().is_empty()),
    };
    for sealed in draft.into_events() {
        let read = unseal(id, &sealed.headers, sealed.payload().to_owned(), &keyring);
        assert_eq!(read, Ok(expected.clone()), "an event is read back");
        assert_eq!(sealed.event.tenant, tenant);
        let key = sealed.event.order_key();
        assert_eq!(
            key.is_some(),
            aggregate.is_some(),
            "whoever is about something has an order"
        );
    }
}

fn random() -> Random {
    Random::new(|| 7)
}
