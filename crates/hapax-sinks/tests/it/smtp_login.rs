//! The mail sink with TLS and a login.

use hapax::{
    event::NewEvent,
    sink::{Outcome, SinkError},
};
use hapax_sinks::smtp::{Smtp, SmtpSettings, StartTls};
use hapax_testkit::smtp::{Offers, SmtpReceiver};
use serde_json::json;

use crate::{
    events::{deliver, error_type, offer},
    sinks,
    smtp::{from, templates},
    tls::{CA, acceptor},
};

#[tokio::test]
async fn a_mail_goes_over_starttls_with_a_login() {
    let (outcome, log) = send(Offers::StartTls, "smtp", "shop:p%40ss@", None).await;
    assert_eq!(outcome.unwrap().status, Some(250));
    let plain: Vec<_> = log.iter().filter(|(encrypted, _)| !encrypted).collect();
    assert_eq!(
        plain.len(),
        2,
        "only EHLO and STARTTLS may be unencrypted: {plain:?}"
    );
}

#[tokio::test]
async fn a_mail_goes_over_tls_from_the_first_byte() {
    let (outcome, log) = send(Offers::Wrapped, "smtps", "shop:p%40ss@", None).await;
    assert!(outcome.is_ok(), "{outcome:?}");
    assert!(log.iter().all(|(encrypted, _)| *encrypted));
}

#[tokio::test]
async fn a_password_is_never_sent_in_the_clear_unless_that_was_asked_for() {
    let said = |log: &Log, verb| log.iter().any(|(_, line)| line.starts_with(verb));
    for start_tls in [None, Some(StartTls::Opportunistic)] {
        let (outcome, log) = send(Offers::Nothing, "smtp", "shop:p%40ss@", start_tls).await;
        assert_eq!(error_type(outcome), "tls");
        assert!(!said(&log, "AUTH") && !said(&log, "MAIL"));
    }

    let (outcome, log) = send(
        Offers::Nothing,
        "smtp",
        "shop:p%40ss@",
        Some(StartTls::Never),
    )
    .await;
    assert!(outcome.is_ok() && said(&log, "AUTH"), "{outcome:?}");
}

#[tokio::test]
async fn starttls_is_used_where_it_is_offered_and_not_missed_where_nothing_is_secret() {
    let (outcome, log) = send(Offers::StartTls, "smtp", "", None).await;
    assert!(outcome.is_ok(), "{outcome:?}");
    assert!(log.contains(&(true, "DATA".to_owned())));
    let (outcome, _) = send(Offers::Nothing, "smtp", "", None).await;
    assert!(outcome.is_ok(), "{outcome:?}");
}

#[tokio::test]
async fn a_wrong_password_is_ours_to_mend_and_is_not_repeated() {
    let (outcome, _) = send(Offers::StartTls, "smtp", "shop:wrong@", None).await;
    let error = outcome.unwrap_err();
    assert_eq!(error.error_type(), "auth");
    assert!(matches!(error, SinkError::Unavailable { .. }));
    assert!(
        !error.error_chain().contains("p@ss"),
        "{}",
        error.error_chain()
    );
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_stops_the_mail() {
    let directory = templates();
    for (offers, scheme) in [(Offers::StartTls, "smtp"), (Offers::Wrapped, "smtps")] {
        let server = SmtpReceiver::start_secured(offers, acceptor(&[])).await;
        let port = server.address().port();
        let settings = from(directory.path(), &format!("{scheme}://localhost:{port}"));
        let sink = Smtp::new(&settings, sinks::destination()).unwrap();
        let outcome = deliver(&sink, mail()).await;
        error_type(outcome);
    }
}

/// The commands of a sender, each with whether it was encrypted.
type Log = Vec<(bool, String)>;

async fn send(
    offers: Offers,
    scheme: &str,
    login: &str,
    start_tls: Option<StartTls>,
) -> (Outcome, Log) {
    let server = SmtpReceiver::start_secured(offers, acceptor(&[])).await;
    let directory = templates();
    let url = format!("{scheme}://{login}localhost:{}", server.address().port());
    let settings = SmtpSettings {
        ca: Some(CA.into()),
        start_tls,
        ..from(directory.path(), &url)
    };
    let sink = Smtp::new(&settings, sinks::destination()).unwrap();
    let outcome = deliver(&sink, mail()).await;
    (outcome, server.commands())
}

fn mail() -> hapax::sink::Offer {
    let data = json!({"name": "n", "email": "a@example.com"});
    offer(1, NewEvent::json("user.signed_up", &data))
}
