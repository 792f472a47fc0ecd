//! The plan: which operations are probed, how effects are counted, and what the probe may do.
//!
//! A plan comes from a TOML file or from flags. It is checked before the first request: nothing is
//! sent that the plan does not contain, except what the checks derive from its payloads.

mod file;
mod payload;
mod vary;

use std::{num::NonZeroU32, path::PathBuf, time::Duration};

use crate::{
    http::{Target, TargetError},
    profile::Profile,
};

pub(crate) use file::{FilePlan, pages};
pub(crate) use payload::{Numbers, Payload, Template};
pub(crate) use vary::Vary;

/// The default bound of requests of a run.
const REQUESTS_MAX: u64 = 20_000;
/// The default bound of requests per second.
const RATE: u32 = 1_000;

/// What a run does.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) profile: &'static Profile,
    pub(crate) operations: Vec<Operation>,
    /// A shell command that kills the server and starts it again. The probe then waits until the server
    /// responds.
    pub(crate) restart_command: Option<String>,
    /// The start of the random numbers. Two runs with the same seed send the same payloads.
    pub(crate) seed: u64,
    pub(crate) requests_max: u64,
    pub(crate) rate: NonZeroU32,
    /// Whether addresses may be public.
    pub(crate) public: bool,
    /// A file with PEM certificates of further authorities.
    pub(crate) authorities: Option<PathBuf>,
    /// Further header fields whose values are masked in reports.
    pub(crate) secret_headers: Vec<String>,
    /// Further header fields that may differ between a response and its replay.
    pub(crate) per_request_headers: Vec<String>,
    /// How long the probe waits for one response.
    pub(crate) wait: Duration,
    pub(crate) only: Vec<String>,
    pub(crate) skip: Vec<String>,
    pub(crate) dry_run: bool,
}

/// One operation of the server: a method and a URL, with a payload.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) name: String,
    pub(crate) method: String,
    pub(crate) target: Target,
    /// The same operation on another node.
    pub(crate) second: Option<Target>,
    /// Another operation that accepts the same payload.
    pub(crate) other: Option<Target>,
    /// The same operation with another path parameter.
    pub(crate) other_path: Option<Target>,
    pub(crate) headers: Vec<(String, String)>,
    /// Header fields of another principal, instead of those of the same name.
    pub(crate) other_principal: Vec<(String, String)>,
    /// Header fields with a newer credential of the same principal.
    pub(crate) rotated: Vec<(String, String)>,
    pub(crate) content_type: String,
    pub(crate) body: Template,
    /// A payload whose execution takes a second or more.
    pub(crate) slow: Option<Template>,
    /// Payloads that are refused.
    pub(crate) refused: Vec<Template>,
    pub(crate) vary: Option<Vary>,
    pub(crate) oracle: Option<Oracle>,
    /// How long keys are kept, if the server was configured for a short time.
    pub(crate) retention: Option<Duration>,
}

/// How effects are counted.
#[derive(Clone, Debug)]
pub(crate) enum Oracle {
    /// A `GET` returns JSON; the number of nodes that the path selects is the count.
    Url {
        target: Target,
        path: serde_json_path::JsonPath,
        pages: Option<Pages>,
        headers: Vec<(String, String)>,
    },
    /// A shell command prints the count.
    Command(String),
    /// The server sends an HTTP request to this port of loopback for each effect.
    Listen { port: u16, settle: Duration },
}

/// How a list with several pages is read to its end.
#[derive(Clone, Debug)]
pub(crate) struct Pages {
    /// The JSON pointer to the cursor of the next page. The last page has none, or null.
    pub(crate) next: String,
    /// The query parameter that takes the cursor.
    pub(crate) cursor: String,
}

/// Why a plan is rejected.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// A setting has a value that is not valid.
    #[error("{setting}: {problem}")]
    Setting {
        /// The setting's name.
        setting: String,
        /// What is wrong with it, and what is expected.
        problem: String,
    },
    /// A file could not be read.
    #[error("{path} cannot be read")]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The plan file is not valid TOML, or has a member that does not exist.
    #[error("{path} is not a valid plan")]
    Toml {
        /// The file.
        path: PathBuf,
        /// The place and the reason.
        source: Box<serde_path_to_error::Error<toml::de::Error>>,
    },
}

impl PlanError {
    pub(crate) fn setting(setting: &str, problem: impl std::fmt::Display) -> Self {
        Self::Setting {
            setting: setting.to_owned(),
            problem: problem.to_string(),
        }
    }
}

/// Parses a URL of a plan.
pub(crate) fn target(setting: &str, url: &str) -> Result<Target, PlanError> {
    url.parse()
        .map_err(|error: TargetError| PlanError::setting(setting, error))
}

/// Parses a header of a plan: `Name: value`.
pub(crate) fn header(setting: &str, text: &str) -> Result<(String, String), PlanError> {
    let wrong = || PlanError::setting(setting, format!("expected \"Name: value\", got {text:?}"));
    let (name, value) = text.split_once(':').ok_or_else(wrong)?;
    let name = name.trim();
    let value = value.trim();
    let is_token = |it: char| it.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(it);
    if name.is_empty() || !name.chars().all(is_token) || value.contains(['\r', '\n', '\0']) {
        return Err(wrong());
    }
    Ok((name.to_owned(), value.to_owned()))
}

/// Parses a duration of a plan, such as `500ms`, `2s` or `1m`.
pub(crate) fn duration(setting: &str, text: &str) -> Result<Duration, PlanError> {
    text.parse::<jiff::SignedDuration>()
        .ok()
        .and_then(|it| Duration::try_from(it).ok())
        .ok_or_else(|| {
            PlanError::setting(
                setting,
                format!("expected a duration such as \"5s\", got {text:?}"),
            )
        })
}

impl Plan {
    /// Reads a plan from a TOML file.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or is not a valid plan.
    pub fn from_file(path: &std::path::Path) -> Result<Self, PlanError> {
        let text = std::fs::read_to_string(path).map_err(|source| PlanError::File {
            path: path.to_owned(),
            source,
        })?;
        let toml = toml::Deserializer::parse(&text)
            .map_err(|error| PlanError::setting(&path.display().to_string(), error))?;
        let file: FilePlan =
            serde_path_to_error::deserialize(toml).map_err(|source| PlanError::Toml {
                path: path.to_owned(),
                source: Box::new(source),
            })?;
        file.into_plan(path.parent().unwrap_or_else(|| std::path::Path::new(".")))
    }

    /// Returns a plan for one operation with the default bounds.
    pub(crate) fn of(profile: &'static Profile, operations: Vec<Operation>) -> Self {
        Self {
            profile,
            operations,
            restart_command: None,
            seed: 1,
            requests_max: REQUESTS_MAX,
            rate: NonZeroU32::new(RATE).unwrap_or(NonZeroU32::MIN),
            public: false,
            authorities: None,
            secret_headers: Vec::new(),
            per_request_headers: Vec::new(),
            wait: Duration::from_secs(15),
            only: Vec::new(),
            skip: Vec::new(),
            dry_run: false,
        }
    }

    /// Checks what the parts of a plan cannot check alone.
    pub(crate) fn checked(self) -> Result<Self, PlanError> {
        if self.operations.is_empty() {
            return Err(PlanError::setting(
                "operation",
                "expected a URL or at least one [[operation]]",
            ));
        }
        for operation in &self.operations {
            operation.check()?;
        }
        Ok(self)
    }
}

impl Operation {
    /// Returns an operation with this body and without anything optional.
    pub(crate) fn new(target: Target, body: Template) -> Self {
        Self {
            name: target.path_and_query(),
            method: "POST".to_owned(),
            target,
            second: None,
            other: None,
            other_path: None,
            headers: Vec::new(),
            other_principal: Vec::new(),
            rotated: Vec::new(),
            content_type: "application/json".to_owned(),
            body,
            slow: None,
            refused: Vec::new(),
            vary: None,
            oracle: None,
            retention: None,
        }
    }

    /// Whether the payload is JSON.
    pub(crate) fn is_json(&self) -> bool {
        let essence = self
            .content_type
            .split(';')
            .next()
            .unwrap_or_default()
            .trim();
        essence.eq_ignore_ascii_case("application/json") || essence.ends_with("+json")
    }

    fn check(&self) -> Result<(), PlanError> {
        let Some(vary) = &self.vary else {
            return Ok(());
        };
        // The variation is tried once, so that a wrong pointer is found before anything is sent.
        let payload = Payload {
            target: self.target.clone(),
            content_type: self.content_type.clone(),
            body: self.body.fill(&mut Numbers::new(0)),
        };
        vary.apply(&payload)
            .map(|_| ())
            .map_err(|problem| PlanError::setting("vary", problem))
    }
}
