//! The commands, one file each, and what they share.

mod relay;
mod console;
mod gateway;
mod migrate;
mod doctor;
mod status;
mod filters;
mod follow;
mod keys;
mod events;
mod deliveries;
mod retry;
mod dead_letters;
mod inbox;
mod sagas;
mod destinations;
mod feeds;
mod poll;
mod catalogue;
mod endpoints;
mod portal;
mod test_event;
mod json_file;
mod try_filter;
mod try_mapping;
mod listen;
mod mask;
mod send;
mod probe;
mod secrets;
pub(crate) mod config;
mod completions;
mod man;

use std::{ffi::OsString, path::PathBuf, process::ExitCode, sync::Arc};

use anyhow::Context as _;
use hapax::{admin::Admin, failpoint::Failpoints};
use hapax_otlp::Exporter;
use hapax_runtime::{failpoint, telemetry};

use crate::{
    admin::keys_of,
    config::{Config, Given, Layers, Wrong, read_layers},
    database::{self, Access, DatabaseError},
    environment,
    output::{CLOSED, FAILED, LineError, Output, USAGE},
};

/// Relay for the transactional outbox of a PostgreSQL or SQLite database, and tools for its
/// operators.
#[derive(Debug, clap::Parser)]
#[command(name = "hapax", version, about, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    flags: Flags,
    #[command(subcommand)]
    verb: Verb,
}

/// The heading of the flags of every command in help texts.
const GLOBAL: &str = "Global options";

/// Flags of every command.
#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Read settings from this TOML file; environment variables and flags take precedence
    #[arg(long, global = true, value_name = "FILE", help_heading = GLOBAL)]
    config: Option<PathBuf>,
    /// Database: a PostgreSQL URL (postgres://...), or an SQLite file (sqlite:shop.db)
    #[arg(
        long,
        global = true,
        value_name = "URL",
        hide_env_values = true,
        help_heading = GLOBAL
    )]
    database: Option<String>,
    /// Print JSON instead of tables
    #[arg(long, global = true, help_heading = GLOBAL)]
    json: bool,
    /// Print tables as CSV
    #[arg(long, global = true, conflicts_with = "json", help_heading = GLOBAL)]
    csv: bool,
    /// Format of the log: human or json
    #[arg(long, global = true, value_name = "WORD", help_heading = GLOBAL)]
    log: Option<String>,
    /// Log level: error, warn, info, debug or trace
    #[arg(long, global = true, value_name = "LEVEL", help_heading = GLOBAL)]
    log_level: Option<String>,
}

/// The command.
#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Deliver events until the process is asked to stop
    #[command(after_help = "Example:\n  hapax relay --config hapax.toml")]
    Relay(relay::Args),
    /// Serve the web console until the process is asked to stop
    #[command(after_help = "Example:\n  hapax console --database sqlite:shop.db")]
    Console(console::Args),
    /// Stand in front of an HTTP service and make its retries safe
    #[command(
        after_help = "Example:\n  hapax gateway --upstream http://127.0.0.1:8000 --database sqlite:gateway.db"
    )]
    Gateway(gateway::Args),
    /// Create or upgrade the tables
    #[command(after_help = "Example:\n  hapax migrate --database postgres://owner@host/shop")]
    Migrate(migrate::Args),
    /// Find problems and say how to solve them
    #[command(after_help = "Example:\n  hapax doctor --config hapax.toml")]
    Doctor(doctor::Args),
    /// Show the figures of the last minutes, the destinations, and what is stalled
    #[command(after_help = "Example:\n  hapax status --watch 5s")]
    Status(status::Args),
    /// List, show and purge idempotency keys
    Keys(keys::Args),
    /// List, follow, show and replay events
    Events(events::Args),
    /// List deliveries that are parked or finished, and retry one now
    Deliveries(deliveries::Args),
    /// List, show, replay and discard dead letters
    DeadLetters(dead_letters::Args),
    /// List and inspect inbox messages
    Inbox(inbox::Args),
    /// List and show sagas, and decide about those that need attention
    Sagas(sagas::Args),
    /// List, show, create, change, test, pause, resume and remove destinations, and try filters
    Destinations(destinations::Args),
    /// List and show feeds, and accept gaps of them
    Feeds(feeds::Args),
    /// Create, list, show and remove polling endpoints, move their positions, and replace their tokens
    Poll(poll::Args),
    /// Check an event catalogue, and print it as OpenAPI, AsyncAPI or HTML
    Catalogue(catalogue::Args),
    /// Create, change, disable, test and delete endpoints of tenants, and see their deliveries
    Endpoints(Box<endpoints::Args>),
    /// Make links that open the customer portal
    Portal(portal::Args),
    /// Print events as they are committed, or forward them to a URL as signed webhooks
    #[command(
        after_help = "Example:\n  hapax listen --to http://localhost:3000/hooks --type 'order.*'"
    )]
    Listen(Box<listen::Args>),
    /// Send one request under one idempotency key, with retries
    #[command(
        after_help = "Example:\n  hapax send https://api.example.com/orders -d @order.json --key order-4711"
    )]
    Send(Box<send::Args>),
    /// Test from outside whether an HTTP server keeps the promise of Idempotency-Key
    #[command(
        after_help = "Example:\n  hapax probe http://127.0.0.1:8080/orders --body order.json --vary /amount --profile ietf"
    )]
    Probe(Box<hapax_probe::Arguments>),
    /// Mask personal data and secrets in a text before you share it
    #[command(after_help = "Example:\n  journalctl -u shop | hapax mask > shop.log")]
    Mask(mask::Args),
    /// Make secrets
    Secrets(secrets::Args),
    /// Print and check the configuration
    Config(config::Args),
    /// Print shell completions
    #[command(after_help = "Example:\n  hapax completions bash > /etc/bash_completion.d/hapax")]
    Completions(completions::Args),
    /// Write the manual pages
    #[command(after_help = "Example:\n  hapax man --dir /usr/local/share/man/man1")]
    Man(man::Args),
}

/// The error of a command, with its exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) code: u8,
    /// One line for standard error.
    pub(crate) error_chain: String,
}

impl Failure {
    /// Creates an error with an exit code.
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

impl From<LineError> for Failure {
    fn from(error: LineError) -> Self {
        match error {
            LineError::Closed => Self::new(CLOSED, "the output was closed"),
            LineError::Failed(error) => Self::from(error),
        }
    }
}

impl From<hapax::store::StoreError> for Failure {
    fn from(error: hapax::store::StoreError) -> Self {
        Self::new(FAILED, error.error_chain())
    }
}

impl From<DatabaseError> for Failure {
    fn from(error: DatabaseError) -> Self {
        Self::new(FAILED, error.to_string())
    }
}

impl From<Wrong> for Failure {
    fn from(wrong: Wrong) -> Self {
        Self::new(USAGE, wrong.to_string())
    }
}

/// The arguments of every command.
#[derive(Debug)]
pub(crate) struct Context {
    /// The settings of all layers.
    pub(crate) config: Config,
    /// Where results are printed.
    pub(crate) output: Output,
    /// Failpoints that are reached at each commit and each send.
    pub(crate) failpoints: Failpoints,
    /// Reads the layers again, because files may have changed.
    pub(crate) again: Again,
    /// The exporter of spans, if spans are exported.
    pub(crate) exporter: Option<Exporter>,
}

/// Reads the layers, now or later.
#[derive(Clone)]
pub(crate) struct Again(Arc<dyn Fn() -> Result<Layers, Wrong> + Send + Sync>);

impl Again {
    /// The current layers.
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
    /// Returns the access to the configured database.
    pub(crate) fn access(&self) -> Result<Access<'_>, Wrong> {
        Ok(Access {
            config: &self.config.database,
            keyring: keys_of(&self.config)?.reading(),
            failpoints: self.failpoints.clone(),
            operational_events: self.config.operational_events.emitted()?,
        })
    }

    /// Opens the configured database for operators. A schema of an unknown version is refused.
    pub(crate) async fn admin(&self) -> Result<Arc<dyn Admin>, Failure> {
        let place = self.config.database.place()?;
        Ok(database::open(&self.access()?, &place).await?)
    }
}

/// Runs the command.
pub(crate) fn run(
    cli: Cli,
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> Result<ExitCode, Failure> {
    let Cli { flags, verb } = cli;
    let output = Output {
        json: flags.json,
        csv: flags.csv,
    };
    let environment: Vec<_> = environment.collect();
    let failpoints = failpoint::from_environment(&environment);
    let again = again(&flags, &verb, environment);
    // These commands need no settings, and `config` reports wrong settings itself.
    let verb = match verb {
        Verb::Completions(args) => return completions::run(&args, output),
        Verb::Man(args) => return man::run(&args),
        Verb::Secrets(args) => return secrets::run(&args, output),
        Verb::Probe(args) => return probe::run(*args, output),
        Verb::Catalogue(args) => return catalogue::run(&args, output),
        Verb::Config(args) => return config::run(&args, &again, output),
        verb => verb,
    };
    let config = Config::of(&again.layers()?)?;
    let export = config.telemetry.export(environment::time())?;
    let exporter = telemetry::start(config.log.settings(), &[], export);
    let context = Context {
        config,
        output,
        failpoints,
        again,
        exporter,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(hapax::limits::BLOCKING_THREADS)
        .enable_all()
        .build()
        .context("the runtime cannot start")?;
    let code = runtime.block_on(Box::pin(dispatch(verb, context)));
    // Tasks that still resolve a name or read a file are not awaited.
    runtime.shutdown_background();
    code
}

async fn dispatch(verb: Verb, context: Context) -> Result<ExitCode, Failure> {
    match verb {
        Verb::Relay(args) => relay::run(args, context).await,
        Verb::Console(args) => console::run(args, context).await,
        Verb::Gateway(args) => gateway::run(args, context).await,
        Verb::Migrate(args) => migrate::run(args, context).await,
        Verb::Doctor(args) => doctor::run(args, context).await,
        Verb::Status(args) => status::run(args, context).await,
        Verb::Keys(args) => keys::run(args, context).await,
        Verb::Events(args) => events::run(args, context).await,
        Verb::Deliveries(args) => deliveries::run(args, context).await,
        Verb::DeadLetters(args) => dead_letters::run(args, context).await,
        Verb::Inbox(args) => inbox::run(args, context).await,
        Verb::Sagas(args) => sagas::run(args, context).await,
        Verb::Destinations(args) => destinations::run(args, context).await,
        Verb::Feeds(args) => feeds::run(args, context).await,
        Verb::Poll(args) => poll::run(args, context).await,
        Verb::Endpoints(args) => endpoints::run(*args, context).await,
        Verb::Portal(args) => portal::run(args, context).await,
        Verb::Listen(args) => listen::run(*args, context).await,
        Verb::Send(args) => send::run(*args, context).await,
        Verb::Mask(args) => mask::run(&args, &context),
        Verb::Config(_)
        | Verb::Completions(_)
        | Verb::Man(_)
        | Verb::Secrets(_)
        | Verb::Catalogue(_)
        | Verb::Probe(_) => unreachable!("they ran without settings"),
    }
}

fn again(flags: &Flags, verb: &Verb, environment: Vec<(OsString, OsString)>) -> Again {
    let file = flags.config.clone();
    let mut given = vec![
        ("database.url", "--database", flags.database.clone()),
        ("log.format", "--log", flags.log.clone()),
        ("log.level", "--log-level", flags.log_level.clone()),
    ];
    match verb {
        Verb::Relay(args) => given.extend(args.given()),
        Verb::Gateway(args) => given.extend(args.given()),
        _ => {}
    }
    let given = given.into_iter();
    let given = given.filter_map(|(key, flag, text)| Some(Given::text(key, flag, text?)));
    let given: Vec<_> = given.collect();
    Again(Arc::new(move || {
        read_layers(file.as_deref(), environment.clone(), given.clone())
    }))
}
