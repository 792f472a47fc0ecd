//! The mail sink with a real server, which records mails or fails.

use std::{fs, path::Path, time::Duration};

use futures_util::future::join_all;
use hapax::{
    event::NewEvent,
    sink::{Offer, Sink as _, SinkError},
};
use hapax_sinks::smtp::{Smtp, SmtpSettings};
use hapax_testkit::{
    assert_matches,
    smtp::{SmtpFault, SmtpReceiver, Stage},
};
use serde_json::json;
use tempfile::TempDir;

use crate::{
    events::{deliver, error_type, offer},
    sinks,
};

const SHORT: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_mail_is_made_of_the_event_and_named_after_it() {
    let (server, sink, _directory) = start().await;
    let offer = signup(1, "Zoë <b>&\"", "zoe@example.com");
    let id = offer.event().id.to_string();
    assert_eq!(deliver(&sink, offer).await.unwrap().status, Some(250));

    let mails = server.mails();
    let mail = &mails[0];
    assert_eq!(
        (mail.from.as_str(), mail.to.as_slice()),
        ("shop@example.com", &["zoe@example.com".to_owned()][..])
    );
    assert_eq!(
        mail.header("message-id"),
        Some(format!("<{id}@example.com>"))
    );
    assert_eq!(mail.header("x-event-id"), Some(id));
    assert_eq!(
        mail.header("date").as_deref(),
        Some("Tue, 14 Nov 2023 22:13:20 +0000")
    );
    assert_eq!(
        mail.header("from").as_deref(),
        Some("Shop <shop@example.com>")
    );
    assert_eq!(mail.header("to").as_deref(), Some("zoe@example.com"));
    let text = decoded(&mail.text());
    assert!(
        text.contains("Hello Zoë <b>&\", user.signed_up of 2023-11-14T22:13:20.000Z"),
        "{text}"
    );
    assert!(
        text.contains("<p>Hello Zoë &lt;b&gt;&amp;&quot;</p>"),
        "{text}"
    );
}

#[tokio::test]
async fn no_payload_can_add_a_header_or_a_recipient() {
    let (server, sink, _directory) = start().await;
    let name = "x\r\nBcc: evil@example.com\r\n\r\nbody";
    deliver(&sink, signup(1, name, "a@example.com"))
        .await
        .unwrap();
    let mail = &server.mails()[0];
    assert_eq!(mail.to, ["a@example.com"]);
    assert_eq!(mail.header("bcc"), None);
    assert_eq!(
        mail.header("subject").as_deref(),
        Some("Welcome, x Bcc: evil@example.com body")
    );

    for address in [
        "a@example.com\r\nBcc: evil@example.com",
        "a@example.com, evil@example.com",
        "a@example.com>\r\nDATA",
        "<a@example.com> evil@example.com",
        "not an address",
        "",
        "@",
        "a@b@c",
        "a\u{0}@example.com",
        "\"a\r\nRCPT TO:<evil@example.com>\"@example.com",
    ] {
        let error = deliver(&sink, signup(2, "n", address)).await.unwrap_err();
        assert_matches!(
            error,
            SinkError::Rejected {
                error_type: "recipient",
                ..
            },
            "{address:?}"
        );
        assert!(!error.error_chain().contains("evil"), "{error:?}");
    }
    assert_eq!(server.mails().len(), 1);
}

#[tokio::test]
async fn an_event_that_fits_no_template_is_rejected() {
    let (_server, sink, _directory) = start().await;
    let rejected = async |event: NewEvent| {
        let error = deliver(&sink, offer(1, event)).await.unwrap_err();
        assert_matches!(error, SinkError::Rejected { .. });
        error.error_type()
    };
    let missing = json!({"email": "a@example.com"});
    assert_eq!(
        rejected(NewEvent::json("user.signed_up", &missing)).await,
        "template"
    );
    assert_eq!(
        rejected(NewEvent::json("order.created", &missing)).await,
        "template"
    );
    let long = json!({"email": "a@example.com", "name": "x".repeat(1000)});
    assert_eq!(
        rejected(NewEvent::json("user.signed_up", &long)).await,
        "content"
    );
}

#[tokio::test]
async fn a_lasting_refusal_of_the_mail_rejects_it_and_of_ourselves_does_not() {
    let lasting = [
        check(Stage::Recipient, 550, true, "status_5xx"),
        check(Stage::Data, 554, true, "status_5xx"),
        check(Stage::Dot, 552, true, "status_5xx"),
        check(Stage::Greeting, 554, false, "status_5xx"),
        check(Stage::Mail, 553, false, "status_5xx"),
        check(Stage::Mail, 530, false, "auth"),
        check(Stage::Recipient, 503, false, "status_5xx"),
    ];
    let passing = [
        Stage::Greeting,
        Stage::Mail,
        Stage::Recipient,
        Stage::Data,
        Stage::Dot,
    ];
    let passing = passing.map(|stage| check(stage, 451, false, "status_4xx"));
    join_all(lasting.into_iter().chain(passing)).await;
}

/// A mailbox that is busy, or that greylists the sender, says nothing about the server.
#[tokio::test]
async fn a_mailbox_that_takes_nothing_now_declines_its_own_mail() {
    let (server, sink, _directory) = start().await;
    server.fail(Some(SmtpFault::Refuse(Stage::Recipient, 450)));
    let outcome = deliver(&sink, signup(1, "n", "a@example.com")).await;
    assert!(matches!(outcome, Err(SinkError::Declined { .. })));
    server.fail(Some(SmtpFault::Refuse(Stage::Mail, 450)));
    let outcome = deliver(&sink, signup(2, "n", "a@example.com")).await;
    assert!(matches!(outcome, Err(SinkError::Unavailable { .. })));
}

/// A refusal at the recipient step may concern the sender. Then it applies to all mails.
#[tokio::test]
async fn a_passing_refusal_of_a_recipient_is_the_mailboxs_or_the_senders() {
    for (line, is_of_mailbox) in [
        ("450 4.2.1 mailbox busy", true),
        (
            "450 4.2.0 <b@example.com>: Recipient address rejected: Greylisted",
            true,
        ),
        ("450 4.7.1 Greylisting in action, come back later", true),
        (
            "451 4.7.1 Greylisted, please try again in 300 seconds",
            true,
        ),
        ("452 4.2.2 The mailbox is over its quota", true),
        ("450 4.1.1 try later", true),
        (
            "450 4.7.25 Client host rejected: cannot find your hostname",
            false,
        ),
        (
            "450 4.7.1 Client host rejected: cannot find your reverse hostname",
            false,
        ),
        ("450 Client host rejected: cannot find your hostname", false),
        (
            "450 4.1.8 <shop@example.com>: Sender address rejected: Domain not found",
            false,
        ),
        (
            "450 4.7.1 <shop>: Helo command rejected: Host not found",
            false,
        ),
        ("452 4.3.1 Insufficient system storage", false),
        ("451 4.3.0 try later", false),
        ("421 4.7.0 too many connections", false),
    ] {
        let (server, sink, _directory) = start().await;
        server.fail(Some(SmtpFault::Say(Stage::Recipient, line)));
        let outcome = deliver(&sink, signup(1, "n", "b@example.com")).await;
        match outcome.unwrap_err() {
            SinkError::Declined { .. } => assert!(is_of_mailbox, "{line}"),
            SinkError::Unavailable { .. } => assert!(!is_of_mailbox, "{line}"),
            other => panic!("{line}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_refusal_of_ourselves_is_tried_again_whichever_command_it_answers() {
    let ours = [
        (Stage::Recipient, "550 5.7.1 Relaying denied"),
        (
            Stage::Recipient,
            "554 5.7.1 <shop>: Client host rejected: Access denied",
        ),
        (
            Stage::Recipient,
            "553 5.7.1 <shop@example.com>: Sender address rejected",
        ),
        (
            Stage::Recipient,
            "550-5.7.26 Unauthenticated email is not accepted\r\n550 5.7.26 due to DMARC",
        ),
        (
            Stage::Recipient,
            "550 5.1.8 <shop@example.com>: Sender address rejected: Domain not found",
        ),
        (
            Stage::Recipient,
            "550 5.3.2 system not accepting network messages",
        ),
        (
            Stage::Recipient,
            "504 5.5.2 <shop>: Helo command rejected: need fully-qualified hostname",
        ),
        (Stage::Recipient, "530 5.7.0 Authentication required"),
        (Stage::Recipient, "530 Authentication required"),
        (Stage::Recipient, "550 relay not permitted"),
        (
            Stage::Recipient,
            "553 sorry, that domain isn't in my list of allowed rcpthosts (#5.7.1)",
        ),
        (
            Stage::Recipient,
            "554 Service unavailable; Client host blocked",
        ),
        (Stage::Data, "554 5.7.1 <shop>: Client host rejected"),
        (Stage::Dot, "550 5.7.26 this mail is unauthenticated"),
        (Stage::Dot, "550 5.7.8 authentication credentials invalid"),
        (Stage::Recipient, "450 4.1.1 try later"),
    ];
    let of_the_mail = [
        (Stage::Recipient, "550 5.1.1 <b@example.com>: User unknown"),
        (Stage::Recipient, "550 5.1.2 no such domain"),
        (Stage::Recipient, "550 5.2.1 mailbox disabled"),
        (Stage::Recipient, "552 5.2.2 mailbox full"),
        (
            Stage::Recipient,
            "550 5.4.1 Recipient address rejected: Access denied",
        ),
        (Stage::Recipient, "550 no such user (#5.1.1)"),
        (Stage::Recipient, "550 No such user here"),
        (Stage::Recipient, "551 User not local"),
        (Stage::Dot, "554 5.7.1 message content rejected"),
        (Stage::Dot, "552 5.3.4 message too big"),
        (Stage::Dot, "554 5.6.0 message is malformed"),
        // If the class of the enhanced code differs from that of the reply, the code is ignored.
        (Stage::Recipient, "550 4.7.1 no such user"),
    ];
    let ours = ours.map(|(stage, line)| refused(stage, line, false));
    let of_the_mail = of_the_mail.map(|(stage, line)| refused(stage, line, true));
    join_all(ours.into_iter().chain(of_the_mail)).await;
}

#[tokio::test]
async fn a_connection_that_breaks_at_any_stage_is_unavailable_and_the_next_mail_goes() {
    for stage in [
        Stage::Greeting,
        Stage::Mail,
        Stage::Recipient,
        Stage::Data,
        Stage::Dot,
    ] {
        let (server, sink, _directory) = start().await;
        server.fail_next(SmtpFault::Drop(stage));
        let outcome = deliver(&sink, signup(1, "n", "a@example.com")).await;
        assert_eq!(error_type(outcome), "connect", "{stage:?}");
        send(&sink, 2, "b@example.com").await;
        assert_eq!(server.mails().last().unwrap().to, ["b@example.com"]);
    }
}

#[tokio::test]
async fn a_server_that_falls_silent_times_out_and_its_connection_is_not_used_again() {
    for stage in [Stage::Greeting, Stage::Mail, Stage::Dot] {
        let server = SmtpReceiver::start().await;
        let directory = templates();
        let settings = from(directory.path(), &url(&server));
        let sink = Smtp::new(&settings, sinks::within(SHORT)).unwrap();
        send(&sink, 1, "a@example.com").await;
        server.fail_next(SmtpFault::Hang(stage));
        let reused = stage != Stage::Greeting;
        let outcome = deliver(&sink, signup(2, "n", "b@example.com")).await;
        assert_eq!(outcome.is_err(), reused, "{stage:?}");
        if reused {
            assert_eq!(error_type(outcome), "timeout", "{stage:?}");
            send(&sink, 3, "c@example.com").await;
            assert_eq!(server.mails().last().unwrap().to, ["c@example.com"]);
        }
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_unavailable() {
    let server = SmtpReceiver::start().await;
    let directory = templates();
    let settings = from(directory.path(), &url(&server));
    let sink = Smtp::new(&settings, sinks::destination()).unwrap();
    drop(server);
    let outcome = deliver(&sink, signup(1, "n", "a@example.com")).await;
    assert_eq!(error_type(outcome), "connect");
}

#[tokio::test]
async fn a_batch_is_answered_in_order() {
    let (server, sink, _directory) = start().await;
    let offers = ["a@example.com", "nobody", "c@example.com"];
    let offers: Vec<_> = (0..)
        .zip(offers)
        .map(|(n, to)| signup(n, "n", to))
        .collect();
    let delivered: Vec<_> = sink
        .deliver(&offers)
        .await
        .iter()
        .map(Result::is_ok)
        .collect();
    assert_eq!(delivered, [true, false, true]);
    assert_eq!(server.mails().len(), 2);
}

#[test]
fn a_template_that_cannot_work_is_found_at_start_by_file_and_line() {
    let directory = templates();
    let path = directory.path();
    let with = |file: &str, text: &str| {
        fs::write(path.join(file), text).unwrap();
        let problem = problem_with("templates", &from(path, "smtp://localhost"));
        fs::write(path.join(file), "fine").unwrap();
        problem
    };
    let problem = with("welcome.text.txt", "Hello\n\n{{ data.name }\n");
    assert!(
        problem.contains("welcome.text.txt is malformed at line 3: "),
        "{problem}"
    );
    let problem = with("welcome.html", "{% if %}");
    assert!(problem.contains("is malformed at line 1: "), "{problem}");

    let good = || from(path, "smtp://localhost");
    let mut missing = good();
    missing.mails.insert("a".to_owned(), "nothing".to_owned());
    let problem = problem_with("templates", &missing);
    assert!(
        problem.contains("nothing.subject.txt cannot be read: "),
        "{problem}"
    );
    let mut recipient = good();
    recipient.recipient = "{{".to_owned();
    problem_with("recipient", &recipient);
    problem_with("url", &from(path, "http://x"));
    let mut sender = good();
    sender.from = "nobody".to_owned();
    problem_with("from", &sender);
}

/// The problem with a setting.
#[track_caller]
fn problem_with(setting: &str, settings: &SmtpSettings) -> String {
    let error = Smtp::new(settings, sinks::destination()).unwrap_err();
    assert_eq!(error.setting, setting, "{error}");
    error.problem
}

async fn check(stage: Stage, status: u16, rejected: bool, error_type: &str) {
    let (server, sink, _directory) = start().await;
    server.fail_next(SmtpFault::Refuse(stage, status));
    let error = deliver(&sink, signup(1, "n", "a@example.com"))
        .await
        .unwrap_err();
    assert_eq!(error.error_type(), error_type, "{stage:?} {status}");
    assert_eq!(error.receipt().status, Some(status), "{stage:?}");
    assert_eq!(
        matches!(error, SinkError::Rejected { .. }),
        rejected,
        "{stage:?} {status}"
    );
    send(&sink, 2, "b@example.com").await;
}

async fn refused(stage: Stage, line: &'static str, is_final: bool) {
    let (server, sink, _directory) = start().await;
    server.fail_next(SmtpFault::Say(stage, line));
    let error = deliver(&sink, signup(1, "n", "a@example.com"))
        .await
        .unwrap_err();
    let rejected = matches!(error, SinkError::Rejected { .. });
    assert_eq!(rejected, is_final, "{stage:?} {line}: {error:?}");
    // The next mail is delivered in any case.
    send(&sink, 2, "b@example.com").await;
}

/// Sends a mail that must be accepted.
async fn send(sink: &Smtp, number: u64, email: &str) {
    deliver(sink, signup(number, "n", email)).await.unwrap();
}

fn signup(number: u64, name: &str, email: &str) -> Offer {
    let data = json!({"name": name, "email": email});
    offer(number, NewEvent::json("user.signed_up", &data))
}

async fn start() -> (SmtpReceiver, Smtp, TempDir) {
    let server = SmtpReceiver::start().await;
    let directory = templates();
    let settings = from(directory.path(), &url(&server));
    let sink = Smtp::new(&settings, sinks::destination()).unwrap();
    (server, sink, directory)
}

fn url(server: &SmtpReceiver) -> String {
    format!("smtp://{}", server.address())
}

pub(crate) fn from(templates: &Path, url: &str) -> SmtpSettings {
    SmtpSettings {
        url: url.into(),
        from: "Shop <shop@example.com>".to_owned(),
        recipient: "{{ data.email }}".to_owned(),
        templates: templates.to_owned(),
        mails: [("user.signed_up".to_owned(), "welcome".to_owned())].into(),
        ..SmtpSettings::default()
    }
}

pub(crate) fn templates() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (file, text) in [
        ("welcome.subject.txt", "Welcome, {{ data.name }}\n"),
        (
            "welcome.text.txt",
            "Hello {{ data.name }}, {{ type }} of {{ time }}\n",
        ),
        ("welcome.html", "<p>Hello {{ data.name }}</p>\n"),
    ] {
        fs::write(directory.path().join(file), text).unwrap();
    }
    directory
}

/// Decodes quoted-printable and base64 bodies well enough to search them for a sentence.
fn decoded(mail: &str) -> String {
    let joined = mail.replace("=\r\n", "");
    let mut bytes = Vec::new();
    let mut rest = joined.bytes();
    while let Some(byte) = rest.next() {
        match (byte, rest.clone().next(), rest.clone().nth(1)) {
            (b'=', Some(high), Some(low))
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                let digits = String::from_utf8(vec![high, low]).unwrap();
                bytes.push(u8::from_str_radix(&digits, 16).unwrap());
                rest.nth(1);
            }
            _ => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).unwrap()
}
