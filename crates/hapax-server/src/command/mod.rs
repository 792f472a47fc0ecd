//! The verbs: one file each, and what all of them share.
//!
//! `hapax gateway` is a verb beside these when it comes; nothing here changes for it.

mod relay;
mod console;
mod migrate;
mod doctor;
mod keys;
mod events;
mod deliveries;
mod dead_letters;
mod inbox;
mod sagas;
mod destinations;
mod send;
pub(crate) mod config;
mod completions;
mod man;

use std::{ffi::OsString, path::PathBuf, process::ExitCode, sync::Arc};

use anyhow::Context as _;
use hapax::failpoint::Failpoints;
use hapax_otlp::Exporter;
use hapax_postgres::{OpenError, Postgres};

use crate::{
    config::{Config, Given, Layers, Wrong},
    failpoint,
    output::{FAILED, Output, USAGE},
    surroundings, telemetry, wiring,
};

/// Carries the events of a PostgreSQL database to where they must go, and looks after it.
#[derive(Debug, clap::Parser)]
#[command(name = "hapax", version, about, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    flags: Flags,
    #[command(subcommand)]
    verb: Verb,
}

/// What every verb takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Reads settings from this TOML file; the environment and the flags win over it
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The PostgreSQL database, as a URL
    #[arg(long, global = true, value_name = "URL", hide_env_values = true)]
    database: Option<String>,
    /// Writes JSON instead of tables
    #[arg(long, global = true)]
    json: bool,
    /// How the log is written: human or json
    #[arg(long, global = true, value_name = "WORD")]
    log: Option<String>,
    /// What is logged: error, warn, info, debug or trace
    #[arg(long, global = true, value_name = "LEVEL")]
    log_level: Option<String>,
}

/// What to do.
#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Carries events until it is told to stop
    Relay(relay::Args),
    /// Serves the web console until it is told to stop
    Console(console::Args),
    /// Makes or upgrades the tables
    Migrate(migrate::Args),
    /// Looks for what is wrong, and says what to do about it
    Doctor(doctor::Args),
    /// Looks at idempotency keys, and purges one
    Keys(keys::Args),
    /// Looks at events
    Events(events::Args),
    /// Looks at deliveries that are parked or done
    Deliveries(deliveries::Args),
    /// Looks at dead letters, replays and discards them
    DeadLetters(dead_letters::Args),
    /// Looks at messages that were taken
    Inbox(inbox::Args),
    /// Looks at sagas, and decides about those that need attention
    Sagas(sagas::Args),
    /// Looks at destinations, declares, changes, pauses, resumes and removes them
    Destinations(destinations::Args),
    /// Sends one request until it is answered for good, under one idempotency key
    Send(Box<send::Args>),
    /// Shows and checks the configuration
    Config(config::Args),
    /// Prints the completions of a shell
    Completions(completions::Args),
    /// Writes the manual, a page for each verb
    Man(man::Args),
}

/// Why a command did not do what it was asked, with its exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) code: u8,
    /// One line for standard error.
    pub(crate) error_chain: String,
}

impl Failure {
    /// A failure with an exit code of its own.
    pub(crate) fn new(code: u8, error_chain: impl Into<String>) -> Self {
        Self {
            code,
            error_chain: error_chain.into(),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::new(FAILED, format!("{error:#}"))
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::from(anyhow::Error::from(error))
    }
}

impl From<hapax::store::StoreError> for Failure {
    fn from(error: hapax::store::StoreError) -> Self {
        Self::new(FAILED, error.error_chain())
    }
}

impl From<Wrong> for Failure {
    fn from(wrong: Wrong) -> Self {
        Self::new(USAGE, wrong.to_string())
    }
}

/// What every command is given.
#[derive(Debug)]
pub(crate) struct Context {
    /// The settings of all layers.
    pub(crate) config: Config,
    /// Where to write what was found.
    pub(crate) output: Output,
    /// What to tell of each commit and each send.
    pub(crate) failpoints: Failpoints,
    /// Reads the layers again: files may have changed.
    pub(crate) again: Again,
    /// What exports spans, where they are exported.
    pub(crate) exporter: Option<Exporter>,
}

/// Reads the layers, now or again.
#[derive(Clone)]
pub(crate) struct Again(Arc<dyn Fn() -> Result<Layers, Wrong> + Send + Sync>);

impl Again {
    /// The layers as they are now.
    pub(crate) fn layers(&self) -> Result<Layers, Wrong> {
        (self.0)()
    }
}

impl std::fmt::Debug for Again {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Again")
    }
}

impl Context {
    /// Opens the database of the settings; a schema that is not known is refused.
    pub(crate) async fn store(&self) -> Result<Postgres, Failure> {
        let url = self.config.database.url()?;
        let settings = wiring::store(&self.config, &url, self.failpoints.clone())?;
        Postgres::open(settings)
            .await
            .map_err(|error| opened(&error))
    }
}

/// Why a database was not opened, and what to run where that helps.
fn opened(error: &OpenError) -> Failure {
    use hapax_postgres::SchemaError::Older;

    let hint = match error {
        OpenError::Schema {
            source: Older { .. },
        } => ": run `hapax migrate`",
        _ => "",
    };
    let error_chain = surroundings::error_chain(error);
    Failure::new(FAILED, format!("{error_chain}{hint}"))
}

/// Does what the command line says.
pub(crate) fn run(
    cli: Cli,
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> Result<ExitCode, Failure> {
    let Cli { flags, verb } = cli;
    let output = Output { json: flags.json };
    let environment: Vec<_> = environment.collect();
    let planted = failpoint::plant_from_environment(&environment);
    planted.map_err(|error| Failure::new(USAGE, error.to_string()))?;
    let failpoints = failpoint::from_environment(&environment);
    let again = again(&flags, &verb, environment);
    // These need no settings, and `config` tells of wrong ones by itself.
    let verb = match verb {
        Verb::Completions(args) => return completions::run(&args, output),
        Verb::Man(args) => return man::run(&args),
        Verb::Config(args) => return config::run(&args, &again, output),
        verb => verb,
    };
    let config = again.layers()?.config()?;
    let exporter = telemetry::start(&config)?;
    let context = Context {
        config,
        output,
        failpoints,
        again,
        exporter,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the runtime cannot start")?;
    let code = runtime.block_on(Box::pin(dispatch(verb, context)));
    // What still resolves a name or reads a file is not waited for.
    runtime.shutdown_background();
    code
}

async fn dispatch(verb: Verb, context: Context) -> Result<ExitCode, Failure> {
    match verb {
        Verb::Relay(args) => relay::run(args, context).await,
        Verb::Console(args) => console::run(args, context).await,
        Verb::Migrate(args) => migrate::run(args, context).await,
        Verb::Doctor(args) => doctor::run(args, context).await,
        Verb::Keys(args) => keys::run(args, context).await,
        Verb::Events(args) => events::run(args, context).await,
        Verb::Deliveries(args) => deliveries::run(args, context).await,
        Verb::DeadLetters(args) => dead_letters::run(args, context).await,
        Verb::Inbox(args) => inbox::run(args, context).await,
        Verb::Sagas(args) => sagas::run(args, context).await,
        Verb::Destinations(args) => destinations::run(args, context).await,
        Verb::Send(args) => send::run(*args, context).await,
        Verb::Config(_) | Verb::Completions(_) | Verb::Man(_) => {
            unreachable!("they ran without settings")
        }
    }
}

fn again(flags: &Flags, verb: &Verb, environment: Vec<(OsString, OsString)>) -> Again {
    let file = flags.config.clone();
    let mut given: Vec<Given> = vec![
        (&["database", "url"], "--database", flags.database.clone()),
        (&["log", "format"], "--log", flags.log.clone()),
        (&["log", "level"], "--log-level", flags.log_level.clone()),
    ];
    if let Verb::Relay(args) = verb {
        given.extend(args.given());
    }
    Again(Arc::new(move || {
        Layers::read(file.as_deref(), environment.clone(), given.clone())
    }))
}
