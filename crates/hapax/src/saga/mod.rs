//! Sagas: operations over several systems that share no transaction.
//!
//! ```text
//! reserve ----> authorize ----> ship ----> capture ----> notify
//!  local          remote        remote      remote        local
//!    |               |             |        (pivot)
//!  release         void         cancel        forward only after it
//! ```
//!
//! A [`Definition`] lists steps and their compensations. A *local* step is one transaction of this
//! database: rows, events, and the row of the step. A *remote* step first commits its intent (the
//! provider's key and the request), then calls the remote system, then commits the outcome. Such a
//! call has three [outcomes](Outcome), not two, because a timeout is not a failure. If the outcome
//! is unknown, the call is repeated under the same key, then looked up, then waited for; at the
//! deadline an operator has to decide.
//!
//! [`decide`](next) computes the next move from the rows alone, so that a saga continues after a
//! crash where its rows end. The [`Runner`] executes the moves, under an epoch that fences an
//! earlier owner.

mod outcome;
mod record;
mod definition;
mod functions;
mod decide;
mod decision;
mod execution;
mod runner;

pub use decide::{Move, next};
pub use decision::{Decision, DecisionError};
pub use definition::{
    Call, Definition, LocalStep, OnEnd, RemoteStep, RetryPolicy, Step, StepBody, provider_key,
};
pub use outcome::{Found, Outcome, Refusal};
pub use record::{
    Direction, Filter, Kind, NewSaga, Owned, SagaRecord, SagaStatus, Signal, State, StepRecord,
    StepState,
};
pub use runner::{Runner, RunnerHandle, Settings};
