//! Builder of a mail sink, which checks the settings.
//!
//! All errors that can be found at start are found at start: in the URL, the sender, the templates
//! (by file and line) and the expression for the recipient. It is not checked whether the server
//! can be reached: mail waits for it.

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

    /// Sets the sender: `Name <address>`. Its domain is used in `Message-ID`.
    #[must_use]
    pub fn from(mut self, mailbox: impl Into<String>) -> Self {
        self.from = mailbox.into();
        self
    }

    /// Sets the recipient, a template over the event: `{{ data.email }}`.
    #[must_use]
    pub fn recipient(mut self, template: impl Into<String>) -> Self {
        self.recipient = template.into();
        self
    }

    /// Sets the directory of the templates.
    #[must_use]
    pub fn templates(mut self, directory: impl Into<PathBuf>) -> Self {
        self.templates = directory.into();
        self
    }

    /// Sets the template `name` for events of type `kind`. Events without a template are rejected.
    #[must_use]
    pub fn mail(mut self, kind: impl Into<String>, name: impl Into<String>) -> Self {
        self.mails.insert(kind.into(), name.into());
        self
    }

    /// Sets how TLS is started on `smtp://`.
    #[must_use]
    pub fn start_tls(mut self, start_tls: StartTls) -> Self {
        self.start_tls = Some(start_tls);
        self
    }

    /// Trusts the certificates in this PEM text in addition to the public ones.
    #[must_use]
    pub fn trust(mut self, certificates: impl Into<Vec<u8>>) -> Self {
        self.roots.push(certificates.into());
        self
    }

    /// Sets the timeout of the whole exchange, from the DNS lookup to the server's last reply.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Uses this resolver for names instead of the resolver of the process.
    #[must_use]
    pub fn resolver(mut self, resolver: Resolver) -> Self {
        self.resolver = resolver;
        self
    }

    /// Builds the sink.
    ///
    /// # Errors
    /// Fails if a setting or a template is not valid. The error names it.
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
    /// Omits the URL, which may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SmtpBuilder")
            .field("from", &self.from)
            .field("recipient", &self.recipient)
            .field("templates", &self.templates)
            .field("mails", &self.mails)
            .finish_non_exhaustive()
    }
}

/// Why a mail sink cannot be built. The error never contains the URL.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SmtpError {
    /// The URL is not a valid mail server URL.
    #[error("mail url is not smtp://[user:password@]host[:port] or smtps://...")]
    Url,
    /// The sender is not a valid mailbox.
    #[error("mail sender is not a mailbox")]
    From,
    /// The template of the recipient is malformed.
    #[error("template of the mail recipient is malformed")]
    Recipient {
        /// The error.
        source: minijinja::Error,
    },
    /// A template file cannot be read.
    #[error("mail template {} cannot be read", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// A template is malformed.
    #[error("mail template {} is malformed at line {line}", path.display())]
    Template {
        /// The file.
        path: PathBuf,
        /// The line, starting at 1.
        line: usize,
        /// The error.
        source: minijinja::Error,
    },
    /// A trusted certificate is not valid PEM.
    #[error("certificate to trust is not PEM")]
    Certificate,
}
