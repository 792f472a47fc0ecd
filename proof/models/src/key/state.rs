//! The state while requests with one key are in flight.

/// Whose payload a request carries, by number.
pub(crate) type Print = u8;
/// An answer, by the owner that made it: no two are alike.
pub(crate) type Answer = u8;

/// Clients, each with one intent.
pub(crate) const CLIENTS: usize = 2;
/// Number of retentions after which the key is used again, including the first.
pub(crate) const ERAS: usize = 2;

/// All of it: the store, the network, the processes and the clients.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// The payload of each client.
    pub(crate) prints: [Print; CLIENTS],
    pub(crate) row: Option<Row>,
    /// Committed effects, and events, of each era.
    pub(crate) effects: [u8; ERAS],
    pub(crate) events: [u8; ERAS],
    /// The provider's charges, by era and provider key: a bit each.
    pub(crate) charges: [u8; ERAS],
    /// Retentions that have gone by.
    pub(crate) era: u8,
    /// Rows that were entered; the last one's time of entry.
    pub(crate) entries: u8,
    /// Owners that there were of any row.
    pub(crate) owners: u8,
    /// Copies of each client's request that are on their way.
    pub(crate) requests: [u8; CLIENTS],
    /// Answers on their way, in order.
    pub(crate) answers: Vec<ClientResponse>,
    /// The first response that each client received.
    pub(crate) acknowledged: [Option<ClientResponse>; CLIENTS],
    /// Requests in the hands of a process, in order.
    pub(crate) workers: Vec<Worker>,
    pub(crate) left: Budget,
    pub(crate) wrong: Wrong,
}

/// How often something may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    pub(crate) sends: [u8; CLIENTS],
    /// Crashes, repeats and losses.
    pub(crate) faults: u8,
    pub(crate) lapses: u8,
}

/// Events that must not happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Wrong {
    /// An owner has committed after a later one was made.
    pub(crate) late: bool,
    /// A request has worked under the key of another payload, or got its answer.
    pub(crate) mixed: bool,
    /// A failure was sent to a client although its request has an effect.
    pub(crate) denied: bool,
}

/// The key's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Row {
    pub(crate) print: Print,
    pub(crate) epoch: u8,
    /// Its time of entry.
    pub(crate) entered: u8,
    pub(crate) leased: bool,
    /// The recovery point, of the one phase that there is.
    pub(crate) charged: bool,
    /// It is completed with this answer, or in progress.
    pub(crate) answer: Option<Answer>,
    pub(crate) expired: bool,
}

/// An answer to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ClientResponse {
    pub(crate) client: u8,
    pub(crate) era: u8,
    pub(crate) answer: Answer,
}

/// A request in the hands of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Worker {
    pub(crate) client: u8,
    pub(crate) next: Stage,
}

/// The next step of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Claims, or enters, a key that may have no row.
    Arrives,
    /// Claims a key that may have no row, after its optimistic claim or in its place.
    Claims,
    /// Runs without a claim, and claims the key in its commit.
    Assumes,
    /// The commit of such a run, whose process is gone or has lost its connection. It may still
    /// arrive.
    InFlight,
    /// It saw no row and inserts one: the way without a lock.
    Inserts,
    /// Reads the row that was in its way.
    Finds,
    /// Takes the key over from the owner of this epoch, of the row that was entered then.
    Resumes { epoch: u8, entered: u8 },
    /// Enters over an expired row.
    EntersAnew,
    /// Calls the provider.
    Calls(Owned),
    /// Asks whether the lease is still its own.
    Checks(Owned),
    /// Commits the phase: effect, event, recovery point.
    Commits(Owned),
    /// Commits the event of an effect that is committed.
    Emits(Owned),
    /// Writes the recovery point of a phase that is committed.
    Advances(Owned),
    /// Commits the answer.
    Finishes(Owned),
    /// Commits a response that was sent already.
    Stores(Owned),
    /// Learns that the key has another owner.
    Fenced,
    /// Sends the answer.
    Answers(ClientResponse, Replayed),
}

/// Whether an answer was found, not made.
pub(crate) type Replayed = bool;

/// A key in the hands of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Owned {
    /// Which owner it is of all that there were.
    pub(crate) number: u8,
    pub(crate) epoch: u8,
    pub(crate) entered: u8,
    pub(crate) era: u8,
    pub(crate) resumed: bool,
}

impl State {
    pub(crate) fn new(prints: [Print; CLIENTS], left: Budget) -> Self {
        Self {
            prints,
            row: None,
            effects: [0; ERAS],
            events: [0; ERAS],
            charges: [0; ERAS],
            era: 0,
            entries: 0,
            owners: 0,
            requests: [0; CLIENTS],
            answers: Vec::new(),
            acknowledged: [None; CLIENTS],
            workers: Vec::new(),
            left,
            wrong: Wrong::default(),
        }
    }

    /// The same state with workers and responses sorted: their order makes no difference.
    pub(crate) fn sorted(mut self) -> Self {
        self.workers.sort_unstable();
        self.answers.sort_unstable();
        self
    }

    /// The responses that clients have received or will receive.
    pub(crate) fn told(&self) -> impl Iterator<Item = &ClientResponse> {
        self.acknowledged.iter().flatten().chain(&self.answers)
    }
}
