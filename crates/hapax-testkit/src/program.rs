//! Programs as child processes: one that runs until the test ends it, or one that runs to its end.
//!
//! A [`Program`] is killed when its value is dropped. [`guarded`] also ends it when the process of
//! the test dies.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread::{self, JoinHandle},
    time::Duration,
};

use serde_json::Value;

pub use crate::guard::guarded;
use crate::wait::eventually;

/// How long a program may take to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// Commands of a shell that kill the processes of the file `pids` with SIGKILL, and wait until they
/// have released their ports.
///
/// A process that its parent does not wait for stays a zombie. Its first thread becomes one while
/// the others still keep its files open, so all threads are looked at.
pub const KILL_PIDS: &str = "for pid in $(cat pids 2>/dev/null); do
  kill -9 $pid || true
  while cat /proc/$pid/task/*/stat 2>/dev/null | grep -qv ') Z'; do sleep 0.02; done
done
";

/// A running program. Dropping it kills it.
#[derive(Debug)]
pub struct Program {
    child: Child,
    log: PathBuf,
    output: Option<JoinHandle<String>>,
}

impl Program {
    /// Starts a program whose output and errors are appended to the file `log`.
    ///
    /// # Panics
    /// Panics if it cannot be started.
    pub fn start(mut command: Command, log: &Path) -> Self {
        let file = appended(log);
        command.stdout(file.try_clone().expect("a file handle can be duplicated"));
        Self::spawn(command, file, log)
    }

    /// Starts a program whose errors are appended to the file `log`, waits for the first line of its
    /// output, and returns that line.
    ///
    /// # Panics
    /// Panics if it cannot be started.
    pub fn announced(mut command: Command, log: &Path) -> (Self, String) {
        command.stdout(Stdio::piped());
        let mut program = Self::spawn(command, appended(log), log);
        let stdout = program.child.stdout.take().expect("the output is piped");
        let mut stdout = BufReader::new(stdout);
        let mut output = String::new();
        let read = stdout.read_line(&mut output);
        read.expect("the output is text");
        let line = output.trim_end().to_owned();
        // The rest is read, so that the program can write as much as it likes.
        program.output = Some(thread::spawn(move || {
            let read = stdout.read_to_string(&mut output);
            read.expect("the output is text");
            output
        }));
        (program, line)
    }

    fn spawn(mut command: Command, errors: File, log: &Path) -> Self {
        let child = command.stderr(errors).spawn();
        let child = child.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        Self {
            child,
            log: log.to_owned(),
            output: None,
        }
    }

    /// The id of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Whether it has ended.
    ///
    /// # Panics
    /// Panics if the system does not know the process.
    pub fn has_ended(&mut self) -> bool {
        let status = self.child.try_wait().expect("a child can be waited for");
        status.is_some()
    }

    /// The complete output of a program that [announced](Self::announced) itself and has ended.
    ///
    /// # Panics
    /// Panics if the output is not text, or is asked for twice.
    pub fn output(&mut self) -> String {
        let reading = self.output.take().expect("the output is read once");
        reading.join().expect("the output is text")
    }

    /// Sends the signal with this name.
    ///
    /// # Panics
    /// Panics if the process does not exist.
    pub fn signal(&self, name: &str) {
        let id = self.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status();
        assert!(sent.is_ok_and(|it| it.success()), "cannot send {name}");
    }

    /// Waits until it has ended.
    ///
    /// # Panics
    /// Panics if it does not end in time.
    pub async fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        eventually(PATIENCE, async || {
            status = self.child.try_wait().expect("a child can be waited for");
            status.is_some()
        })
        .await;
        status.expect("the condition holds")
    }

    /// Ends it as an operator would, with SIGTERM.
    ///
    /// # Panics
    /// Panics if it does not end in time, or not with success.
    pub async fn stop(&mut self) {
        self.signal("TERM");
        let status = self.ended().await;
        assert!(status.success(), "{status} {}", self.log());
    }

    /// Kills it with SIGKILL, and waits until it is dead. The children of a [`guarded`] program are
    /// killed too.
    pub fn kill(&mut self) {
        drop(self.child.stdin.take());
        // It may have ended before.
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The exit code and the output of a program that has ended.
#[derive(Debug)]
pub struct ProgramOutput {
    /// The exit code, if no signal ended it.
    pub code: Option<i32>,
    /// The standard output.
    pub stdout: String,
    /// The standard error.
    pub stderr: String,
}

impl ProgramOutput {
    /// Parses the standard output as JSON.
    ///
    /// # Panics
    /// Panics if it is not JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Checks the exit code.
    ///
    /// # Panics
    /// Panics if it is another one.
    #[expect(
        clippy::return_self_not_must_use,
        reason = "often only the exit code matters"
    )]
    #[track_caller]
    pub fn ended(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }
}

/// Runs a program to its end, and kills it if it hangs.
///
/// # Panics
/// Panics if it cannot be started, or if its output is not text.
#[track_caller]
pub fn run_to_end(mut command: Command) -> ProgramOutput {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn();
    let child = child.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    let id = child.id().to_string();
    let (ended, over) = mpsc::channel::<()>();
    let watchdog = thread::spawn(move || {
        if over.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            let _gone = Command::new("kill").args(["-9", &id]).status();
        }
    });
    let output = child.wait_with_output().expect("a child can be waited for");
    drop(ended);
    watchdog.join().expect("the watchdog does not panic");
    ProgramOutput {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("the output is text"),
        stderr: String::from_utf8(output.stderr).expect("the errors are text"),
    }
}

/// Runs a program to its end in a task, and returns its output.
///
/// # Panics
/// Panics with its errors if it fails.
pub async fn succeed(command: Command) -> Output {
    let called = format!("{command:?}");
    let mut command = tokio::process::Command::from(command);
    let ended = command.stdin(Stdio::null()).output().await;
    let ended = ended.unwrap_or_else(|error| panic!("cannot run {called}: {error}"));
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{called}: {}: {said}", ended.status);
    ended
}

/// A folder with installed packages, such as `../otlp` beside the temporary folder of the build.
///
/// `target_tmp` is the test's `env!("CARGO_TARGET_TMPDIR")`.
///
/// # Panics
/// Panics if the packages are not installed.
pub fn packages(target_tmp: &str, name: &str) -> PathBuf {
    let packages = Path::new(target_tmp).join("..").join(name);
    assert!(
        packages.join("installed").exists(),
        "the packages of {name} are not installed: run `cargo x packages` once"
    );
    packages.canonicalize().expect("the folder exists")
}

fn appended(path: &Path) -> File {
    let opened = File::options().create(true).append(true).open(path);
    opened.unwrap_or_else(|error| panic!("cannot open {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::{
        env,
        net::{TcpListener, TcpStream},
    };

    use super::*;
    use crate::port::free_port;

    /// The variable that makes a test a program of many threads that listens on a port.
    const LISTEN: &str = "HAPAX_TEST_LISTEN";

    fn shell(script: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).stdin(Stdio::null());
        shell
    }

    #[tokio::test]
    async fn a_program_announces_itself_and_its_output_and_errors_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let script = "trap 'echo bye; exit' TERM; echo oh >&2; echo here
            while :; do sleep 0.01; done";
        let (mut program, line) = Program::announced(shell(script), &folder.path().join("log"));
        assert_eq!(line, "here");
        assert_eq!(program.log(), "oh\n");
        assert!(!program.has_ended());
        program.stop().await;
        assert_eq!(program.output(), "here\nbye\n");
    }

    #[test]
    fn a_program_that_is_dropped_is_dead() {
        let folder = tempfile::tempdir().unwrap();
        let program = Program::start(shell("exec sleep 1000"), &folder.path().join("log"));
        let process = PathBuf::from(format!("/proc/{}", program.id()));
        assert!(process.exists());
        drop(program);
        assert!(!process.exists());
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the variable is set for a process of this test"
    )]
    #[tokio::test]
    async fn programs_that_were_killed_have_released_their_ports() {
        if let Ok(address) = env::var(LISTEN) {
            let _listener = TcpListener::bind(address).unwrap();
            let spin = || while thread::current().name().is_none() {};
            let threads: Vec<_> = (0..16).map(|_| thread::spawn(spin)).collect();
            return threads.into_iter().for_each(|it| it.join().unwrap());
        }
        let folder = tempfile::tempdir().unwrap();
        let address = format!("127.0.0.1:{}", free_port());
        for _ in 0..20 {
            let mut command = Command::new(env::current_exe().unwrap());
            let name = "program::tests::programs_that_were_killed_have_released_their_ports";
            command.args(["--exact", name]).env(LISTEN, &address);
            let program = Program::start(command, &folder.path().join("log"));
            eventually(PATIENCE, async || TcpStream::connect(&address).is_ok()).await;
            fs::write(folder.path().join("pids"), program.id().to_string()).unwrap();
            let mut script = shell(KILL_PIDS);
            script.current_dir(folder.path());
            run_to_end(script).ended(0);
            assert!(TcpListener::bind(&address).is_ok(), "the port is in use");
        }
    }

    #[tokio::test]
    async fn a_guarded_program_ends_when_its_guard_loses_the_test() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = guarded("sleep", "KILL");
        command.arg("1000");
        let mut program = Program::start(command, &folder.path().join("log"));
        // Closes the pipe, as the death of this process does.
        drop(program.child.stdin.take());
        assert!(!program.ended().await.success());
    }

    #[test]
    fn a_program_that_ended_is_reported_with_its_code() {
        let ran = run_to_end(shell("echo '{\"a\":1}'; echo b >&2; exit 3")).ended(3);
        assert_eq!(ran.json()["a"], 1);
        assert_eq!(ran.stderr, "b\n");
    }
}
