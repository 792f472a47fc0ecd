//! Notes checker: a note of the SQL-contract client exists exactly if its commit succeeded.

use std::collections::BTreeSet;

use super::{Violation, violated};
use crate::artifacts::Artifacts;

pub(super) fn violations(artifacts: &Artifacts) -> Vec<Violation> {
    let id = |row: &serde_json::Value| row["id"].as_str().map(str::to_owned);
    let mut stored: BTreeSet<_> = artifacts.rows("notes").iter().filter_map(id).collect();
    let mut found = Vec::new();
    for (id, word) in &artifacts.notes {
        let is_stored = stored.remove(id);
        match word.as_str() {
            "ok" if !is_stored => {
                found.push(violated(2, format!("{id} was committed and is lost")));
            }
            "fail" if is_stored => {
                found.push(violated(2, format!("{id} was rolled back and exists")));
            }
            _ => {}
        }
    }
    found.extend(
        stored
            .into_iter()
            .map(|id| violated(1, format!("no client wrote {id}"))),
    );
    found
}
