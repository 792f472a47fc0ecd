//! Mail sink: sends events as mail through any SMTP server.
//!
//! The event type selects a template, the template produces subject, text and HTML, and an
//! expression determines the recipient. The same event always has the same `Message-ID`. A server
//! that cannot be reached, refuses the login, does not accept mail from us or asks for a delay is
//! unavailable. A recipient or a content that it refuses permanently is rejected.
//!
//! A template `welcome` consists of three files: `welcome.subject.txt` and `welcome.text.txt`,
//! which are required, and `welcome.html`, in which values are escaped. The variables are `id`,
//! `type`, `time`, `tenant`, `aggregate`, `headers` and the payload as `data`. A missing variable
//! is an error.
//!
//! ```no_run
//! use hapax_sinks::{
//!     settings::{DestinationSettings, SettingError},
//!     smtp::{Smtp, SmtpSettings},
//! };
//!
//! # fn wire() -> Result<Smtp, SettingError> {
//! let settings = SmtpSettings {
//!     url: "smtps://shop:secret@mail.example.com".into(),
//!     from: "Shop <no-reply@example.com>".into(),
//!     recipient: "{{ data.email }}".into(),
//!     templates: "mail".into(),
//!     mails: [("user.signed_up".into(), "welcome".into())].into(),
//!     ..SmtpSettings::default()
//! };
//! Smtp::new(&settings, DestinationSettings::default())
//! # }
//! ```

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use futures_util::future::{BoxFuture, join_all};
use hapax::{
    Timestamp,
    event::Event,
    sink::{Offer, Outcome, Receipt, Sink, SinkError},
};
use lettre::{
    Message,
    message::{
        Mailbox, MultiPart, SinglePart,
        header::{HeaderName, HeaderValue},
    },
};

use crate::settings::{DestinationSettings, SettingError};
pub use crate::settings::{SmtpSettings, StartTls};

mod server;
mod template;
mod connection;
mod refusal;
mod content;

use connection::Connections;
use template::{Filled, Templates};

const EVENT_ID: HeaderName = HeaderName::new_from_ascii_str("X-Event-Id");
/// The latest date of a mail: the year has four digits.
const DATE_MAX: Duration = Duration::from_secs(253_402_300_799);

/// A mail sink.
pub struct Smtp {
    from: Mailbox,
    templates: Templates,
    connections: Connections,
    timeout: Duration,
}

impl Smtp {
    /// Creates a sink. The templates are read and checked; whether the server can be reached is
    /// not: mail waits for it.
    ///
    /// # Errors
    /// Fails if a setting or a template is not valid.
    pub fn new(
        settings: &SmtpSettings,
        destination: DestinationSettings,
    ) -> Result<Self, SettingError> {
        let templates = Templates::load(settings)?;
        let from: Mailbox = settings
            .from
            .parse()
            .map_err(|_| SettingError::new("from", "is not a mailbox such as `Name <address>`"))?;
        let timeout = destination.timeout;
        let connections = Connections::new(settings, from.email.domain(), destination)?;
        Ok(Self {
            from,
            templates,
            connections,
            timeout,
        })
    }

    async fn offer(&self, event: &Event) -> Outcome {
        let filled = self.templates.fill(event)?;
        let to = filled.to.email.clone();
        let mail = String::from_utf8(self.write(event, filled)?.formatted())
            .map_err(|error| SinkError::rejected("content", error))?;
        let sent = self.connections.send(&self.from.email, &to, &mail);
        match tokio::time::timeout(self.timeout, sent).await {
            Ok(outcome) => outcome,
            Err(elapsed) => Err(SinkError::unavailable("timeout", elapsed)),
        }
    }

    /// Builds the mail. Header values are encoded, so that no payload can add a header.
    fn write(&self, event: &Event, filled: Filled) -> Result<Message, SinkError> {
        let id = event.id.to_string();
        let domain = self.from.email.domain();
        let builder = Message::builder()
            .from(self.from.clone())
            .to(filled.to)
            .subject(filled.subject)
            .date(date(event.created_at))
            .message_id(Some(format!("<{id}@{domain}>")))
            .raw_header(HeaderValue::new(EVENT_ID, id));
        let text = SinglePart::plain(filled.text);
        let message = match filled.html {
            None => builder.singlepart(text),
            Some(html) => {
                let both = MultiPart::alternative().singlepart(text);
                builder.multipart(both.singlepart(SinglePart::html(html)))
            }
        };
        message.map_err(|error| SinkError::rejected("content", error))
    }
}

impl Sink for Smtp {
    fn kind(&self) -> &'static str {
        "smtp"
    }

    fn deliver<'a>(&'a self, offers: &'a [Offer]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(join_all(
            offers.iter().map(|offer| self.offer(offer.event())),
        ))
    }
}

impl fmt::Debug for Smtp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Smtp")
            .field("from", &self.from)
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

/// The time of the event, so that a mail that is sent again is the same mail.
fn date(moment: Timestamp) -> SystemTime {
    let since_epoch = Duration::from_millis(u64::try_from(moment.as_millis()).unwrap_or(0));
    SystemTime::UNIX_EPOCH + since_epoch.min(DATE_MAX)
}

/// A receipt with the server's reply about a mail, or about an earlier step.
fn receipt(status: Option<u16>, text: String) -> Receipt {
    Receipt {
        status,
        head: text.into(),
    }
}
