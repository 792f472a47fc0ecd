//! The limit of open files of this process and of those that it starts.

use anyhow::Context as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lets this process, and those that it starts, open so many files.
pub(super) fn raise_limit(files: u64) -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= files) {
        return Ok(());
    }
    let raised = Rlimit {
        current: Some(files),
        // Only a privileged process may raise this one.
        maximum: limit.maximum.map(|maximum| maximum.max(files)),
    };
    setrlimit(Resource::Nofile, raised).with_context(|| {
        format!(
            "the measurement needs {files} open files, and the limit of the system is lower: `ulimit -Hn {files}`"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_raised_as_far_as_the_system_allows_and_an_error_says_how_far() {
        let limit = getrlimit(Resource::Nofile);
        let maximum = limit.maximum.unwrap_or(4_096);
        raise_limit(maximum.min(4_096)).unwrap();
        let raised = getrlimit(Resource::Nofile).current;
        assert!(raised.is_none_or(|it| it >= maximum.min(4_096)));
        // No system allows as many files.
        if raised.is_some() {
            let error = raise_limit(u64::MAX - 1).expect_err("there are not so many");
            assert!(error.to_string().contains("ulimit -Hn"), "{error}");
        }
    }
}
