//! `hapax feeds`: lists feeds, shows one, and accepts a gap.

use std::process::ExitCode;

use hapax::admin::AdminError;
use hapax_postgres::{FeedStatus, Postgres};
use serde_json::{Value, json};

use super::{Context, Failure};
use crate::{
    admin::command_context::{CommandContext, Consent},
    config::DatabaseLocation,
    database,
    output::USAGE,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List the feeds that have ever started
    #[command(after_help = "Example:\n  hapax feeds list")]
    List,
    /// Show the position of a feed, and the gap at which it stops
    #[command(after_help = "Example:\n  hapax feeds show orders")]
    Show {
        /// Name of the feed
        name: String,
    },
    /// Let a feed continue at the position of its slot, although changes may be missing
    #[command(
        after_help = "Example:\n  hapax feeds accept-gap orders --reason 'replayed from the table'"
    )]
    AcceptGap {
        /// Name of the feed
        name: String,
        /// Reason, kept in the audit log
        #[arg(long)]
        reason: String,
        #[command(flatten)]
        consent: Consent,
    },
}

pub(crate) async fn run(args: Args, context: Context) -> Result<ExitCode, Failure> {
    let cx = CommandContext::open(&context).await?;
    let store = store(&context).await?;
    match args.verb {
        Verb::List => list(&cx, &store).await?,
        Verb::Show { name } => show(&cx, &store, &name).await?,
        Verb::AcceptGap {
            name,
            reason,
            consent,
        } => {
            let feed = find(&store, &name).await?;
            let gap = feed.gap.as_deref().unwrap_or("none");
            let question = format!("Feed {name} is at this gap: {gap}. Continue after it?");
            cx.confirm(consent, &question)?;
            let gap = store.accept_gap(&cx.actor, &name, &reason).await?;
            let accepted = json!({"name": name, "accepted": gap});
            cx.say(&accepted, || {
                format!("feed {name} continues within a minute; accepted: {gap}")
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(cx: &CommandContext, store: &Postgres) -> Result<(), Failure> {
    let feeds = store.feeds(None).await?;
    if cx.output.json {
        let feeds: Vec<_> = feeds.iter().map(object).collect();
        return Ok(cx.output.json(&json!({"items": feeds}))?);
    }
    let row = |feed: &FeedStatus| {
        [
            feed.name.clone(),
            feed.slot.clone(),
            feed.confirmed_lsn.clone().unwrap_or_default(),
            feed.updated_at.to_string(),
            feed.set_aside.to_string(),
            feed.gap.clone().unwrap_or_default(),
        ]
    };
    let rows: Vec<_> = feeds.iter().map(row).collect();
    let header = ["NAME", "SLOT", "POSITION", "RECORDED", "SET ASIDE", "GAP"];
    Ok(cx.output.table(header, &rows)?)
}

async fn show(cx: &CommandContext, store: &Postgres, name: &str) -> Result<(), Failure> {
    let feed = object(&find(store, name).await?);
    if cx.output.json {
        return Ok(cx.output.json(&feed)?);
    }
    let members = feed.as_object().into_iter().flatten();
    let said = |value: &Value| {
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
    };
    let rows: Vec<_> = members
        .map(|(name, value)| [name.clone(), said(value)])
        .collect();
    Ok(cx.output.table(["FIELD", "VALUE"], &rows)?)
}

async fn find(store: &Postgres, name: &str) -> Result<FeedStatus, Failure> {
    let found = store.feeds(Some(name)).await?.pop();
    let found = found.ok_or_else(|| AdminError::not_found(format!("feed {name}")));
    Ok(found?)
}

fn object(feed: &FeedStatus) -> Value {
    json!({
        "name": feed.name,
        "slot": feed.slot,
        "system_identifier": feed.system_identifier,
        "timeline": feed.timeline,
        "confirmed_lsn": feed.confirmed_lsn,
        "updated_at": feed.updated_at.to_string(),
        "gap": feed.gap,
        "gap_at": feed.gap_at.map(|at| at.to_string()),
        "set_aside": feed.set_aside,
    })
}

async fn store(context: &Context) -> Result<Postgres, Failure> {
    match context.config.database.place()? {
        DatabaseLocation::Server(url) => {
            Ok(database::postgres::open(&context.access()?, &url).await?)
        }
        DatabaseLocation::File(_) => Err(Failure::new(
            USAGE,
            "feeds need a relay whose database is PostgreSQL",
        )),
    }
}
