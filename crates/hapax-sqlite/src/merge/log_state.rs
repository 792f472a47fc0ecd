//! Log state: how long the write-ahead log is, how much of it is merged, and what is due next.
//!
//! The log starts again at its beginning if all of it is merged when the writer begins a
//! transaction, and no reader uses it. Under load that never happens by itself, because the writer
//! commits while the thread merges. Therefore the writer merges the last few frames itself. This
//! module only decides. A frame is one page in the log.

use crate::connection::LOG_PAGES;

/// Frames that are not merged when a round of the thread is due. A round of this size takes a few
/// milliseconds of disk and CPU, so it delays commits on the same disk less than a larger one.
const ROUND_FRAMES: u32 = 1_000;
/// The most frames that the writer merges itself to let the log start again: one or two milliseconds.
const FINISH_FRAMES: u32 = 500;
/// The least frames that are written before the next attempt, if a reader or another connection is
/// in the way.
const PAUSE_FRAMES: u32 = 250;
/// The same as a part of the frames that are not merged, so that a long reader causes few attempts.
const PAUSE_PART: u32 = 16;
/// The most frames of a pass after which another one would leave the writer no less to do.
const SHORT_PASS: u32 = 64;
/// Frames that are not merged at which the writer waits for the thread: as many as a commit merges
/// if there is no thread.
const LEFT_MAX: u32 = LOG_PAGES;
/// The length of the log at which the writer waits for readers. Together with the frames that are
/// written until the writer waits for the thread, it is below the size to which the file is
/// truncated.
const FRAMES_MAX: u32 = 12_000;

/// The action of the writer on the log after a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing.
    Nothing,
    /// The thread begins a round.
    Round,
    /// The writer merges what readers allow, so that the log can start again.
    Finish,
    /// The writer merges all frames, and waits for readers for a limited time.
    Restart,
    /// The writer waits for the next pass of the thread, and decides again.
    Await,
}

/// The result of merging once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pass {
    /// Frames in the log when it began.
    pub(super) log: u32,
    /// Frames from the start of the log that are merged now.
    pub(super) merged: u32,
    /// Whether readers kept the log from starting again although the writer has waited for them.
    pub(super) is_busy: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    Idle,
    Due,
    Running,
}

/// Whether the thread can be relied upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thread {
    Works,
    /// Its last round failed.
    Fails,
    /// It has ended.
    Gone,
}

/// The state of the log that the writer and the thread share.
#[derive(Debug)]
pub(super) struct LogState {
    /// Frames in the log after the last commit of the writer.
    frames: u32,
    /// Frames from the start of the log that are merged.
    merged: u32,
    /// Merged frames whose pages may not be flushed yet.
    unflushed: u32,
    /// How often the log was seen to start again.
    restarts: u64,
    round: Round,
    thread: Thread,
    /// Whether a reader kept the last pass from merging most of the log.
    has_reader: bool,
    /// Whether nothing may be merged any more.
    is_stopped: bool,
    /// The length of the log from which the next attempt is made.
    again_at: u32,
    /// The length of the log from which the writer waits for readers.
    restart_at: u32,
    /// The length of the log from which it is reported.
    report_at: u32,
    /// Frames that are not merged at which the writer waits for the thread.
    left_max: u32,
}

impl Default for LogState {
    fn default() -> Self {
        Self {
            frames: 0,
            merged: 0,
            unflushed: 0,
            restarts: 0,
            round: Round::Idle,
            thread: Thread::Works,
            has_reader: false,
            is_stopped: false,
            again_at: 0,
            restart_at: FRAMES_MAX,
            report_at: FRAMES_MAX,
            left_max: LEFT_MAX,
        }
    }
}

impl LogState {
    /// Records the length of the log after a commit, and decides what is due.
    pub(super) fn committed(&mut self, frames: u32) -> Step {
        if frames < self.frames {
            *self = Self {
                restarts: self.restarts + 1,
                round: self.round,
                thread: self.thread,
                is_stopped: self.is_stopped,
                ..Self::default()
            };
        }
        self.frames = frames;
        if self.is_stopped {
            return Step::Nothing;
        }
        if self.round == Round::Idle {
            return self.decide();
        }
        // Without readers, a thread that is slower than the writer would let the log grow. With a
        // reader, waiting for the thread gains nothing.
        if self.left() >= self.left_max && !self.has_reader {
            Step::Await
        } else {
            Step::Nothing
        }
    }

    fn decide(&mut self) -> Step {
        let (frames, left) = (self.frames, self.left());
        let works = self.thread == Thread::Works;
        // With more frames left, a long reader is in the way, or the thread has to merge first.
        if frames >= self.restart_at && (left <= LEFT_MAX || !works) {
            // If readers make this fail, doubling bounds how often it is tried.
            self.restart_at = frames.saturating_mul(2);
            return Step::Restart;
        }
        let is_long = frames >= LOG_PAGES;
        let is_for_thread = left >= ROUND_FRAMES && self.thread != Thread::Gone;
        if !(is_long || is_for_thread) || frames < self.again_at {
            return Step::Nothing;
        }
        self.again_at = frames.saturating_add(PAUSE_FRAMES.max(left / PAUSE_PART));
        let is_short = left <= FINISH_FRAMES && left.saturating_add(self.unflushed) <= LEFT_MAX;
        if is_long && (is_short || !works) {
            return Step::Finish;
        }
        self.round = Round::Due;
        Step::Round
    }

    fn left(&self) -> u32 {
        self.frames.saturating_sub(self.merged)
    }

    /// Begins the round that is due; false if none is.
    pub(super) fn begin(&mut self) -> bool {
        let is_due = self.round == Round::Due;
        if is_due {
            self.round = Round::Running;
        }
        is_due
    }

    /// Ends the round.
    pub(super) fn end(&mut self, has_failed: bool) {
        self.round = Round::Idle;
        self.thread = if has_failed {
            Thread::Fails
        } else {
            Thread::Works
        };
    }

    /// Records that the thread has ended. The writer merges the log from now on.
    pub(super) fn gone(&mut self) {
        self.round = Round::Idle;
        self.thread = Thread::Gone;
    }

    /// Ends the merging: nothing is due any more.
    pub(super) fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// Whether nothing may be merged any more.
    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Identifies the log between two starts. It is read before a pass and given to
    /// [`passed`](Self::passed).
    pub(super) fn restarts(&self) -> u64 {
        self.restarts
    }

    /// Records a pass, and returns whether another one would leave the writer less to do. `latest`
    /// is the length of the log after the pass.
    ///
    /// If the log has started again since the pass began, its result says nothing about this log.
    pub(super) fn passed(&mut self, restarts: u64, pass: Pass, latest: u32) -> bool {
        if restarts != self.restarts {
            return false;
        }
        let merged = pass.merged.saturating_sub(self.merged);
        let held = pass.log.saturating_sub(pass.merged);
        // SQLite flushes the database file only if nothing was committed during the pass.
        let is_flushed = pass.merged >= latest;
        self.merged = pass.merged;
        self.unflushed = if is_flushed {
            0
        } else {
            self.unflushed.saturating_add(merged)
        };
        self.has_reader = held > FINISH_FRAMES;
        if held > LEFT_MAX {
            // When the reader ends, the thread needs long for all of this. The writer does not wait
            // for it, unless it writes as much again meanwhile.
            let twice = pass.log.saturating_mul(2);
            self.restart_at = self.restart_at.max(twice);
            self.left_max = self.left_max.max(twice);
        }
        let is_long = self.frames >= LOG_PAGES;
        let is_useful = !is_flushed || (is_long && merged > SHORT_PASS);
        // At the limit, the writer waits for the end of the round.
        merged > 0 && is_useful && self.frames < self.restart_at
    }

    /// The length of the log, if readers keep it from starting again and that is to be reported:
    /// once, and then each time that the length has doubled.
    pub(super) fn too_long(&mut self, is_busy: bool) -> Option<u32> {
        let is_held = self.has_reader || is_busy;
        if !is_held || self.frames < self.report_at {
            return None;
        }
        self.report_at = self.frames.saturating_mul(2);
        Some(self.frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(log: u32, merged: u32) -> Pass {
        Pass {
            log,
            merged,
            is_busy: false,
        }
    }

    /// Runs a round with one pass, during which the log grows to `latest`. Returns whether another
    /// pass is useful.
    fn round(state: &mut LogState, merged: Pass, latest: u32) -> bool {
        assert!(state.begin());
        let restarts = state.restarts();
        let goes_on = state.passed(restarts, merged, latest);
        state.end(false);
        goes_on
    }

    #[test]
    fn a_short_log_is_left_alone() {
        let mut state = LogState::default();
        assert_eq!(state.committed(1), Step::Nothing);
        assert_eq!(state.committed(ROUND_FRAMES - 1), Step::Nothing);
        assert!(!state.begin());
    }

    #[test]
    fn the_thread_merges_in_rounds_and_the_writer_the_rest_of_a_long_log() {
        let mut state = LogState::default();
        assert_eq!(state.committed(1_000), Step::Round);
        assert_eq!(state.committed(1_100), Step::Nothing);
        assert!(!round(&mut state, pass(1_100, 1_100), 1_100));
        assert_eq!(state.committed(2_050), Step::Nothing);
        assert_eq!(state.committed(2_100), Step::Round);
        round(&mut state, pass(2_100, 2_100), 2_100);
        assert_eq!(state.committed(LOG_PAGES), Step::Round);
        round(&mut state, pass(LOG_PAGES, LOG_PAGES), LOG_PAGES);
        assert_eq!(state.committed(LOG_PAGES + 100), Step::Nothing);
        assert_eq!(state.committed(LOG_PAGES + 300), Step::Finish);
        assert_eq!(state.committed(80), Step::Nothing);
        assert_eq!(state.committed(1_000), Step::Round);
    }

    #[test]
    fn a_round_goes_on_until_the_database_is_flushed_and_little_is_left_of_a_long_log() {
        let mut state = LogState::default();
        assert_eq!(state.committed(1_000), Step::Round);
        assert!(round(&mut state, pass(1_000, 1_000), 1_050), "not flushed");
        assert_eq!(state.committed(2_000), Step::Round);
        assert!(!round(&mut state, pass(2_000, 2_000), 2_000), "flushed");
        assert_eq!(state.committed(LOG_PAGES), Step::Round);
        let flushed = pass(LOG_PAGES, LOG_PAGES);
        assert!(round(&mut state, flushed, LOG_PAGES), "it took long");
        let (log, restarts) = (LOG_PAGES + SHORT_PASS, state.restarts());
        assert!(!state.passed(restarts, pass(log, log), log), "short");
        assert!(!state.passed(restarts, pass(log, log), log), "nothing");
    }

    #[test]
    fn a_round_ends_when_the_log_reaches_its_limit() {
        let mut state = LogState::default();
        assert_eq!(state.committed(FRAMES_MAX - 1), Step::Round);
        assert!(state.begin());
        assert_eq!(state.committed(FRAMES_MAX), Step::Await);
        let restarts = state.restarts();
        let held = pass(FRAMES_MAX - 1, FRAMES_MAX - 1);
        assert!(!state.passed(restarts, held, FRAMES_MAX));
        state.end(false);
        assert_eq!(state.committed(FRAMES_MAX), Step::Restart);
    }

    #[test]
    fn the_writer_does_not_flush_what_the_thread_has_merged_of_a_long_log() {
        let mut state = LogState::default();
        assert_eq!(state.committed(LOG_PAGES), Step::Round);
        round(&mut state, pass(LOG_PAGES, LOG_PAGES), LOG_PAGES + 50);
        assert_eq!(state.committed(LOG_PAGES + 250), Step::Round);
        let log = LOG_PAGES + 250;
        round(&mut state, pass(log, log), log);
        assert_eq!(state.committed(LOG_PAGES + 500), Step::Finish);
    }

    #[test]
    fn a_log_that_does_not_start_again_is_tried_again_after_a_pause() {
        let mut state = LogState::default();
        assert_eq!(state.committed(LOG_PAGES), Step::Round);
        round(&mut state, pass(LOG_PAGES, LOG_PAGES), LOG_PAGES);
        assert_eq!(state.committed(LOG_PAGES + 250), Step::Finish);
        assert_eq!(state.committed(LOG_PAGES + 300), Step::Nothing);
        assert_eq!(state.committed(LOG_PAGES + 500), Step::Finish);
    }

    #[test]
    fn a_pass_over_the_log_before_it_started_again_is_not_counted() {
        let mut state = LogState::default();
        assert_eq!(state.committed(1_000), Step::Round);
        assert!(state.begin());
        let restarts = state.restarts();
        assert_eq!(state.committed(50), Step::Nothing);
        assert!(!state.passed(restarts, pass(1_000, 1_000), 50));
        state.end(false);
        assert_eq!(state.committed(1_050), Step::Round);
    }

    #[test]
    fn without_readers_the_writer_waits_for_a_thread_that_is_slower_and_for_no_other() {
        let mut state = LogState::default();
        assert_eq!(state.committed(1_000), Step::Round);
        assert_eq!(state.committed(LEFT_MAX - 1), Step::Nothing);
        assert_eq!(state.committed(LEFT_MAX), Step::Await);
        assert!(state.begin());
        assert_eq!(state.committed(LEFT_MAX), Step::Await);
        let restarts = state.restarts();
        state.passed(restarts, pass(1_000, 1_000), LEFT_MAX);
        assert_eq!(state.committed(LEFT_MAX), Step::Nothing);
        assert_eq!(state.committed(1_000 + LEFT_MAX), Step::Await);
    }

    #[test]
    fn the_writer_does_not_wait_for_a_thread_that_has_ended_and_merges_itself() {
        let mut state = LogState::default();
        assert_eq!(state.committed(1_000), Step::Round);
        assert_eq!(state.committed(LEFT_MAX), Step::Await);
        state.gone();
        assert_eq!(state.committed(LEFT_MAX), Step::Finish);
        assert_eq!(state.committed(1), Step::Nothing);
        assert_eq!(state.committed(LOG_PAGES - 1), Step::Nothing);
        assert_eq!(state.committed(LOG_PAGES), Step::Finish);
    }

    #[test]
    fn after_a_round_that_failed_the_writer_merges_a_long_log_and_the_thread_tries_the_next() {
        let mut state = LogState::default();
        assert_eq!(state.committed(1_000), Step::Round);
        assert!(state.begin());
        state.end(true);
        assert_eq!(state.committed(LOG_PAGES - 1), Step::Round);
        assert!(state.begin());
        state.end(true);
        assert_eq!(state.committed(LOG_PAGES + 300), Step::Finish);
        assert_eq!(state.committed(FRAMES_MAX), Step::Restart);
        assert_eq!(state.committed(1_000), Step::Round);
        round(&mut state, pass(1_000, 1_000), 1_000);
        assert_eq!(state.committed(LOG_PAGES), Step::Round);
    }

    #[test]
    fn short_readers_that_never_pause_make_the_writer_wait_at_the_limit_and_at_twice_that() {
        let mut state = LogState::default();
        assert_eq!(state.committed(FRAMES_MAX - 1), Step::Round);
        let held = pass(FRAMES_MAX - 1, FRAMES_MAX - 1_000);
        round(&mut state, held, FRAMES_MAX - 1);
        assert_eq!(state.too_long(false), None);
        assert_eq!(state.committed(FRAMES_MAX), Step::Restart);
        assert_eq!(state.too_long(true), Some(FRAMES_MAX));
        assert_eq!(state.committed(FRAMES_MAX + 750), Step::Round);
        let log = 2 * FRAMES_MAX - 1;
        round(&mut state, pass(log, log - 1_000), log);
        assert_eq!(state.committed(2 * FRAMES_MAX), Step::Restart);
    }

    #[test]
    fn a_reader_that_stays_long_never_makes_the_writer_wait_and_is_reported_at_each_doubling() {
        let mut state = LogState::default();
        let (mut frames, mut reports, mut rounds) = (0, 0, 0);
        while frames < 64 * FRAMES_MAX {
            frames += 100;
            match state.committed(frames) {
                Step::Round => {
                    rounds += 1;
                    round(&mut state, pass(frames, 500), frames);
                    reports += u32::from(state.too_long(false).is_some());
                }
                step => assert_eq!(step, Step::Nothing, "{frames} frames"),
            }
        }
        assert!((5..=7).contains(&reports), "{reports} reports");
        assert!(rounds < 200, "{rounds} rounds");
    }

    #[test]
    fn after_a_long_reader_the_thread_catches_up_while_the_writer_goes_on() {
        let mut state = LogState::default();
        assert_eq!(state.committed(100_000), Step::Round);
        round(&mut state, pass(100_000, 10), 100_000);
        // The reader ends, and the next round begins with a long pass.
        assert_eq!(state.committed(110_000), Step::Round);
        assert!(state.begin());
        assert_eq!(state.committed(150_000), Step::Nothing);
        let restarts = state.restarts();
        assert!(state.passed(restarts, pass(110_000, 110_000), 150_000));
        assert_eq!(state.committed(180_000), Step::Nothing);
        assert!(state.passed(restarts, pass(150_000, 150_000), 180_000));
        assert!(state.passed(restarts, pass(180_000, 180_000), 180_000));
        state.end(false);
        assert_eq!(state.committed(180_100), Step::Finish);
        // The next log has the usual limits.
        assert_eq!(state.committed(1_000), Step::Round);
        assert_eq!(state.committed(1_000 + LEFT_MAX), Step::Await);
    }

    #[test]
    fn nothing_is_merged_after_a_stop() {
        let mut state = LogState::default();
        assert_eq!(state.committed(1_000), Step::Round);
        assert!(state.begin());
        state.stop();
        state.end(true);
        assert_eq!(state.committed(4 * FRAMES_MAX), Step::Nothing);
        assert_eq!(state.committed(1_000), Step::Nothing);
        assert!(state.is_stopped());
    }
}
