//! The mail sink in the conformance suite, with a server that records mails.

use std::{
    fs,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use hapax::sink::Sink;
use hapax_sinks::smtp::{Smtp, SmtpSettings};
use hapax_testkit::{
    sink::{Arrival, Mood, SinkUnderTest},
    sink_suite,
    smtp::{SmtpFault, SmtpReceiver, Stage},
};
use tempfile::TempDir;

use crate::sinks;

const TIMEOUT: Duration = Duration::from_secs(4);

struct Mailbox {
    sink: Arc<Smtp>,
    address: SocketAddr,
    server: Mutex<Option<SmtpReceiver>>,
    _templates: TempDir,
}

sink_suite!(Mailbox);

impl SinkUnderTest for Mailbox {
    async fn fresh() -> Self {
        let server = SmtpReceiver::start().await;
        let templates = tempfile::tempdir().unwrap();
        for part in ["subject", "text"] {
            fs::write(templates.path().join(format!("any.{part}.txt")), "{{ id }}").unwrap();
        }
        let settings = SmtpSettings {
            url: format!("smtp://{}", server.address()).into(),
            from: "shop@example.com".to_owned(),
            recipient: "someone@example.com".to_owned(),
            templates: templates.path().to_owned(),
            mails: [("order.created".to_owned(), "any".to_owned())].into(),
            ..SmtpSettings::default()
        };
        let sink = Smtp::new(&settings, sinks::within(TIMEOUT)).unwrap();
        Self {
            sink: Arc::new(sink),
            address: server.address(),
            server: Mutex::new(Some(server)),
            _templates: templates,
        }
    }

    fn sink(&self) -> Arc<dyn Sink> {
        self.sink.clone()
    }

    fn timeout(&self) -> Option<Duration> {
        Some(TIMEOUT)
    }

    async fn tell(&self, mood: Mood) -> bool {
        let server = self.server.lock().unwrap().take();
        let fault = match mood {
            Mood::Down => return true,
            Mood::Accept => None,
            Mood::Fail => Some(SmtpFault::Refuse(Stage::Recipient, 451)),
            Mood::Refuse => Some(SmtpFault::Refuse(Stage::Recipient, 550)),
            Mood::Hang => Some(SmtpFault::Hang(Stage::Mail)),
            Mood::Gone | Mood::Talk => {
                *self.server.lock().unwrap() = server;
                return false;
            }
        };
        let server = match server {
            Some(server) => server,
            None => SmtpReceiver::start_at(self.address).await.unwrap(),
        };
        server.fail(fault);
        *self.server.lock().unwrap() = Some(server);
        true
    }

    async fn arrivals(&self) -> Vec<Arrival> {
        let server = self.server.lock().unwrap();
        let mails = server.iter().flat_map(SmtpReceiver::mails);
        mails
            .map(|mail| Arrival {
                id: mail.header("x-event-id").unwrap(),
                payload: None,
            })
            .collect()
    }
}
