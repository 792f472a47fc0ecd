//! The steps of a process for a request: enter or claim, call, commit, finish, respond.
//!
//! One step is one statement or one commit. Between two steps the process may die or be paused, and
//! others go on.

use super::{
    Bug, Key, Mode,
    state::{ClientResponse, Owned, Row, Stage, State, Worker},
};

impl Key {
    /// Whether a worker can take its next step: a claim waits for the transaction that has the
    /// lock.
    pub(super) fn can_step(&self, state: &State, worker: Worker) -> bool {
        let claims = match self.mode {
            Mode::Atomic => worker.next == Stage::Arrives,
            Mode::Optimistic => worker.next == Stage::Claims,
            Mode::Phased => false,
        };
        !claims || self.bug == Bug::CheckThenInsert || !is_locked(state)
    }

    /// Does what a worker does next; without a stage it is done with.
    pub(super) fn step(&self, state: &mut State, worker: Worker) -> Option<Stage> {
        let Worker { client, next } = worker;
        match next {
            Stage::Arrives if self.mode == Mode::Optimistic => Some(Stage::Assumes),
            Stage::Arrives | Stage::Claims => self.arrive(state, client),
            Stage::Assumes => self.fail_or_assume(state, client),
            Stage::InFlight => {
                let committed = self.assume(state, client) != Stage::Claims;
                state.wrong.denied |= committed && self.bug == Bug::DeniesLostCommit;
                None
            }
            Stage::Inserts => Some(self.begin(self.insert(state, client, 1))),
            Stage::Finds => self.judge(state, client),
            Stage::Resumes { epoch, entered } => Some(self.resume(state, epoch, entered)),
            Stage::EntersAnew => Some(self.enter_anew(state, client)),
            Stage::Calls(own) => {
                // The provider's key is made of the row, never of the attempt: it charges once for each.
                state.charges[usize::from(own.era)] |= 1 << own.entered;
                Some(self.before_commit(own))
            }
            Stage::Checks(own) => Some(match owned_row(state, own) {
                Some(row) if row.leased => Stage::Commits(own),
                _ => Stage::Fenced,
            }),
            Stage::Commits(own) => Some(self.commit(state, client, own)),
            Stage::Emits(own) => {
                state.events[usize::from(own.era)] += 1;
                Some(Stage::Finishes(own))
            }
            Stage::Advances(own) => {
                if let Some(row) = owned_row(state, own) {
                    row.charged = true;
                }
                Some(Stage::Finishes(own))
            }
            Stage::Finishes(own) => Some(self.finish(state, client, own)),
            Stage::Stores(own) => {
                self.write(state, client, own);
                None
            }
            Stage::Fenced => Some(Stage::Finds),
            Stage::Answers(outcome, _) => {
                state.answers.push(outcome);
                None
            }
        }
    }

    /// Loses the connection of a worker whose commit was sent. Returns what the worker does next.
    pub(super) fn lose_commit(&self, state: &mut State, worker: Worker) -> Stage {
        if worker.next == Stage::Assumes {
            // It may arrive at any time. The client learns that the outcome is unknown.
            return Stage::InFlight;
        }
        self.step(state, worker);
        match self.mode {
            Mode::Optimistic => Stage::Claims,
            Mode::Atomic | Mode::Phased => Stage::Arrives,
        }
    }

    /// Ends an optimistic run. If the request was executed before, its handler fails on the rows of
    /// the first execution.
    fn fail_or_assume(&self, state: &mut State, client: u8) -> Option<Stage> {
        let is_stored = |row: Row| row.answer.is_some() && !row.expired;
        if self.bug == Bug::FailsUnclaimed && state.row.is_some_and(is_stored) {
            state.wrong.denied = true;
            return None;
        }
        Some(self.assume(state, client))
    }

    /// Commits a new key with everything else, or nothing: the index holds no row for the key, and no
    /// other transaction has its lock.
    fn assume(&self, state: &mut State, client: u8) -> Stage {
        let is_free = state.row.is_none() && !is_locked(state);
        if is_free || self.bug == Bug::LoserCommits {
            let own = own(state, 1, false);
            return self.write(state, client, own);
        }
        if self.bug != Bug::LoserAnswers {
            return Stage::Claims;
        }
        let own = own(state, 1, false);
        let (era, answer) = (own.era, own.number);
        Stage::Answers(
            ClientResponse {
                client,
                era,
                answer,
            },
            false,
        )
    }

    fn arrive(&self, state: &mut State, client: u8) -> Option<Stage> {
        match state.row {
            None if self.bug == Bug::CheckThenInsert => Some(Stage::Inserts),
            None => Some(self.begin(self.insert(state, client, 1))),
            Some(_) if !self.is_phased() => self.judge(state, client),
            Some(_) => Some(Stage::Finds),
        }
    }

    /// Judges a request against the row that holds its key, as `judge_entry` does.
    fn judge(&self, state: &mut State, client: u8) -> Option<Stage> {
        let Some(row) = state.row else {
            return Some(Stage::Arrives);
        };
        if row.expired {
            return Some(match self.mode {
                Mode::Phased => Stage::EntersAnew,
                Mode::Atomic | Mode::Optimistic => self.enter_anew(state, client),
            });
        }
        let is_mismatch = row.print != state.prints[usize::from(client)];
        if is_mismatch && self.bug != Bug::NoFingerprint {
            return None;
        }
        let (epoch, entered) = (row.epoch, row.entered);
        match row.answer {
            Some(answer) => {
                state.wrong.mixed |= is_mismatch;
                let era = state.era;
                Some(Stage::Answers(
                    ClientResponse {
                        client,
                        era,
                        answer,
                    },
                    true,
                ))
            }
            // The client learns that the first request is still running.
            None if row.leased => None,
            None => Some(Stage::Resumes { epoch, entered }),
        }
    }

    /// Enters a key without a row. In atomic mode the row is not visible before the commit.
    fn insert(&self, state: &mut State, client: u8, epoch: u8) -> Owned {
        let own = own(state, epoch, false);
        if self.mode == Mode::Phased {
            state.row = Some(row(state, client, own));
        }
        own
    }

    fn enter_anew(&self, state: &mut State, client: u8) -> Stage {
        match state.row {
            Some(row) if row.expired => self.begin(self.insert(state, client, row.epoch + 1)),
            _ => Stage::Arrives,
        }
    }

    fn resume(&self, state: &mut State, epoch: u8, entered: u8) -> Stage {
        let is_same = |row: &Row| {
            row.epoch == epoch && (row.entered == entered || self.bug == Bug::ResumeByEpochAlone)
        };
        let Some(row) = state
            .row
            .filter(|row| is_same(row) && row.answer.is_none() && !row.leased)
        else {
            return Stage::Arrives;
        };
        state.owners += 1;
        let own = Owned {
            number: state.owners,
            epoch: epoch + 1,
            entered: row.entered,
            era: state.era,
            resumed: true,
        };
        state.row = Some(Row {
            epoch: own.epoch,
            leased: true,
            ..row
        });
        // It continues after the recovery point.
        if row.charged {
            Stage::Finishes(own)
        } else {
            self.begin(own)
        }
    }

    /// The first step of an owner.
    fn begin(&self, own: Owned) -> Stage {
        match self.mode {
            Mode::Phased => Stage::Calls(own),
            Mode::Atomic | Mode::Optimistic => Stage::Commits(own),
        }
    }

    fn before_commit(&self, own: Owned) -> Stage {
        if self.bug == Bug::LeaseForFence {
            Stage::Checks(own)
        } else {
            Stage::Commits(own)
        }
    }

    /// Commits effect and event, and the answer with them in atomic mode, the recovery point in phased.
    fn commit(&self, state: &mut State, client: u8, own: Owned) -> Stage {
        if !self.may_commit(state, own) {
            return Stage::Fenced;
        }
        if self.bug == Bug::AnswerBeforeCommit {
            let (era, answer) = (own.era, own.number);
            state.answers.push(ClientResponse {
                client,
                era,
                answer,
            });
            return Stage::Stores(own);
        }
        self.write(state, client, own)
    }

    /// The commit itself.
    fn write(&self, state: &mut State, client: u8, own: Owned) -> Stage {
        let era = usize::from(own.era);
        let print = state.prints[usize::from(client)];
        state.wrong.late |= own.number < state.owners && self.mode == Mode::Phased;
        state.wrong.mixed |=
            self.mode == Mode::Phased && state.row.is_some_and(|row| row.print != print);
        state.effects[era] += 1;
        if self.bug == Bug::EventApart {
            return Stage::Emits(own);
        }
        state.events[era] += 1;
        match self.mode {
            _ if self.bug == Bug::AnswerApart => Stage::Advances(own),
            Mode::Atomic | Mode::Optimistic => self.finish(state, client, own),
            Mode::Phased => {
                if let Some(row) = &mut state.row {
                    row.charged = true;
                }
                Stage::Finishes(own)
            }
        }
    }

    /// Commits the answer: a row that is completed never changes until it expires.
    fn finish(&self, state: &mut State, client: u8, own: Owned) -> Stage {
        if self.mode == Mode::Phased && !self.may_commit(state, own) {
            return Stage::Fenced;
        }
        state.wrong.late |= own.number < state.owners && self.mode == Mode::Phased;
        let answer = own.number;
        let written = match state.row {
            Some(row) if self.mode == Mode::Phased => row,
            _ => row(state, client, own),
        };
        state.row = Some(Row {
            answer: Some(answer),
            leased: false,
            ..written
        });
        let era = own.era;
        Stage::Answers(
            ClientResponse {
                client,
                era,
                answer,
            },
            false,
        )
    }

    /// Asks in the commit whether the key is still the committer's; a claim's lock says so in atomic mode.
    pub(super) fn may_commit(&self, state: &State, own: Owned) -> bool {
        let is_open = |row: &Row| row.answer.is_none();
        match self.bug {
            _ if !self.is_phased() => true,
            Bug::NoFence | Bug::LeaseForFence => state.row.is_some(),
            Bug::EpochAlone => state
                .row
                .is_some_and(|row| is_open(&row) && row.epoch == own.epoch),
            _ => state.row.is_some_and(|row| {
                is_open(&row) && row.epoch == own.epoch && row.entered == own.entered
            }),
        }
    }
}

fn own(state: &mut State, epoch: u8, resumed: bool) -> Owned {
    state.owners += 1;
    state.entries += 1;
    Owned {
        number: state.owners,
        epoch,
        entered: state.entries,
        era: state.era,
        resumed,
    }
}

fn row(state: &State, client: u8, own: Owned) -> Row {
    Row {
        print: state.prints[usize::from(client)],
        epoch: own.epoch,
        entered: own.entered,
        leased: true,
        charged: false,
        answer: None,
        expired: false,
    }
}

fn owned_row(state: &mut State, own: Owned) -> Option<&mut Row> {
    let is_own = |row: &&mut Row| row.epoch == own.epoch && row.entered == own.entered;
    state.row.as_mut().filter(is_own)
}

/// Whether an open transaction holds the key's lock.
fn is_locked(state: &State) -> bool {
    let holds_lock = |it: &Worker| matches!(it.next, Stage::Commits(_));
    state.workers.iter().any(holds_lock)
}
