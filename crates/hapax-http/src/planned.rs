//! What a single-shot handler returns: a plan, carried out in one go.
//!
//! The handler touches nothing. It says which statements, which events and
//! which answer; the store runs them with the key in one step and may share a
//! commit between many such requests. Statements run only if the key was free.

use std::{
    borrow::Cow,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use axum::response::{IntoResponse, Response};
use hapax::{event::NewEvent, store::StoreError};

use crate::problem::{self, Code, ConflictOn as _, Problem};

/// All that a single-shot request will do, said beforehand.
///
/// `S` is the store's statement. Outside an operation marked `single_shot` it is answered with
/// 500, for nobody would carry it out.
pub struct Planned<S> {
    /// What is written, in this order.
    pub statements: Vec<S>,
    /// The events of the same transaction.
    pub events: Vec<NewEvent>,
    /// What is answered once all of it is committed.
    pub answer: Response,
    /// What is answered instead where a statement violates a constraint: its name, and the code.
    pub conflicts: Vec<(Cow<'static, str>, Code)>,
}

impl<S> Planned<S> {
    /// A plan to answer `answer` and nothing else.
    pub fn new(answer: impl IntoResponse) -> Self {
        Self {
            statements: Vec::new(),
            events: Vec::new(),
            answer: answer.into_response(),
            conflicts: Vec::new(),
        }
    }

    /// Adds a statement; they run in the order in which they are added.
    #[must_use]
    pub fn statement(mut self, statement: S) -> Self {
        self.statements.push(statement);
        self
    }

    /// Answers with a problem of `code` where a statement violates `constraint`, as
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

impl<S> fmt::Debug for Planned<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Planned")
            .field("statements", &self.statements.len())
            .field("events", &self.events)
            .field("answer", &self.answer)
            .field("conflicts", &self.conflicts)
            .finish()
    }
}

impl<S: Send + 'static> IntoResponse for Planned<S> {
    fn into_response(self) -> Response {
        let nobody = "the handler returns a plan, and its operation is not marked single_shot";
        let mut response = problem::unwritten(nobody);
        let carried = Carried(Arc::new(Mutex::new(Some(self))));
        response.extensions_mut().insert(carried);
        response
    }
}

/// What is left to do once the plan's answer is split off.
pub(crate) struct Plan<S> {
    pub(crate) statements: Vec<S>,
    pub(crate) events: Vec<NewEvent>,
    pub(crate) conflicts: Conflicts,
}

/// Constraints whose violation has an answer.
#[derive(Default)]
pub(crate) struct Conflicts(Vec<(Cow<'static, str>, Code)>);

impl Conflicts {
    /// What is answered to a failure.
    pub(crate) fn problem(&self, error: StoreError) -> Problem {
        let named = self.0.iter();
        named.fold(Problem::from(error), |problem, (constraint, code)| {
            let conflict = Err::<(), _>(problem).conflict_on(constraint, *code);
            conflict.expect_err("an error stays one")
        })
    }

    /// Whether a failure violates one of them.
    pub(crate) fn knows(&self, error: &StoreError) -> bool {
        let violated = error.constraint();
        violated.is_some_and(|it| self.0.iter().any(|(named, _)| named == it))
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

/// Takes the plan out of a response, with the answer that it plans.
pub(crate) fn split<S: Send + 'static>(response: Response) -> (Plan<S>, Response) {
    let carried = response.extensions().get::<Carried<S>>().cloned();
    let planned = carried.and_then(|carried| {
        let mut slot = carried.0.lock().unwrap_or_else(PoisonError::into_inner);
        slot.take()
    });
    match planned {
        None => (Plan::default(), response),
        Some(planned) => {
            let Planned {
                statements,
                events,
                answer,
                conflicts,
            } = planned;
            let conflicts = Conflicts(conflicts);
            let plan = Plan {
                statements,
                events,
                conflicts,
            };
            (plan, answer)
        }
    }
}

struct Carried<S>(Arc<Mutex<Option<Planned<S>>>>);

impl<S> Clone for Carried<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
