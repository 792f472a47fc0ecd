//! The program, as its header says to use it: retried, killed and retried again.

use std::{path::Path, process::Command, time::Duration};

use hapax_testkit::{http::HttpClient, port::free_port, program::Program, wait::eventually};

const START: Duration = Duration::from_secs(20);

async fn start(folder: &Path, address: &str, client: &HttpClient) -> Program {
    let mut command = Command::new(env!("CARGO_BIN_EXE_axum-sqlite"));
    command.current_dir(folder).arg(address);
    let program = Program::start(command, &folder.join("log"));
    let url = format!("http://{address}/notes");
    eventually(START, async || client.get(&url).await.is_ok()).await;
    program
}

#[tokio::test]
async fn a_retry_receives_the_first_response_even_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let (client, address) = (HttpClient::new(), format!("127.0.0.1:{}", free_port()));
    let url = format!("http://{address}/notes");
    let key = [("idempotency-key", "note-1")];
    let mut program = start(folder.path(), &address, &client).await;

    let first = client.post(&url, &key, "hello").await.unwrap();
    assert_eq!(first.status, 201, "{}", first.text());
    let again = client.post(&url, &key, "hello").await.unwrap();
    assert_eq!((again.status, &again.body), (201, &first.body));
    assert_eq!(again.header("idempotency-status"), Some("replayed"));
    let other = client.post(&url, &key, "other").await.unwrap();
    assert_eq!(other.status, 409, "{}", other.text());

    program.kill();
    let client = HttpClient::new();
    let _program = start(folder.path(), &address, &client).await;
    let again = client.post(&url, &key, "hello").await.unwrap();
    assert_eq!(again.header("idempotency-status"), Some("replayed"));
    assert_eq!(client.get(&url).await.unwrap().text(), "hello");
}
