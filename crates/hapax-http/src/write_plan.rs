//! Write plans, which single-shot handlers return.
//!
//! The handler writes nothing itself. It returns statements, events and a response. The store runs
//! them together with the claim in one step, and may commit many such requests together. Statements
//! run only if the key was free.

use std::{
    borrow::Cow,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use axum::response::{IntoResponse, Response};
use hapax::{event::NewEvent, store::StoreError};

use crate::problem::{self, Code, ConflictOn as _, Problem};

/// The write plan of a single-shot request: its statements, its events and its response.
///
/// `S` is the store's statement. A handler that returns a plan in an operation that is not marked
/// `single_shot` responds with 500, because the plan would not be executed.
pub struct WritePlan<S> {
    /// The statements, in the order in which they run.
    pub statements: Vec<S>,
    /// The events, written in the same transaction.
    pub events: Vec<NewEvent>,
    /// The response after the plan is committed.
    pub response: Response,
    /// The constraints whose violation is a problem of the service: their names and the codes.
    pub conflicts: Vec<(Cow<'static, str>, Code)>,
}

impl<S> WritePlan<S> {
    /// Creates a plan with the response `response` and nothing else.
    pub fn new(response: impl IntoResponse) -> Self {
        Self {
            statements: Vec::new(),
            events: Vec::new(),
            response: response.into_response(),
            conflicts: Vec::new(),
        }
    }

    /// Adds a statement. Statements run in the order in which they are added.
    #[must_use]
    pub fn statement(mut self, statement: S) -> Self {
        self.statements.push(statement);
        self
    }

    /// Responds with a problem of `code` if a statement violates `constraint`, as
    /// [`ConflictOn`](crate::ConflictOn) does in other modes.
    #[must_use]
    pub fn conflict_on(mut self, constraint: impl Into<Cow<'static, str>>, code: Code) -> Self {
        self.conflicts.push((constraint.into(), code));
        self
    }

    /// Adds an event.
    #[must_use]
    pub fn emit(mut self, event: NewEvent) -> Self {
        self.events.push(event);
        self
    }
}

impl<S> fmt::Debug for WritePlan<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Planned")
            .field("statements", &self.statements.len())
            .field("events", &self.events)
            .field("answer", &self.response)
            .field("conflicts", &self.conflicts)
            .finish()
    }
}

impl<S: Send + 'static> IntoResponse for WritePlan<S> {
    fn into_response(self) -> Response {
        let nobody = "the handler returned a plan, but its operation is not marked single_shot";
        let mut response = problem::unwritten(nobody);
        let carried = Carried(Arc::new(Mutex::new(Some(self))));
        response.extensions_mut().insert(carried);
        response
    }
}

/// A write plan without its response.
pub(crate) struct Plan<S> {
    pub(crate) statements: Vec<S>,
    pub(crate) events: Vec<NewEvent>,
    pub(crate) conflicts: Conflicts,
}

/// The constraints whose violation is a problem of the service.
#[derive(Default)]
pub(crate) struct Conflicts(Vec<(Cow<'static, str>, Code)>);

impl Conflicts {
    /// Converts a failure of the plan into a problem.
    pub(crate) fn problem(&self, error: StoreError) -> Problem {
        let named = self.0.iter();
        named.fold(Problem::from(error), |problem, (constraint, code)| {
            let conflict = Err::<(), _>(problem).conflict_on(constraint, *code);
            conflict.expect_err("mapping an error does not make it a success")
        })
    }
}

impl<S> Default for Plan<S> {
    fn default() -> Self {
        Self {
            statements: Vec::new(),
            events: Vec::new(),
            conflicts: Conflicts::default(),
        }
    }
}

/// Takes the plan out of a handler's response. Returns it with the response that it contains.
pub(crate) fn split<S: Send + 'static>(response: Response) -> (Plan<S>, Response) {
    let carried = response.extensions().get::<Carried<S>>().cloned();
    let write_plan = carried.and_then(|carried| {
        let mut slot = carried.0.lock().unwrap_or_else(PoisonError::into_inner);
        slot.take()
    });
    match write_plan {
        None => (Plan::default(), response),
        Some(write_plan) => {
            let WritePlan {
                statements,
                events,
                response,
                conflicts,
            } = write_plan;
            let conflicts = Conflicts(conflicts);
            let plan = Plan {
                statements,
                events,
                conflicts,
            };
            (plan, response)
        }
    }
}

struct Carried<S>(Arc<Mutex<Option<WritePlan<S>>>>);

impl<S> Clone for Carried<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
