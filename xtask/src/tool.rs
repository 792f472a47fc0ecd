//! Programs that the gate needs in addition to the Rust toolchain.
//!
//! The gate does not skip a check because its program is missing. It fails at once and prints the
//! command that installs the program.

use std::process::{Command, Stdio};

use anyhow::bail;

/// A program that the gate calls.
#[derive(Debug)]
pub(crate) struct Tool {
    /// The command that succeeds if the program is installed.
    pub(crate) probe: &'static str,
    /// The command that installs the program.
    pub(crate) install: &'static str,
}

/// The test runner.
pub(crate) const NEXTEST: Tool = Tool {
    probe: "cargo nextest --version",
    install: "cargo install cargo-nextest --locked",
};

/// The program that counts instructions.
pub(crate) const VALGRIND: Tool = Tool::new("valgrind --version", "apt-get install valgrind");

/// All programs that the gate needs.
pub(crate) const ALL: &[Tool] = &[
    NEXTEST,
    Tool::new("cargo deny --version", "cargo install cargo-deny --locked"),
    Tool::new(
        "cargo-machete --version",
        "cargo install cargo-machete --locked",
    ),
    Tool::new("typos --version", "pip install typos"),
    VALGRIND,
    // The proxies with which the gateway is compared.
    Tool::new("nginx -v", "apt-get install nginx-light"),
    Tool::new("haproxy -v", "apt-get install haproxy"),
];

impl Tool {
    /// A program, the command that probes it, and the one that installs it.
    pub(crate) const fn new(probe: &'static str, install: &'static str) -> Self {
        Self { probe, install }
    }

    /// Whether the program is installed.
    pub(crate) fn is_there(&self) -> bool {
        let mut words = self.probe.split_whitespace();
        let Some(program) = words.next() else {
            return false;
        };
        Command::new(program)
            .args(words)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    }
}

/// Returns an error if one of `tools` is missing.
pub(crate) fn require(tools: &[Tool]) -> anyhow::Result<()> {
    let missing: Vec<_> = tools
        .iter()
        .filter(|tool| !tool.is_there())
        .map(|tool| tool.install)
        .collect();
    if !missing.is_empty() {
        bail!(
            "a tool is missing; install it with: {}",
            missing.join(" && ")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        path::Path,
        time::{Duration, Instant},
    };

    use super::*;

    #[test]
    fn the_script_lists_in_one_line_what_is_missing_before_anything_is_built() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let began = Instant::now();
        let output = Command::new("/bin/bash")
            .args(["x", "test"])
            .current_dir(root)
            .env_clear()
            .env("PATH", "/nonexistent")
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains("https://rustup.rs && "), "{text}");
        assert!(
            text.contains("apt-get install -y --no-install-recommends gcc "),
            "{text}"
        );
        assert!(began.elapsed() < Duration::from_secs(2));
    }

    #[test]
    fn a_missing_tool_is_refused_with_the_line_that_installs_it() {
        let there = Tool::new("cargo --version", "install rust");
        let missing = Tool::new(
            "no-such-tool-anywhere --version",
            "cargo install no-such-tool --locked",
        );
        let error = require(&[there, missing]).unwrap_err().to_string();
        assert!(
            error.ends_with("with: cargo install no-such-tool --locked"),
            "{error}"
        );
    }
}
