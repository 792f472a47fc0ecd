//! Checks of results, and reading lists to their end.

use std::fmt::Debug;

use hapax::admin::{AdminError, PAGE_MAX, Page};

/// A step that must succeed.
pub(crate) trait Must<T> {
    /// The value.
    fn must(self) -> T;
}

impl<T, E: Debug> Must<T> for Result<T, E> {
    #[track_caller]
    fn must(self) -> T {
        self.unwrap_or_else(|error| panic!("the operation should succeed: {error:?}"))
    }
}

/// Requires that an object does not exist, or is hidden from the actor.
#[track_caller]
pub(crate) fn check_missing<T: Debug>(outcome: &Result<T, AdminError>) {
    assert!(
        matches!(outcome, Err(AdminError::NotFound { .. })),
        "expected NotFound, got {outcome:?}"
    );
}

/// Requires that the state of an object does not allow an operation.
#[track_caller]
pub(crate) fn check_conflict<T: Debug>(outcome: &Result<T, AdminError>) {
    assert!(
        matches!(outcome, Err(AdminError::Conflict { .. })),
        "expected Conflict, got {outcome:?}"
    );
}

/// Requires that a field of the request is not valid.
#[track_caller]
pub(crate) fn check_invalid<T: Debug>(outcome: &Result<T, AdminError>, expected: &str) {
    assert!(
        matches!(outcome, Err(AdminError::Invalid { field, .. }) if field == expected),
        "expected Invalid of {expected}, got {outcome:?}"
    );
}

/// Requires that the store failed.
#[track_caller]
pub(crate) fn check_store_failed<T: Debug>(outcome: &Result<T, AdminError>) {
    assert!(
        matches!(outcome, Err(AdminError::Store(_))),
        "expected a failure of the store, got {outcome:?}"
    );
}

/// Requires that exactly one of several operations at once was done, and that the others met its
/// result. Returns the index of that one.
#[track_caller]
pub(crate) fn check_one_done<T: Debug>(outcomes: &[Result<T, AdminError>]) -> usize {
    let done = outcomes.iter().enumerate().filter(|(_, it)| it.is_ok());
    let done: Vec<usize> = done.map(|(index, _)| index).collect();
    let met = |it: &Result<T, AdminError>| {
        matches!(
            it,
            Ok(_) | Err(AdminError::Conflict { .. } | AdminError::NotFound { .. })
        )
    };
    assert!(
        done.len() == 1 && outcomes.iter().all(met),
        "expected one success and conflicts, got {outcomes:?}"
    );
    done[0]
}

/// Reads a list from the cursor `from` to its end, page by page.
pub(crate) async fn pages_from<T>(
    from: Option<String>,
    limit: usize,
    mut read: impl AsyncFnMut(Option<String>) -> Result<Page<T>, AdminError>,
) -> Vec<T> {
    let (mut all, mut cursor) = (Vec::new(), from);
    for _ in 0..100_000 {
        let page = read(cursor.take()).await.must();
        let bound = limit.clamp(1, PAGE_MAX);
        assert!(page.items.len() <= bound, "a page is longer than {bound}");
        all.extend(page.items);
        cursor = page.next;
        if cursor.is_none() {
            return all;
        }
    }
    panic!("the list does not end");
}

/// Reads a whole list, page by page.
pub(crate) async fn pages<T>(
    limit: usize,
    read: impl AsyncFnMut(Option<String>) -> Result<Page<T>, AdminError>,
) -> Vec<T> {
    pages_from(None, limit, read).await
}

/// Words that are dangerous in SQL, in patterns and in programs in C.
pub(crate) const HOSTILE: [&str; 9] = [
    "'; DROP TABLE hapax.outbox_event; --",
    "%' OR '1'='1",
    "\"; --",
    "\\",
    "\0",
    "a\0b",
    "$1",
    "?1",
    "é\u{202e}",
];

/// A word of 64 KiB.
pub(crate) fn long() -> String {
    "x".repeat(64 * 1024)
}

/// The words of [`HOSTILE`] and a long one.
pub(crate) fn hostile() -> Vec<String> {
    let mut words: Vec<String> = HOSTILE.iter().map(|word| (*word).to_owned()).collect();
    words.push(long());
    words
}

/// The beginning of a value's debug output.
pub(crate) fn short(value: &impl Debug) -> String {
    format!("{value:?}").chars().take(300).collect()
}
