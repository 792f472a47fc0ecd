//! `hapax destinations`: lists, shows, creates, changes, tests, pauses, resumes and removes
//! destinations, tries filters and mappings, and shows the audit log.

use std::{
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use hapax::admin::{AdminError, AuditEntry, AuditFilter, Counts, Destination, Page};
use serde_json::{Value, json};

use super::{
    Context, Failure,
    status::{figures_of, lag, said},
    test_event, try_filter, try_mapping,
};
use crate::{
    admin::command_context::{CommandContext, Consent},
    destination::DistinctNames,
    output::USAGE,
};

/// Maximum size of a declaration in bytes.
const SPEC_BYTES_MAX: u64 = 64 * 1024;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List all destinations
    #[command(after_help = "Example:\n  hapax destinations list --config hapax.toml")]
    List,
    /// Show a destination and its progress
    #[command(after_help = "Example:\n  hapax destinations show billing")]
    Show {
        /// Name of the destination
        name: String,
    },
    /// Create a destination; every relay delivers to it within two seconds
    #[command(after_help = "Example:\n  hapax destinations create billing --spec billing.json")]
    Create {
        /// Name of the destination
        name: String,
        #[command(flatten)]
        spec: SpecFile,
        #[command(flatten)]
        consent: Consent,
    },
    /// Change a destination that was created at run time
    #[command(
        after_help = "Example:\n  hapax destinations change billing --version 3 --spec billing.json"
    )]
    Change {
        /// Name of the destination
        name: String,
        /// Version printed by `show`; the change fails with a conflict if the version is another
        /// one by now
        #[arg(long, value_name = "NUMBER")]
        version: i64,
        #[command(flatten)]
        spec: SpecFile,
        #[command(flatten)]
        consent: Consent,
    },
    /// Send one test event, of the type hapax.test, directly to a destination
    #[command(after_help = "Example:\n  hapax destinations test billing --config hapax.toml")]
    Test {
        /// Name of the destination
        name: String,
    },
    /// Try a filter on stored events, newest first, before a destination has it
    #[command(
        after_help = "Example:\n  hapax destinations filter --filter large-orders.json --type 'order.*' --since 1d"
    )]
    Filter(Box<try_filter::Args>),
    /// Show what the mapping of a destination makes of stored events, newest first
    #[command(
        after_help = "Example:\n  hapax destinations map billing --mapping changed.json --limit 3"
    )]
    Map(Box<try_mapping::DestinationArgs>),
    /// Pause a destination
    #[command(after_help = "Example:\n  hapax destinations pause billing")]
    Pause {
        /// Name of the destination
        name: String,
        #[command(flatten)]
        consent: Consent,
    },
    /// Resume a paused or disabled destination
    #[command(after_help = "Example:\n  hapax destinations resume billing")]
    Resume {
        /// Name of the destination
        name: String,
        #[command(flatten)]
        consent: Consent,
    },
    /// Remove a destination with its parked deliveries and dead letters
    #[command(after_help = "Example:\n  hapax destinations remove billing")]
    Remove {
        /// Name of the destination
        name: String,
        #[command(flatten)]
        consent: Consent,
    },
    /// Show the audit log, newest entries first
    #[command(after_help = "Example:\n  hapax destinations log")]
    Log,
}

/// The declaration of a destination.
#[derive(Debug, clap::Args)]
struct SpecFile {
    /// File with the declaration, JSON or (.toml) TOML; "-" reads JSON from standard input
    #[arg(long, value_name = "FILE")]
    spec: PathBuf,
}

pub(crate) async fn run(args: Args, context: Context) -> Result<ExitCode, Failure> {
    let cx = CommandContext::open(&context).await?;
    let actor = &cx.actor;
    match args.verb {
        Verb::List => list(&cx).await?,
        Verb::Show { name } => {
            show(&cx, &cx.index().get_counted(actor, &name).await?)?;
            why(&cx, &name).await?;
        }
        Verb::Create {
            name,
            spec,
            consent,
        } => {
            let spec = read(&spec.spec)?;
            cx.confirm(consent, &format!("Declare destination {name}?"))?;
            show(&cx, &cx.declare.create(actor, &name, &spec).await?)?;
        }
        Verb::Change {
            name,
            version,
            spec,
            consent,
        } => {
            let spec = read(&spec.spec)?;
            cx.confirm(consent, &format!("Change destination {name}?"))?;
            show(&cx, &cx.declare.change(actor, &name, version, &spec).await?)?;
        }
        Verb::Test { name } => {
            let configured = context.config.destinations.get(&name).cloned();
            test_event::run(&cx, &name, configured).await?;
        }
        Verb::Filter(args) => try_filter::run(&cx, *args).await?,
        Verb::Map(args) => {
            let configured = context.config.destinations.get(&args.name).cloned();
            try_mapping::destination(&cx, *args, configured).await?;
        }
        Verb::Pause { name, consent } => {
            cx.confirm(consent, &format!("Pause destination {name}?"))?;
            let turned = cx.store().pause_destination(actor, &name).await?;
            cx.say(&json!({"name": name, "paused": true}), || {
                let was = if turned {
                    "is paused"
                } else {
                    "was paused already"
                };
                format!("destination {name} {was}")
            })?;
        }
        Verb::Resume { name, consent } => {
            cx.confirm(consent, &format!("Resume destination {name}?"))?;
            let turned = cx.index().resume(actor, &name).await?;
            cx.say(&json!({"name": name, "paused": false}), || {
                let was = if turned {
                    "goes on"
                } else {
                    "was neither paused nor disabled"
                };
                format!("destination {name} {was}")
            })?;
        }
        Verb::Remove { name, consent } => remove(&cx, &name, consent).await?,
        Verb::Log => log(&cx).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn remove(cx: &CommandContext, name: &str, consent: Consent) -> Result<(), Failure> {
    let counts = match cx.index().get_counted(&cx.actor, name).await {
        Ok(found) => found.counts.unwrap_or_default(),
        // It may be known only where it starts: then there is nothing to count.
        Err(AdminError::NotFound { .. }) => Counts::default(),
        Err(error) => return Err(error.into()),
    };
    let question = format!(
        "Remove destination {name}? {} events never reach it, and {} parked deliveries and {} \
         dead letters are deleted.",
        counts.backlog, counts.parked, counts.dead
    );
    cx.confirm(consent, &question)?;
    let job = cx.store().remove_destination(&cx.actor, name).await?;
    cx.job(&job)
}

async fn list(cx: &CommandContext) -> Result<(), Failure> {
    let items = cx.index().list(&cx.actor).await?;
    let page = Page::last(items);
    if cx.output.json {
        return Ok(cx.output.json(&page)?);
    }
    let all = cx.store().overview(&cx.actor).await?.destinations;
    let header = [
        "NAME",
        "SINK",
        "STATE",
        "BACKLOG",
        "LAG",
        "DEAD",
        "DECLARED IN",
        "WHY",
    ];
    cx.page(page, header, |it| {
        let figures = figures_of(&it.name, &all);
        let [name, sink, state, declared_in, why] = row(cx, &it);
        [
            name,
            sink,
            state,
            said(figures.backlog),
            lag(&figures),
            said(figures.dead),
            declared_in,
            why,
        ]
    })
}

const HEADER: [&str; 5] = ["NAME", "SINK", "STATE", "DECLARED IN", "WHY"];

fn row(cx: &CommandContext, it: &Destination) -> [String; 5] {
    let sink = it.spec.as_ref().and_then(|spec| spec["sink"].as_object());
    let sink = sink.and_then(|sink| sink.keys().next().cloned());
    let sink = sink.or_else(|| cx.sinks.get(&it.name).cloned());
    let paused = it.paused_by.as_ref().map(|by| format!("by {by}"));
    [
        it.name.clone(),
        sink.unwrap_or_default(),
        it.state.to_owned(),
        it.declared_in.to_owned(),
        it.reason.clone().or(paused).unwrap_or_default(),
    ]
}

fn show(cx: &CommandContext, it: &Destination) -> Result<(), Failure> {
    if cx.output.json {
        return Ok(cx.output.json(it)?);
    }
    cx.output.table(HEADER, &[row(cx, it)])?;
    if let Some(counts) = it.counts {
        cx.output.line(format_args!(
            "backlog {}, parked {}, dead {}",
            counts.backlog, counts.parked, counts.dead
        ))?;
    }
    if let (Some(version), Some(spec)) = (it.version, &it.spec) {
        let spec = serde_json::to_string_pretty(spec).map_err(anyhow::Error::from)?;
        cx.output.line(format_args!("version {version}\n{spec}"))?;
    }
    Ok(())
}

/// Prints what is not moving at a destination and why, one line each.
async fn why(cx: &CommandContext, name: &str) -> Result<(), Failure> {
    if cx.output.json {
        return Ok(());
    }
    for it in cx.store().stalled(&cx.actor).await? {
        if it.what.destination() == Some(name) {
            let (what, cause, waiting) = (&it.what, &it.cause, it.waiting);
            cx.output
                .line(format_args!("{what}: {cause}; {waiting} wait"))?;
        }
    }
    Ok(())
}

async fn log(cx: &CommandContext) -> Result<(), Failure> {
    let filter = AuditFilter::default();
    let log = cx.store().audit_log(&cx.actor, &filter, None, 50).await?;
    let row = |it: AuditEntry| {
        [
            it.at.to_string(),
            it.actor,
            it.action,
            it.object,
            it.outcome,
        ]
    };
    cx.page(log, ["AT", "ACTOR", "ACTION", "OBJECT", "OUTCOME"], row)
}

/// Reads a declaration. Errors never contain its values, because it may contain a secret.
fn read(path: &Path) -> Result<Value, Failure> {
    let shown = path.display();
    let unreadable = |error| Failure::new(USAGE, format!("{shown}: {error}"));
    let mut text = String::new();
    if path == Path::new("-") {
        io::stdin()
            .take(SPEC_BYTES_MAX)
            .read_to_string(&mut text)
            .map_err(unreadable)?;
    } else {
        let file = fs::File::open(path).map_err(unreadable)?;
        file.take(SPEC_BYTES_MAX)
            .read_to_string(&mut text)
            .map_err(unreadable)?;
    }
    if path.extension().is_some_and(|it| it == "toml") {
        let read: Result<Value, _> = toml::from_str(&text);
        return read.map_err(|_| Failure::new(USAGE, format!("{shown}: expected TOML")));
    }
    let no_json = |_| Failure::new(USAGE, format!("{shown}: expected JSON"));
    let json = serde_json::from_str(&text).map_err(no_json)?;
    // The error has the name of a member and no value.
    let distinct = serde_json::from_str::<DistinctNames>(&text);
    distinct.map_err(|error| Failure::new(USAGE, format!("{shown}: {error}")))?;
    Ok(json)
}
