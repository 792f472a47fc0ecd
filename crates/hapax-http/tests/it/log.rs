//! Fixture: the log of this thread, with everything that Hapax logs at any level.

use std::{cell::RefCell, io, mem, sync::Once};

use tracing::Level;
use tracing_subscriber::{
    Layer as _, filter::Targets, fmt::format::FmtSpan, layer::SubscriberExt as _,
};

thread_local! {
    static LOG: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Installs a subscriber for all threads of this process. With a subscriber per thread, another
/// test could reach a callsite without a subscriber first, and `tracing` would cache it as
/// disabled.
pub(crate) fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let levels = Targets::new()
            .with_default(Level::DEBUG)
            .with_target("hapax", Level::TRACE);
        let lines = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .with_span_events(FmtSpan::CLOSE)
            .with_writer(|| Log)
            .with_filter(levels);
        let subscriber = tracing_subscriber::registry().with(lines);
        tracing::subscriber::set_global_default(subscriber).unwrap();
        tracing::callsite::rebuild_interest_cache();
    });
    drop(take());
}

/// Returns what this thread has logged since the last call.
pub(crate) fn take() -> String {
    let log = LOG.with_borrow_mut(mem::take);
    String::from_utf8_lossy(&log).into_owned()
}

/// Returns the lines of requests and messages in a log, without the spans around them.
pub(crate) fn lines(log: &str) -> Vec<&str> {
    let lines = log.lines();
    lines
        .filter_map(|line| Some(line.split_once("hapax::requests: ")?.1))
        .collect()
}

/// Checks that this thread has written one line since the last call, with these words.
#[track_caller]
pub(crate) fn check_line(words: &[&str]) {
    let log = take();
    let [line] = lines(&log)[..] else {
        panic!("not one line: {log}");
    };
    for word in words {
        assert!(line.contains(word), "{word} is not in {line}");
    }
}

struct Log;

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.with_borrow_mut(|log| log.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
