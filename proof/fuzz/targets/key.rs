//! The header `Idempotency-Key`: any bytes are a key or are refused.
//!
//! A key is within its bounds, and written into a header it reads back as itself. Whatever RFC 8941 takes for an item
//! that is a string is the key that another reader of structured fields (the crate `sfv`) reads. The other way round
//! does not hold: a bare key is no string to it, and of the parameters, which are ignored, only the shape is looked at.
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
            IdempotencyKey::new(text.as_str()).expect("the library takes what a header named");
        assert_eq!(key(&echo(&kept)).as_ref(), Ok(text));
        assert_eq!(key(quoted(text).as_bytes()).as_ref(), Ok(text));
    }
    // Dates and display strings came later (RFC 9651).
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
