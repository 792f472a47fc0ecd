//! Fixture: an OTLP collector process that parses requests with OpenTelemetry's Python classes.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use hapax_testkit::{
    program::{Program, packages},
    wait::eventually,
};
use serde_json::Value;
use tempfile::TempDir;

use crate::shop::PATIENCE;

/// A running collector. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Collector {
    _program: Program,
    folder: TempDir,
    pub(crate) url: String,
}

impl Collector {
    /// Starts a collector that accepts all requests.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a collector that requires this value of the header `authorization`.
    pub(crate) fn wanting(authorization: &str) -> Self {
        Self::start_with(&[authorization])
    }

    fn start_with(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/otlp/collector.py");
        let mut command = Command::new("python3");
        command
            .arg(script)
            .arg(folder.path().join("spans"))
            .args(arguments)
            .env("PYTHONPATH", packages(env!("CARGO_TARGET_TMPDIR"), "otlp"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::null());
        let (program, url) = Program::announced(command, &folder.path().join("log"));
        assert!(
            url.starts_with("http://"),
            "no collector: {}",
            program.log()
        );
        Self {
            _program: program,
            folder,
            url,
        }
    }

    /// All data that it has received, as text.
    pub(crate) fn text(&self) -> String {
        fs::read_to_string(self.folder.path().join("spans")).unwrap_or_default()
    }

    /// The spans so far. Fails if the collector has rejected a request.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let text = self.text();
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let spans: Vec<Span> = lines.map(Span).collect();
        let refused = spans.iter().find(|span| span.0.get("refused").is_some());
        assert!(refused.is_none(), "{refused:?}");
        spans
    }

    /// Waits until `are_all` holds for the spans of this trace, and returns them.
    pub(crate) async fn trace(&self, id: &str, are_all: impl Fn(&[Span]) -> bool) -> Vec<Span> {
        let mut found = Vec::new();
        eventually(PATIENCE, async || {
            found = self.spans();
            found.retain(|span| span.text("trace_id") == id);
            are_all(&found)
        })
        .await;
        found
    }
}

/// A span as the collector has parsed it.
#[derive(Clone, Debug)]
pub(crate) struct Span(Value);

impl Span {
    /// A member of the span that is a text.
    #[track_caller]
    pub(crate) fn text(&self, name: &str) -> &str {
        self.0[name]
            .as_str()
            .unwrap_or_else(|| panic!("{name}: {self:?}"))
    }

    /// The id of the span.
    pub(crate) fn id(&self) -> &str {
        self.text("span_id")
    }

    /// The id of the parent span.
    pub(crate) fn parent(&self) -> &str {
        self.text("parent_id")
    }

    pub(crate) fn number(&self, name: &str) -> i64 {
        self.0[name].as_i64().unwrap()
    }

    /// An attribute, or null if the span does not have it.
    pub(crate) fn attribute(&self, name: &str) -> &Value {
        &self.0["attributes"][name]
    }

    /// Whether the span has this name and was exported by this service.
    pub(crate) fn is(&self, service: &str, name: &str) -> bool {
        self.text("service") == service && self.text("name") == name
    }
}
