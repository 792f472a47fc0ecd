//! Pool of connections to a mail server.
//!
//! A connection is taken out of the pool while a mail is sent, and returned only after the server's
//! last reply about it. If an exchange is interrupted, its connection is closed, so that a reply is
//! never assigned to another mail. Each step of the exchange determines the meaning of a refusal.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use hapax::sink::{Outcome, SinkError};
use lettre::{
    Address,
    transport::smtp::{
        Error,
        authentication::DEFAULT_MECHANISMS,
        client::{AsyncSmtpConnection, Certificate, TlsParameters},
        commands::{Data, Mail, Rcpt},
        extension::{ClientId, Extension, MailParameter},
    },
};
use secrecy::ExposeSecret as _;
use tokio::time::Instant;

use super::{
    SmtpSettings, StartTls,
    content::Content,
    receipt,
    refusal::{Step, is_about_the_mail, is_of_the_mailbox},
    server::Server,
};
use crate::{
    limits::{IDLE_MAIL, IDLE_MAIL_TRUSTED, IDLE_MAILS_MAX},
    resolve::Resolver,
    settings::{DestinationSettings, SettingError, reveal},
    tls,
};

/// The settings of a mail server and the idle connections.
pub(super) struct Connections {
    server: Server,
    start_tls: StartTls,
    tls: TlsParameters,
    hello: ClientId,
    timeout: Duration,
    resolver: Resolver,
    idle: Mutex<Vec<(AsyncSmtpConnection, Instant)>>,
}

impl Connections {
    /// Connections that introduce themselves with the domain `hello`.
    pub(super) fn new(
        settings: &SmtpSettings,
        hello: &str,
        destination: DestinationSettings,
    ) -> Result<Self, SettingError> {
        let url = reveal("url", &settings.url)?;
        let server = Server::parse(url.expose_secret()).ok_or_else(|| {
            let expected = "is not smtp://[user:password@]host[:port] or smtps://...";
            SettingError::new("url", expected)
        })?;
        let mut tls = TlsParameters::builder(server.host.clone());
        let (_, ca) = tls::read(settings.ca.as_deref())?;
        if !ca.is_empty() {
            let certificate = Certificate::from_pem(&ca).map_err(|_| tls::not_valid())?;
            tls = tls.add_root_certificate(certificate);
        }
        Ok(Self {
            start_tls: settings.start_tls.unwrap_or(server.start_tls()),
            tls: tls.build_rustls().map_err(|_| tls::not_valid())?,
            hello: ClientId::Domain(hello.to_owned()),
            timeout: destination.timeout,
            resolver: destination.resolver,
            idle: Mutex::default(),
            server,
        })
    }

    /// Sends one mail. The caller sets a timeout.
    pub(super) async fn send(&self, from: &Address, to: &Address, mail: &str) -> Outcome {
        let mut connection = match self.take().await {
            Some(connection) => connection,
            None => self.open().await?,
        };
        let mut parameters = Vec::new();
        if !AsRef::<str>::as_ref(to).is_ascii() {
            let extension = Extension::SmtpUtfEight;
            if !connection.server_info().supports_feature(extension) {
                return Err(SinkError::rejected(
                    "recipient",
                    "server does not support international addresses",
                ));
            }
            parameters.push(MailParameter::SmtpUtfEight);
        }
        let sender = Mail::new(Some(from.clone()), parameters);
        let recipient = Rcpt::new(to.clone(), Vec::new());
        connection.command(sender).await.map_err(at(Step::Ours))?;
        connection
            .command(recipient)
            .await
            .map_err(at(Step::Recipient))?;
        connection.command(Data).await.map_err(at(Step::Data))?;
        let said = connection.command(Content(mail)).await;
        let said = said.map_err(at(Step::Content))?;
        self.put_back(connection);
        let words: Vec<_> = said.message().collect();
        Ok(receipt(Some(said.code().into()), words.join(" ")))
    }

    /// An idle connection that is still alive.
    async fn take(&self) -> Option<AsyncSmtpConnection> {
        loop {
            let (mut connection, since) = self.idle().pop()?;
            let age = since.elapsed();
            if age < IDLE_MAIL_TRUSTED || (age < IDLE_MAIL && connection.test_connected().await) {
                return Some(connection);
            }
        }
    }

    fn put_back(&self, connection: AsyncSmtpConnection) {
        let mut idle = self.idle();
        idle.retain(|(_, since)| since.elapsed() < IDLE_MAIL);
        if idle.len() < IDLE_MAILS_MAX {
            idle.push((connection, Instant::now()));
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<(AsyncSmtpConnection, Instant)>> {
        // The list of connections is consistent after a panic.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn open(&self) -> Result<AsyncSmtpConnection, SinkError> {
        let found = self.resolver.look_up(&self.server.host).await;
        let found = found.map_err(|error| SinkError::unavailable("resolve", error))?;
        let place = |address: &IpAddr| SocketAddr::new(*address, self.server.port);
        let places: Vec<_> = found.iter().map(place).collect();
        let wrapper = self.server.wrapped.then(|| self.tls.clone());
        let opened = AsyncSmtpConnection::connect_tokio1(
            places.as_slice(),
            Some(self.timeout),
            &self.hello,
            wrapper,
            None,
        );
        let mut connection = opened.await.map_err(at(Step::Ours))?;
        if !self.server.wrapped {
            self.secure(&mut connection).await?;
        }
        if let Some(credentials) = &self.server.credentials {
            let login = connection.auth(DEFAULT_MECHANISMS, credentials).await;
            // The reply is not repeated, because some servers quote the login.
            login.map_err(|_| SinkError::unavailable("auth", "server refused the login"))?;
        }
        Ok(connection)
    }

    async fn secure(&self, connection: &mut AsyncSmtpConnection) -> Result<(), SinkError> {
        let offered = connection.can_starttls();
        match self.start_tls {
            StartTls::Never => return Ok(()),
            StartTls::Opportunistic | StartTls::Required if offered => {}
            StartTls::Opportunistic if self.server.credentials.is_none() => return Ok(()),
            StartTls::Opportunistic | StartTls::Required => {
                return Err(SinkError::unavailable(
                    "tls",
                    "server does not offer STARTTLS",
                ));
            }
        }
        let secured = connection.starttls(self.tls.clone(), &self.hello).await;
        secured.map_err(at(Step::Ours))
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.server.fmt(f)
    }
}

fn at(step: Step) -> impl Fn(Error) -> SinkError {
    move |error| error_of(step, error)
}

fn error_of(step: Step, error: Error) -> SinkError {
    let Some(status) = error.status().map(u16::from) else {
        let error_type = match () {
            () if error.is_timeout() => "timeout",
            () if error.is_tls() => "tls",
            () => "connect",
        };
        return SinkError::unavailable(error_type, error);
    };
    let said = std::error::Error::source(&error).map_or_else(String::new, ToString::to_string);
    let is_about_the_mail = is_about_the_mail(step, status, &said);
    let is_of_the_mailbox = step == Step::Recipient && is_of_the_mailbox(status, &said);
    let receipt = receipt(Some(status), said);
    // The text of the reply is only in the receipt: many servers quote the recipient, and this
    // error is logged.
    let source = Replied(status).into();
    if is_about_the_mail {
        return SinkError::Rejected {
            error_type: "status_5xx",
            receipt,
            source,
        };
    }
    let error_type = match status {
        400..=499 => "status_4xx",
        530 | 534 | 535 | 538 => "auth",
        _ => "status_5xx",
    };
    if is_of_the_mailbox {
        return SinkError::Declined {
            retry_after: None,
            error_type,
            receipt,
            source,
        };
    }
    SinkError::Unavailable {
        retry_after: None,
        error_type,
        receipt,
        source,
    }
}

/// The code of a reply that was not a success.
#[derive(Debug, thiserror::Error)]
#[error("server replied with {0}")]
struct Replied(u16);
