//! The history of one process of clients, in Jepsen's shape.
//!
//! `invoke` is written before a request goes out, the first of a wish to the disk; then `ok` (an
//! effect was acknowledged), `fail` (nothing happened, or nothing was asked) or `info` (nobody
//! knows). A request that a kill cut off has its `invoke` alone, which says the same as `info`.

use std::{
    collections::HashMap,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use serde_json::{Value, json};

use super::{
    PROCESSES_MAX,
    wire::{Answer, Outcome},
    wish::Wish,
};
use crate::lines::{self, Lines, now};

#[derive(Debug)]
pub(super) struct History {
    lines: Lines,
    process: AtomicU64,
}

/// What a process knows of its earlier lives.
#[derive(Debug)]
pub(super) struct Memory {
    /// The number of the next wish.
    pub(super) next: u64,
    /// Wishes without an answer for good, each with 0 for when that was.
    pub(super) open: Vec<(u64, Wish)>,
    /// Wishes that were granted, each with when that was.
    pub(super) granted: Vec<(u64, Wish)>,
}

impl History {
    pub(super) fn open(path: &Path) -> anyhow::Result<(Self, Memory)> {
        let past = lines::read(path)?;
        let history = Self {
            lines: Lines::open(path)?,
            process: AtomicU64::new(past.len() as u64),
        };
        Ok((history, Memory::of(&past)?))
    }

    /// Writes down what is about to be asked; by the number that is returned the end is told.
    pub(super) fn invoke(
        &self,
        wish: &Wish,
        is_first: bool,
        is_altered: bool,
    ) -> anyhow::Result<u64> {
        let process = self.process.fetch_add(1, Ordering::Relaxed);
        let mut line = line("invoke", process, wish, is_altered);
        line["value"] = serde_json::to_value(wish)?;
        if is_first {
            self.lines.keep(&line)?;
        } else {
            self.lines.add(&line)?;
        }
        Ok(process)
    }

    /// Writes down how it ended.
    pub(super) fn end(
        &self,
        process: u64,
        wish: &Wish,
        is_altered: bool,
        outcome: &Outcome,
    ) -> anyhow::Result<()> {
        let (word, told) = match outcome {
            Outcome::Answered(answer) if answer.is_success() => ("ok", Some(answer)),
            Outcome::Answered(answer) if answer.is_indefinite() => ("info", Some(answer)),
            Outcome::Answered(answer) => ("fail", Some(answer)),
            Outcome::Unsent => ("fail", None),
            Outcome::Lost => ("info", None),
        };
        let mut line = line(word, process, wish, is_altered);
        line["value"] = told.map(Answer::json_line).unwrap_or_default();
        self.lines.add(&line)?;
        Ok(())
    }
}

/// What a wish was told.
struct Told {
    wish: Wish,
    /// When it first had an answer for good.
    at: Option<u64>,
    is_granted: bool,
}

impl Told {
    fn nothing(wish: Wish) -> Self {
        Self {
            wish,
            at: None,
            is_granted: false,
        }
    }
}

impl Memory {
    fn of(past: &[Value]) -> anyhow::Result<Self> {
        let mut wishes: HashMap<(String, String), Told> = HashMap::new();
        let (mut count, mut beyond) = (0, 0_u64);
        for line in past.iter().filter(|line| line["altered"] != true) {
            let name = |member: &str| line[member].as_str().unwrap_or_default().to_owned();
            let key = (name("tenant"), name("key"));
            if line["type"] == "invoke" {
                count += 1;
                beyond = beyond.max(after(&key.1));
                let wish = serde_json::from_value(line["value"].clone())?;
                wishes.entry(key).or_insert(Told::nothing(wish));
            } else if let Some(told) = wishes.get_mut(&key)
                && line["value"]["lasting"] == true
            {
                told.at = told.at.or(line["time"].as_u64());
                told.is_granted |= line["type"] == "ok";
            }
        }
        let (mut open, mut granted) = (Vec::new(), Vec::new());
        for told in wishes.into_values() {
            match (told.at, told.is_granted) {
                (None, _) => open.push((0, told.wish)),
                (Some(at), true) => granted.push((at, told.wish)),
                (Some(_), false) => {}
            }
        }
        open.sort_by(|(_, one), (_, other)| one.key.cmp(&other.key));
        granted.sort_by(|(_, one), (_, other)| one.key.cmp(&other.key));
        Ok(Self {
            // Of numbers that were given at once a kill may leave out the lower: the count alone would
            // give the higher a second time.
            next: beyond.max(count),
            open,
            granted,
        })
    }
}

/// What a process counts next after the number of this key.
fn after(key: &str) -> u64 {
    let number = key.strip_prefix("k-").and_then(|it| it.parse::<u64>().ok());
    number.map_or(0, |it| it / PROCESSES_MAX + 1)
}

fn line(word: &str, process: u64, wish: &Wish, is_altered: bool) -> Value {
    json!({
        "type": word, "f": wish.kind, "process": process, "time": now(),
        "tenant": wish.tenant, "key": wish.key, "altered": is_altered,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_is_given_twice_whatever_a_kill_left_out() {
        check(&[], 0);
        check(&[1, 17], 2);
        // The one between was given, and never asked for.
        check(&[1, 33], 3);
        check(&[1, 1, 1, 17], 4);
    }

    /// A process that asked for wishes of these numbers goes on with that one of its own.
    #[track_caller]
    fn check(asked: &[u64], next: u64) {
        let invoked = |number: &u64| {
            let wish = Wish::order("alice", *number);
            let mut line = line("invoke", 0, &wish, false);
            line["value"] = json!(wish);
            line
        };
        let past: Vec<_> = asked.iter().map(invoked).collect();
        let memory = Memory::of(&past).expect("it is a history");
        assert_eq!(memory.next, next, "{asked:?}");
    }
}
