//! The program, as its header says to use it: two instances on one database.

use std::{path::Path, process::Command, time::Duration};

use hapax_testkit::{
    http::HttpClient, port::free_port, postgres::Database, program::Program, wait::eventually,
};

const START: Duration = Duration::from_secs(20);

async fn start(database: &str, folder: &Path, client: &HttpClient) -> (Program, String) {
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = Command::new(env!("CARGO_BIN_EXE_axum-sqlx"));
    command.args([database, &address]);
    let program = Program::start(command, &folder.join("log"));
    let url = format!("http://{address}/notes");
    eventually(START, async || client.get(&url).await.is_ok()).await;
    (program, url)
}

#[tokio::test]
async fn a_retry_at_another_instance_receives_the_first_response() {
    let (database, folder) = (Database::empty().await, tempfile::tempdir().unwrap());
    let client = HttpClient::new();
    let (_one, one) = start(&database.url(), folder.path(), &client).await;
    let (_two, two) = start(&database.url(), folder.path(), &client).await;
    let key = [("idempotency-key", "note-1")];

    let (first, second) = tokio::join!(
        client.post(&one, &key, "hello"),
        client.post(&two, &key, "hello")
    );
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!((first.status, second.status), (201, 201));
    assert_eq!(first.body, second.body);
    let other = client.post(&two, &key, "other").await.unwrap();
    assert_eq!(other.status, 409, "{}", other.text());
    assert_eq!(client.get(&one).await.unwrap().text(), "hello");
}
