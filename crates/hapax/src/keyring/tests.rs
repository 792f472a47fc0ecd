//! Tests of the keyring: encryption of responses, requests and payloads, and errors.

use super::*;
use crate::{
    clock::{Clock, Random},
    event::{NewEvent, Payload},
    key::{IdempotencyKey, Operation, Tenant},
    outbox::{Draft, EventCheck, decode_columns},
};

#[test]
fn what_is_encrypted_decrypts_in_its_place_under_its_key_alone() {
    let (one, two) = (keys(&[1]), keys(&[2]));
    let text = Bytes::from_static(b"hunter2");
    let encrypted = one.encrypt(&["a", "b"], text.clone()).unwrap();
    assert!(!encrypted.windows(7).any(|seen| seen == b"hunter2"));
    assert_eq!(one.decrypt(&["a", "b"], &encrypted).unwrap(), text);
    // The same bytes with another division into parts are another location.
    for place in [&["ab"][..], &["a", "b", ""], &["", "ab"], &["b", "a"]] {
        assert_eq!(one.decrypt(place, &encrypted), Err(KeyringError::Changed));
    }
    let Err(KeyringError::Missing { id }) = two.decrypt(&["a", "b"], &encrypted) else {
        panic!("another key decrypted the text");
    };
    assert_eq!(id.len(), 16);
    for place in 0..encrypted.len() {
        let mut changed = encrypted.to_vec();
        changed[place] ^= 1;
        assert!(one.decrypt(&["a", "b"], &changed).is_err(), "byte {place}");
        assert!(one.decrypt(&["a", "b"], &encrypted[..place]).is_err());
    }
    assert_ne!(one.encrypt(&["a", "b"], text).unwrap(), encrypted);
}

#[test]
fn a_new_key_encrypts_and_the_one_before_still_decrypts() {
    let old = keys(&[1]).encrypt(&["a"], Bytes::from("x")).unwrap();
    let both = keys(&[2, 1]);
    assert_eq!(both.decrypt(&["a"], &old).unwrap(), b"x");
    let new = both.encrypt(&["a"], Bytes::from("x")).unwrap();
    assert_eq!(keys(&[2]).decrypt(&["a"], &new).unwrap(), b"x");
}

#[test]
fn one_that_reads_encrypts_nothing() {
    let (writes, reads) = (keys(&[1]), keys(&[1]).reading());
    let text = Bytes::from_static(b"x");
    assert_eq!(reads.encrypt(&["a"], text.clone()).unwrap(), text);
    let encrypted = writes.encrypt(&["a"], text.clone()).unwrap();
    assert_eq!(reads.decrypt(&["a"], &encrypted).unwrap(), text);
}

#[test]
fn an_answer_is_read_back_whole_and_only_under_its_own_key() {
    let keyring = keys(&[1]);
    let plain = response();
    let kept = keyring.encrypt_response(&scope("k"), &plain).unwrap();
    let kept = kept.into_owned();
    assert_eq!(kept.status, 201);
    let row = [kept.header_block(), kept.body.to_vec()].concat();
    assert!(
        !row.windows(4)
            .any(|seen| seen == b"ord_" || seen == b"etag")
    );
    let opened = keyring.decrypt_response(&scope("k"), kept.clone()).unwrap();
    assert_eq!(opened, response());
    assert!(keyring.decrypt_response(&scope("l"), kept.clone()).is_err());
    let none = Keyring::default().decrypt_response(&scope("k"), kept);
    assert!(matches!(none, Err(KeyringError::Missing { .. })));
}

#[test]
fn an_answer_without_headers_or_body_is_an_answer() {
    let keyring = keys(&[1]);
    let empty = StoredResponse {
        status: 204,
        headers: Vec::new(),
        body: Bytes::new(),
    };
    let kept = keyring.encrypt_response(&scope("k"), &empty).unwrap();
    let kept = kept.into_owned();
    assert_eq!(keyring.decrypt_response(&scope("k"), kept).unwrap(), empty);
}

#[test]
fn what_was_kept_before_there_were_keys_is_read_as_ever() {
    let plain = Keyring::default();
    assert!(plain.is_empty());
    let before = response();
    let kept = plain.encrypt_response(&scope("k"), &before).unwrap();
    assert_eq!(*kept, before);
    assert_eq!(
        keys(&[1])
            .decrypt_response(&scope("k"), response())
            .unwrap(),
        response()
    );
}

#[test]
fn a_request_is_read_back_and_is_no_answer() {
    let keyring = keys(&[1]);
    let request = Bytes::from_static(b"{\"card\":\"4242\"}");
    let kept = keyring
        .encrypt_request(&scope("k"), request.clone())
        .unwrap();
    assert!(!kept.windows(4).any(|seen| seen == b"4242"));
    assert_eq!(
        keyring.decrypt_request(&scope("k"), &kept).unwrap(),
        request
    );
    assert!(keyring.decrypt_request(&scope("l"), &kept).is_err());
    assert_eq!(
        keyring.decrypt_request(&scope("k"), &request).unwrap(),
        request
    );
    let place = place_of("answer", &scope("k")).map(str::to_owned);
    let place = place.each_ref().map(String::as_str);
    let encrypted = &kept[ENCRYPTED_UNDER.len()..];
    assert_eq!(
        keyring.decrypt(&place, encrypted),
        Err(KeyringError::Changed)
    );
}

#[test]
fn a_payload_is_read_back_by_whoever_has_the_key() {
    let keyring = keys(&[1]);
    for payload in [
        Payload::Json(r#"{"card":"4242"}"#.to_owned()),
        Payload::Binary {
            content_type: "image/png".to_owned(),
            bytes: Bytes::from_static(b"\x89PNG 4242"),
        },
    ] {
        let mut draft = Draft::new(None, Headers::new());
        let new = NewEvent::new("a", payload.clone());
        let random = Random::new(|| 7);
        let id = draft
            .add(
                new,
                &Clock::new(|| crate::Timestamp::from_millis(1)),
                &random,
                &keyring,
                &EventCheck::none(),
            )
            .unwrap();
        let [row] = &draft.into_events()[..] else {
            panic!("one event must be one row");
        };
        assert!(!row.payload().contains("4242"));
        let (headers, words) = (&row.headers, row.payload().to_owned());
        let opened = decode_columns(id, headers, words.clone(), &keyring).unwrap();
        assert_eq!(opened, (Headers::new(), payload));
        let error = decode_columns(id, headers, words, &keys(&[2])).unwrap_err();
        assert!(error.contains("not among the keys here"), "{error}");
    }
}

/// A payload that another program marked as encrypted, or that was changed, does not block the
/// relay. A payload whose key is missing, or whose format is newer, waits for a process that can
/// decrypt it.
#[test]
fn a_payload_that_no_key_will_decrypt_keeps_its_mark_and_is_no_error() {
    let (id, other) = ids();
    let (keyring, mut headers) = (keys(&[1]), Headers::new());
    let row = keyring.encrypt_payload(id, &mut headers, "{\"a\": 1}");
    let (key, row) = (headers[ENCRYPTED_UNDER].clone(), row.unwrap().unwrap());
    let altered = |place: usize, by: u8| {
        let mut bytes = STANDARD.decode(&row).unwrap();
        bytes[place] ^= by;
        STANDARD.encode(bytes)
    };
    let quoted = |text: &str| serde_json::Value::String(text.to_owned()).to_string();
    let (torn, text) = (altered(40, 1), altered(0, 0x40));
    for (event, under, kept, shown) in [
        (id, "k1", "{\"a\": 1}", "{\"a\": 1}".to_owned()),
        (id, &*key, "{\"a\": 1}", "{\"a\": 1}".to_owned()),
        (id, &*key, "1234", "1234".to_owned()),
        (id, "0011223344556677", &*row, quoted(&row)),
        (other, &*key, &*row, quoted(&row)),
        (id, &*key, &*torn, quoted(&torn)),
        (id, &*key, &*text, quoted(&text)),
    ] {
        let marked = Headers::from([(ENCRYPTED_UNDER.to_owned(), under.to_owned())]);
        let columns = serde_json::to_string(&marked).unwrap();
        let read = decode_columns(event, &columns, kept.to_owned(), &keyring);
        assert_eq!(read, Ok((marked, Payload::Json(shown))), "{under} {kept}");
    }
    let columns = serde_json::to_string(&headers).unwrap();
    for (kept, keyring, why) in [
        (row.clone(), keys(&[2]), "not among the keys here"),
        (row.clone(), Keyring::default(), "not among the keys here"),
        (altered(0, 3), keys(&[1]), "newer version"),
    ] {
        let error = decode_columns(id, &columns, kept, &keyring).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}

fn ids() -> (EventId, EventId) {
    let mint = |seed| EventId::mint(crate::Timestamp::from_millis(1), &Random::new(move || seed));
    (mint(7), mint(8))
}

#[test]
fn no_caller_may_set_the_header_of_the_keyring() {
    let new = NewEvent::json("a", &1).header(ENCRYPTED_UNDER, "x");
    let mut draft = Draft::new(None, Headers::new());
    let clock = Clock::new(|| crate::Timestamp::from_millis(1));
    let (random, none) = (Random::new(|| 7), EventCheck::none());
    let refused = draft.add(new, &clock, &random, &Keyring::default(), &none);
    assert!(refused.unwrap_err().to_string().contains(ENCRYPTED_UNDER));
}

#[test]
fn a_key_is_32_bytes_and_its_error_does_not_say_it() {
    for bad in ["hunter2", "", "aGVsbG8="] {
        let error = Keyring::parse([&written(1), bad]).unwrap_err();
        assert_eq!(error.place, 1);
        assert!(bad.is_empty() || !error.to_string().contains(bad));
    }
    assert_eq!(format!("{:?}", keys(&[1])), "Keyring { .. }");
}

fn keys(seeds: &[u8]) -> Keyring {
    Keyring::parse(seeds.iter().map(|seed| written(*seed))).unwrap()
}

fn written(seed: u8) -> String {
    STANDARD.encode([seed; KEY_BYTES])
}

fn scope(key: &str) -> Scope {
    Scope {
        tenant: Tenant::new("alice").unwrap(),
        operation: Operation::new("POST /orders").unwrap(),
        key: IdempotencyKey::new(key).unwrap(),
    }
}

fn response() -> StoredResponse {
    StoredResponse {
        status: 201,
        headers: vec![("etag".to_owned(), Bytes::from_static(b"\"1\""))],
        body: Bytes::from_static(br#"{"id":"ord_1"}"#),
    }
}
