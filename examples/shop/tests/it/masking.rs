//! Tests of masking: planted secrets must not appear in anything that the processes write.
//!
//! The shop and `hapax relay` log at the lowest level and export their spans. The tests cause
//! success, replay, mismatch, rejections, outages, panics, and database errors that contain values.
//! Then they search the output of both processes, the metrics, the responses to other clients, and
//! all spans for the secrets.

use std::{fmt::Write as _, fs};

use hapax_testkit::{
    http::{HttpClient, HttpReceiver, HttpReply},
    smtp::{SmtpFault, SmtpReceiver, Stage},
    wait::eventually,
};
use http::Method;

use crate::{
    collector::Collector,
    relay_process::{hapax, start_relay},
    shop::{Home, JSON, PATIENCE, Shop, Store, command, command_in, on_both_stores, refused},
};

/// The secrets, each with its description.
const PLANTED: [(&str, &str); 12] = [
    ("a card number", "4242424242424242"),
    ("an address", "planted.ann@example.com"),
    ("a password", "planted-pa55word"),
    ("a bearer token", "planted-bearer-7f3a"),
    ("a neighbour's token", "planted-neighbour-91c2"),
    ("an idempotency key", "planted-key-5d1e"),
    ("a webhook secret", "cGxhbnRlZC13ZWJob29rLXNlY3JldC0wMDE"),
    ("an inbox secret", "cGxhbnRlZC1pbmJveC1zZWNyZXQtMDAwMDI"),
    ("a mail login", "planted-mail-login"),
    ("a collector's token", "planted-otlp-token"),
    ("an admin token", "planted-admin-token-c0ffee"),
    ("a database password", "planted-db-password"),
];
const TOKEN: &str = PLANTED[3].1;
const NEIGHBOUR: &str = PLANTED[4].1;
const KEY: &str = PLANTED[5].1;
const OTLP: &str = "authorization=Bearer planted-otlp-token";

on_both_stores! {
    no_planted_secret_is_shown_by_the_shop,
}

async fn no_planted_secret_is_shown_by_the_shop(on: Store) {
    let collector = Collector::wanting("Bearer planted-otlp-token");
    let (far, mail) = (HttpReceiver::start().await, SmtpReceiver::start().await);
    // A receiver may include the received event in its error response.
    far.reply_with(|received| HttpReply::status(500).body(received.body.clone()));
    mail.fail(Some(SmtpFault::Quote(Stage::Recipient, 550)));
    let home = Home::with_providers(on).await;
    let mut command = command(
        &home,
        &flags(&[
            &far.url("/hooks?token=planted-bearer-7f3a"),
            &format!("smtp://{}", mail.address()),
            &collector.url,
        ]),
    );
    command.env(
        "HAPAX_FAILPOINT",
        "payments.charged:2:card 4242424242424242 of planted.ann@example.com",
    );
    let mut shop = Shop::spawn(command, home.clone());

    let mut outcome = use_it(&shop, &home).await;
    // The first attempts have failed, and their errors include responses of the receivers.
    eventually(PATIENCE, async || {
        let log = shop.log();
        log.contains("status_5xx") && log.contains("server replied with 550")
    })
    .await;
    if on == Store::Postgres {
        outcome.push_str(&violate_a_constraint(&shop, &home).await);
    }
    outcome.push_str(&shop.send(Method::GET, "/metrics", &[], "").await.text());
    eventually(PATIENCE, async || collector.spans().len() > 5).await;
    shop.signal("TERM");
    let (status, stdout) = shop.ended().await;
    assert!(status.success());
    let log = shop.log();
    check_that_it_spoke(&log);
    check("stdout", &stdout);
    check("stderr", &log);
    check("answers and metrics", &outcome);
    check("spans", &collector.text());
}

/// Causes success, replay, mismatch, rejections, an outage and a panic. Returns the responses that
/// other clients got.
async fn use_it(shop: &Shop, home: &Home) -> String {
    let signup = r#"{"email":"planted.ann@example.com","name":"Ann"}"#;
    let payment = r#"{"amount":500,"currency":"EUR","card":"tok_ok"}"#;
    let other = r#"{"amount":501,"currency":"EUR","card":"tok_ok"}"#;
    let card = r#"{"amount":500,"currency":"EUR","card":"4242424242424242"}"#;
    let member = r#"{"amount":500,"password":"planted-pa55word","card":"4242424242424242"}"#;
    let cut = r#"{"amount":500,"password":"planted-pa55word","card":"424242"#;
    for (path, key, body, status) in [
        ("/signups", None, signup, 201),
        ("/signups", None, signup, 201),
        ("/payments", Some(KEY), payment, 201),
        ("/payments", Some(KEY), payment, 201),
        ("/payments", Some(KEY), other, 409),
        ("/payments", Some("k-card"), card, 400),
        ("/payments", Some("k-member"), member, 400),
        ("/payments", Some("k-cut"), cut, 400),
        // The second charge panics with a card number in its message.
        ("/payments", Some("k-panic"), payment, 500),
    ] {
        let answer = shop.post_as(TOKEN, path, key, body).await;
        assert_eq!(answer.status, status, "{path} {key:?} {}", answer.text());
    }
    let long = format!("{KEY} {KEY}\u{1}");
    drop(
        shop.post_as("planted-pa55word", "/orders", Some(KEY), payment)
            .await,
    );
    drop(
        shop.post_as(
            TOKEN,
            "/orders",
            Some(&long.replace('\u{1}', "\"")),
            payment,
        )
        .await,
    );
    let providers = home.providers();
    providers.misbehave("charge", "error_before", 9).await;
    drop(
        shop.post_as(TOKEN, "/payments", Some("k-outage"), payment)
            .await,
    );
    let mut outcome = String::new();
    for (method, path) in [
        (Method::POST, "/payments"),
        (Method::POST, "/signups"),
        (Method::GET, "/orders"),
        (Method::GET, "/ledger"),
    ] {
        let bearer = format!("Bearer {NEIGHBOUR}");
        let headers = [JSON, ("authorization", &bearer), ("idempotency-key", "n")];
        let answer = shop.send(method, path, &headers, "{}").await;
        write!(outcome, "{:?} {}", answer.headers, answer.text()).unwrap();
    }
    outcome
}

/// If a database rejects a row, its error contains values of the row. They must not be visible.
async fn violate_a_constraint(shop: &Shop, home: &Home) -> String {
    let client = home.database().client().await;
    let refuse = "ALTER TABLE shop_user ADD CHECK (name <> '4242424242424242')";
    client.batch_execute(refuse).await.unwrap();
    let signup = r#"{"email":"b.planted.ann@example.com","name":"4242424242424242"}"#;
    let answer = shop.post_as(TOKEN, "/signups", None, signup).await;
    assert_eq!(answer.status, 500, "{}", answer.text());
    let log = shop.log();
    assert!(
        log.contains("a check is not satisfied (code 23514"),
        "{log}"
    );
    answer.text()
}

#[tokio::test]
async fn no_planted_secret_is_shown_by_the_relay() {
    let collector = Collector::wanting("Bearer planted-otlp-token");
    let far = HttpReceiver::start().await;
    far.reply_with(|received| HttpReply::status(500).body(received.body.clone()));
    let mail = SmtpReceiver::start().await;
    mail.fail(Some(SmtpFault::Quote(Stage::Recipient, 550)));
    let home = Home::fresh(Store::Postgres).await;
    let shop = Shop::start_in(home.clone(), &["--no-relay"]);
    let configuration = configuration(&far, &mail, &collector);
    let database = with_password(&home.database().url());
    let arguments = ["--log-level", "trace", "--admin-listen", "127.0.0.1:0"];
    let relay = start_relay(&database, &configuration, &arguments).await;
    let signup = r#"{"email":"planted.ann@example.com","name":"4242424242424242"}"#;
    shop.post("/signups", Some(KEY), signup).await;
    eventually(PATIENCE, async || {
        let said = relay.log();
        said.contains("status_5xx") && said.contains("server replied with 550")
    })
    .await;
    eventually(PATIENCE, async || !collector.spans().is_empty()).await;
    check("metrics", &relay.get("/metrics").await.text());
    let admin = format!("http://{}", relay.admin_address());
    for token in [PLANTED[10].1, PLANTED[2].1] {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str())];
        let asked = HttpClient::new()
            .send(
                Method::GET,
                &format!("{admin}/admin/v1/destinations"),
                &headers,
                "".into(),
            )
            .await
            .unwrap();
        check("what the admin API shows", &asked.text());
    }
    check("outputs", &relay.stop().await);
    check("spans", &collector.text());
    shop.stop().await;
}

#[tokio::test]
async fn no_planted_secret_is_shown_for_a_wrong_setting() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.toml");
    let toml = "[webhook]\nsecret = planted-pa55word\nurls = [\"x\"]\n";
    fs::write(&file, toml).unwrap();
    let file = file.to_str().unwrap();
    let login = "http://planted-mail-login:planted-pa55word@127.0.0.1:1";
    for flags in [
        ["--webhook-secret", "planted-pa55word"],
        ["--webhook", login],
        ["--smtp", login],
        ["--token", TOKEN],
        ["--inbox-secret", "psp=planted-pa55word"],
        ["--otlp-endpoint", login],
        ["--otlp-header", "planted-otlp-token"],
        ["--payment-provider", login],
        [
            "--database",
            "postgres://u:planted-db-password@127.0.0.1:1/none",
        ],
        [
            "--database",
            "mysql://u:planted-db-password@127.0.0.1:1/none",
        ],
        ["--config", file],
    ] {
        let (code, said) = refused(command_in(folder.path(), &flags));
        assert!(code.is_some_and(|code| code > 0), "{flags:?} {said}");
        check(flags[0], &said);
    }
    let relay = "[database]\nurl = planted-db-password\n";
    let wrong = [
        relay,
        "[telemetry]\notlp_endpoint = \"http://a:planted-pa55word@b:1\"\n",
        "[destinations.a]\nsink.webhook = { url = \"planted-pa55word\", secret = \"planted-pa55word\" }\n",
        "[destinations.a]\nsink.smtp = { url = \"x://planted-mail-login:planted-pa55word@b\" }\n",
        "[admin.tokens.a]\ntoken = \"planted-admin-token-c0ffee\"\nrole = \"king\"\n",
        "[database]\nurl = \"postgres://u:planted-db-password@127.0.0.1:1/none\"\n",
    ];
    for text in wrong {
        let path = folder.path().join("hapax.toml");
        fs::write(&path, text).unwrap();
        let mut command = hapax(&["relay", "--listen", "127.0.0.1:0", "--config"]);
        let output = command.arg(&path).output().unwrap();
        assert!(!output.status.success(), "{text}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.is_empty());
        check(text, &said.replace(path.to_str().unwrap(), ""));
    }
}

/// Checks that `text` contains none of the planted secrets.
#[track_caller]
fn check(place: &str, text: &str) {
    let text = text.to_ascii_lowercase();
    for (what, secret) in PLANTED {
        if let Some(at) = text.find(&secret.to_ascii_lowercase()) {
            let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
            let end = text[at..].find('\n').map_or(text.len(), |end| at + end);
            panic!("{place} contains {what}: {}", &text[line..end]);
        }
    }
}

/// Checks that the log contains what it may contain. Otherwise a missing secret would prove
/// nothing.
#[track_caller]
fn check_that_it_spoke(log: &str) {
    for word in [
        r#""to_state":"stopped""#,
        "a thread panicked",
        "the handler panicked",
        "idempotency.key_hash",
        r#""correlation_id":"#,
        r#""error_code":"status_5xx""#,
    ] {
        assert!(log.contains(word), "{word}: {log}");
    }
}

fn flags<'a>(to: &[&'a str; 3]) -> Vec<&'a str> {
    let [webhook, smtp, collector] = *to;
    vec![
        "--log",
        "json",
        "--log-level",
        "trace",
        "--webhook",
        webhook,
        "--webhook-secret",
        "whsec_cGxhbnRlZC13ZWJob29rLXNlY3JldC0wMDE=",
        "--webhook-schedule",
        "0s,50ms,1h",
        "--allow-net",
        "127.0.0.0/8",
        "--smtp",
        smtp,
        "--inbox-secret",
        "psp=whsec_cGxhbnRlZC1pbmJveC1zZWNyZXQtMDAwMDI=",
        "--token",
        "planted-bearer-7f3a=alice",
        "--token",
        "planted-neighbour-91c2=bob",
        "--otlp-endpoint",
        collector,
        "--otlp-header",
        OTLP,
    ]
}

fn configuration(far: &HttpReceiver, mail: &SmtpReceiver, collector: &Collector) -> String {
    let templates = concat!(env!("CARGO_MANIFEST_DIR"), "/templates");
    format!(
        "[telemetry]\notlp_endpoint = \"{}\"\n\
         otlp_headers = {{ authorization = \"Bearer planted-otlp-token\" }}\n\
         [admin.tokens.alice]\ntoken = \"planted-admin-token-c0ffee\"\nrole = \"operator\"\n\
         [destinations.far]\nschedule = [\"0s\", \"50ms\", \"1h\"]\n\
         sink.webhook = {{ url = \"{}\", secret = \"whsec_cGxhbnRlZC13ZWJob29rLXNlY3JldC0wMDE=\", allow = [\"127.0.0.0/8\"] }}\n\
         [destinations.mail]\nevents = [\"user.signed_up\"]\nschedule = [\"0s\", \"50ms\", \"1h\"]\n\
         sink.smtp = {{ url = \"smtp://{}\", from = \"Shop <shop@example.com>\", recipient = \"{{{{ data.email }}}}\", templates = \"{templates}\", mails = {{ \"user.signed_up\" = \"welcome\" }} }}\n",
        collector.url,
        far.url("/hooks?token=planted-bearer-7f3a"),
        mail.address(),
    )
}

/// The database URL with a password. The server does not ask for one, so the password must not
/// leave the process.
fn with_password(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap();
    let (user, place) = rest.split_once('@').unwrap_or(("postgres", rest));
    let user = user.split(':').next().unwrap();
    format!("{scheme}://{user}:planted-db-password@{place}")
}
