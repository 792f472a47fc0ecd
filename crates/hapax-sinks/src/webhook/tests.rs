//! Settings of webhooks: which of them are refused.

use hapax::Timestamp;

use super::*;
use crate::{secret::Secret, settings::JsonSetting};

#[test]
fn a_url_that_can_never_work_is_refused_by_name() {
    for url in [
        "",
        "example.com/x",
        "/x",
        "ftp://example.com/",
        "file:///etc/passwd",
        "http://user:pass@example.com/",
        "https://@example.com/",
    ] {
        assert_eq!(build(&at(url)).unwrap_err().setting, "url", "{url}");
    }
    check_url("http://user@example.com/", "contains a user or a password");
    for url in [
        "http://h:99999/",
        "http://h:/",
        "http://h:x/",
        "http://[::1/",
    ] {
        check_url(url, "is not an absolute url");
    }
    assert!(build(&at("https://example.com:8443/a?b=c")).is_ok());
}

#[test]
fn a_webhook_without_a_lasting_key_or_with_a_false_certificate_is_refused() {
    let refused = |change: fn(&mut WebhookSettings)| {
        let mut settings = at("https://example.com/");
        change(&mut settings);
        build(&settings).unwrap_err().setting
    };
    assert_eq!(refused(|it| it.secret = Secret::default()), "secret");
    let previous = refused(|it| it.previous_secret = Some(it.secret.clone()));
    assert_eq!(previous, "previous_secret");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    for content in ["", "-----BEGIN CERTIFICATE-----\nAA\n", "\u{80}\u{81}"] {
        std::fs::write(&path, content).unwrap();
        let mut settings = at("https://example.com/");
        settings.ca = Some(path.clone());
        assert_eq!(build(&settings).unwrap_err().setting, "ca", "{content}");
    }
}

#[test]
fn a_file_of_certificates_has_a_bounded_size() {
    let mut settings = at("https://example.com/");
    settings.ca = Some("/dev/zero".into());
    let error = build(&settings).unwrap_err();
    assert_eq!(error.setting, "ca");
    assert!(
        error.problem.contains("larger than 1048576 bytes"),
        "{error}"
    );
}

#[test]
fn debug_shows_neither_path_nor_query_nor_key() {
    let settings = at("https://example.com/secret?token=secret");
    let webhook = build(&settings).unwrap();
    let text = format!("{webhook:?} {settings:?}");
    assert!(!text.contains("secret") && !text.contains("MfKQ"), "{text}");
}

#[test]
fn a_thin_webhook_needs_the_beginning_of_its_links() {
    let thin = |events_url: Option<&str>| WebhookSettings {
        payload: PayloadMode::Thin,
        events_url: events_url.map(str::to_owned),
        ..at("https://example.com/")
    };
    for bad in [
        None,
        Some(""),
        Some("/events"),
        Some("ftp://a.example/events"),
        Some("https://a:b@a.example/events"),
        Some("https://a.example/events?a=b"),
        Some("https://a.example/events#a"),
    ] {
        let error = build(&thin(bad)).unwrap_err();
        assert_eq!(error.setting, "events_url", "{bad:?}");
    }
    let webhook = build(&thin(Some("https://a.example/events/"))).unwrap();
    assert_eq!(webhook.links.as_deref(), Some("https://a.example/events"));
    let mut full = thin(Some("https://a.example/events"));
    full.payload = PayloadMode::Full;
    assert_eq!(build(&full).unwrap().links, None);
}

#[test]
fn a_mapping_is_compiled_and_has_a_payload() {
    let mapped = |mapping: &str, payload: PayloadMode| WebhookSettings {
        mapping: Some(JsonSetting::Text(mapping.to_owned())),
        payload,
        events_url: Some("https://a.example/events".to_owned()),
        ..at("https://example.com/")
    };
    build(&mapped("{\"a\": \"$.data\"}", PayloadMode::Full)).unwrap();
    for (mapping, payload, setting) in [
        ("{\"a\": \"$.data\"}", PayloadMode::Thin, "mapping"),
        ("{", PayloadMode::Full, "mapping"),
        ("{\"a\": \"$.database\"}", PayloadMode::Full, "mapping.a"),
    ] {
        let error = build(&mapped(mapping, payload)).unwrap_err();
        assert_eq!(error.setting, setting, "{error}");
    }
}

fn at(url: &str) -> WebhookSettings {
    WebhookSettings {
        url: url.to_owned(),
        secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".into(),
        ..WebhookSettings::default()
    }
}

fn build(settings: &WebhookSettings) -> Result<Webhook, SettingError> {
    let clock = Clock::new(|| Timestamp::from_millis(0));
    Webhook::new(settings, DestinationSettings::default(), clock)
}

#[track_caller]
fn check_url(url: &str, problem: &str) {
    let error = build(&at(url)).unwrap_err();
    assert_eq!(
        (&*error.setting, &*error.problem),
        ("url", problem),
        "{url}"
    );
}
