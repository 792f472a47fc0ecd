//! Reference service with the maximum rate: axum with a constant response.

use axum::routing::{MethodRouter, post};

use super::answer::Answer;

/// The route that responds to every request with `answer`.
pub(super) fn orders(answer: Answer) -> MethodRouter {
    post(move || std::future::ready(answer.respond()))
}
