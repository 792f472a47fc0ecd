//! The payment provider as a process of its own.

use std::process::ExitCode;

fn main() -> ExitCode {
    providers::run("payment-provider", providers::payment)
}
