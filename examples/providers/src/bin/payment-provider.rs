//! Runs the payment provider as a separate process.

use std::process::ExitCode;

fn main() -> ExitCode {
    providers::run("payment-provider", providers::payment)
}
