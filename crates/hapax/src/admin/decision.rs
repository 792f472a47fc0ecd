//! Decisions about sagas: checks and the line in the audit log, which are the same in every store.

use serde_json::{Value, json};

use super::{AdminError, check_reason};
use crate::{limits::SAGA_INPUT_BYTES_MAX, saga::Decision};

/// Checks a decision before the saga is read.
///
/// # Errors
/// `Invalid` without a reason, and if what a step has made is too long.
pub fn check_decision(decision: &Decision, reason: &str) -> Result<(), AdminError> {
    check_reason(reason)?;
    match decision {
        Decision::Done { made, .. } if made.len() > SAGA_INPUT_BYTES_MAX => {
            let problem = format!("is longer than {SAGA_INPUT_BYTES_MAX} bytes");
            Err(AdminError::invalid("made", problem))
        }
        _ => Ok(()),
    }
}

/// The details of a decision in the audit log.
pub fn decision_detail(decision: &Decision, reason: &str) -> Value {
    let step = match decision {
        Decision::Done { step, .. } | Decision::Refused { step } => Some(step),
        Decision::Retry { .. } | Decision::Compensate { .. } | Decision::Close => None,
    };
    json!({"decision": decision.as_str(), "step": step, "reason": reason})
}

/// The refusal of a decision about a saga that has another epoch by now.
pub fn saga_has_changed(id: &str) -> String {
    format!(
        "{} has changed since it was looked at, by a worker or another operator: look at it again",
        saga_object(id)
    )
}

/// The name of a saga in errors and in the audit log.
pub fn saga_object(id: &str) -> String {
    format!("saga {id}")
}
