//! The settings of a mail sink, checked before it is one.
//!
//! Everything that can be wrong at start is found at start: the URL, the
//! sender, every template by file and line, the expression for the recipient.
//! Whether the server can be reached is not asked: mail waits for it.

use std::{collections::BTreeMap, fmt, io, path::PathBuf, sync::Mutex, time::Duration};

use hapax::limits::OFFER;
use lettre::{
    message::Mailbox,
    transport::smtp::{
        client::{Certificate, TlsParameters},
        extension::ClientId,
    },
};

use super::{
    Smtp,
    connection::Connections,
    server::{Server, StartTls},
    template::Templates,
};
use crate::resolve::Resolver;

/// The settings of an [`Smtp`] sink.
#[derive(Clone)]
pub struct SmtpBuilder {
    url: String,
    from: String,
    recipient: String,
    templates: PathBuf,
    mails: BTreeMap<String, String>,
    roots: Vec<Vec<u8>>,
    start_tls: Option<StartTls>,
    timeout: Duration,
    resolver: Resolver,
}

impl SmtpBuilder {
    pub(super) fn new(url: String) -> Self {
        Self {
            url,
            from: String::new(),
            recipient: String::new(),
            templates: PathBuf::new(),
            mails: BTreeMap::new(),
            roots: Vec::new(),
            start_tls: None,
            timeout: OFFER,
            resolver: Resolver::system(),
        }
    }

    /// Sends as this mailbox: `Name <address>`. Its domain ends every `Message-ID`.
    #[must_use]
    pub fn from(mut self, mailbox: impl Into<String>) -> Self {
        self.from = mailbox.into();
        self
    }

    /// Sends to what this template makes of the event: `{{ data.email }}`.
    #[must_use]
    pub fn recipient(mut self, template: impl Into<String>) -> Self {
        self.recipient = template.into();
        self
    }

    /// Reads the templates from this directory.
    #[must_use]
    pub fn templates(mut self, directory: impl Into<PathBuf>) -> Self {
        self.templates = directory.into();
        self
    }

    /// Sends events of type `kind` as the template `name`; other events are rejected.
    #[must_use]
    pub fn mail(mut self, kind: impl Into<String>, name: impl Into<String>) -> Self {
        self.mails.insert(kind.into(), name.into());
        self
    }

    /// Says how TLS begins on `smtp://`.
    #[must_use]
    pub fn start_tls(mut self, start_tls: StartTls) -> Self {
        self.start_tls = Some(start_tls);
        self
    }

    /// Trusts the certificates in this PEM text beside the public ones.
    #[must_use]
    pub fn trust(mut self, certificates: impl Into<Vec<u8>>) -> Self {
        self.roots.push(certificates.into());
        self
    }

    /// Bounds the whole exchange, from the name's look-up to the server's last word.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Looks names up by this resolver; by the one of the process when not said.
    #[must_use]
    pub fn resolver(mut self, resolver: Resolver) -> Self {
        self.resolver = resolver;
        self
    }

    /// Makes the sink.
    ///
    /// # Errors
    /// Fails when a setting or a template can never work; which one is in the error.
    pub fn build(self) -> Result<Smtp, SmtpError> {
        let server = Server::parse(&self.url).ok_or(SmtpError::Url)?;
        let from: Mailbox = self.from.parse().map_err(|_| SmtpError::From)?;
        let templates = Templates::load(&self.templates, &self.mails, &self.recipient)?;
        let mut tls = TlsParameters::builder(server.host.clone());
        for text in &self.roots {
            let certificate = Certificate::from_pem(text).map_err(|_| SmtpError::Certificate)?;
            tls = tls.add_root_certificate(certificate);
        }
        let connections = Connections {
            start_tls: self.start_tls.unwrap_or(server.start_tls()),
            tls: tls.build_rustls().map_err(|_| SmtpError::Certificate)?,
            hello: ClientId::Domain(from.email.domain().to_owned()),
            timeout: self.timeout,
            idle: Mutex::default(),
            resolver: self.resolver,
            server,
        };
        Ok(Smtp {
            from,
            templates,
            connections,
            timeout: self.timeout,
        })
    }
}

impl fmt::Debug for SmtpBuilder {
    /// Leaves the URL out: it may carry a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SmtpBuilder")
            .field("from", &self.from)
            .field("recipient", &self.recipient)
            .field("templates", &self.templates)
            .field("mails", &self.mails)
            .finish_non_exhaustive()
    }
}

/// Why a mail sink cannot be set up; it never repeats the URL.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SmtpError {
    /// The URL names no mail server.
    #[error("mail url is not smtp://[user:password@]host[:port] or smtps://...")]
    Url,
    /// The sender is no mailbox.
    #[error("mail sender is no mailbox")]
    From,
    /// The recipient's template is malformed.
    #[error("template of the mail recipient is malformed")]
    Recipient {
        /// What is wrong with it.
        source: minijinja::Error,
    },
    /// A template file cannot be read.
    #[error("mail template {} cannot be read", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A template is malformed.
    #[error("mail template {} is malformed at line {line}", path.display())]
    Template {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong there.
        source: minijinja::Error,
    },
    /// A certificate to trust is none.
    #[error("certificate to trust is not PEM")]
    Certificate,
}
