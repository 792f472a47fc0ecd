//! `cargo x carry`: the correctness run, for as long as is asked.
//!
//! The run itself is a test of the `hapax` binary, where it is short. Here it takes five minutes
//! and goes to every far side, Kafka among them.

use anyhow::{Context as _, bail};

use crate::step::from_a_shell;

const SECONDS: &str = "300";
const SINKS: &str = "webhook,nats,amqp,redis,kafka";

/// Runs it; `--seconds N` and `--sinks a,b` say how long and where to.
pub(crate) fn carry(arguments: &[String]) -> anyhow::Result<()> {
    let (mut seconds, mut sinks) = (SECONDS, SINKS);
    for pair in arguments.chunks(2) {
        match pair {
            [name, value] if name == "--seconds" => seconds = value,
            [name, value] if name == "--sinks" => sinks = value,
            _ => bail!("carry takes --seconds N and --sinks webhook,nats,amqp,redis,kafka"),
        }
    }
    let mut command = from_a_shell("cargo");
    command.args(["test", "-p", "hapax-server", "--test", "carry"]);
    if sinks.contains("kafka") {
        command.args(["--features", "kafka"]);
    }
    let ran = command
        .args(["--", "--nocapture"])
        .env("HAPAX_CARRY_SECONDS", seconds)
        .env("HAPAX_CARRY_SINKS", sinks)
        .status()
        .context("cargo cannot be run")?;
    if !ran.success() {
        bail!("the run does not hold");
    }
    Ok(())
}
