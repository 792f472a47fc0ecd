//! `hapax sagas`: lists sagas, shows one and why it is not moving, and applies an operator's
//! decision.

mod show;

use std::{process::ExitCode, time::Duration};

use bytes::Bytes;
use hapax::{admin::SagaView, limits::SAGA_DEADLINE, retry::parse_duration, saga::Decision};

use super::{Context, Failure};
use crate::{
    admin::{
        command_context::{CommandContext, Consent},
        sagas::{AskSagas, page},
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
    /// List sagas by id
    #[command(after_help = "Example:\n  hapax sagas list --state needs_attention")]
    List(AskSagas),
    /// Show a saga: its steps, what it waits for, and why it is not moving
    #[command(after_help = "Example:\n  hapax sagas show checkout-4711")]
    Show {
        /// Saga id
        id: String,
    },
    /// Decide how a saga that needs attention continues
    #[command(
        after_help = "Example:\n  hapax sagas decide checkout-4711 retry --reason 'the provider is back'"
    )]
    Decide {
        /// Saga id
        id: String,
        #[command(subcommand)]
        what: What,
    },
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// The step was executed (or compensated, if the saga compensates): continue after it
    Done {
        /// Step
        #[arg(long)]
        step: String,
        /// Result of the step, as the following steps expect it, in JSON
        #[arg(long, value_name = "JSON")]
        made: Option<String>,
        #[command(flatten)]
        why: Why,
    },
    /// The step was not and will not be executed (or cannot be compensated, if the saga
    /// compensates)
    Refused {
        /// Step
        #[arg(long)]
        step: String,
        #[command(flatten)]
        why: Why,
    },
    /// Try the blocking step again
    Retry {
        #[command(flatten)]
        within: Within,
        #[command(flatten)]
        why: Why,
    },
    /// Compensate the completed steps
    Undo {
        #[command(flatten)]
        within: Within,
        #[command(flatten)]
        why: Why,
    },
    /// The rest was done manually: end the saga as failed without further steps or events
    Close {
        #[command(flatten)]
        why: Why,
    },
}

/// Time limit.
#[derive(Debug, clap::Args)]
struct Within {
    /// How long this may take before the saga needs attention again [default: 15m]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    within: Option<Duration>,
}

/// Reason and confirmation.
#[derive(Debug, clap::Args)]
struct Why {
    /// Epoch of the saga that you have seen; nothing is decided if it is another one now. Without
    /// it, the current epoch is used
    #[arg(long, value_name = "NUMBER")]
    epoch: Option<i64>,
    /// Reason, kept in the audit log
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    consent: Consent,
}

pub(crate) async fn run(args: Args, context: Context) -> Result<ExitCode, Failure> {
    let cx = CommandContext::open(&context).await?;
    match args.verb {
        Verb::List(ask) => list(&cx, ask).await?,
        Verb::Show { id } => {
            let look = cx.store().look_at_saga(&cx.actor, &id).await?;
            show::tell(&cx, SagaView::whole(look, &cx.mask))?;
        }
        Verb::Decide { id, what } => decide(&cx, &id, what).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(cx: &CommandContext, ask: AskSagas) -> Result<(), Failure> {
    let page = page(cx.store(), &cx.actor, ask).await?;
    let row = |it: SagaView| {
        [
            it.id,
            format!("{} {}", it.name, it.version),
            it.state.to_owned(),
            it.created_at.to_string(),
            it.why,
        ]
    };
    let header = ["ID", "KIND", "STATE", "BEGAN", "WHY"];
    cx.page(page, header, row)
}

async fn decide(cx: &CommandContext, id: &str, what: What) -> Result<(), Failure> {
    let (decision, why) = what.spelled()?;
    let (store, actor) = (cx.store(), &cx.actor);
    let look = store.look_at_saga(actor, id).await?;
    let question = format!("{} Is that meant?", decision.says(&look.saga));
    cx.confirm(why.consent, &question)?;
    let epoch = why.epoch.unwrap_or(look.saga.epoch);
    let decided = store.decide(actor, id, epoch, &decision, &why.reason);
    decided.await?;
    let said = serde_json::json!({"id": id, "decision": decision.as_str()});
    cx.say(&said, || match decision {
        Decision::Close => format!("saga {id} is closed as failed"),
        _ => format!("saga {id} goes on"),
    })
}

impl What {
    /// The decision and the reason.
    fn spelled(self) -> Result<(Decision, Why), Failure> {
        Ok(match self {
            Self::Done { step, made, why } => {
                let made = made.unwrap_or_default();
                if !made.is_empty() && serde_json::from_str::<serde::de::IgnoredAny>(&made).is_err()
                {
                    let problem = "--made: expected JSON, such as {\"id\":\"ch_1\"}";
                    return Err(Failure::new(USAGE, problem));
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
                (Decision::Compensate { within }, why)
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
