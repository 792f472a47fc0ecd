//! Tests of the start: errors are reported in one line.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
};

use hapax_testkit::{postgres::Cluster, wait::eventually};

use crate::{
    shop::{Home, ORDER, PATIENCE, Shop, Store, command, command_in, refused},
    uploads,
};

#[tokio::test]
async fn a_second_shop_on_the_same_file_is_refused() {
    let shop = Shop::start(Store::Sqlite, &[]).await;
    let (code, said) = refused(command(&shop.home(), &[]));
    assert_eq!(code, Some(1));
    assert!(said.contains("in use"), "{said}");
    check_one_line(&said);
    assert_eq!(shop.post("/orders", Some("k"), ORDER).await.status, 201);
}

/// These files contain stored responses and payloads without encryption.
#[tokio::test]
async fn what_a_shop_writes_is_for_its_owner_alone() {
    let home = Home::fresh(Store::Sqlite).await;
    let folder = home.path().join("a").join("data");
    let mut command = Command::new("sh");
    command
        .args([
            "-c",
            "umask 022; exec \"$@\"",
            "sh",
            env!("CARGO_BIN_EXE_shop"),
        ])
        .args(["--listen", "127.0.0.1:0", "--data-dir"])
        .arg(&folder)
        .env_clear()
        .stdin(Stdio::null());
    let shop = Shop::spawn(command, home.clone());
    assert_eq!(shop.post("/orders", Some("k"), ORDER).await.status, 201);
    let signup = r#"{"email":"ann@example.com","name":"Ann"}"#;
    assert_eq!(shop.post("/signups", None, signup).await.status, 201);
    let file = uploads::taken_png(&shop).await;
    assert_eq!(file.status, 201, "{}", file.text());
    let mails = folder.join("mail");
    let is_mail = |path: &Path| path.extension().is_some_and(|it| it == "eml");
    eventually(PATIENCE, async || {
        let mut mails = fs::read_dir(&mails).into_iter().flatten().flatten();
        mails.any(|it| is_mail(&it.path()))
    })
    .await;
    let mut seen = Vec::new();
    check_private(&home.path().join("a"), &mut seen);
    for name in [
        "shop.db",
        "shop.db-wal",
        "shop.db-shm",
        "shop.db.lock",
        "webhook.secret",
    ] {
        assert!(
            seen.iter().any(|it| it == name),
            "{name} is not among {seen:?}"
        );
    }
    assert!(seen.iter().any(|it| is_mail(Path::new(it))), "{seen:?}");
    shop.stop().await;
}

/// Checks the permissions of a folder and of everything in it.
fn check_private(path: &Path, seen: &mut Vec<String>) {
    let about = fs::metadata(path).unwrap();
    let expected = if about.is_dir() { 0o700 } else { 0o600 };
    let mode = about.permissions().mode() & 0o777;
    assert_eq!(mode, expected, "{}: {mode:o}", path.display());
    seen.push(path.file_name().unwrap().to_str().unwrap().to_owned());
    if about.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            check_private(&entry.unwrap().path(), seen);
        }
    }
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_shop"));
    command
        .args(["--listen", &address, "--data-dir"])
        .arg(folder.path());
    let (code, said) = refused(command);
    assert_eq!(code, Some(1));
    assert!(
        said.contains(&format!("cannot listen on {address}")),
        "{said}"
    );
    check_one_line(&said);
}

#[test]
fn a_data_directory_that_is_none_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let (code, said) = refused(command_in(&file, &[]));
    assert_eq!(code, Some(1));
    assert!(said.contains("file cannot be created"), "{said}");
    check_one_line(&said);
}

#[test]
fn a_file_that_is_no_database_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shop.db");
    fs::write(&file, "not a database ".repeat(100)).unwrap();
    let (code, said) = refused(command_in(folder.path(), &[]));
    assert_eq!(code, Some(1));
    assert!(said.contains("shop.db"), "{said}");
    check_one_line(&said);
    assert!(
        fs::read_to_string(&file)
            .unwrap()
            .starts_with("not a database")
    );
}

#[test]
fn settings_that_cannot_be_are_usage_errors_that_say_which() {
    check(&["--no-demo"], "no tokens are configured");
    check(&["--database", "mysql://db"], "--database must be a URL");
    check(&["--database-connections", "1"], "--database-connections");
    check(&["--database-schema", "appl"], "did you mean apply?");
    check(&["--retention", "soon"], "--retention");
    check(&["--retention", "0s"], "--retention");
    check(&["--on-expired", "gon"], "did you mean gone?");
    check(&["--listen", "nowhere"], "--listen");
    check(&["--webhook-schedule", "1s,x"], "--webhook-schedule");
    check(&["--webhook-secret", "whsec_c2hvcnQ="], "--webhook-secret");
    check(&["--allow-net", "10.0.0.0/99"], "webhook.allow_net");
    check(
        &["--inbox-secret", "psp"],
        "--inbox-secret takes NAME=VALUE",
    );
    check(&["--smtp", "http://x"], "--smtp");
    check(
        &["--token", "t=alice", "--token", "t=bob"],
        "tokens: a token is listed twice",
    );
    check(
        &["--console-token", "ops=short"],
        "console.tokens: the token of ops has fewer than 16 characters",
    );
    check(&["--group-max", "0"], "--group-max");
    check(&["--merge-log", "never"], "--merge-log");
    check(&["--replay-cache", "-1"], "unexpected argument");
    check(&["--replay-cache=all"], "--replay-cache");
    check(&["--no-such-flag"], "unexpected argument");
}

#[test]
fn an_unknown_key_in_the_file_or_the_environment_names_the_nearest() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shop.toml");
    fs::write(&file, "[webhook]\nshedule = \"0s\"\n").unwrap();
    let (code, said) = refused(command_in(
        folder.path(),
        &["--config", file.to_str().unwrap()],
    ));
    assert_eq!(code, Some(2));
    assert!(said.contains("did you mean webhook.schedule?"), "{said}");

    let mut command = command_in(folder.path(), &[]);
    command.env("HAPAX__IDEMPOTENCY__RETENTON", "1h");
    let (code, said) = refused(command);
    assert_eq!(code, Some(2));
    assert!(
        said.contains("did you mean HAPAX__IDEMPOTENCY__RETENTION?"),
        "{said}"
    );
}

#[tokio::test]
async fn a_flag_wins_over_the_environment_and_that_over_the_file() {
    let home = Home::fresh(Store::Sqlite).await;
    let file = home.path().join("shop.toml");
    fs::write(&file, "demo = false\n[tokens]\nfrom-file = \"alice\"\n").unwrap();
    let mut by_env = command(&home, &["--config", file.to_str().unwrap()]);
    by_env.env("HAPAX__TOKENS", "from-env=alice");
    let shop = Shop::spawn(by_env, home.clone());
    assert_eq!(shop.get_as("from-env", "/orders").await.status, 200);
    assert_eq!(shop.get_as("from-file", "/orders").await.status, 401);
    shop.stop().await;
    let flags = [
        "--config",
        file.to_str().unwrap(),
        "--token",
        "from-flag=alice",
    ];
    let mut by_flag = command(&home, &flags);
    by_flag.env("HAPAX__TOKENS", "from-env=alice");
    let shop = Shop::spawn(by_flag, home.clone());
    assert_eq!(shop.get_as("from-flag", "/orders").await.status, 200);
    assert_eq!(shop.get_as("from-env", "/orders").await.status, 401);
}

#[tokio::test]
async fn the_start_says_where_things_are_and_shows_a_new_secret_once() {
    let mut shop = Shop::start(Store::Sqlite, &[]).await;
    let home = shop.home();
    shop.signal("TERM");
    let (status, said) = shop.ended().await;
    assert!(
        status.success(),
        "a signal must be handled from the first line of output on: {status}"
    );
    for part in ["shop.db", "whsec_", "mail", "curl"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!shop.log().contains("whsec_"));
    let mut again = Shop::start_in(home, &[]);
    again.signal("TERM");
    assert!(!again.ended().await.1.contains("whsec_"));
}

#[test]
fn a_server_that_cannot_be_used_is_named_without_its_password() {
    for (url, parts) in [
        (
            "postgres://shop:s3cret@127.0.0.1:1/shop",
            ["postgres://127.0.0.1:1/shop", "is the server up"],
        ),
        (
            "postgres://shop:s3cret@127.0.0.1:port/shop",
            ["127.0.0.1:port/shop", "correct --database"],
        ),
        (
            "postgres://shop:s3cret@127.0.0.1/shop?sslmode=sometimes",
            ["127.0.0.1/shop", "correct --database"],
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        check_refused(command_in(folder.path(), &["--database", url]), &parts);
        let mut by_env = command_in(folder.path(), &["--log-level", "trace"]);
        by_env.env("HAPAX__DATABASE", url);
        check_refused(by_env, &parts);
    }
}

#[tokio::test]
async fn a_database_that_is_not_there_is_named() {
    let home = Home::fresh(Store::Postgres).await;
    let url = home.database().url() + "_not";
    let command = command_in(home.path(), &["--database", &url]);
    check_refused(command, &["does not exist", "cannot be used"]);
}

#[tokio::test]
async fn a_schema_that_is_newer_is_refused_and_left_alone() {
    let shop = Shop::start(Store::Postgres, &[]).await;
    let home = shop.home();
    shop.stop().await;
    let client = home.database().client().await;
    for namespace in ["shop", "hapax"] {
        let newer = format!(
            "INSERT INTO hapax.migration (namespace, version, name, checksum)
             VALUES ('{namespace}', 99, 'later', '')"
        );
        client.batch_execute(&newer).await.unwrap();
        let parts = [namespace, "run a newer version of it"];
        check_refused(command(&home, &[]), &parts);
        let back = "DELETE FROM hapax.migration WHERE version = 99";
        assert_eq!(client.execute(back, &[]).await.unwrap(), 1);
    }
    Shop::start_in(home, &[]).stop().await;
}

#[tokio::test]
async fn missing_tables_are_asked_for_where_they_are_not_to_be_made() {
    let home = Home::fresh(Store::Postgres).await;
    let checks = ["--database-schema", "check"];
    check_refused(command(&home, &checks), &["apply its migrations", "hapax"]);
    Shop::start_in(home.clone(), &[]).stop().await;
    let shop = Shop::start_in(home, &checks);
    assert_eq!(shop.post("/orders", Some("k"), ORDER).await.status, 201);
}

#[tokio::test]
async fn a_standby_is_refused_by_name() {
    let cluster = Cluster::start().await;
    let home = Home::on(&cluster).await;
    let standby = cluster.standby().await;
    let there = format!(
        "postgres://postgres@{}/{}",
        standby.address(),
        home.database().name()
    );
    let command = command_in(home.path(), &["--database", &there]);
    check_refused(command, &["standby", "connect to the primary"]);
}

#[tokio::test]
async fn a_password_is_neither_announced_nor_logged() {
    let home = Home::fresh(Store::Postgres).await;
    let url = home.database().url();
    let url = url.replace("postgres@", "postgres:s3cret@");
    assert!(url.contains("s3cret"), "{url}");
    let flags = ["--database", &url, "--log-level", "trace"];
    let mut shop = Shop::spawn(command_in(home.path(), &flags), home.clone());
    assert_eq!(shop.post("/orders", Some("k"), ORDER).await.status, 201);
    shop.signal("TERM");
    let (_, said) = shop.ended().await;
    let place = format!("/{}\n", home.database().name());
    assert!(said.contains(&place), "{said}");
    for text in [said, shop.log()] {
        assert!(!text.contains("s3cret"), "{text}");
    }
}

#[tokio::test]
async fn a_shop_behind_a_pooler_keeps_its_promises() {
    let shop = Shop::start(Store::Postgres, &["--database-pooled"]).await;
    let payment = r#"{"amount":900,"currency":"EUR","card":"tok_ok"}"#;
    for (path, body) in [("/orders", ORDER), ("/payments", payment)] {
        let first = shop.post(path, Some("k"), body).await;
        let again = shop.post(path, Some("k"), body).await;
        assert_eq!(first.status, 201, "{}", first.text());
        assert_eq!(again.header("idempotency-status"), Some("replayed"));
        assert_eq!(again.body, first.body);
    }
    shop.received("order.created", 1).await;
    shop.received("payment.succeeded", 1).await;
}

/// Checks that the start fails with one line that contains these parts and no password.
#[track_caller]
fn check_refused(command: Command, parts: &[&str]) {
    let (code, said) = refused(command);
    assert_eq!(code, Some(1), "{said}");
    check_one_line(&said);
    for part in parts {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("s3cret"), "{said}");
}

#[track_caller]
fn check(flags: &[&str], part: &str) {
    let folder = tempfile::tempdir().unwrap();
    let (code, said) = refused(command_in(folder.path(), flags));
    assert_eq!(code, Some(2), "{flags:?}: {said}");
    assert!(said.contains(part), "{flags:?}: {said}");
}

#[track_caller]
fn check_one_line(said: &str) {
    let last = said
        .lines()
        .filter(|line| line.starts_with("shop: "))
        .count();
    assert_eq!(last, 1, "{said}");
}
