//! `hapax sagas`: lists them, says how one stands and why it does not move, and carries out what a
//! person decides.

mod show;

use std::{process::ExitCode, time::Duration};

use bytes::Bytes;
use hapax::{
    limits::SAGA_DEADLINE,
    retry::parse_duration,
    saga::{Decision, Filter, State},
};
use hapax_postgres::operate::sagas;

use super::{Context, Failure};
use crate::{
    admin::{
        PageView, SagaView,
        desk::{Consent, Desk},
    },
    output::USAGE,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Lists sagas, by id
    List(Which),
    /// Shows a saga: its steps, what it waits for, and why it does not move
    Show {
        /// Its id
        id: String,
    },
    /// Decides how a saga goes on that needs attention
    Decide {
        /// Its id
        id: String,
        #[command(subcommand)]
        what: What,
    },
}

/// Which sagas.
#[derive(Debug, clap::Args)]
struct Which {
    /// Sagas in this state, such as running
    #[arg(long, value_parser = state)]
    state: Option<State>,
    /// Sagas of this name, such as checkout
    #[arg(long)]
    name: Option<String>,
    /// Sagas of this version of their definition
    #[arg(long, value_name = "NUMBER", id = "of_version")]
    version: Option<u32>,
    /// How many at most
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    limit: usize,
    /// Where the page begins: `next` of the page before
    #[arg(long, value_name = "ID")]
    after: Option<String>,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// The step happened, or is undone where that is asked: the saga goes on behind it
    Done {
        /// Which step
        #[arg(long)]
        step: String,
        /// What it made, as the steps behind it expect it: JSON
        #[arg(long, value_name = "JSON")]
        made: Option<String>,
        #[command(flatten)]
        why: Why,
    },
    /// The step did not happen and will not, or cannot be undone where that is asked
    Refused {
        /// Which step
        #[arg(long)]
        step: String,
        #[command(flatten)]
        why: Why,
    },
    /// What stands in the way is tried again
    Retry {
        #[command(flatten)]
        within: Within,
        #[command(flatten)]
        why: Why,
    },
    /// What was done is undone
    Undo {
        #[command(flatten)]
        within: Within,
        #[command(flatten)]
        why: Why,
    },
    /// The rest was done by hand: it stays as it is, as failed, and tells nobody
    Close {
        #[command(flatten)]
        why: Why,
    },
}

/// How long it may take from now.
#[derive(Debug, clap::Args)]
struct Within {
    /// How long that may take before a person is asked again; 15m when nobody says
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    within: Option<Duration>,
}

/// Why, and whether the operator means it.
#[derive(Debug, clap::Args)]
struct Why {
    /// The epoch that the saga had when it was looked at: nothing is decided if it has another one now;
    /// without it, the saga is looked at now
    #[arg(long, value_name = "NUMBER")]
    epoch: Option<i64>,
    /// Why
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    consent: Consent,
}

pub(crate) async fn run(args: Args, context: Context) -> Result<ExitCode, Failure> {
    let desk = Desk::open(&context).await?;
    match args.verb {
        Verb::List(which) => list(&desk, which).await?,
        Verb::Show { id } => {
            let look = sagas::get(&desk.store, &desk.actor, &id).await?;
            show::tell(&desk, SagaView::whole(look, &desk.mask))?;
        }
        Verb::Decide { id, what } => decide(&desk, &id, what).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(desk: &Desk, which: Which) -> Result<(), Failure> {
    let filter = Filter {
        name: which.name,
        version: which.version,
        state: which.state,
        after: which.after,
    };
    let page = sagas::list(&desk.store, &desk.actor, &filter, which.limit).await?;
    let page = PageView::of(page, SagaView::brief, |next| next);
    if desk.output.json {
        return Ok(desk.output.json(&page)?);
    }
    let row = |it: SagaView| {
        [
            it.id,
            format!("{} {}", it.name, it.version),
            it.state.to_owned(),
            it.created_at,
            it.why,
        ]
    };
    let rows: Vec<_> = page.items.into_iter().map(row).collect();
    desk.output
        .table(["ID", "KIND", "STATE", "BEGAN", "WHY"], &rows)?;
    Ok(())
}

async fn decide(desk: &Desk, id: &str, what: What) -> Result<(), Failure> {
    let (decision, why) = what.spelled()?;
    let (store, actor) = (&desk.store, &desk.actor);
    let look = sagas::get(store, actor, id).await?;
    let question = format!("{} Is that meant?", decision.says(&look.saga));
    desk.confirm(why.consent, &question)?;
    let epoch = why.epoch.unwrap_or(look.saga.epoch);
    sagas::decide(store, actor, id, epoch, &decision, &why.reason).await?;
    let said = serde_json::json!({"id": id, "decision": decision.as_str()});
    desk.say(&said, || match decision {
        Decision::Close => format!("saga {id} is closed as failed"),
        _ => format!("saga {id} goes on"),
    })
}

impl What {
    /// The decision, and why.
    fn spelled(self) -> Result<(Decision, Why), Failure> {
        Ok(match self {
            Self::Done { step, made, why } => {
                let made = made.unwrap_or_default();
                if !made.is_empty() && serde_json::from_str::<serde::de::IgnoredAny>(&made).is_err()
                {
                    return Err(Failure::new(USAGE, "--made is no JSON"));
                }
                let made = Bytes::from(made);
                (Decision::Done { step, made }, why)
            }
            Self::Refused { step, why } => (Decision::Refused { step }, why),
            Self::Retry { within, why } => {
                let within = within.or_as_ever();
                (Decision::Retry { within }, why)
            }
            Self::Undo { within, why } => {
                let within = within.or_as_ever();
                (Decision::Undo { within }, why)
            }
            Self::Close { why } => (Decision::Close, why),
        })
    }
}

impl Within {
    fn or_as_ever(&self) -> Duration {
        self.within.unwrap_or(SAGA_DEADLINE)
    }
}

fn state(word: &str) -> Result<State, String> {
    let words = State::ALL.map(State::as_str).join(", ");
    State::named(word).ok_or_else(|| format!("it is one of {words}"))
}
