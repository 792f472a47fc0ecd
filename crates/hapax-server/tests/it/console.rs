//! Tests of the console as a part of the relay and as a separate command.

use std::fs;

use hapax_testkit::{http::HttpClient, port::free_port, program::Program, wait::eventually};
use http::Method;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    hapax::{PATIENCE, hapax, run, start_relay},
    store::{Home, Store, on_both_stores},
};

on_both_stores! {
    the_relay_serves_the_console_beside_the_admin_api_if_configured,
    a_relay_that_stops_does_not_wait_for_who_watches,
    the_verb_serves_it_alone_and_ends_with_a_signal,
}

const TOKEN: &str = "[admin.tokens.ops]\ntoken = \"operator-0123456789\"\nrole = \"operator\"\n";

async fn the_relay_serves_the_console_beside_the_admin_api_if_configured(on: Store) {
    let database = Home::migrated(on).await;
    let client = HttpClient::new();
    for (console, status) in [("true", 200), ("false", 404)] {
        let address = format!("127.0.0.1:{}", free_port());
        let configuration = format!(
            "[admin]\nlisten = \"{address}\"\nconsole = {console}\n\
             [destinations.a]\npaused = true\nsink.file = {{ path = \"/dev/null\" }}\n"
        );
        let relay = start_relay(&database.url(), &configuration).await;
        let page = client
            .get(&format!("http://{address}/console"))
            .await
            .unwrap();
        assert_eq!(page.status, status, "{}", page.text());
        if status == 200 {
            assert!(
                page.text().contains("aused by its own setting"),
                "{}",
                page.text()
            );
            let settings = client
                .get(&format!("http://{address}/console/configuration"))
                .await;
            let settings = settings.unwrap().text();
            assert!(
                settings.contains("admin.console")
                    && settings.contains("***")
                    && settings.contains("Whether browsers use TLS for the console"),
                "{settings}"
            );
            assert!(!settings.contains(&database.url()), "{settings}");
        }
        let api = client
            .get(&format!("http://{address}/admin/v1/events"))
            .await
            .unwrap();
        assert_eq!(api.status, 200);
        for path in ["/console", "/admin/v1/events"] {
            let url = format!("http://{address}{path}");
            let passed_on = [("forwarded", "for=192.0.2.1")];
            let sent = client.send(Method::GET, &url, &passed_on, "".into()).await;
            assert_eq!(
                sent.unwrap().status,
                403,
                "a proxy may forward requests of any client"
            );
        }
        relay.stop().await;
    }
}

async fn a_relay_that_stops_does_not_wait_for_who_watches(on: Store) {
    let database = Home::migrated(on).await;
    let address = format!("127.0.0.1:{}", free_port());
    let configuration = format!("[admin]\nlisten = \"{address}\"\nconsole = true\n");
    let mut relay = start_relay(&database.url(), &configuration).await;
    let mut watching = TcpStream::connect(&address).await.unwrap();
    let asked = format!("GET /console/live HTTP/1.1\r\nhost: {address}\r\n\r\n");
    watching.write_all(asked.as_bytes()).await.unwrap();
    let mut outcome = [0; 15];
    watching.read_exact(&mut outcome).await.unwrap();
    assert_eq!(&outcome, b"HTTP/1.1 200 OK");
    relay.signal("TERM");
    assert!(relay.ended().await.success());
    assert!(
        !relay.log().contains("did not end in time"),
        "{}",
        relay.log()
    );
}

async fn the_verb_serves_it_alone_and_ends_with_a_signal(on: Store) {
    let database = Home::migrated(on).await;
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("hapax.toml");
    fs::write(&config, TOKEN).unwrap();
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = hapax(&[
        "console",
        "--listen",
        &address,
        "--database",
        &database.url(),
    ]);
    command.arg("--config").arg(&config);
    let mut verb = Program::start(command, &folder.path().join("log"));
    let client = HttpClient::new();
    let url = format!("http://{address}/");
    eventually(PATIENCE, async || client.get(&url).await.is_ok()).await;
    let home = client.get(&url).await.unwrap();
    assert_eq!(
        (home.status, home.header("location")),
        (303, Some("/console"))
    );
    let page = client.get(&format!("{url}console")).await.unwrap();
    assert_eq!(page.header("location"), Some("/console/login"));
    verb.stop().await;
}

#[tokio::test]
async fn the_verb_is_not_open_to_the_network_without_tokens() {
    let ran = run(&[
        "console",
        "--listen",
        "0.0.0.0:0",
        "--database",
        "postgres://127.0.0.1:1/nowhere",
    ]);
    let ran = ran.ended(2);
    assert!(
        ran.stderr.contains("there are no [admin.tokens]"),
        "{ran:?}"
    );
}
