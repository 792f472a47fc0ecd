//! Fuzz target for the filter box of the console: every text is a filter, or is rejected with a
//! message.
//!
//! A filter that is written as text is parsed as the same filter, and is written as the same text.
#![no_main]

#[path = "../../../crates/hapax-console/src/filter/mod.rs"]
#[allow(dead_code, reason = "the pages of the console use the rest")]
mod filter;

use filter::{Filter, Qualifier};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match Filter::parse(text) {
        Ok(read) => {
            let written = read.to_string();
            assert_eq!(Filter::parse(&written), Ok(read.clone()), "{written:?}");
            let _ = (read.ages(), read.attempts_min());
            let everything = Qualifier::ALL.map(|(qualifier, _)| qualifier);
            assert_eq!(read.check(&everything, true), Ok(()));
        }
        Err(wrong) => assert!(!wrong.0.is_empty()),
    }
});
