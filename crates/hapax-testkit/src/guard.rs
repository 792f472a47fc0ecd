//! Programs that do not outlive the process that started them, even if that process is killed.

use std::{
    ffi::OsStr,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Command, Stdio},
};

/// Signals the program and its children when the other end of its standard input is closed, and then
/// removes a folder if there is one. A shell ignores SIGINT and SIGQUIT in what it starts with `&`.
const GUARD: &str = "( { read -r _; kill -s \"$GUARD_SIGNAL\" -- -$$; \
    if [ \"$GUARD_FOLDER\" ]; then \
    while kill -0 $$ 2>&-; do sleep 0.1; done; rm -rf \"$GUARD_FOLDER\"; fi; \
    } <&3 3<&- & ) 3<&0; unset GUARD_SIGNAL GUARD_FOLDER; exec \"$0\" \"$@\" </dev/null 3<&-";

/// A command for a program that receives a signal when this process closes its standard input or
/// dies. The program itself has no input.
pub fn guarded(program: impl AsRef<OsStr>, signal: &str) -> Command {
    let mut command = Command::new("sh");
    guard(&mut command, program, signal, None);
    command
}

/// Adds the arguments of [`guarded`] to a command that ends in a shell. The folder is removed after
/// the signal, if the program has ended.
pub(crate) fn guard(
    command: &mut Command,
    program: impl AsRef<OsStr>,
    signal: &str,
    folder: Option<&Path>,
) {
    command.args(["-c", GUARD]).arg(program);
    command.env("GUARD_SIGNAL", signal);
    command.env("GUARD_FOLDER", folder.unwrap_or(Path::new("")));
    command.stdin(Stdio::piped()).process_group(0);
}
