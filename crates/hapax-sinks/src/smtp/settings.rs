//! Settings of the mail sink.

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    secret::Secret,
    settings::{Address, Compared, is_same},
};

/// A mail server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SmtpSettings {
    /// The URL of the server: `smtp://user:password@host:587` or `smtps://...`. User and password
    /// are percent-encoded. Without a port, `smtp://` uses port 587 and STARTTLS, `smtps://` port
    /// 465 and TLS from the first byte.
    pub url: Secret,
    /// The sender: `Name <address>`. Its domain is used in `Message-ID`.
    pub from: String,
    /// The recipient, as a template over the event: `{{ data.email }}`.
    pub recipient: String,
    /// The directory of the templates.
    #[cfg_attr(feature = "schema", schema(value_type = String, format = "path"))]
    pub templates: PathBuf,
    /// The template for each event type. Events without a template are rejected.
    pub mails: BTreeMap<String, String>,
    /// A file of certificates (PEM) that are trusted in addition to the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = "path"))]
    pub ca: Option<PathBuf>,
    /// How TLS is started on `smtp://`. The default depends on the URL: `Required` with a password,
    /// `Opportunistic` without. A configuration file has no setting for it.
    #[serde(skip)]
    pub start_tls: Option<StartTls>,
}

/// How TLS is started on an `smtp://` connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartTls {
    /// If the server offers it, and always with a password: the default without a password.
    Opportunistic,
    /// Always. A server without STARTTLS is unavailable. The default with a password.
    Required,
    /// Never.
    Never,
}

impl Address for SmtpSettings {
    fn compare_address(&self, before: &Self) -> Compared {
        let Self {
            url,
            ca,
            start_tls,
            from: _,
            recipient: _,
            templates: _,
            mails: _,
        } = self;
        vec![
            ("url", is_same(url, &before.url)),
            ("ca", *ca == before.ca),
            ("start_tls", *start_tls == before.start_tls),
        ]
    }
}
