//! Fuzz target for the decoder of logical replication: every message is decoded or refused.
//!
//! A message that is decoded has exactly its length: without its last byte it is refused.
#![no_main]

#[path = "../../../crates/hapax-postgres/src/feed/pgoutput.rs"]
#[allow(dead_code, reason = "the feed uses the rest")]
mod pgoutput;

use bytes::Bytes;
use hapax_postgres::Change;
use libfuzzer_sys::fuzz_target;
use pgoutput::{Message, decode, head};

fuzz_target!(|message: &[u8]| {
    let whole = Bytes::copy_from_slice(message);
    let _named = head(whole.clone());
    let Ok(decoded) = decode(whole) else { return };
    if decoded != Message::Other {
        let shorter = Bytes::copy_from_slice(&message[..message.len() - 1]);
        assert!(decode(shorter).is_err(), "{decoded:?}");
    }
});
