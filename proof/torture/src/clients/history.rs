//! History of one client process, in the format of Jepsen and in segments.
//!
//! `invoke` is written before a request is sent, and flushed to disk for the first request of an
//! operation. Then follows `ok` (an effect was acknowledged), `fail` (there was no effect, or no
//! request was sent) or `info` (the outcome is unknown). A request that a kill interrupted has only
//! its `invoke`, which means the same as `info`.
//!
//! A full segment is followed by a new one, which begins with the state that the process needs
//! after a restart (`memory`). A restarted process reads only the last segment, however long the
//! run is.

use std::{
    collections::{HashMap, hash_map::Entry},
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    PROCESSES_MAX,
    operation::Operation,
    wire::{Outcome, Response},
};
use crate::lines::{self, Lines, now, segment};

/// Size from which on a segment is full, in bytes: a restarted process reads at most this.
const SEGMENT: u64 = 2 << 20;
/// How long a client remembers an acknowledged operation, in nanoseconds. Keys expire, and a
/// request under an expired key is executed again.
pub(super) const MEMORY: u64 = 8_000_000_000;

#[derive(Debug)]
pub(super) struct History {
    path: PathBuf,
    process: AtomicU64,
    written: Mutex<Written>,
    full: u64,
}

/// The last segment, and the state of its process, which all segments determine.
#[derive(Debug)]
struct Written {
    number: usize,
    lines: Lines,
    state: State,
}

/// State that a process keeps across restarts.
#[derive(Debug)]
pub(super) struct Memory {
    /// The number of the next operation.
    pub(super) next: u64,
    /// Operations without a final response; 0 stands for the time of that response.
    pub(super) open: Vec<(u64, Operation)>,
    /// Acknowledged operations, each with its time.
    pub(super) acknowledged: Vec<(u64, Operation)>,
}

/// The state of a process, which every line updates.
#[derive(Debug, Default)]
struct State {
    operations: HashMap<(String, String), OperationState>,
    count: u64,
    /// The number after the highest one that was used.
    next: u64,
}

/// An operation, and whether it has its final response.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct OperationState {
    operation: Operation,
    /// Time of the first final response.
    at: Option<u64>,
    is_acknowledged: bool,
}

impl History {
    /// Continues the history at `path`.
    pub(super) fn open(path: &Path) -> anyhow::Result<(Self, Memory)> {
        Self::of_segments(path, SEGMENT)
    }

    fn of_segments(path: &Path, full: u64) -> anyhow::Result<(Self, Memory)> {
        let number = lines::segments(path).len().saturating_sub(1);
        let last = segment(path, number);
        let past = lines::read(&last)?;
        let mut state = State::default();
        for line in &past {
            state.apply(line)?;
        }
        // Each request has two lines at most, and a number that none before it has.
        let begun = past.first().and_then(|it| it["processes"].as_u64());
        let memory = state.memory();
        let written = Written {
            number,
            lines: Lines::open(&last)?,
            state,
        };
        let history = Self {
            path: path.to_owned(),
            process: AtomicU64::new(begun.unwrap_or_default() + past.len() as u64),
            written: Mutex::new(written),
            full,
        };
        Ok((history, memory))
    }

    /// Records a request before it is sent; the returned number identifies it when its outcome is
    /// recorded.
    pub(super) fn invoke(
        &self,
        operation: &Operation,
        is_first: bool,
        is_altered: bool,
    ) -> anyhow::Result<u64> {
        let process = self.process.fetch_add(1, Ordering::Relaxed);
        let mut line = line("invoke", process, operation, is_altered);
        line["value"] = serde_json::to_value(operation)?;
        self.write(&line, is_first)?;
        Ok(process)
    }

    /// Records the outcome of a request.
    pub(super) fn end(
        &self,
        process: u64,
        operation: &Operation,
        is_altered: bool,
        outcome: &Outcome,
    ) -> anyhow::Result<()> {
        let (word, result) = match outcome {
            Outcome::Responded(response) if response.is_success() => ("ok", Some(response)),
            Outcome::Responded(response) if response.is_indefinite() => ("info", Some(response)),
            Outcome::Responded(response) => ("fail", Some(response)),
            Outcome::Unsent => ("fail", None),
            Outcome::Lost => ("info", None),
        };
        let mut line = line(word, process, operation, is_altered);
        line["value"] = result.map(Response::json_line).unwrap_or_default();
        self.write(&line, false)
    }

    fn write(&self, line: &Value, is_flushed: bool) -> anyhow::Result<()> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if written.lines.length()? >= self.full {
            self.begin_segment(&mut written)?;
        }
        written.state.apply(line)?;
        if is_flushed {
            written.lines.keep(line)?;
        } else {
            written.lines.add(line)?;
        }
        Ok(())
    }

    /// Begins the next segment. It gets its name when it is complete and on disk: until then the
    /// previous one is the last.
    fn begin_segment(&self, written: &mut Written) -> anyhow::Result<()> {
        written.state.forget(now().saturating_sub(MEMORY));
        let line = written.state.line(self.process.load(Ordering::Relaxed))?;
        let next = segment(&self.path, written.number + 1);
        let draft = next.with_extension("draft");
        let mut file = File::create(&draft)?;
        file.write_all(format!("{line}\n").as_bytes())?;
        file.sync_data()?;
        fs::rename(&draft, &next)?;
        written.number += 1;
        written.lines = Lines::open(&next)?;
        Ok(())
    }
}

impl State {
    fn apply(&mut self, line: &Value) -> anyhow::Result<()> {
        if line["type"] == "memory" {
            for outcome in line["operations"].as_array().into_iter().flatten() {
                let outcome: OperationState = serde_json::from_value(outcome.clone())?;
                let name = (
                    outcome.operation.tenant.clone(),
                    outcome.operation.key.clone(),
                );
                self.operations.insert(name, outcome);
            }
            self.count = line["count"].as_u64().unwrap_or_default();
            self.next = line["next"].as_u64().unwrap_or_default();
            return Ok(());
        }
        if line["altered"] == true {
            return Ok(());
        }
        let name = |member: &str| line[member].as_str().unwrap_or_default().to_owned();
        let key = (name("tenant"), name("key"));
        if line["type"] == "invoke" {
            self.count += 1;
            self.next = self.next.max(after(&key.1));
            if let Entry::Vacant(vacant) = self.operations.entry(key) {
                let operation = serde_json::from_value(line["value"].clone())?;
                vacant.insert(OperationState::open(operation));
            }
        } else if let Some(outcome) = self.operations.get_mut(&key)
            && line["value"]["final"] == true
        {
            outcome.at = outcome.at.or(line["time"].as_u64());
            outcome.is_acknowledged |= line["type"] == "ok";
        }
        Ok(())
    }

    /// Removes operations that had their final response before this time: they are not repeated.
    fn forget(&mut self, before: u64) {
        self.operations
            .retain(|_, it| it.at.is_none_or(|at| at >= before));
    }

    /// First line of the next segment.
    fn line(&self, processes: u64) -> anyhow::Result<Value> {
        let operations: Vec<_> = self.operations.values().collect();
        Ok(json!({
            "type": "memory", "operations": serde_json::to_value(operations)?, "count": self.count,
            "next": self.next, "processes": processes, "time": now(),
        }))
    }

    fn memory(&self) -> Memory {
        let (mut open, mut acknowledged) = (Vec::new(), Vec::new());
        for outcome in self.operations.values() {
            match (outcome.at, outcome.is_acknowledged) {
                (None, _) => open.push((0, outcome.operation.clone())),
                (Some(at), true) => acknowledged.push((at, outcome.operation.clone())),
                (Some(_), false) => {}
            }
        }
        open.sort_by(|(_, one), (_, other)| one.key.cmp(&other.key));
        acknowledged.sort_by(|(_, one), (_, other)| one.key.cmp(&other.key));
        Memory {
            // If a kill interrupts two requests at once, the lower number may be missing from the
            // history. The count alone would then use the higher one a second time.
            next: self.next.max(self.count),
            open,
            acknowledged,
        }
    }
}

impl OperationState {
    fn open(operation: Operation) -> Self {
        Self {
            operation,
            at: None,
            is_acknowledged: false,
        }
    }
}

/// The number that follows the number of this key in the sequence of a process.
fn after(key: &str) -> u64 {
    let number = key.strip_prefix("k-").and_then(|it| it.parse::<u64>().ok());
    number.map_or(0, |it| it / PROCESSES_MAX + 1)
}

fn line(word: &str, process: u64, operation: &Operation, is_altered: bool) -> Value {
    json!({
        "type": word, "f": operation.kind, "process": process, "time": now(),
        "tenant": operation.tenant, "key": operation.key, "altered": is_altered,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_is_used_twice_if_a_kill_left_one_out() {
        check(&[], 0);
        check(&[1, 17], 2);
        // The number between was used, and its request was never written.
        check(&[1, 33], 3);
        check(&[1, 1, 1, 17], 4);
    }

    /// After a restart, a process that has used these numbers continues with the next one in its
    /// sequence.
    #[track_caller]
    fn check(used: &[u64], next: u64) {
        let mut state = State::default();
        for number in used {
            let operation = Operation::order("alice", *number);
            let mut line = line("invoke", 0, &operation, false);
            line["value"] = json!(operation);
            state.apply(&line).expect("it is a line of a history");
        }
        assert_eq!(state.memory().next, next, "{used:?}");
    }

    #[test]
    fn a_client_that_is_killed_late_reads_one_segment_and_knows_the_state_of_all() {
        const OPERATIONS: u64 = 400;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("clients-1.jsonl");
        let full = 8 << 10;
        let mut processes = 0;
        for number in 0..OPERATIONS {
            // Each operation is requested by another process.
            let (history, memory) = History::of_segments(&path, full).unwrap();
            assert_eq!(memory.next, number, "a number is left out, or used twice");
            let operation = Operation::order("alice", number * PROCESSES_MAX + 1);
            let process = history.invoke(&operation, true, false).unwrap();
            assert!(process >= processes, "{process} was used before");
            processes = process + 1;
            // One in seven gets no response.
            if number % 7 > 0 {
                let response = Outcome::Responded(Response::sample(201));
                history.end(process, &operation, false, &response).unwrap();
            }
        }
        let (_, memory) = History::of_segments(&path, full).unwrap();
        let expected: usize = (0..OPERATIONS).filter(|it| it % 7 == 0).count();
        assert_eq!(memory.open.len(), expected);
        let segments = lines::segments(&path);
        assert!(segments.len() > 3, "{segments:?}");
        // Every line exists once, and the checkers read them in the order of time.
        let all = lines::read_all(&path).unwrap();
        let invoked = all.iter().filter(|line| line["type"] == "invoke").count();
        assert_eq!(invoked as u64, OPERATIONS);
        let numbers: Vec<_> = all.iter().filter_map(|it| it["process"].as_u64()).collect();
        assert!(numbers.is_sorted(), "{numbers:?}");
    }
}
