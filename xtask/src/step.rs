//! Steps of a task: each has a name, an action and a duration.
//!
//! A step either succeeds or ends the task. The programs that it calls write directly to the
//! terminal, so that their output keeps its colours.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

/// The finished steps.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    done: Vec<(String, Duration)>,
}

impl Steps {
    /// Runs one step and prints its name and its duration.
    pub(crate) fn run(
        &mut self,
        name: &str,
        act: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        println!("==> {name}");
        let began = Instant::now();
        let outcome = act();
        let took = began.elapsed();
        println!("    {name}: {:.1} s", took.as_secs_f64());
        outcome.with_context(|| format!("step {name}"))?;
        self.done.push((name.to_owned(), took));
        Ok(())
    }

    /// Runs one step that consists of a single command line.
    pub(crate) fn call(&mut self, name: &str, line: &str) -> anyhow::Result<()> {
        self.run(name, || call(line))
    }

    /// Prints the number of steps and the total duration.
    pub(crate) fn close(&self) {
        if self.done.len() < 2 {
            return;
        }
        let total: Duration = self.done.iter().map(|(_, took)| *took).sum();
        println!(
            "\nPASSED: {} steps in {:.0} s",
            self.done.len(),
            total.as_secs_f64()
        );
    }
}

/// Runs a command line whose words contain no spaces.
pub(crate) fn call(line: &str) -> anyhow::Result<()> {
    call_with(line, &[])
}

/// Runs a command line with additional environment variables.
pub(crate) fn call_with(line: &str, environment: &[(&str, String)]) -> anyhow::Result<()> {
    let mut words = line.split_whitespace();
    let program = words.next().context("the command line is empty")?;
    let status = from_a_shell(program)
        .args(words)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .status()
        .with_context(|| format!("cannot run `{line}`"))?;
    if !status.success() {
        bail!("`{line}` ended with {status}");
    }
    Ok(())
}

/// A command with the environment of a shell, without the variables that cargo sets for this
/// program.
///
/// Build scripts depend on these variables. If they were passed on, calling cargo once from a shell
/// and once through a task would rebuild everything that depends on a build script. Also, a cargo
/// subcommand that is called by its own name, such as `cargo-machete`, takes `CARGO` as a sign that
/// cargo called it, and expects the name of the subcommand as its first argument.
pub(crate) fn from_a_shell(program: &str) -> Command {
    let mut command = Command::new(program);
    clear_cargo_variables(&mut command);
    command
}

/// Removes the variables that cargo sets for this program from the environment of a command.
pub(crate) fn clear_cargo_variables(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let said = name.to_string_lossy();
        let of_this_program = said == "CARGO"
            || said.starts_with("CARGO_PKG_")
            || said.starts_with("CARGO_MANIFEST_");
        if of_this_program {
            command.env_remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_fails_ends_the_chore_and_is_named() {
        let error = Steps::default()
            .call("lint", "cargo no-such-chore")
            .unwrap_err();
        let error_chain = format!("{error:#}");
        assert!(
            error_chain.starts_with("step lint: `cargo no-such-chore` ended with"),
            "{error_chain}"
        );
    }

    #[test]
    fn nothing_that_cargo_says_of_this_program_is_passed_on() {
        // Cargo runs this test, so the variables are set.
        assert!(std::env::var_os("CARGO").is_some());
        let said = from_a_shell("env").output().unwrap().stdout;
        let said = String::from_utf8(said).unwrap();
        let passed_on: Vec<_> = said
            .lines()
            .filter(|line| {
                ["CARGO=", "CARGO_PKG_", "CARGO_MANIFEST_"]
                    .iter()
                    .any(|start| line.starts_with(start))
            })
            .collect();
        assert!(passed_on.is_empty(), "{passed_on:?}");
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = call("no-such-program-anywhere --version").unwrap_err();
        assert!(format!("{error:#}").starts_with("cannot run `no-such-program-anywhere"));
    }
}
