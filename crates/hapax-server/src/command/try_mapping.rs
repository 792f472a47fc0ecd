//! `hapax destinations map` and `hapax endpoints map`: what a mapping makes of stored events.

use std::{borrow::Cow, path::PathBuf};

use hapax::{
    admin::{AdminError, EventFilter, MappedEvent, MappingTrial, TryMapping, try_mapping},
    event::Event,
    limits::MAPPING_TRIAL_EVENTS,
    mapping::Mapping,
};
use hapax_sinks::settings::JsonSetting;

use super::{Failure, filters::EventArgs, json_file};
use crate::{
    admin::{arguments::limit, command_context::CommandContext},
    destination::{Spec, SpecError, sinks::Sink},
    output::USAGE,
};

/// What to do if a webhook or an endpoint has no mapping.
const GIVE_ONE: &str = "give one with --mapping";

#[derive(Debug, clap::Args)]
pub(super) struct DestinationArgs {
    /// Name of the destination
    pub(super) name: String,
    #[command(flatten)]
    mapping: MappingFile,
    #[command(flatten)]
    events: EventArgs,
    #[command(flatten)]
    page: TrialPage,
}

#[derive(Debug, clap::Args)]
pub(super) struct EndpointArgs {
    /// Id of the endpoint
    id: String,
    #[command(flatten)]
    mapping: MappingFile,
    /// Tenant to which it belongs
    #[arg(long, value_name = "TENANT")]
    tenant: String,
    #[command(flatten)]
    page: TrialPage,
}

/// The page of a trial.
#[derive(Debug, clap::Args)]
struct TrialPage {
    /// Start of the page: `next` of the previous page
    #[arg(long, value_name = "CURSOR")]
    before: Option<String>,
    /// Maximum number of events, 1 to 20
    #[arg(long, value_name = "COUNT", value_parser = limit, default_value = "20")]
    limit: usize,
}

#[derive(Debug, clap::Args)]
struct MappingFile {
    /// File with another mapping, which is tried instead; "-" reads it from standard input
    #[arg(long, value_name = "FILE")]
    mapping: Option<PathBuf>,
}

/// Tries the mapping of a destination on the events that it takes. `configured` is the destination in the
/// configuration.
pub(super) async fn destination(
    cx: &CommandContext,
    args: DestinationArgs,
    configured: Option<Spec>,
) -> Result<(), Failure> {
    let name = &args.name;
    let spec = cx.declare.in_effect(&cx.actor, name, configured).await?;
    let own = match &spec.sink {
        Sink::Webhook(settings) => settings.mapping.as_ref().map(JsonSetting::text),
        _ => None,
    };
    let advice = advice(&spec.sink);
    let whose = format!("destination {name}");
    let mapping = args.mapping.read(own, &whose, &advice)?;
    let wrong = |error: SpecError| Failure::from(AdminError::from(error));
    let (patterns, filter) = (spec.patterns(), spec.filter().map_err(wrong)?);
    let tenant = spec.tenant().map_err(wrong)?;
    let takes = |event: &Event| {
        patterns.iter().any(|it| it.matches(&event.kind))
            && (tenant.is_none() || event.tenant == tenant)
            && filter.as_ref().is_none_or(|it| it.matches(event))
    };
    let events = args.events.query().of_events()?;
    run(cx, &mapping, &takes, &events, &args.page).await
}

/// What to do if a destination has no mapping.
fn advice(sink: &Sink) -> Cow<'static, str> {
    match sink {
        Sink::Webhook(_) => GIVE_ONE.into(),
        Sink::Endpoints(_) => "each endpoint has its own, which `hapax endpoints map` tries".into(),
        other => {
            let kind = other.kind();
            format!("only webhooks and endpoints can have one, and not the sink {kind}").into()
        }
    }
}

/// Tries the mapping of an endpoint on the events that it takes.
pub(super) async fn endpoint(cx: &CommandContext, args: &EndpointArgs) -> Result<(), Failure> {
    let (store, id) = (cx.store(), &args.id);
    let stored = store.endpoint(&cx.actor, &args.tenant, id).await?;
    let own = stored.endpoint.mapping.clone();
    let whose = format!("endpoint {id}");
    let mapping = args.mapping.read(own, &whose, GIVE_ONE)?;
    let endpoint = stored.readable()?;
    let takes = |event: &Event| {
        endpoint.patterns.iter().any(|it| it.matches(&event.kind))
            && event.tenant.as_ref() == Some(&endpoint.tenant)
            && endpoint.filter.as_ref().is_none_or(|it| it.matches(event))
    };
    let events = EventFilter {
        tenant: Some(endpoint.tenant.clone()),
        ..EventFilter::default()
    };
    run(cx, &mapping, &takes, &events, &args.page).await
}

async fn run(
    cx: &CommandContext,
    mapping: &Mapping,
    takes: &(dyn Fn(&Event) -> bool + Sync),
    events: &EventFilter,
    page: &TrialPage,
) -> Result<(), Failure> {
    let (before, limit) = (page.before.as_deref(), page.limit);
    if limit > MAPPING_TRIAL_EVENTS {
        let problem = format!("must be at most {MAPPING_TRIAL_EVENTS}");
        return Err(AdminError::invalid("limit", problem).into());
    }
    let ask = TryMapping {
        mapping,
        events,
        takes,
        mask: &cx.mask,
    };
    let trial = try_mapping(cx.store(), &cx.actor, &ask, before, limit).await?;
    if cx.output.json {
        return Ok(cx.output.json(&trial)?);
    }
    let rows: Vec<_> = trial.items.iter().map(row).collect();
    cx.output.table(["ID", "TYPE", "CREATED", "BODY"], &rows)?;
    Ok(cx.output.line(summary(&trial))?)
}

fn row(event: &MappedEvent) -> [String; 4] {
    let body = event.body.as_ref().map(|it| it.get().to_owned());
    let failure = event.failure.as_ref().map(|it| format!("({it})"));
    let shown = body.or(failure);
    [
        event.id.clone(),
        event.kind.clone(),
        event.created_at.to_string(),
        shown.unwrap_or_else(|| "(masked)".to_owned()),
    ]
}

fn summary(trial: &MappingTrial) -> String {
    let mapped = trial.tried - trial.failed;
    let next = trial.next.as_ref();
    let next = next.map(|next| format!("; more: --before {next}"));
    let next = next.unwrap_or_default();
    format!("{mapped} of {} events are mapped{next}", trial.tried)
}

impl MappingFile {
    /// The mapping of the file, or else the one that is configured.
    fn read(&self, own: Option<String>, whose: &str, advice: &str) -> Result<Mapping, Failure> {
        let (text, from) = match (&self.mapping, own) {
            (Some(path), _) => (json_file::read(path)?, path.display().to_string()),
            (None, Some(own)) => (own, whose.to_owned()),
            (None, None) => {
                let problem = format!("{whose} has no mapping: {advice}");
                return Err(Failure::new(USAGE, problem));
            }
        };
        let mapping = Mapping::parse(&text);
        mapping.map_err(|error| Failure::new(USAGE, format!("{from}: {error}")))
    }
}
