//! The plan: which operations are probed, how effects are counted, and what the probe may do.
//!
//! A plan comes from a TOML file or from flags. It is checked before the first request: nothing is
//! sent that the plan does not contain, except what the checks derive from its payloads.

mod file;
mod payload;
mod vary;

use std::{num::NonZeroU32, path::PathBuf, time::Duration};

use crate::{
    http::{Target, TargetError, is_secret},
    profile::Profile,
};

pub(crate) use file::{FilePlan, pages};
pub(crate) use payload::{Numbers, Payload, Template};
pub(crate) use vary::Vary;

/// The default bound of requests of a run.
const REQUESTS_MAX: u64 = 20_000;
/// The default bound of requests per second.
const RATE: u32 = 1_000;
/// The longest duration of a plan.
const DURATION_MAX: Duration = Duration::from_hours(1);
/// The shortest time that the probe waits for a response.
const WAIT_MIN: Duration = Duration::from_millis(100);
/// Header fields that the probe sends itself.
const OWN_HEADERS: [&str; 5] = [
    "connection",
    "content-length",
    "host",
    "idempotency-key",
    "transfer-encoding",
];

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
    /// JSON pointers to members that may differ between a response and its replay.
    pub(crate) per_request_members: Vec<String>,
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
    /// For how long the count has to stay the same before it is used.
    pub(crate) settle: Duration,
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
    Listen { port: u16 },
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
    without_placeholder(setting, url)?;
    url.parse()
        .map_err(|error: TargetError| PlanError::setting(setting, error))
}

/// Parses a header of a plan: `Name: value`. An error does not repeat the value, which can be a secret.
pub(crate) fn header(setting: &str, text: &str) -> Result<(String, String), PlanError> {
    let wrong = || PlanError::setting(setting, "expected \"Name: value\"");
    let (name, value) = text.split_once(':').ok_or_else(wrong)?;
    let name = name.trim();
    let value = value.trim();
    if !is_token(name) || value.contains(|it: char| it.is_control() && it != '\t') {
        return Err(wrong());
    }
    if OWN_HEADERS.iter().any(|it| it.eq_ignore_ascii_case(name)) {
        return Err(PlanError::setting(
            setting,
            format!("expected another header than {name}, which the probe sends itself"),
        ));
    }
    without_placeholder(setting, value)?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Whether a text is a token of HTTP, as methods and the names of header fields are.
fn is_token(text: &str) -> bool {
    let is_allowed = |it: char| it.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(it);
    !text.is_empty() && text.chars().all(is_allowed)
}

fn without_placeholder(setting: &str, text: &str) -> Result<(), PlanError> {
    match Template::PLACEHOLDERS.iter().find(|it| text.contains(**it)) {
        Some(placeholder) => Err(PlanError::setting(
            setting,
            format!("{placeholder} is filled in bodies only"),
        )),
        None => Ok(()),
    }
}

/// Parses a duration of a plan, such as `500ms`, `2s` or `1m`.
pub(crate) fn duration(setting: &str, text: &str) -> Result<Duration, PlanError> {
    text.parse::<jiff::SignedDuration>()
        .ok()
        .and_then(|it| Duration::try_from(it).ok())
        .filter(|it| *it <= DURATION_MAX)
        .ok_or_else(|| {
            PlanError::setting(
                setting,
                format!("expected a duration of at most 1h, such as \"5s\", got {text:?}"),
            )
        })
}

/// Parses how long the probe waits for a response.
pub(crate) fn wait(setting: &str, text: &str) -> Result<Duration, PlanError> {
    let wait = duration(setting, text)?;
    if wait < WAIT_MIN {
        return Err(PlanError::setting(
            setting,
            format!("expected at least {WAIT_MIN:?}, got {text:?}"),
        ));
    }
    Ok(wait)
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
            per_request_members: Vec::new(),
            wait: Duration::from_secs(15),
            only: Vec::new(),
            skip: Vec::new(),
            dry_run: false,
        }
    }

    /// Checks what the parts of a plan cannot check alone.
    pub(crate) fn checked(mut self) -> Result<Self, PlanError> {
        if self.operations.is_empty() {
            return Err(PlanError::setting(
                "operation",
                "expected a URL or at least one [[operation]]",
            ));
        }
        if let Some(member) = self
            .per_request_members
            .iter()
            .find(|it| !it.starts_with('/'))
        {
            return Err(PlanError::setting(
                "per_request_members",
                format!("expected a JSON pointer such as /request_id, got {member:?}"),
            ));
        }
        for (at, operation) in self.operations.iter().enumerate() {
            operation.check()?;
            for earlier in &self.operations[..at] {
                operation.check_beside(earlier)?;
            }
            // A header of another principal is a credential under any name.
            let credentials = operation.other_principal.iter().chain(&operation.rotated);
            let names = credentials.map(|(name, _)| name.clone());
            self.secret_headers.extend(names);
        }
        Ok(self)
    }

    /// Returns the secrets of an operation that a server may repeat in a response.
    pub(crate) fn secrets(&self, operation: &Operation) -> Vec<String> {
        let (count_target, count_headers) = match &operation.oracle {
            Some(Oracle::Url {
                target, headers, ..
            }) => (Some(target), Some(headers)),
            _ => (None, None),
        };
        let headers = [
            Some(&operation.headers),
            Some(&operation.other_principal),
            Some(&operation.rotated),
            count_headers,
        ];
        let targets = [
            Some(&operation.target),
            operation.second.as_ref(),
            operation.other.as_ref(),
            operation.other_path.as_ref(),
            count_target,
        ];
        let headers = headers.into_iter().flatten().flatten();
        headers
            .filter(|(name, _)| is_secret(name, &self.secret_headers))
            .map(|(_, value)| value.as_str())
            .chain(targets.into_iter().flatten().flat_map(Target::secrets))
            .map(str::to_owned)
            .collect()
    }
}

impl Operation {
    /// Returns an operation with this body and without anything optional. The method is `POST` unless
    /// another one is given.
    pub(crate) fn new(method: Option<String>, target: Target, body: Template) -> Self {
        let method = method.unwrap_or_else(|| "POST".to_owned());
        Self {
            name: format!("{method} {}", target.path()),
            method,
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
            settle: Duration::ZERO,
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

    /// Sets the header fields. One for the content type replaces the content type of the plan.
    pub(crate) fn set_headers(&mut self, mut headers: Vec<(String, String)>) {
        headers.retain(|(name, value)| {
            let is_type = name.eq_ignore_ascii_case("content-type");
            if is_type {
                self.content_type.clone_from(value);
            }
            !is_type
        });
        self.headers = headers;
    }

    /// Checks what two operations of a plan cannot have in common.
    fn check_beside(&self, other: &Self) -> Result<(), PlanError> {
        if self.name == other.name {
            return Err(PlanError::setting(
                "operation.name",
                format!("two operations are called {:?}", self.name),
            ));
        }
        match (&self.oracle, &other.oracle) {
            (Some(Oracle::Listen { port, .. }), Some(Oracle::Listen { port: same, .. }))
                if port == same =>
            {
                Err(PlanError::setting(
                    "operation.effects.listen_port",
                    format!(
                        "{:?} and {:?} have the same port {port}: each operation needs its own",
                        other.name, self.name
                    ),
                ))
            }
            _ => Ok(()),
        }
    }

    fn check(&self) -> Result<(), PlanError> {
        if !is_token(&self.method) {
            return Err(PlanError::setting(
                "method",
                format!("expected a method such as POST, got {:?}", self.method),
            ));
        }
        if self.content_type.contains(char::is_control) {
            return Err(PlanError::setting(
                "content_type",
                format!(
                    "expected a type such as application/json, got {:?}",
                    self.content_type
                ),
            ));
        }
        let Some(vary) = &self.vary else {
            return Ok(());
        };
        // The variation is tried once, so that a wrong pointer is found before anything is sent.
        let payload = Payload {
            target: self.target.clone(),
            content_type: self.content_type.clone(),
            body: self.body.fill(&mut Numbers::new(0)),
        };
        let varied = vary
            .apply(&payload)
            .map_err(|problem| PlanError::setting("vary", problem))?;
        if varied == payload {
            let problem = "the varied payload is the same as the payload";
            return Err(PlanError::setting("vary", problem));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation() -> Operation {
        let url = target("url", "http://127.0.0.1/orders?api_key=k1").expect("a URL");
        Operation::new(None, url, Template("{}".to_owned()))
    }

    fn checked(operations: Vec<Operation>) -> Result<Plan, PlanError> {
        let profile = Profile::named("ietf").expect("a known profile");
        Plan::of(profile, operations).checked()
    }

    #[test]
    fn a_header_that_the_probe_sends_itself_is_rejected() {
        for wrong in [
            "Idempotency-Key: k",
            "host: h",
            "Content-Length: 3",
            "Transfer-Encoding: chunked",
            "Connection: close",
            "no value",
            "bad name: v",
            "X-A: {{n}}",
            "X-A: a\r\nX-B: b",
        ] {
            assert!(header("header", wrong).is_err(), "{wrong}");
        }
        let header = header("header", "X-Tenant:  one ").expect("a header");
        assert_eq!(header, ("X-Tenant".to_owned(), "one".to_owned()));
    }

    #[test]
    fn a_placeholder_in_a_url_is_rejected() {
        let error = target("url", "http://127.0.0.1/orders/{{uuid}}").expect_err("a placeholder");
        assert!(error.to_string().contains("{{uuid}}"), "{error}");
    }

    #[test]
    fn durations_have_bounds() {
        assert_eq!(
            duration("x", "1h").expect("a duration"),
            Duration::from_hours(1)
        );
        for wrong in ["61m", "9223372036854775807s", "-1s", "soon"] {
            assert!(duration("x", wrong).is_err(), "{wrong}");
        }
        assert!(duration("x", "0s").is_ok());
        assert!(wait("wait", "99ms").is_err());
        assert!(wait("wait", "100ms").is_ok());
    }

    #[test]
    fn a_content_type_in_a_header_replaces_that_of_the_plan() {
        let mut operation = operation();
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        operation.set_headers(vec![header("content-type", "text/csv"), header("X-A", "1")]);
        assert_eq!(operation.content_type, "text/csv");
        assert_eq!(operation.headers, [header("X-A", "1")]);
    }

    #[test]
    fn lines_in_a_method_or_a_content_type_are_rejected() {
        let mut of_method = operation();
        of_method.method = "POST / HTTP/1.1\r\nX: ".to_owned();
        assert!(checked(vec![of_method]).is_err());
        let mut of_type = operation();
        of_type.content_type = "text/csv\r\nX: y".to_owned();
        assert!(checked(vec![of_type]).is_err());
    }

    #[test]
    fn two_operations_have_different_names_and_ports() {
        assert_eq!(operation().name, "POST /orders");
        let put = || Operation {
            name: "PUT /orders".to_owned(),
            ..operation()
        };
        assert!(checked(vec![operation(), put()]).is_ok());
        assert!(checked(vec![operation(), put(), put()]).is_err());
        let [one, other] = [operation(), put()].map(|it| Operation {
            oracle: Some(Oracle::Listen { port: 4000 }),
            ..it
        });
        let error = checked(vec![one, other]).expect_err("one port for two operations");
        assert!(error.to_string().contains("4000"), "{error}");
    }

    #[test]
    fn secrets_are_the_values_that_reports_do_not_contain() {
        let mut operation = operation();
        operation.headers = vec![
            ("Authorization".to_owned(), "Bearer a".to_owned()),
            ("X-Public".to_owned(), "p".to_owned()),
        ];
        operation.rotated = vec![("X-Credential".to_owned(), "c".to_owned())];
        let plan = checked(vec![operation]).expect("a valid plan");
        let secrets = plan.secrets(&plan.operations[0]);
        assert_eq!(secrets, ["Bearer a", "c", "k1"]);
    }
}
