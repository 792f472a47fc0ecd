//! Mail templates, read from files and selected by the event type.
//!
//! All templates are read and checked when the sink is built, so errors are found at start, by file
//! and line. Rendering is strict: if the event lacks a value, the event is rejected, because an
//! incomplete mail is worse than none.

use std::{collections::BTreeMap, fs, path::Path};

use hapax::{
    event::{Event, Headers, Payload},
    key::Tenant,
    sink::SinkError,
    telemetry::error_chain,
};
use lettre::message::Mailbox;
use minijinja::{Environment, UndefinedBehavior, Value};
use serde::Serialize;

use super::SmtpSettings;
use crate::{format, limits::SUBJECT_BYTES_MAX, settings::SettingError};

const RECIPIENT: &str = "recipient";

/// The templates of a sink.
pub(super) struct Templates {
    environment: Environment<'static>,
    /// Files by event type.
    mails: BTreeMap<String, Files>,
}

struct Files {
    subject: String,
    text: String,
    html: Option<String>,
}

/// A rendered mail.
pub(super) struct Filled {
    pub(super) to: Mailbox,
    pub(super) subject: String,
    pub(super) text: String,
    pub(super) html: Option<String>,
}

/// The variables of a template.
#[derive(Serialize)]
struct View<'a> {
    id: String,
    r#type: &'a str,
    time: String,
    tenant: Option<&'a str>,
    aggregate: Option<AggregateView<'a>>,
    headers: &'a Headers,
    data: serde_json::Value,
}

#[derive(Serialize)]
struct AggregateView<'a> {
    r#type: &'a str,
    id: &'a str,
}

impl Templates {
    /// Reads the templates from their directory.
    pub(super) fn load(settings: &SmtpSettings) -> Result<Self, SettingError> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment
            .add_template_owned(RECIPIENT, settings.recipient.clone())
            .map_err(|error| {
                let problem = format!("is not a valid template: {}", error_chain(&error));
                SettingError::new("recipient", problem)
            })?;
        let mut templates = Self {
            environment,
            mails: BTreeMap::new(),
        };
        for (kind, name) in &settings.mails {
            let files = templates.read(&settings.templates, name)?;
            templates.mails.insert(kind.clone(), files);
        }
        Ok(templates)
    }

    /// Renders the mail of an event.
    pub(super) fn fill(&self, event: &Event) -> Result<Filled, SinkError> {
        let files = self
            .mails
            .get(&event.kind)
            .ok_or_else(|| SinkError::rejected("template", "event type has no template"))?;
        let view = view(event)?;
        let to = self.render(RECIPIENT, &view)?;
        let html = files.html.as_ref();
        Ok(Filled {
            // The source is omitted, because it contains the address.
            to: to
                .trim()
                .parse()
                .map_err(|_| SinkError::rejected("recipient", "recipient is not a mail address"))?,
            subject: one_line(&self.render(&files.subject, &view)?)?,
            text: self.render(&files.text, &view)?,
            html: html.map(|name| self.render(name, &view)).transpose()?,
        })
    }

    fn read(&mut self, directory: &Path, name: &str) -> Result<Files, SettingError> {
        let files = Files {
            subject: format!("{name}.subject.txt"),
            text: format!("{name}.text.txt"),
            html: Some(format!("{name}.html")).filter(|file| directory.join(file).exists()),
        };
        let mut all = vec![&files.subject, &files.text];
        all.extend(&files.html);
        for file in all {
            let path = directory.join(file);
            let bad = |problem| {
                let problem = format!("file {} {problem}", path.display());
                SettingError::new("templates", problem)
            };
            let text = fs::read_to_string(&path);
            let text = text.map_err(|error| bad(format!("cannot be read: {error}")))?;
            let added = self.environment.add_template_owned(file.clone(), text);
            added.map_err(|error| {
                let line = error.line().unwrap_or(1);
                bad(format!(
                    "is malformed at line {line}: {}",
                    error_chain(&error)
                ))
            })?;
        }
        Ok(files)
    }

    fn render(&self, name: &str, view: &Value) -> Result<String, SinkError> {
        let template = self.environment.get_template(name);
        template
            .and_then(|template| template.render(view))
            .map_err(|error| SinkError::rejected("template", error))
    }
}

fn view(event: &Event) -> Result<Value, SinkError> {
    let data = match &event.payload {
        Payload::Json(text) => {
            serde_json::from_str(text).map_err(|error| SinkError::rejected("payload", error))?
        }
        Payload::Binary { .. } => serde_json::Value::Null,
    };
    Ok(Value::from_serialize(View {
        id: event.id.to_string(),
        r#type: &event.kind,
        time: format::rfc3339(event.created_at),
        tenant: event.tenant.as_ref().map(Tenant::as_str),
        aggregate: event.aggregate.as_ref().map(|aggregate| AggregateView {
            r#type: &aggregate.kind,
            id: &aggregate.id,
        }),
        headers: &event.headers,
        data,
    }))
}

/// Reduces a subject to one line, because a payload may contain line breaks.
fn one_line(text: &str) -> Result<String, SinkError> {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control());
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    let line = words.join(" ");
    if line.len() > SUBJECT_BYTES_MAX {
        return Err(SinkError::rejected("content", "subject is too long"));
    }
    Ok(line)
}
