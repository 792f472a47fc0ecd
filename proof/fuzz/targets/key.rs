//! Fuzz target for the header `Idempotency-Key`: any bytes are a key, or are rejected.
//!
//! A key is within its bounds, and is parsed as the same key after it was written into a header. If
//! the crate `sfv`, another parser of structured fields, reads the value as an item with a string
//! (RFC 8941), Hapax reads the same string as the key. The reverse does not hold: `sfv` does not
//! read a bare key as a string, and Hapax only checks the shape of parameters, which it ignores.
#![no_main]

use hapax::{key::IdempotencyKey, limits::KEY_BYTES_MAX};
use hapax_http::fuzz::{echo, key};
use libfuzzer_sys::fuzz_target;
use sfv::{BareItem, Item, Parser};

fuzz_target!(|value: &[u8]| {
    let read = key(value);
    if let Ok(text) = &read {
        assert!((1..=KEY_BYTES_MAX).contains(&text.len()));
        assert!(text.bytes().all(|byte| (0x20..=0x7e).contains(&byte)));
        let kept =
            IdempotencyKey::new(text.as_str()).expect("a parsed key is a valid idempotency key");
        assert_eq!(key(&echo(&kept)).as_ref(), Ok(text));
        assert_eq!(key(quoted(text).as_bytes()).as_ref(), Ok(text));
    }
    // RFC 9651 added dates and display strings.
    if value.iter().any(|byte| b"@%".contains(byte)) {
        return;
    }
    if let Ok(Item {
        bare_item: BareItem::String(text),
        ..
    }) = Parser::new(value).parse::<Item>()
        && (1..=KEY_BYTES_MAX).contains(&text.as_str().len())
    {
        assert_eq!(read.as_deref(), Ok(text.as_str()));
    }
});

fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{escaped}\"")
}
