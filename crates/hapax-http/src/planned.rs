//! What a single-shot handler returns: a plan, carried out in one go.
//!
//! The handler touches nothing. It says which statements, which events and
//! which answer; the store runs them with the key in one step and may share a
//! commit between many such requests. Statements run only if the key was free.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use axum::response::{IntoResponse, Response};
use hapax::event::NewEvent;

use crate::problem;

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
}

impl<S> Planned<S> {
    /// A plan to answer `answer` and nothing else.
    pub fn new(answer: impl IntoResponse) -> Self {
        Self {
            statements: Vec::new(),
            events: Vec::new(),
            answer: answer.into_response(),
        }
    }

    /// Adds a statement; they run in the order in which they are added.
    #[must_use]
    pub fn statement(mut self, statement: S) -> Self {
        self.statements.push(statement);
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
}

impl<S> Default for Plan<S> {
    fn default() -> Self {
        Self {
            statements: Vec::new(),
            events: Vec::new(),
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
            } = planned;
            (Plan { statements, events }, answer)
        }
    }
}

struct Carried<S>(Arc<Mutex<Option<Planned<S>>>>);

impl<S> Clone for Carried<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
