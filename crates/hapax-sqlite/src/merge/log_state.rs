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
/// The most frames that the writer merges itself to let the log start again: about a millisecond.
const FINISH_FRAMES: u32 = 500;
/// Frames that are written before the next attempt, if a reader or another connection is in the way.
const PAUSE_FRAMES: u32 = 250;
/// The length of the log at which the writer waits for readers and for the thread. It is below the
/// size to which the file is truncated.
const FRAMES_MAX: u32 = 16_000;

/// What the writer does about the log after a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing.
    Nothing,
    /// The thread begins a round.
    Round,
    /// The writer merges the few frames that are left, so that the log can start again.
    Finish,
    /// The writer merges all frames, and waits for readers for a limited time.
    Restart,
    /// The writer waits for the end of the round, and decides again.
    Await,
}

/// The result of merging once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pass {
    /// Frames in the log when it began.
    pub(super) log: u32,
    /// Frames from the start of the log that are merged now.
    pub(super) merged: u32,
    /// Whether a reader or another connection kept the log from starting again.
    pub(super) is_busy: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    Idle,
    Due,
    Running,
}

/// What the writer and the thread know about the log.
#[derive(Debug)]
pub(super) struct LogState {
    /// Frames in the log after the last commit of the writer.
    frames: u32,
    /// Frames from the start of the log that are merged.
    merged: u32,
    /// How often the log was seen to start again.
    restarts: u64,
    round: Round,
    /// Whether a reader kept the last pass from merging most of the log.
    has_reader: bool,
    /// The length of the log from which the next attempt is made.
    again_at: u32,
    /// The length of the log from which the writer waits.
    restart_at: u32,
}

impl Default for LogState {
    fn default() -> Self {
        Self {
            frames: 0,
            merged: 0,
            restarts: 0,
            round: Round::Idle,
            has_reader: false,
            again_at: 0,
            restart_at: FRAMES_MAX,
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
                ..Self::default()
            };
        }
        self.frames = frames;
        let is_too_long = frames >= self.restart_at;
        if self.round != Round::Idle {
            // Without readers, a thread that is slower than the writer would let the log grow. With
            // a reader, waiting for the thread gains nothing.
            let waits = is_too_long && !self.has_reader;
            return if waits { Step::Await } else { Step::Nothing };
        }
        if is_too_long {
            // A reader that stays for long makes this fail. Doubling bounds how often it is tried.
            self.restart_at = frames.saturating_mul(2);
            self.again_at = frames.saturating_add(PAUSE_FRAMES);
            return Step::Restart;
        }
        self.decide(frames)
    }

    fn decide(&mut self, frames: u32) -> Step {
        let (left, is_long) = (frames.saturating_sub(self.merged), frames >= LOG_PAGES);
        let is_due = is_long || left >= ROUND_FRAMES;
        if !is_due || frames < self.again_at {
            return Step::Nothing;
        }
        self.again_at = frames.saturating_add(PAUSE_FRAMES);
        if is_long && left <= FINISH_FRAMES {
            return Step::Finish;
        }
        self.round = Round::Due;
        Step::Round
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
    pub(super) fn end(&mut self) {
        self.round = Round::Idle;
    }

    /// Identifies the log between two starts. It is read before a pass and given to
    /// [`passed`](Self::passed).
    pub(super) fn restarts(&self) -> u64 {
        self.restarts
    }

    /// Records a pass and returns how many frames it has merged. If the log has started again since
    /// it began, its result says nothing about this log.
    pub(super) fn passed(&mut self, restarts: u64, pass: Pass) -> u32 {
        if restarts != self.restarts {
            return 0;
        }
        let merged = pass.merged.saturating_sub(self.merged);
        self.merged = pass.merged;
        self.has_reader = pass.log.saturating_sub(pass.merged) > FINISH_FRAMES;
        merged
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

    /// Runs a round with one pass.
    fn round(state: &mut LogState, log: u32, merged: u32) -> u32 {
        assert!(state.begin());
        let restarts = state.restarts();
        let count = state.passed(restarts, pass(log, merged));
        state.end();
        count
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
        assert_eq!(round(&mut state, 1_100, 1_100), 1_100);
        assert_eq!(state.committed(2_050), Step::Nothing);
        assert_eq!(state.committed(2_100), Step::Round);
        assert_eq!(round(&mut state, 2_100, 2_100), 1_000);
        assert_eq!(state.committed(LOG_PAGES), Step::Round);
        assert_eq!(round(&mut state, LOG_PAGES, LOG_PAGES), 1_900);
        assert_eq!(state.committed(LOG_PAGES + 100), Step::Nothing);
        assert_eq!(state.committed(LOG_PAGES + 300), Step::Finish);
        assert_eq!(state.committed(80), Step::Nothing);
        assert_eq!(state.committed(1_000), Step::Round);
    }

    #[test]
    fn a_log_that_does_not_start_again_is_tried_again_after_a_pause() {
        let mut state = LogState::default();
        assert_eq!(state.committed(LOG_PAGES), Step::Round);
        round(&mut state, LOG_PAGES, LOG_PAGES);
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
        assert_eq!(state.passed(restarts, pass(1_000, 1_000)), 0);
        state.end();
        assert_eq!(state.committed(1_050), Step::Round);
    }

    #[test]
    fn without_readers_the_writer_waits_for_the_thread_at_the_limit() {
        let mut state = LogState::default();
        assert_eq!(state.committed(FRAMES_MAX - 1), Step::Round);
        assert_eq!(state.committed(FRAMES_MAX), Step::Await);
        assert_eq!(round(&mut state, 9_000, 9_000), 9_000);
        assert_eq!(state.committed(FRAMES_MAX), Step::Restart);
    }

    #[test]
    fn with_a_reader_the_writer_tries_at_the_limit_and_then_at_twice_that() {
        let mut state = LogState::default();
        assert_eq!(state.committed(10_000), Step::Round);
        round(&mut state, 10_000, 3_000);
        assert_eq!(state.committed(FRAMES_MAX), Step::Restart);
        assert_eq!(state.committed(FRAMES_MAX + 250), Step::Round);
        assert_eq!(state.committed(2 * FRAMES_MAX), Step::Nothing);
        round(&mut state, FRAMES_MAX, 3_000);
        assert_eq!(state.committed(2 * FRAMES_MAX), Step::Restart);
        assert_eq!(state.committed(3 * FRAMES_MAX), Step::Round);
    }
}
