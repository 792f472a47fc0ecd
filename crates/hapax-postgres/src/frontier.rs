//! The position of a reader of the outbox, while writers commit in another order than that of their
//! ids.
//!
//! A [`Mark`] contains the highest id that was read and the snapshot in which it was read: an event
//! at or below that id was read if and only if it was visible in the snapshot. A late event has a
//! lower id and comes from a transaction that has ended since. No index on `xid` is needed to find
//! it, because a transaction has its xid before it draws an id: if an xid was not assigned yet when
//! the sequence had some value, its transaction has drawn higher ids only. [`Floors`] keeps these
//! observations, so a writer that stays open costs nothing, and one that ends costs a read of the
//! ids that were drawn since it began. A value of the sequence counts only after its WAL record is
//! flushed, because a crash may set it back.
//!
//! All of this is in the text of the frontier, which the purge reads too (`hapax.mark`): the
//! snapshot in which everything up to the highest id was read, an id below which no event can
//! appear any more, and which shards were read at all.

mod polled;

use hapax::{
    delivery::{Frontier, Shards},
    store::StoreError,
};

use crate::error::corrupt;

/// Steps that are kept: more would make a long text for little.
const STEPS_MAX: usize = 64;

/// How far a reader is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) high: i64,
    /// The history that it was read in, where it has a name: the cluster that counts the xids, or
    /// `-` where it does not say who it is, its timeline, and the database that counts the ids.
    history: Option<Box<str>>,
    /// A bit for each shard that is read.
    mask: u16,
    /// The snapshot in which everything up to `high` was read. Without it no event is late.
    seen: Option<Snapshot>,
    floors: Floors,
    /// The value of the sequence, and the WAL position up to which it must be flushed to be
    /// certain.
    drawn: Option<(i64, i64)>,
    pub(crate) late: Option<Late>,
}

/// Late events that are known to be there and not all read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Late {
    /// Up to where they are read.
    pub(crate) after: i64,
    /// The snapshot in which they were not visible.
    pub(crate) before: Snapshot,
    /// Below it nothing was late.
    floor: i64,
}

/// Snapshot: the transactions that had ended at a moment.
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

/// Whose the xids of a mark are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum History {
    /// Those that are counted now.
    Same,
    /// The same cluster went on from an earlier moment, without what came after it.
    Branched,
    /// Another cluster's, or another database's.
    Foreign,
}

/// The state of the server at a read of the outbox.
#[derive(Clone, Debug)]
pub(crate) struct Sight {
    pub(crate) snapshot: Snapshot,
    /// How far the next xid is from the first one that is ever given.
    pub(crate) age: i32,
    /// The value of the sequence.
    pub(crate) last: i64,
    /// How far the log was written then, and how far it is flushed.
    pub(crate) written: i64,
    pub(crate) flushed: i64,
}

/// Transactions that were open at the last look, with the ids that they cannot have drawn.
#[derive(Debug)]
pub(crate) struct OpenTransactions {
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
            history: None,
            mask: u16::MAX,
            seen: None,
            floors: Floors(vec![(0, high)]),
            drawn: None,
            late: None,
        }
    }

    fn parse(high: i64, text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        let (words, mask) = match words[..] {
            [.., mask] if words.len() == 8 => (&words[..7], mask.parse().ok()?),
            _ => (&words[..], u16::MAX),
        };
        let [first, floor, history, seen, after, drawn, floors] = *words else {
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
            history: (history != "-").then(|| history.into()),
            mask,
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
            "{} {floor} {} {seen} {} {} {} {}",
            first.text,
            self.history.as_deref().unwrap_or("-"),
            word(self.late.as_ref().map(|late| late.after.to_string())),
            word(
                self.drawn
                    .map(|(last, written)| format!("{last}@{written}"))
            ),
            self.floors.text(),
            self.mask,
        ))
    }

    /// The same mark, of these shards.
    pub(crate) fn of_shards(mut self, shards: Shards) -> Self {
        self.mask = shards.iter().fold(0, |mask, shard| mask | 1 << shard);
        self
    }

    /// Whether its xids are those that are counted now, as `hapax.is_read_in` says: of the same
    /// cluster, timeline and database, as far as both have names.
    pub(crate) fn history(&self, now: &str) -> History {
        let Some(then) = self.history.as_deref() else {
            return History::Same;
        };
        let (mut then, mut now) = (then.split('/'), now.split('/'));
        let mut next = || (then.next(), now.next());
        let (cluster, line, database) = (next(), next(), next());
        let differ = |(then, now): (Option<&str>, Option<&str>)| {
            then.zip(now)
                .is_some_and(|(then, now)| then != now && then != "-" && now != "-")
        };
        if differ(cluster) || differ(database) {
            History::Foreign
        } else if line.0.is_some() && line.0 != line.1 {
            History::Branched
        } else {
            History::Same
        }
    }

    /// The same mark in the history that the database has come to.
    pub(crate) fn on(mut self, history: &str) -> Self {
        self.history = Some(history.into());
        self
    }

    /// The same mark in another database that was restored from this one.
    ///
    /// The rows have kept the xids of the old database, and none of its transactions is running:
    /// what was not visible then is late now, and is found by one last read. New transactions draw
    /// higher ids.
    pub(crate) fn restored(self) -> Self {
        let mut restored = Self {
            mask: self.mask,
            ..Self::at(self.high)
        };
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
    pub(crate) fn open(&self) -> OpenTransactions {
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
        OpenTransactions {
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
        history: &str,
        high: i64,
        after: Option<i64>,
    ) -> Self {
        let snapshot = sight.snapshot.clone();
        let (mut floors, mut drawn) = (self.floors.clone(), self.drawn);
        if let Some((last, _)) = drawn.take_if(|(_, written)| *written <= sight.flushed) {
            // A crash can lose the record of the sequence and reuse its place in the WAL. The
            // sequence is lower then, and assigns ids again that had been drawn.
            floors.push(snapshot.next_xid(sight.age), last.min(sight.last));
        }
        floors.prune(&snapshot);
        let before = self.seen.clone().unwrap_or_else(|| snapshot.clone());
        let floor = self.floors.of(before.xmin);
        Self {
            high,
            history: Some(history.into()),
            mask: self.mask,
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

    /// The next xid that will be assigned. The server reports 32 bits of it; it is not below
    /// `xmax`.
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

    /// Removes the steps that only concern transactions that have ended.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_reads_back_as_it_was_written() {
        let mark = Mark::at(0).looked(&sight("7:9:7", 12, 4, 100, 50), "77/1", 3, None);
        check(&mark, "7:9:7 0 77/1 = - 4@100 0@0 65535");
        let mark = mark.looked(&sight("8:20:8,12", 22, 30, 300, 200), "77/1", 25, None);
        check(&mark, "8:20:8,12 0 77/1 = - 30@300 0@0,22@4 65535");
        let late = mark.looked(&sight("21:30:", 33, 40, 400, 300), "77/1", 25, Some(11));
        check(
            &late,
            "8:20:8,12 0 77/1 21:30: 11 40@400 0@0,22@4,33@30 65535",
        );
        check(
            &late.clone().caught_up(Some(19)),
            "8:20:8,12 0 77/1 21:30: 19 40@400 0@0,22@4,33@30 65535",
        );
        check(
            &late.caught_up(None),
            "21:30: 0 77/1 = - 40@400 0@0,22@4,33@30 65535",
        );
        assert_eq!(Mark::at(5).frontier().snapshot, None);
    }

    #[test]
    fn a_text_that_is_no_mark_is_refused() {
        for bad in [
            "",
            "7:9:7",
            "7:9 0 - = - - 0@0",
            "7:9:7 0 - = x - 0@0",
            "7:9:x 0 - = - - 0@0",
            "7:9:7 0 - = - 4 0@0",
            "7:9:7 0 - = - - 0",
            "7:9:7 0 - = - - 0@0 more",
            "7:9:7 0 - = - - 0@0 65536",
            "7:9:7 0 - = - - 0@0 1 1",
        ] {
            assert_eq!(Mark::parse(3, bad), None, "{bad:?}");
        }
    }

    #[test]
    fn only_an_xid_that_was_not_given_yet_has_a_higher_floor() {
        // The transactions 100 to 104 run, and none has ended: the snapshots contain 100 each time.
        let first = Mark::at(0).looked(&sight("100:100:", 105, 10, 1, 0), "-/1", 10, None);
        let second = first.looked(&sight("100:100:", 105, 20, 2, 1), "-/1", 20, None);
        assert_eq!(second.floors.of(104), 0);
        assert_eq!(second.floors.of(105), 10);
        let open = second.open();
        assert_eq!((open.xids, open.floors), (vec!["100".to_owned()], vec![0]));
        assert_eq!(open.beyond.as_deref(), Some("100"));
    }

    #[test]
    fn a_sequence_that_a_crash_set_back_is_believed_as_far_as_it_stands() {
        let before = Mark::at(0).looked(&sight("9:9:", 9, 33, 100, 99), "-/1", 1, None);
        let after = before.looked(&sight("9:9:", 9, 1, 150, 140), "-/1", 1, None);
        assert_eq!(after.floors.of(9), 1);
    }

    #[test]
    fn the_sequence_is_not_believed_before_its_log_is_flushed() {
        let mut mark = Mark::at(0).looked(&sight("9:9:", 9, 10, 100, 99), "-/1", 10, None);
        for last in [20, 30] {
            mark = mark.looked(&sight("9:9:", 9, last, 200, 99), "-/1", 10, None);
            assert_eq!((mark.floors.of(50), mark.drawn), (0, Some((10, 100))));
        }
        mark = mark.looked(&sight("9:9:", 9, 40, 300, 100), "-/1", 10, None);
        assert_eq!((mark.floors.of(50), mark.drawn), (10, Some((40, 300))));
    }

    #[test]
    fn a_writer_that_can_have_drawn_nothing_that_was_passed_is_not_looked_for() {
        let mark = Mark::at(0).looked(&sight("9:9:", 9, 1_000, 1, 1), "-/1", 1, None);
        let mark = mark.looked(&sight("9:12:9", 12, 1_000, 2, 2), "-/1", 2, None);
        let mark = mark.looked(&sight("13:14:13", 15, 1_000, 3, 3), "-/1", 3, None);
        assert_eq!(mark.open().xids, [""; 0]);
    }

    #[test]
    fn the_next_xid_goes_on_where_32_bits_end() {
        let snapshot = Snapshot::parse("4294967290:4294967292:").unwrap();
        assert_eq!(snapshot.next_xid(2), (1 << 32) + 5);
        let snapshot = Snapshot::parse("4294967299:4294967299:").unwrap();
        assert_eq!(snapshot.next_xid(0), 4_294_967_299);
        let snapshot = Snapshot::parse("3000000000:3000000000:").unwrap();
        let age = (3_000_000_007_u32 - 3).cast_signed();
        assert_eq!(snapshot.next_xid(age), 3_000_000_007);
    }

    #[test]
    fn a_writer_that_stays_open_does_not_make_the_text_grow() {
        let mut mark = Mark::at(0);
        for step in 0..10_000_i32 {
            let last = i64::from(step);
            let snapshot = format!("9:{}:9", 10 + step);
            let seen = sight(
                &snapshot,
                10 + u32::try_from(step).unwrap(),
                last,
                last,
                last,
            );
            mark = mark.looked(&seen, "7123456789012345678/1", last, None);
        }
        assert_eq!(mark.floors.of(9), 0);
        assert!(mark.text().unwrap().len() < 2_000);
    }

    #[test]
    fn on_another_cluster_what_was_not_visible_is_looked_for_once() {
        let mark = Mark::at(0).looked(&sight("7:9:7", 12, 4, 100, 50), "1/1", 3, None);
        let restored = mark.restored();
        let late = restored.late.as_ref().unwrap();
        assert_eq!(
            (&*late.before.text, late.after, restored.seen()),
            ("7:9:7", 0, None)
        );
        assert_eq!(restored.caught_up(None), Mark::at(3));
    }

    #[test]
    fn a_history_is_another_one_as_far_as_both_have_names() {
        use History::{Branched, Foreign, Same};
        for (then, now, other) in [
            ("1/00000001", "1/00000001", Same),
            ("1/00000001", "1/00000001/5", Same),
            ("1/00000001/5", "1/00000001/5", Same),
            ("1/00000001/5", "1/00000001/6", Foreign),
            ("-/00000001/5", "1/00000001/6", Foreign),
            ("1/00000001/5", "1/00000002/5", Branched),
            ("1/00000001/5", "2/00000001/5", Foreign),
            ("1/00000001", "1/00000002", Branched),
            ("1/00000001", "2/00000001", Foreign),
            ("1/00000001", "1/-", Branched),
            ("1/00000001", "-/00000001", Same),
            ("1/00000001", "-/00000002", Branched),
            ("-/00000001", "1/00000001", Same),
            ("-/00000001", "1/00000002", Branched),
            ("1", "1/00000002", Same),
            ("1", "2/00000002", Foreign),
            ("-", "2/00000002", Same),
        ] {
            let text = format!("7:9:7 0 {then} = - - 0@0 1");
            let mark = Mark::parse(3, &text).unwrap();
            assert_eq!(mark.history(now), other, "{then} {now}");
            assert_eq!(mark.on(now).history(now), Same);
        }
        assert_eq!(Mark::at(3).history("1/00000001"), Same);
    }

    #[test]
    fn a_mark_says_which_shards_it_has_read() {
        let shards = Shards::of_partition(1, 4.try_into().unwrap()).unwrap();
        let mark = Mark::at(0).of_shards(shards);
        let mark = mark.looked(&sight("7:7:", 7, 4, 1, 1), "-/1", 3, None);
        check(&mark, "7:7: 0 -/1 = - 4@1 0@0 8738");
    }

    /// Next xid and log positions by number, as the server would say them.
    fn sight(snapshot: &str, next: u32, last: i64, written: i64, flushed: i64) -> Sight {
        Sight {
            snapshot: Snapshot::parse(snapshot).unwrap(),
            age: next.wrapping_sub(3).cast_signed(),
            last,
            written,
            flushed,
        }
    }

    #[track_caller]
    fn check(mark: &Mark, text: &str) {
        let frontier = mark.frontier();
        assert_eq!(frontier.snapshot.as_deref(), Some(text));
        assert_eq!(Mark::of(&frontier).unwrap(), *mark);
    }
}
