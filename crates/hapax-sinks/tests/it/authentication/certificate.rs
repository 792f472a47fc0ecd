//! Client certificates, with an endpoint that asks for one.

use std::{fs, path::Path, sync::Arc, time::Duration};

use hapax::{Clock, Timestamp};
use hapax_sinks::{
    secret::Secret,
    settings::{DestinationSettings, SettingError},
    webhook::{ClientCertificateSettings, Webhook, WebhookSettings},
};
use hapax_testkit::{
    certify::certify,
    clock::{ManualClock, system_clock},
};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject as _},
    server::WebPkiClientVerifier,
    time_provider::TimeProvider,
};
use tempfile::TempDir;
use tokio_rustls::TlsAcceptor;

use crate::{
    events::{any_offer, deliver, error_type},
    sinks,
    tls::serve_with,
};

/// Longer than the certificates of a test are valid.
const MONTHS: Duration = Duration::from_hours(24 * 100);

#[tokio::test]
async fn a_certificate_from_a_text_or_a_file_is_presented_to_an_endpoint_that_asks_for_it() {
    let (server, client) = (certified("localhost"), certified("client.example.com"));
    let (port, seen) = serve_with(acceptor(&server, &client, Duration::ZERO)).await;
    for settings in [inline(&client), in_files(&client)] {
        let webhook = webhook(system_clock(), port, &server, Some(settings));
        deliver(&webhook, any_offer()).await.unwrap();
    }
    assert_eq!(seen.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn without_a_certificate_that_the_endpoint_knows_nothing_is_delivered() {
    let (server, client) = (certified("localhost"), certified("client.example.com"));
    let stranger = certified("client.example.com");
    let (port, seen) = serve_with(acceptor(&server, &client, Duration::ZERO)).await;
    for settings in [None, Some(inline(&stranger))] {
        let webhook = webhook(system_clock(), port, &server, settings);
        let outcome = deliver(&webhook, any_offer()).await;
        let said = outcome.as_ref().unwrap_err().error_chain();
        assert!(!said.contains("expired"), "{said}");
        assert!(["tls", "exchange"].contains(&error_type(outcome)));
    }
    assert!(seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_failure_says_that_the_certificate_has_expired() {
    let (server, client) = (certified("localhost"), certified("client.example.com"));
    let (port, seen) = serve_with(acceptor(&server, &client, MONTHS)).await;
    let clock = ManualClock::new();
    clock.set(system_clock().now().after(MONTHS));
    let expired = webhook(clock.clock(), port, &server, Some(inline(&client)));
    let error = deliver(&expired, any_offer()).await.unwrap_err();
    let said = error.error_chain();
    assert!(said.contains("client certificate expired at 20"), "{said}");
    assert!(
        ["tls", "exchange"].contains(&error.error_type()),
        "{error:?}"
    );
    assert!(seen.lock().unwrap().is_empty());

    clock.set(Timestamp::from_millis(0));
    let error = deliver(&expired, any_offer()).await.unwrap_err();
    let said = error.error_chain();
    assert!(said.contains("is not valid before 20"), "{said}");
}

#[test]
fn a_certificate_that_can_never_work_is_refused_by_its_setting() {
    let (client, other) = (certified("client.example.com"), certified("other"));
    let key = text(&client, "server.key");
    let begin = "-----BEGIN CERTIFICATE-----\n";
    let end = "-----END CERTIFICATE-----\n";
    for certificate in [
        key.clone(),
        "hunter2".to_owned(),
        format!("{begin}!!!!\n{end}"),
        format!("{begin}aHVudGVyMg==\n{end}"),
    ] {
        let settings = ClientCertificateSettings {
            certificate: certificate.into(),
            ..inline(&client)
        };
        let error = refused("https://example.com/", settings, &key);
        assert_eq!(error.setting, "client_certificate.certificate");
    }
    let encrypted = key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    for (wrong, problem) in [
        (text(&other, "server.key"), "does not belong"),
        (text(&client, "server.pem"), "is not a private key"),
        ("hunter2".to_owned(), "is not a private key"),
        (encrypted, "without a passphrase"),
    ] {
        let settings = ClientCertificateSettings {
            key: wrong.clone().into(),
            ..inline(&client)
        };
        let error = refused("https://example.com/", settings, &wrong);
        assert_eq!(error.setting, "client_certificate.key");
        assert!(error.problem.contains(problem), "{error}");
    }
    let error = refused("http://example.com/", inline(&client), &key);
    assert_eq!(error.setting, "client_certificate");
}

#[test]
fn neither_the_settings_nor_the_sink_print_the_key() {
    let client = certified("client.example.com");
    let settings = inline(&client);
    let printed = format!("{settings:?} {}", serde_json::to_string(&settings).unwrap());
    let webhook = webhook(system_clock(), 1, &client, Some(settings));
    let printed = format!("{printed} {webhook:?}");
    assert!(printed.contains("***") && !printed.contains("PRIVATE"));
}

/// An authority, and a certificate that it has signed for this name.
fn certified(name: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    certify(folder.path(), name).unwrap();
    folder
}

fn text(folder: &TempDir, file: &str) -> String {
    fs::read_to_string(folder.path().join(file)).unwrap()
}

fn inline(folder: &TempDir) -> ClientCertificateSettings {
    ClientCertificateSettings {
        certificate: text(folder, "server.pem").into(),
        key: text(folder, "server.key").into(),
    }
}

fn in_files(folder: &TempDir) -> ClientCertificateSettings {
    ClientCertificateSettings {
        certificate: Secret::File(folder.path().join("server.pem")),
        key: Secret::File(folder.path().join("server.key")),
    }
}

/// A webhook to an endpoint at a port of this machine whose authority it trusts.
fn webhook(
    clock: Clock,
    port: u16,
    server: &TempDir,
    certificate: Option<ClientCertificateSettings>,
) -> Webhook {
    let url = format!("https://localhost:{port}/");
    sinks::webhook_at(clock, &url, sinks::destination(), |it| {
        it.ca = Some(server.path().join("ca.pem"));
        it.client_certificate = certificate;
    })
}

/// The error about settings with a secret, which it must not contain.
#[track_caller]
fn refused(url: &str, certificate: ClientCertificateSettings, secret: &str) -> SettingError {
    let settings = WebhookSettings {
        url: url.to_owned(),
        secret: sinks::SECRET.into(),
        client_certificate: Some(certificate),
        ..WebhookSettings::default()
    };
    let built = Webhook::new(&settings, DestinationSettings::default(), system_clock());
    let error = built.unwrap_err();
    assert!(!format!("{error} {error:?}").contains(secret));
    error
}

/// An endpoint with a certificate that accepts clients of an authority, and whose clock is ahead.
fn acceptor(server: &TempDir, clients: &TempDir, ahead: Duration) -> TlsAcceptor {
    let provider = Arc::new(ring::default_provider());
    let certificate = |path: &Path| CertificateDer::from_pem_file(path).unwrap();
    let mut roots = RootCertStore::empty();
    roots
        .add(certificate(&clients.path().join("ca.pem")))
        .unwrap();
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let config = ServerConfig::builder_with_details(provider, Arc::new(Ahead(ahead)))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(
            vec![certificate(&server.path().join("server.pem"))],
            PrivateKeyDer::from_pem_file(server.path().join("server.key")).unwrap(),
        )
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

/// The time of the machine, and how far ahead of it.
#[derive(Debug)]
struct Ahead(Duration);

impl TimeProvider for Ahead {
    fn current_time(&self) -> Option<UnixTime> {
        let now = Duration::from_secs(UnixTime::now().as_secs());
        Some(UnixTime::since_unix_epoch(now + self.0))
    }
}
