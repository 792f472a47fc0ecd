//! A queue of faults, each of which affects a number of calls of an operation.

use std::collections::VecDeque;

use serde::Deserialize;

/// The most faults in the queue.
const FAULTS_MAX: usize = 1_000;
/// The name that matches every operation.
const ANY: &str = "any";

/// The fault of a call, or `Ok` for none.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    /// No fault.
    Ok,
    /// The call is applied, and its response is lost.
    AppliedThenLost,
    /// The call is lost before it is applied.
    LostBefore,
    /// The call fails with 500 and is not applied.
    ErrorBefore,
    /// The call is applied, and then fails with 500.
    ErrorAfter,
    /// The call is applied, and the response is sent three seconds later.
    Slow,
    /// A call with a known key is rejected as a duplicate.
    Duplicate,
}

/// A fault as requested with `POST /faults`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fault {
    pub(crate) operation: String,
    pub(crate) mode: Mode,
    #[serde(default = "once")]
    pub(crate) count: u64,
}

/// The queued faults, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Faults(VecDeque<Fault>);

impl Faults {
    /// Appends a fault to the queue; the mode `ok` removes the faults of its operation.
    pub(crate) fn add(&mut self, fault: Fault) -> Result<(), &'static str> {
        if fault.mode == Mode::Ok {
            self.0
                .retain(|it| fault.operation != ANY && it.operation != fault.operation);
            return Ok(());
        }
        if self.0.len() == FAULTS_MAX {
            return Err("too many faults are queued");
        }
        if fault.count > 0 {
            self.0.push_back(fault);
        }
        Ok(())
    }

    /// Takes the first fault that matches a call of `operation`, if there is one.
    ///
    /// `Mode::Duplicate` matches only if the key of the call is known.
    pub(crate) fn take(&mut self, operation: &str, is_known: bool) -> Option<Mode> {
        let meant = |fault: &Fault| {
            (fault.operation == operation || fault.operation == ANY)
                && (is_known || fault.mode != Mode::Duplicate)
        };
        let place = self.0.iter().position(meant)?;
        let fault = &mut self.0[place];
        fault.count -= 1;
        let mode = fault.mode;
        if fault.count == 0 {
            self.0.remove(place);
        }
        Some(mode)
    }
}

/// Returns whether a fault may name `name` as its operation.
pub(crate) fn is_operation(name: &str, operations: &[&str]) -> bool {
    name == ANY || operations.contains(&name)
}

fn once() -> u64 {
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_taken_in_their_order_by_the_calls_they_are_meant_for() {
        let mut faults = Faults::default();
        faults.add(fault("charge", Mode::Slow, 2)).unwrap();
        faults.add(fault("any", Mode::LostBefore, 1)).unwrap();
        assert_eq!(faults.take("charge", false), Some(Mode::Slow));
        assert_eq!(faults.take("lookup", false), Some(Mode::LostBefore));
        assert_eq!(faults.take("lookup", false), None);
        assert_eq!(faults.take("charge", false), Some(Mode::Slow));
        assert_eq!(faults.take("charge", false), None);
    }

    #[test]
    fn a_duplicate_waits_for_a_key_that_is_known() {
        let mut faults = Faults::default();
        faults.add(fault("charge", Mode::Duplicate, 1)).unwrap();
        assert_eq!(faults.take("charge", false), None);
        assert_eq!(faults.take("charge", true), Some(Mode::Duplicate));
    }

    #[test]
    fn ok_takes_the_faults_of_its_operation_away() {
        let mut faults = Faults::default();
        faults.add(fault("charge", Mode::Slow, 9)).unwrap();
        faults.add(fault("refund", Mode::Slow, 9)).unwrap();
        faults.add(fault("charge", Mode::Ok, 1)).unwrap();
        assert_eq!(faults.take("charge", true), None);
        assert_eq!(faults.take("refund", true), Some(Mode::Slow));
        faults.add(fault("any", Mode::Ok, 1)).unwrap();
        assert_eq!(faults.take("refund", true), None);
    }

    fn fault(operation: &str, mode: Mode, count: u64) -> Fault {
        Fault {
            operation: operation.to_owned(),
            mode,
            count,
        }
    }
}
