//! Runs the shipping provider as a separate process.

use std::process::ExitCode;

fn main() -> ExitCode {
    providers::run("shipping-provider", providers::shipping)
}
