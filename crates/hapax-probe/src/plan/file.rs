//! A plan in a TOML file.

use std::{
    collections::BTreeMap,
    num::NonZeroU32,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;

use crate::{
    plan::{self, Operation, Oracle, Pages, Plan, PlanError, Template, duration, header, target},
    profile::Profile,
};

/// For how long no webhook may arrive before they are counted.
const SETTLE: Duration = Duration::from_secs(1);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FilePlan {
    profile: String,
    seed: Option<u64>,
    requests_max: Option<u64>,
    rate: Option<NonZeroU32>,
    restart_command: Option<String>,
    #[serde(default)]
    i_own_this: bool,
    ca_file: Option<PathBuf>,
    #[serde(default)]
    secret_headers: Vec<String>,
    #[serde(default)]
    per_request_headers: Vec<String>,
    #[serde(default)]
    per_request_members: Vec<String>,
    wait: Option<String>,
    #[serde(default)]
    only: Vec<String>,
    #[serde(default)]
    skip: Vec<String>,
    #[serde(default, rename = "operation")]
    operations: Vec<FileOperation>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileOperation {
    name: Option<String>,
    method: Option<String>,
    url: String,
    second_url: Option<String>,
    other_url: Option<String>,
    other_path_url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    other_principal: BTreeMap<String, String>,
    #[serde(default)]
    rotated_credential: BTreeMap<String, String>,
    content_type: Option<String>,
    body: Option<String>,
    body_file: Option<PathBuf>,
    slow_body: Option<String>,
    #[serde(default)]
    refused_bodies: Vec<String>,
    vary: Option<String>,
    retention: Option<String>,
    effects: Option<FileOracle>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileOracle {
    url: Option<String>,
    path: Option<String>,
    next: Option<String>,
    cursor: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    command: Option<String>,
    listen_port: Option<u16>,
    settle: Option<String>,
}

impl FilePlan {
    pub(crate) fn into_plan(self, folder: &Path) -> Result<Plan, PlanError> {
        let operations = self
            .operations
            .into_iter()
            .map(|it| it.into_operation(folder))
            .collect::<Result<_, _>>()?;
        let profile = Profile::named(&self.profile)
            .map_err(|problem| PlanError::setting("profile", problem))?;
        let mut plan = Plan::of(profile, operations);
        plan.restart_command = self.restart_command;
        plan.public = self.i_own_this;
        plan.authorities = self.ca_file.map(|it| folder.join(it));
        plan.secret_headers = self.secret_headers;
        plan.per_request_headers = self.per_request_headers;
        plan.per_request_members = self.per_request_members;
        plan.only = self.only;
        plan.skip = self.skip;
        if let Some(seed) = self.seed {
            plan.seed = seed;
        }
        if let Some(max) = self.requests_max {
            plan.requests_max = max;
        }
        if let Some(rate) = self.rate {
            plan.rate = rate;
        }
        if let Some(wait) = self.wait {
            plan.wait = plan::wait("wait", &wait)?;
        }
        plan.checked()
    }
}

impl FileOperation {
    fn into_operation(self, folder: &Path) -> Result<Operation, PlanError> {
        let body = match (self.body, self.body_file) {
            (Some(body), None) => body,
            (None, Some(file)) => {
                let path = folder.join(file);
                std::fs::read_to_string(&path).map_err(|source| PlanError::File { path, source })?
            }
            (None, None) => String::new(),
            (Some(_), Some(_)) => {
                return Err(PlanError::setting(
                    "operation.body",
                    "expected body or body_file, not both",
                ));
            }
        };
        let target = target("operation.url", &self.url)?;
        let mut operation = Operation::new(self.method, target, Template(body));
        if let Some(name) = self.name {
            operation.name = name;
        }
        if let Some(content_type) = self.content_type {
            operation.content_type = content_type;
        }
        operation.second = optional_target("operation.second_url", self.second_url)?;
        operation.other = optional_target("operation.other_url", self.other_url)?;
        operation.other_path = optional_target("operation.other_path_url", self.other_path_url)?;
        operation.set_headers(headers("operation.headers", self.headers)?);
        operation.other_principal = headers("operation.other_principal", self.other_principal)?;
        operation.rotated = headers("operation.rotated_credential", self.rotated_credential)?;
        operation.slow = self.slow_body.map(Template);
        operation.refused = self.refused_bodies.into_iter().map(Template).collect();
        if let Some(vary) = self.vary {
            let vary = vary
                .parse()
                .map_err(|problem: String| PlanError::setting("operation.vary", problem))?;
            operation.vary = Some(vary);
        }
        if let Some(retention) = self.retention {
            operation.retention = Some(duration("operation.retention", &retention)?);
        }
        if let Some(effects) = self.effects {
            operation.settle = effects.settle()?;
            operation.oracle = Some(effects.into_oracle(&operation.headers)?);
        }
        Ok(operation)
    }
}

impl FileOracle {
    /// Returns for how long the count has to stay the same.
    fn settle(&self) -> Result<Duration, PlanError> {
        match &self.settle {
            Some(settle) => duration("operation.effects.settle", settle),
            None if self.listen_port.is_some() => Ok(SETTLE),
            None => Ok(Duration::ZERO),
        }
    }

    fn into_oracle(self, inherited: &[(String, String)]) -> Result<Oracle, PlanError> {
        match (self.url, self.path, self.command, self.listen_port) {
            (Some(url), Some(path), None, None) => Ok(Oracle::Url {
                target: target("operation.effects.url", &url)?,
                path: json_path("operation.effects.path", &path)?,
                pages: pages("operation.effects.next", self.next, self.cursor)?,
                headers: if self.headers.is_empty() {
                    inherited.to_vec()
                } else {
                    headers("operation.effects.headers", self.headers)?
                },
            }),
            (None, None, Some(command), None) => Ok(Oracle::Command(command)),
            (None, None, None, Some(port)) => Ok(Oracle::Listen { port }),
            _ => Err(PlanError::setting(
                "operation.effects",
                "expected url and path, command, or listen_port",
            )),
        }
    }
}

/// Returns how pages are read. Either both settings are given or none.
pub(crate) fn pages(
    setting: &str,
    next: Option<String>,
    cursor: Option<String>,
) -> Result<Option<Pages>, PlanError> {
    match (next, cursor) {
        (None, None) => Ok(None),
        (Some(next), Some(cursor)) if next.starts_with('/') => Ok(Some(Pages { next, cursor })),
        (Some(_), Some(_)) => Err(PlanError::setting(
            setting,
            "expected a JSON pointer such as /next",
        )),
        _ => Err(PlanError::setting(
            setting,
            "expected both the pointer to the next cursor and the parameter that takes it",
        )),
    }
}

/// Parses a `JSONPath` expression.
pub(crate) fn json_path(setting: &str, path: &str) -> Result<serde_json_path::JsonPath, PlanError> {
    serde_json_path::JsonPath::parse(path).map_err(|error| PlanError::setting(setting, error))
}

fn optional_target(
    setting: &str,
    url: Option<String>,
) -> Result<Option<crate::http::Target>, PlanError> {
    url.map(|url| target(setting, &url)).transpose()
}

fn headers(
    setting: &str,
    given: BTreeMap<String, String>,
) -> Result<Vec<(String, String)>, PlanError> {
    given
        .into_iter()
        .map(|(name, value)| header(setting, &format!("{name}: {value}")))
        .collect()
}
