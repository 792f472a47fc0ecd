//! The shipping provider as a process of its own.

use std::process::ExitCode;

fn main() -> ExitCode {
    providers::run("shipping-provider", providers::shipping)
}
