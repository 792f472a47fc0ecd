//! The flags that describe one operation, for a run without a plan file.
//!
//! They have the same meaning and the same defaults as the members of a plan file. An error names the
//! flag.

use std::{num::NonZeroU32, path::PathBuf, time::Duration};

use crate::{
    Plan, PlanError,
    http::Target,
    plan::{self, Operation, Oracle, Template, Vary, duration, header, pages, target},
    profile::Profile,
};

/// For how long no webhook may arrive before they are counted.
const SETTLE: Duration = Duration::from_secs(1);

/// The operation under test. None of these flags can be combined with a plan file.
#[derive(Debug, clap::Args)]
#[group(id = "operation", multiple = true, conflicts_with = "plan")]
pub(super) struct OperationFlags {
    /// URL of the operation
    #[arg(value_name = "URL")]
    url: Option<String>,
    /// Method of the requests [default: POST]
    #[arg(long, value_name = "METHOD")]
    method: Option<String>,
    /// Header of each request; may be given more than once
    #[arg(long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// File with the body; `{{uuid}}` and `{{n}}` in it are filled for each payload
    #[arg(long, value_name = "FILE", conflicts_with = "body_text")]
    body: Option<PathBuf>,
    /// The body, as text
    #[arg(long, value_name = "TEXT")]
    body_text: Option<String>,
    /// Content type of the body [default: application/json]
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// What makes another payload with another effect: a JSON pointer such as /amount, form:NAME or
    /// query:NAME
    #[arg(long, value_name = "PLACE")]
    vary: Option<String>,
    /// URL whose JSON contains the effects, with --count-path
    #[arg(long, value_name = "URL", requires = "count_path", conflicts_with_all = ["count_cmd", "listen_effects"])]
    count_url: Option<String>,
    /// Path (RFC 9535) that selects one node of the JSON for each effect, such as `$[*].id`
    #[arg(long, value_name = "JSONPATH", requires = "count_url")]
    count_path: Option<String>,
    /// JSON pointer to the cursor of the next page, if the list has pages
    #[arg(long, value_name = "POINTER", requires = "count_path")]
    count_next: Option<String>,
    /// Query parameter that takes the cursor of the next page
    #[arg(long, value_name = "NAME", requires = "count_next")]
    count_cursor: Option<String>,
    /// Shell command that prints the number of effects
    #[arg(long, value_name = "COMMAND", conflicts_with = "listen_effects")]
    count_cmd: Option<String>,
    /// Count the requests that the server sends to this port of 127.0.0.1, one for each effect
    #[arg(long, value_name = "PORT")]
    listen_effects: Option<u16>,
    /// For how long the count of effects has to stay the same before it is used [default: 0s; with
    /// --listen-effects: 1s]
    #[arg(long, value_name = "TIME")]
    count_settle: Option<String>,
    /// The same operation on another node of the server
    #[arg(long, value_name = "URL")]
    second_url: Option<String>,
    /// Another operation that accepts the same payload
    #[arg(long, value_name = "URL")]
    other_url: Option<String>,
    /// The same operation with another path parameter
    #[arg(long, value_name = "URL")]
    other_path_url: Option<String>,
    /// Header of another principal, instead of the one with the same name; may be given more than
    /// once
    #[arg(long, value_name = "NAME: VALUE")]
    other_principal: Vec<String>,
    /// Header with a newer credential of the same principal; may be given more than once
    #[arg(long, value_name = "NAME: VALUE")]
    rotated_credential: Vec<String>,
    /// Body of a request that takes a second or more
    #[arg(long, value_name = "TEXT")]
    slow_body: Option<String>,
    /// Body of a request that the server refuses; may be given more than once
    #[arg(long = "refused-body", value_name = "TEXT")]
    refused_bodies: Vec<String>,
    /// Shell command that kills the server and starts it again
    #[arg(long, value_name = "COMMAND")]
    restart_cmd: Option<String>,
    /// How long the server keeps keys, if it is configured for a short time, such as 5s
    #[arg(long, value_name = "TIME")]
    retention_hint: Option<String>,
    /// Maximum number of requests per second [default: 1000]
    #[arg(long, value_name = "N")]
    rate: Option<NonZeroU32>,
    /// Maximum number of requests [default: 20000]
    #[arg(long, value_name = "N")]
    max_requests: Option<u64>,
    /// How long to wait for one response [default: 15s]
    #[arg(long, value_name = "TIME")]
    wait: Option<String>,
    /// Trust the authorities in this PEM file in addition to those of the web
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Also mask the values of this header in reports; may be given more than once
    #[arg(long = "secret-header", value_name = "NAME")]
    secret_headers: Vec<String>,
    /// Header that may differ between a response and its replay; may be given more than once
    #[arg(long = "per-request-header", value_name = "NAME")]
    per_request_headers: Vec<String>,
    /// JSON pointer to a member that may differ between a response and its replay, such as
    /// `/request_id`; may be given more than once
    #[arg(long = "per-request-member", value_name = "POINTER")]
    per_request_members: Vec<String>,
}

impl OperationFlags {
    pub(super) fn into_plan(self, profile: &'static Profile) -> Result<Plan, PlanError> {
        let operation = self.operation()?;
        let mut plan = Plan::of(profile, vec![operation]);
        plan.restart_command = self.restart_cmd;
        plan.authorities = self.ca_file;
        plan.secret_headers = self.secret_headers;
        plan.per_request_headers = self.per_request_headers;
        plan.per_request_members = self.per_request_members;
        if let Some(rate) = self.rate {
            plan.rate = rate;
        }
        if let Some(max) = self.max_requests {
            plan.requests_max = max;
        }
        if let Some(wait) = &self.wait {
            plan.wait = plan::wait("--wait", wait)?;
        }
        plan.checked()
    }

    fn operation(&self) -> Result<Operation, PlanError> {
        let url = self.url.as_deref().ok_or_else(|| {
            PlanError::setting(
                "URL",
                "expected the URL of an operation, --plan FILE or --list",
            )
        })?;
        let mut operation = Operation::new(
            self.method.clone(),
            target("URL", url)?,
            Template(self.body()?),
        );
        if let Some(content_type) = &self.content_type {
            operation.content_type.clone_from(content_type);
        }
        operation.set_headers(headers("--header", &self.headers)?);
        operation.other_principal = headers("--other-principal", &self.other_principal)?;
        operation.rotated = headers("--rotated-credential", &self.rotated_credential)?;
        operation.second = optional_target("--second-url", self.second_url.as_deref())?;
        operation.other = optional_target("--other-url", self.other_url.as_deref())?;
        operation.other_path = optional_target("--other-path-url", self.other_path_url.as_deref())?;
        operation.slow = self.slow_body.clone().map(Template);
        operation.refused = self.refused_bodies.iter().cloned().map(Template).collect();
        if let Some(vary) = &self.vary {
            let vary = vary.parse::<Vary>();
            operation.vary = Some(vary.map_err(|problem| PlanError::setting("--vary", problem))?);
        }
        if let Some(retention) = &self.retention_hint {
            operation.retention = Some(duration("--retention-hint", retention)?);
        }
        operation.oracle = self.oracle(&operation.headers)?;
        operation.settle = match &self.count_settle {
            Some(settle) => duration("--count-settle", settle)?,
            None if self.listen_effects.is_some() => SETTLE,
            None => Duration::ZERO,
        };
        Ok(operation)
    }

    fn body(&self) -> Result<String, PlanError> {
        match &self.body {
            Some(path) => std::fs::read_to_string(path).map_err(|source| PlanError::File {
                path: path.clone(),
                source,
            }),
            None => Ok(self.body_text.clone().unwrap_or_default()),
        }
    }

    /// Returns how effects are counted. The URL gets the headers of the operation, because it mostly
    /// needs the same credential.
    fn oracle(&self, headers: &[(String, String)]) -> Result<Option<Oracle>, PlanError> {
        if let (Some(url), Some(path)) = (&self.count_url, &self.count_path) {
            let path = serde_json_path::JsonPath::parse(path)
                .map_err(|error| PlanError::setting("--count-path", error))?;
            return Ok(Some(Oracle::Url {
                target: target("--count-url", url)?,
                path,
                pages: pages(
                    "--count-next",
                    self.count_next.clone(),
                    self.count_cursor.clone(),
                )?,
                headers: headers.to_vec(),
            }));
        }
        if let Some(command) = &self.count_cmd {
            return Ok(Some(Oracle::Command(command.clone())));
        }
        Ok(self.listen_effects.map(|port| Oracle::Listen { port }))
    }
}

fn headers(setting: &str, given: &[String]) -> Result<Vec<(String, String)>, PlanError> {
    given.iter().map(|text| header(setting, text)).collect()
}

fn optional_target(setting: &str, url: Option<&str>) -> Result<Option<Target>, PlanError> {
    url.map(|url| target(setting, url)).transpose()
}
