//! The limit of open files of a process.
//!
//! Each delivery in flight is a connection, and so is each idle one, so a relay with many endpoints
//! needs more open files than shells and containers usually permit. Their limit is a soft one, which
//! a process may raise.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The number of open files that is asked for: more than all deliveries, listeners and connections
/// to the database can have.
const WANTED: u64 = 65_536;

/// Raises the soft limit as far as the system allows.
pub(crate) fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(WANTED).min(WANTED);
    if limit.current.is_some_and(|current| current < wanted) {
        let raised = Rlimit {
            current: Some(wanted),
            maximum: limit.maximum,
        };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, "the limit of open files cannot be raised");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_and_never_lowered() {
        let limit = getrlimit(Resource::Nofile);
        let low = limit.maximum.unwrap_or(WANTED).min(512);
        let lowered = Rlimit {
            current: Some(low),
            maximum: limit.maximum,
        };
        setrlimit(Resource::Nofile, lowered).unwrap();
        raise_limit();
        let raised = getrlimit(Resource::Nofile);
        let possible = limit.maximum.unwrap_or(WANTED).min(WANTED);
        assert_eq!(
            (raised.current, raised.maximum),
            (Some(possible), limit.maximum)
        );
        setrlimit(Resource::Nofile, limit).unwrap();
        raise_limit();
        assert!(getrlimit(Resource::Nofile).current >= limit.current.map(|it| it.min(WANTED)));
    }
}
