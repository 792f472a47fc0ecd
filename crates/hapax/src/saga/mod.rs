//! Work that spans systems which share no transaction.
//!
//! ```text
//! reserve ----> authorize ----> ship ----> capture ----> notify
//!  local          foreign       foreign     foreign       local
//!    |               |             |        (pivot)
//!  release         void         cancel        forward only after it
//! ```
//!
//! A [`Definition`] lists steps and what undoes them. A *local* step is one transaction of this
//! database: rows, events and the step's own row. A *foreign* step first commits that it is meant
//! (the provider's key, the frozen request), then calls, then commits what came of it. Such a call
//! has three [outcomes](Outcome), not two: a timeout is no failure. What is unknown is asked again
//! under the same key, then looked up, then waited for; and at the deadline a person is asked.
//!
//! [`decide`](next) says what comes next, from the rows alone: whoever has a saga after a crash
//! goes on where the rows end. The [`Runner`] does it, under an epoch that fences whoever was
//! slower.

mod outcome;
mod record;
mod definition;
mod decide;
mod decision;
mod turn;
mod runner;

pub use decide::{Move, next};
pub use decision::{Decision, DecisionError};
pub use definition::{Act, Call, Definition, Ended, Foreign, Local, Patience, Step, provider_key};
pub use outcome::{Found, Outcome, Refusal};
pub use record::{
    Filter, Kind, NewSaga, Owned, SagaRecord, Signal, Standing, State, StepRecord, StepState, Way,
};
pub use runner::{Runner, RunnerHandle, Settings};
