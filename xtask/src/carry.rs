//! `cargo x carry`: the correctness run.
//!
//! The run is also a test of the `hapax` binary, in a short form. Here it takes five minutes by
//! default and delivers to all receivers, including Kafka.

use anyhow::{Context as _, bail};

use crate::step::from_a_shell;

const SECONDS: &str = "300";
const SINKS: &str = "webhook,nats,amqp,redis,kafka";

/// Runs the task for `--seconds N`, with the receivers of `--sinks a,b`.
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
        bail!("the run failed");
    }
    Ok(())
}
