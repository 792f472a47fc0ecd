//! The state of a running checkout: its rows, its workers, the messages, and the ledger of the
//! providers.

/// The foreign steps, in order; the last one is the pivot.
pub(crate) const STEPS: usize = 3;
pub(crate) const AUTHORIZE: usize = 0;
pub(crate) const SHIP: usize = 1;
pub(crate) const CAPTURE: usize = 2;

/// All of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) saga: Saga,
    /// Two processes, in order: who is who makes no difference.
    pub(crate) workers: [Option<Worker>; 2],
    /// Calls and their answers on the way, in order.
    pub(crate) wire: Vec<Call>,
    /// The decisions of the providers, in order.
    pub(crate) ledger: Vec<Entry>,
    /// Crashes, leases that lapse while their owner lives, losses, answers that come too late.
    pub(crate) faults: u8,
    /// A worker has committed after another one took the saga.
    pub(crate) late: bool,
}

/// The saga's row and those of its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Saga {
    pub(crate) status: SagaStatus,
    pub(crate) undoing: bool,
    pub(crate) epoch: u8,
    /// Whether the lease has not lapsed.
    pub(crate) held: bool,
    /// Whether the deadline has passed.
    pub(crate) is_late: bool,
    /// What is done, and what undoes it.
    pub(crate) rows: [[Option<Row>; STEPS]; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SagaStatus {
    Running,
    Completed,
    Failed,
    NeedsAttention,
}

/// A step's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Row {
    pub(crate) state: StepState,
    pub(crate) age: Age,
    /// Tries, where the provider's key is made of them.
    pub(crate) attempts: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum StepState {
    Open,
    Done,
    Refused,
}

/// How long ago an open step began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Age {
    /// Within the window in which the provider remembers its keys.
    InWindow,
    /// After it, while a call may still arrive.
    BehindWindow,
    /// So long that none can.
    Quiet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Direction {
    Forward,
    Compensate,
}

/// What is asked of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ProviderCall {
    pub(crate) direction: Direction,
    pub(crate) step: usize,
}

/// A process that runs the saga.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Worker {
    pub(crate) epoch: u8,
    pub(crate) next: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Decides what comes next.
    Decides,
    /// Is about to call: that it is meant is committed.
    Calls(ProviderCall, Key),
    Waits(ProviderCall),
    /// Is about to write down what came of a call or a look-up.
    Concludes(ProviderCall, Outcome),
}

/// The provider's key: one for each act, but for a bug.
pub(crate) type Key = u8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Outcome {
    Done,
    Refused,
    /// The provider has never seen the key.
    Absent,
    Unknown,
}

/// A call on its way, or its answer on the way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Call {
    pub(crate) act: ProviderCall,
    pub(crate) key: Key,
    pub(crate) epoch: u8,
    pub(crate) answer: Option<Outcome>,
}

/// A provider's decision about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub(crate) act: ProviderCall,
    pub(crate) key: Key,
    pub(crate) is_done: bool,
}

impl State {
    pub(crate) fn new(faults: u8) -> Self {
        Self {
            saga: Saga {
                status: SagaStatus::Running,
                undoing: false,
                epoch: 0,
                held: false,
                is_late: false,
                rows: [[None; STEPS]; 2],
            },
            workers: [None; 2],
            wire: Vec::new(),
            ledger: Vec::new(),
            faults,
            late: false,
        }
    }

    pub(crate) fn sorted(mut self) -> Self {
        self.workers.sort_unstable();
        self.wire.sort_unstable();
        self.ledger.sort_unstable();
        self
    }

    /// How often something was done at the providers.
    pub(crate) fn done(&self, direction: Direction, step: usize) -> usize {
        let act = ProviderCall { direction, step };
        let done = self.ledger.iter().filter(|it| it.act == act && it.is_done);
        done.count()
    }

    /// Whether a step was done and not compensated.
    pub(crate) fn stands(&self, step: usize) -> bool {
        self.done(Direction::Forward, step) > self.done(Direction::Compensate, step)
    }
}

impl Saga {
    pub(crate) fn row(&self, act: ProviderCall) -> Option<Row> {
        self.rows[act.direction as usize][act.step]
    }

    pub(crate) fn state(&self, direction: Direction, step: usize) -> Option<StepState> {
        self.row(ProviderCall { direction, step })
            .map(|row| row.state)
    }

    pub(crate) fn write(&mut self, act: ProviderCall, row: Row) {
        self.rows[act.direction as usize][act.step] = Some(row);
    }
}
