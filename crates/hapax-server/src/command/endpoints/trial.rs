//! `hapax endpoints try`: tries types, filter and mapping of an endpoint on stored events, before an
//! endpoint has them.

use std::path::{Path, PathBuf};

use hapax::admin::{EndpointTrial, TriedDelivery, TryEndpoint, try_endpoint};

use crate::{
    admin::{arguments::limit, command_context::CommandContext, endpoint_trial},
    command::{Failure, json_file},
    output::USAGE,
};

#[derive(Debug, clap::Args)]
pub(super) struct Try {
    /// Tenant whose events are looked at
    #[arg(long, value_name = "TENANT")]
    tenant: String,
    /// Pattern of event types, such as order.*; repeat it for several
    #[arg(long = "type", value_name = "PATTERN")]
    types: Vec<String>,
    /// File with a filter, a JSON object; "-" reads it from standard input
    #[arg(long, value_name = "FILE")]
    filter: Option<PathBuf>,
    /// File with a mapping, as JSON; "-" reads it from standard input
    #[arg(long, value_name = "FILE")]
    mapping: Option<PathBuf>,
    /// Start of the page: `next` of the previous page
    #[arg(long, value_name = "CURSOR")]
    before: Option<String>,
    /// Maximum number of events, 1 to 50
    #[arg(long, value_name = "COUNT", value_parser = limit, default_value = "50")]
    limit: usize,
}

pub(super) async fn run(cx: &CommandContext, args: &Try) -> Result<(), Failure> {
    let (filter, mapping) = (args.filter.as_deref(), args.mapping.as_deref());
    let is_stdin = |path: &Path| path == Path::new(json_file::STDIN);
    if filter.is_some_and(is_stdin) && mapping.is_some_and(is_stdin) {
        let problem = "--filter and --mapping cannot both be read from standard input";
        return Err(Failure::new(USAGE, problem));
    }
    let filter = filter.map(json_file::read).transpose()?;
    let mapping = mapping.map(json_file::read).transpose()?;
    let ask = TryEndpoint {
        tenant: &args.tenant,
        types: &args.types,
        filter: filter.as_deref(),
        mapping: mapping.as_deref(),
        mask: &cx.mask,
        before: args.before.as_deref(),
        limit: endpoint_trial::limit(Some(args.limit))?,
        place: None,
    };
    let trial = try_endpoint(cx.store(), &cx.actor, &ask).await?;
    if cx.output.json {
        return Ok(cx.output.json(&trial)?);
    }
    let has_mapping = mapping.is_some();
    let rows: Vec<_> = trial.items.iter().map(|it| row(it, has_mapping)).collect();
    let header = ["ID", "TYPE", "CREATED", "MATCHES", "FAILS AT", "BODY"];
    cx.output.table(header, &rows)?;
    Ok(cx.output.line(summary(&trial))?)
}

fn row(event: &TriedDelivery, has_mapping: bool) -> [String; 6] {
    let (matches, why) = match (event.matches, &event.fails_at) {
        (true, _) => ("yes", ""),
        (false, Some(place)) => ("no", place.as_str()),
        (false, None) => ("no", "(not JSON)"),
    };
    let body = match (&event.body, &event.failure) {
        (Some(body), _) => body.get().to_owned(),
        (None, Some(failure)) => format!("({failure})"),
        (None, None) if event.matches && has_mapping => "(masked)".to_owned(),
        (None, None) => String::new(),
    };
    [
        event.id.clone(),
        event.kind.clone(),
        event.created_at.to_string(),
        matches.to_owned(),
        why.to_owned(),
        body,
    ]
}

fn summary(trial: &EndpointTrial) -> String {
    let EndpointTrial { tried, matched, .. } = trial;
    let unreadable = match trial.unreadable {
        0 => String::new(),
        count => format!(", {count} have a payload that is not JSON or cannot be decrypted"),
    };
    let failed = match trial.failed {
        0 => String::new(),
        count => format!(", {count} cannot be mapped"),
    };
    let next = trial.next.as_ref();
    let next = next.map(|next| format!("; more: --before {next}"));
    let next = next.unwrap_or_default();
    format!("{matched} of {tried} events match{failed}{unreadable}{next}")
}
