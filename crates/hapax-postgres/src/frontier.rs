//! How far a reader of the outbox is, among writers whose ids are no order of commit.
//!
//! A [`Mark`] remembers the highest id that was read and the snapshot that read it: an event at or
//! below that id was read exactly if it was visible then. What is late has an id below and comes
//! from a transaction that has ended since. No index on `xid` is needed to find it, for a
//! transaction has its xid before it draws an id: an xid that was not given yet when the sequence
//! stood at some value has drawn higher ids only. [`Floors`] keeps what was seen of that, and so a
//! writer that stays open costs nothing, and one that ends costs a look at the ids drawn since it
//! began. The sequence is believed only once its log is flushed: a crash may set it back.
//!
//! All of it stands in the frontier's text, whose first two words the purge reads as well: the
//! snapshot in which everything up to the highest id was read, and an id below which nothing can
//! come any more.

use hapax::{delivery::Frontier, store::StoreError};

use crate::error::corrupt;

/// Steps that are kept: more would make a long text for little.
const STEPS_MAX: usize = 64;

/// How far a reader is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) high: i64,
    /// The database cluster that counts the xids, where it says who it is.
    cluster: Option<Box<str>>,
    /// What was visible when everything up to `high` was read; nothing is late without it.
    seen: Option<Snapshot>,
    floors: Floors,
    /// Where the sequence stood, and how far the log must be flushed for that to be sure.
    drawn: Option<(i64, i64)>,
    pub(crate) late: Option<Late>,
}

/// Late events that are known to be there and not all read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Late {
    /// Up to where they are read.
    pub(crate) after: i64,
    /// What they were not visible in.
    pub(crate) before: Snapshot,
    /// Below it nothing was late.
    floor: i64,
}

/// Which transactions were over at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) text: Box<str>,
    xmin: u64,
    xmax: u64,
    running: Vec<u64>,
}

/// Which ids an xid can have drawn: steps of (from this xid on, higher than this id).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Floors(Vec<(u64, i64)>);

/// What a look at the outbox saw of the server.
#[derive(Clone, Debug)]
pub(crate) struct Sight {
    pub(crate) snapshot: Snapshot,
    /// How far the next xid is from the first one that is ever given.
    pub(crate) age: i32,
    /// Where the sequence stood.
    pub(crate) last: i64,
    /// How far the log was written then, and how far it is flushed.
    pub(crate) written: i64,
    pub(crate) flushed: i64,
}

/// Transactions that were open at the last look, with the ids that they cannot have drawn.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) xids: Vec<String>,
    pub(crate) floors: Vec<i64>,
    /// The first xid that the snapshot says nothing about.
    pub(crate) beyond: Option<String>,
}

impl Mark {
    /// Reads a frontier's text.
    pub(crate) fn of(frontier: &Frontier) -> Result<Self, StoreError> {
        let Some(text) = &frontier.snapshot else {
            return Ok(Self::at(frontier.high));
        };
        Self::parse(frontier.high, text)
            .ok_or_else(|| corrupt(format!("frontier {} with {text:?}", frontier.high)))
    }

    /// Everything up to `high` is read, and nothing is late.
    fn at(high: i64) -> Self {
        Self {
            high,
            cluster: None,
            seen: None,
            floors: Floors(vec![(0, high)]),
            drawn: None,
            late: None,
        }
    }

    fn parse(high: i64, text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        let [first, floor, cluster, seen, after, drawn, floors] = words[..] else {
            return None;
        };
        let late = if after == "-" {
            None
        } else {
            Some(Late {
                after: after.parse().ok()?,
                before: Snapshot::parse(first)?,
                floor: floor.parse().ok()?,
            })
        };
        let seen = match seen {
            "-" => None,
            "=" => Some(Snapshot::parse(first)?),
            seen => Some(Snapshot::parse(seen)?),
        };
        let drawn = match drawn.split_once('@') {
            Some((last, written)) => Some((last.parse().ok()?, written.parse().ok()?)),
            None if drawn == "-" => None,
            None => return None,
        };
        Some(Self {
            high,
            cluster: (cluster != "-").then(|| cluster.into()),
            seen,
            floors: Floors::parse(floors)?,
            drawn,
            late,
        })
    }

    /// The frontier that says all this.
    pub(crate) fn frontier(&self) -> Frontier {
        Frontier {
            high: self.high,
            snapshot: self.text().map(String::into_boxed_str),
        }
    }

    fn text(&self) -> Option<String> {
        let word = |word: Option<String>| word.unwrap_or_else(|| "-".to_owned());
        let (first, floor, seen) = match (&self.late, &self.seen) {
            (None, None) => return None,
            (None, Some(seen)) => (seen, self.floors.of(seen.xmin), "=".to_owned()),
            (Some(late), seen) => {
                let seen = seen.as_ref().map(|seen| seen.text.to_string());
                (&late.before, late.floor, word(seen))
            }
        };
        Some(format!(
            "{} {floor} {} {seen} {} {} {}",
            first.text,
            self.cluster.as_deref().unwrap_or("-"),
            word(self.late.as_ref().map(|late| late.after.to_string())),
            word(
                self.drawn
                    .map(|(last, written)| format!("{last}@{written}"))
            ),
            self.floors.text(),
        ))
    }

    /// Whether its xids are those of another cluster.
    pub(crate) fn is_foreign(&self, cluster: Option<&str>) -> bool {
        let pair = self.cluster.as_deref().zip(cluster);
        pair.is_some_and(|(ours, theirs)| ours != theirs)
    }

    /// The same mark on a cluster that the database was restored on.
    ///
    /// The rows kept the xids of the old cluster, and none of its transactions runs any more: what
    /// was not visible then is late now, in one last pass. The new ones draw higher ids.
    pub(crate) fn restored(self) -> Self {
        let mut restored = Self::at(self.high);
        let floor = match (&self.late, &self.seen) {
            (Some(late), _) => late.floor,
            (None, Some(seen)) => self.floors.of(seen.xmin),
            (None, None) => return restored,
        };
        let before = self.late.map(|late| late.before).or(self.seen);
        restored.late = before.map(|before| Late {
            after: floor,
            before,
            floor,
        });
        restored
    }

    /// The snapshot that read everything up to `high`, as text.
    pub(crate) fn seen(&self) -> Option<&str> {
        self.seen.as_ref().map(|seen| &*seen.text)
    }

    /// The transactions whose end makes it worth looking below `high`.
    pub(crate) fn open(&self) -> Open {
        let (mut xids, mut floors) = (Vec::new(), Vec::new());
        let mut beyond = None;
        if let Some(seen) = &self.seen {
            let may_be_late = |xid: u64| self.floors.of(xid) < self.high;
            for xid in seen.running.iter().filter(|xid| may_be_late(**xid)) {
                xids.push(xid.to_string());
                floors.push(self.floors.of(*xid));
            }
            if may_be_late(seen.xmax) {
                beyond = Some(seen.xmax.to_string());
                xids.push(seen.xmax.to_string());
                floors.push(self.floors.of(seen.xmax));
            }
        }
        Open {
            xids,
            floors,
            beyond,
        }
    }

    /// The mark after a look that read everything visible up to `high`, but for what is late and
    /// lies beyond `after`.
    pub(crate) fn looked(
        &self,
        sight: &Sight,
        cluster: Option<&str>,
        high: i64,
        after: Option<i64>,
    ) -> Self {
        let snapshot = sight.snapshot.clone();
        let (mut floors, mut drawn) = (self.floors.clone(), self.drawn);
        if let Some((last, _)) = drawn.take_if(|(_, written)| *written <= sight.flushed) {
            floors.push(snapshot.next_xid(sight.age), last);
        }
        floors.prune(&snapshot);
        let before = self.seen.clone().unwrap_or_else(|| snapshot.clone());
        let floor = self.floors.of(before.xmin);
        Self {
            high,
            cluster: cluster.or(self.cluster.as_deref()).map(Into::into),
            seen: Some(snapshot),
            floors,
            drawn: drawn.or(Some((sight.last, sight.written))),
            late: after.map(|after| Late {
                after,
                before,
                floor,
            }),
        }
    }

    /// The mark after late events were read up to `after`; `None` says that those were all.
    pub(crate) fn caught_up(mut self, after: Option<i64>) -> Self {
        match (after, &mut self.late) {
            (Some(after), Some(late)) => late.after = after,
            _ => self.late = None,
        }
        self
    }
}

impl Snapshot {
    /// Reads `xmin:xmax:xip,xip`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let (xmin, xmax, running) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() {
            return None;
        }
        let running = running.split(',').filter(|xid| !xid.is_empty());
        Some(Self {
            text: text.into(),
            xmin: xmin.parse().ok()?,
            xmax: xmax.parse().ok()?,
            running: running.map(str::parse).collect::<Result<_, _>>().ok()?,
        })
    }

    /// The next xid that will be given, of which the server tells 32 bits; it is not below `xmax`.
    fn next_xid(&self, age: i32) -> u64 {
        const FIRST: u32 = 3;
        let next = age.cast_unsigned().wrapping_add(FIRST);
        let low = u32::try_from(self.xmax & u64::from(u32::MAX)).expect("32 bits are left");
        self.xmax + u64::from(next.wrapping_sub(low))
    }
}

impl Floors {
    /// The id that `xid` can have drawn nothing below or at.
    fn of(&self, xid: u64) -> i64 {
        let steps = self.0.iter().take_while(|(from, _)| *from <= xid);
        steps.last().map_or(0, |(_, floor)| *floor)
    }

    /// From this xid on, ids are higher than `floor`.
    fn push(&mut self, from: u64, floor: i64) {
        if self.0.last().is_some_and(|(_, last)| *last >= floor) {
            return;
        }
        // A step that begins later and is lower says nothing.
        while self.0.last().is_some_and(|(last, _)| *last >= from) {
            self.0.pop();
        }
        self.0.push((from, floor));
    }

    /// Forgets the steps that tell only of transactions which are over.
    fn prune(&mut self, snapshot: &Snapshot) {
        let passed = self.0.iter().filter(|(from, _)| *from <= snapshot.xmin);
        let passed = passed.count().saturating_sub(1);
        self.0.drain(..passed);
        if self.0.len() > STEPS_MAX {
            // To believe less is always right: it only means to look further down.
            let mut number = 0;
            self.0.retain(|_| {
                number += 1;
                number % 2 == 1
            });
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let steps = text.split(',').map(|step| {
            let (from, floor) = step.split_once('@')?;
            Some((from.parse().ok()?, floor.parse().ok()?))
        });
        steps.collect::<Option<_>>().map(Self)
    }

    fn text(&self) -> String {
        let steps = self.0.iter().map(|(from, floor)| format!("{from}@{floor}"));
        steps.collect::<Vec<_>>().join(",")
    }
}
