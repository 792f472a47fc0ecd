//! Brokers for the tests: those that are running, or ones that the task starts.
//!
//! The tests expect each broker on its usual port. If nothing listens there, the task starts the
//! installed program with a separate folder. The broker ends with the task, even if the task is
//! killed.

use std::{
    fs,
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::Child,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

use crate::{guard::guarded, port::free_port};

const PATIENCE: Duration = Duration::from_mins(1);
/// Maximum number of attempts to start a broker.
const STARTS: usize = 3;

/// A kind of service.
#[derive(Clone, Copy, Debug)]
struct Kind {
    name: &'static str,
    port: u16,
    program: &'static str,
    package: &'static str,
    call: fn(&Path, u16) -> Call,
}

/// Arguments and environment of a service.
#[derive(Debug, Default)]
struct Call {
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
}

const KINDS: [Kind; 3] = [
    Kind {
        name: "NATS",
        port: 4222,
        program: "nats-server",
        package: "nats-server",
        call: nats,
    },
    Kind {
        name: "Redis",
        port: 6379,
        program: "redis-server",
        package: "redis-server",
        call: redis,
    },
    Kind {
        name: "RabbitMQ",
        port: 5672,
        program: "rabbitmq-server",
        package: "rabbitmq-server",
        call: rabbitmq,
    },
];

/// A service that was started here. It ends when the value is dropped.
#[derive(Debug)]
pub(crate) struct Service {
    process: Child,
    folder: PathBuf,
}

/// Starts the services that are not running.
pub(crate) fn for_tests() -> anyhow::Result<Vec<Service>> {
    let mut started = Vec::new();
    for kind in KINDS {
        if !answers(kind.port) {
            let Kind { name, port, .. } = kind;
            println!("    no {name} on 127.0.0.1:{port}: starting one for these tests");
            started.push(Service::start(kind)?);
        }
    }
    Ok(started)
}

impl Service {
    /// Starts a service, several times if necessary: on a busy machine, the start of RabbitMQ can
    /// hang.
    fn start(kind: Kind) -> anyhow::Result<Self> {
        let mut tries = 1;
        loop {
            let mut service = Self::launch(kind)?;
            match service.ready(kind.name, kind.port) {
                Ok(()) => return Ok(service),
                Err(error) if tries == STARTS => return Err(error),
                Err(error) => println!("    {error:#}; trying again"),
            }
            tries += 1;
        }
    }

    fn launch(kind: Kind) -> anyhow::Result<Self> {
        let Kind {
            name,
            port,
            program,
            package,
            call,
        } = kind;
        let path = located(program).with_context(|| {
            format!("{program} is not installed (Debian: apt-get install {package})")
        })?;
        let folder = std::env::temp_dir().join(format!("hapax-{name}-{}", std::process::id()));
        let _left = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).context("cannot create a folder for a service")?;
        let listens = format!("listeners.tcp.1 = 127.0.0.1:{port}\n");
        fs::write(folder.join("rabbitmq.conf"), listens)?;
        let log = fs::File::create(folder.join("log"))?;
        let Call {
            arguments,
            environment,
        } = call(&folder, port);
        let process = guarded(path, "KILL")
            .args(arguments)
            .envs(environment)
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {program}"))?;
        Ok(Self { process, folder })
    }

    fn ready(&mut self, name: &str, port: u16) -> anyhow::Result<()> {
        let began = Instant::now();
        while !answers(port) {
            let ended = self.process.try_wait()?;
            if ended.is_some() || began.elapsed() > PATIENCE {
                let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                bail!("{name} did not start: {log}");
            }
            #[expect(clippy::disallowed_methods, reason = "the service signals nothing")]
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ended = self.process.wait();
        let _gone = fs::remove_dir_all(&self.folder);
    }
}

fn answers(port: u16) -> bool {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    TcpStream::connect_timeout(&address, Duration::from_secs(2)).is_ok()
}

/// Finds a program. Servers are not always in the `PATH` of a user, and Debian's RabbitMQ is there
/// only as a wrapper script that would leave the process group of the task.
fn located(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::iter::once("/usr/lib/rabbitmq/bin".into())
        .chain(std::env::split_paths(&path))
        .chain(["/usr/sbin".into(), "/usr/local/sbin".into()])
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

fn nats(folder: &Path, port: u16) -> Call {
    let folder = folder.display().to_string();
    let arguments = [
        "-a",
        "127.0.0.1",
        "-p",
        &port.to_string(),
        "-js",
        "-sd",
        &folder,
    ];
    Call {
        arguments: arguments.map(str::to_owned).into(),
        ..Call::default()
    }
}

fn redis(folder: &Path, port: u16) -> Call {
    let (folder, port) = (folder.display().to_string(), port.to_string());
    let arguments = [
        "--bind",
        "127.0.0.1",
        "--port",
        &port,
        "--save",
        "",
        "--dir",
        &folder,
    ];
    Call {
        arguments: arguments.map(str::to_owned).into(),
        ..Call::default()
    }
}

fn rabbitmq(folder: &Path, port: u16) -> Call {
    let within = |name: &str| folder.join(name).display().to_string();
    Call {
        arguments: Vec::new(),
        environment: vec![
            ("HOME", folder.display().to_string()),
            ("RABBITMQ_NODENAME", format!("hapax-{port}@localhost")),
            ("RABBITMQ_CONFIG_FILE", within("rabbitmq.conf")),
            ("RABBITMQ_DIST_PORT", free_port().to_string()),
            ("RABBITMQ_MNESIA_BASE", within("mnesia")),
            ("RABBITMQ_LOG_BASE", within("logs")),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", within("plugins")),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_service_can_be_started_here_and_ends_with_its_value() {
        for kind in KINDS {
            let port = free_port();
            let service = Service::start(Kind { port, ..kind }).unwrap();
            let folder = service.folder.clone();
            assert!(answers(port), "{}", kind.name);
            drop(service);
            let began = Instant::now();
            while answers(port) {
                assert!(began.elapsed() < PATIENCE, "{}", kind.name);
            }
            assert!(!folder.exists(), "{}", kind.name);
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_named_with_its_package() {
        let missing = Kind {
            program: "no-such-server",
            ..KINDS[0]
        };
        let error_chain = format!("{:#}", Service::start(missing).unwrap_err());
        assert_eq!(
            error_chain,
            "no-such-server is not installed (Debian: apt-get install nats-server)"
        );
    }
}
