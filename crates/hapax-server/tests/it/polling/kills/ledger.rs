//! The ledger of a consumer: a file to which it appends the pages that it has received and the cursors
//! that it has committed.
//!
//! An entry is a line of JSON, and is on the disk before the consumer goes on. A consumer that is killed
//! while it writes leaves a part of a line. Readers skip it, and the next process removes it.

use std::{
    fs::{self, File},
    io::Write as _,
    path::Path,
};

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Entry {
    Page(Page),
    /// The endpoint has confirmed the commit of the last page's cursor.
    Committed {
        cursor: String,
    },
}

/// A page, as the endpoint returns it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Page {
    #[serde(rename = "data")]
    pub(super) events: Vec<Received>,
    pub(super) cursor: String,
    pub(super) has_more: bool,
}

/// The members of an event that are compared.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(super) struct Received {
    pub(super) id: String,
    pub(super) tenant: Option<String>,
    pub(super) aggregate: Aggregate,
    pub(super) sequence: i64,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(super) struct Aggregate {
    pub(super) id: String,
}

impl Received {
    pub(super) fn new(id: &str, tenant: &str, aggregate: &str, sequence: i64) -> Self {
        Self {
            id: id.to_owned(),
            tenant: Some(tenant.to_owned()),
            aggregate: Aggregate {
                id: aggregate.to_owned(),
            },
            sequence,
        }
    }
}

/// A ledger that is open for writing.
pub(super) struct Ledger {
    file: File,
    /// The cursor of the last page.
    cursor: String,
}

impl Ledger {
    pub(super) fn open(path: &Path) -> Self {
        let file = File::options().create(true).append(true).open(path);
        let file = file.unwrap();
        let bytes = fs::read(path).unwrap();
        let whole = complete(&bytes);
        file.set_len(u64::try_from(whole.len()).unwrap()).unwrap();
        let cursor = lines(whole).rev().find_map(|line| match entry(line) {
            Entry::Page(page) => Some(page.cursor),
            Entry::Committed { .. } => None,
        });
        Self {
            file,
            cursor: cursor.unwrap_or_default(),
        }
    }

    /// The cursor of the last page; empty if there is none.
    pub(super) fn cursor(&self) -> &str {
        &self.cursor
    }

    /// Appends an entry, and waits until it is on the disk.
    pub(super) fn append(&mut self, entry: &Entry) {
        let mut line = serde_json::to_vec(entry).unwrap();
        line.push(b'\n');
        self.file.write_all(&line).unwrap();
        self.file.sync_data().unwrap();
        if let Entry::Page(page) = entry {
            self.cursor.clone_from(&page.cursor);
        }
    }
}

/// The complete entries of a ledger; none if there is no file yet.
pub(super) fn read(path: &Path) -> Vec<Entry> {
    let bytes = fs::read(path).unwrap_or_default();
    lines(complete(&bytes)).map(entry).collect()
}

fn complete(bytes: &[u8]) -> &[u8] {
    let last = bytes.iter().rposition(|byte| *byte == b'\n');
    &bytes[..last.map_or(0, |last| last + 1)]
}

fn lines(bytes: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    bytes.split_inclusive(|byte| *byte == b'\n')
}

fn entry(line: &[u8]) -> Entry {
    serde_json::from_slice(line).unwrap()
}

#[test]
fn the_part_of_an_entry_that_a_kill_leaves_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    let page = |cursor: &str| {
        Entry::Page(Page {
            events: vec![Received::new("1", "ann", "a", 1)],
            cursor: cursor.to_owned(),
            has_more: false,
        })
    };
    assert_eq!(Ledger::open(&path).cursor(), "");
    Ledger::open(&path).append(&page("first"));
    let whole = fs::read(&path).unwrap();
    Ledger::open(&path).append(&page("second"));
    let both = fs::read(&path).unwrap();
    fs::write(&path, &both[..both.len() - 1]).unwrap();
    assert_eq!(read(&path).len(), 1);
    assert_eq!(Ledger::open(&path).cursor(), "first");
    assert_eq!(fs::read(&path).unwrap(), whole);
}
