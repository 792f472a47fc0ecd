//! What can be wrong at start, said in one line.

use std::{fs, net::TcpListener, process::Command};

use crate::shop::{Home, ORDER, Shop, Store, command, command_in, refused};

#[tokio::test]
async fn a_second_shop_on_the_same_file_is_refused() {
    let shop = Shop::start(Store::Sqlite, &[]).await;
    let (code, said) = refused(command(&shop.home(), &[]));
    assert_eq!(code, Some(1));
    assert!(said.contains("in use"), "{said}");
    check_one_line(&said);
    assert_eq!(shop.post("/orders", Some("k"), ORDER).await.status, 201);
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
    assert!(said.contains("file cannot be made"), "{said}");
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
    check(&["--no-demo"], "knows no tokens");
    check(&["--database", "mysql://db"], "--database is a URL such as");
    check(&["--database-connections", "1"], "--database-connections");
    check(&["--database-schema", "aply"], "did you mean apply?");
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
        "tokens: a token stands twice",
    );
    check(&["--group-max", "0"], "--group-max");
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
        "a signal is heard from the first line on: {status}"
    );
    for part in ["shop.db", "whsec_", "mail", "curl"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!shop.log().contains("whsec_"));
    let mut again = Shop::start_in(home, &[]);
    again.signal("TERM");
    assert!(!again.ended().await.1.contains("whsec_"));
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
