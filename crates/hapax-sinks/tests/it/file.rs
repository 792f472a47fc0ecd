//! The JSON Lines sink with a real file.

use std::{fs, path::Path};

use hapax::{
    event::{NewEvent, Payload},
    sink::{Offer, Sink as _},
};
use hapax_sinks::file::JsonLines;
use serde_json::Value;

use crate::events::{deliver, offer};

#[tokio::test]
async fn a_batch_is_one_line_for_each_event_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("events.jsonl");
    let sink = JsonLines::open(&path, "/shop").unwrap();
    let offers: Vec<_> = (0..100).map(numbered).collect();
    let outcomes = sink.deliver(&offers).await;
    assert!(outcomes.len() == 100 && outcomes.iter().all(Result::is_ok));
    deliver(&sink, numbered(100)).await.unwrap();

    let lines = lines(&path);
    assert_eq!(lines.len(), 101);
    for (number, line) in lines.iter().enumerate() {
        assert_eq!(line["data"], number);
        assert_eq!(line["source"], "/shop");
    }
    assert_eq!(lines[7]["id"], offers[7].event().id.to_string());
}

#[tokio::test]
async fn a_payload_of_several_lines_is_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("events.jsonl");
    let sink = JsonLines::open(&path, "/shop").unwrap();
    let payload = Payload::Json("{\r\n \"a\":\n\"b\\n\" }".to_owned());
    deliver(&sink, offer(1, NewEvent::new("a", payload)))
        .await
        .unwrap();
    assert_eq!(lines(&path)[0]["data"]["a"], "b\n");
}

/// The lines contain payloads in plain text.
#[cfg(unix)]
#[tokio::test]
async fn a_file_that_is_made_is_for_its_owner_alone_and_one_that_was_there_keeps_its_rights() {
    use std::os::unix::fs::PermissionsExt as _;

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("events.jsonl");
    let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    drop(JsonLines::open(&path, "/shop").unwrap());
    assert_eq!(mode(), 0o600);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    drop(JsonLines::open(&path, "/shop").unwrap());
    assert_eq!(mode(), 0o640);
}

#[tokio::test]
async fn a_torn_last_line_is_ended_at_open_and_costs_no_other_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("events.jsonl");
    let sink = JsonLines::open(&path, "/shop").unwrap();
    deliver(&sink, numbered(0)).await.unwrap();
    deliver(&sink, numbered(1)).await.unwrap();
    drop(sink);
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 9]).unwrap();

    let sink = JsonLines::open(&path, "/shop").unwrap();
    deliver(&sink, numbered(1)).await.unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let whole: Vec<_> = text.lines().map(serde_json::from_str::<Value>).collect();
    assert!(whole.len() == 3 && whole[0].is_ok() && whole[1].is_err());
    assert_eq!(whole[2].as_ref().unwrap()["data"], 1);
}

#[tokio::test]
async fn a_whole_file_is_left_as_it_is_when_it_is_opened() {
    let directory = tempfile::tempdir().unwrap();
    for content in ["", "{}\n"] {
        let path = directory.path().join("events.jsonl");
        fs::write(&path, content).unwrap();
        drop(JsonLines::open(&path, "/shop").unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), content);
    }
    assert!(JsonLines::open(directory.path(), "/shop").is_err());
}

#[tokio::test]
async fn a_disk_that_is_full_makes_the_whole_batch_unavailable() {
    let full = Path::new("/dev/full");
    assert!(
        full.exists(),
        "this test needs /dev/full, which exists on Linux"
    );
    let sink = JsonLines::open(full, "/shop").unwrap();
    let outcomes = sink.deliver(&[numbered(0), numbered(1)]).await;
    assert!(
        outcomes
            .iter()
            .all(|outcome| outcome.as_ref().is_err_and(|e| e.error_type() == "io"))
    );
}

fn numbered(number: u64) -> Offer {
    offer(number, NewEvent::json("counted", &number))
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}
