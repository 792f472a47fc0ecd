//! Tests of `hapax send`: requests, messages, and the journal after a kill.

use std::{
    collections::HashMap,
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use hapax::trace::TraceContext;
use hapax_testkit::{
    http::{HttpReceiver, HttpReply, Received},
    port::free_port,
    wait::eventually,
};
use tempfile::TempDir;

use crate::hapax::{PATIENCE, ProgramOutput, hapax, run_to_end};

const BODY: &str = r#"{"amount":500}"#;

/// Runs `hapax send` while the task of the receiver is running.
async fn send(arguments: &[&str]) -> ProgramOutput {
    let mut command = hapax(&["send"]);
    command.args(arguments);
    ended(command).await
}

async fn ended(command: Command) -> ProgramOutput {
    tokio::task::spawn_blocking(|| run_to_end(command))
        .await
        .unwrap()
}

fn keys(receiver: &HttpReceiver) -> Vec<String> {
    let key = |it: Received| it.header("idempotency-key").unwrap_or_default().to_owned();
    receiver.received().into_iter().map(key).collect()
}

/// A service that handles each key once, and never sends its first response.
fn holds_back(receiver: &HttpReceiver) -> Arc<Mutex<HashMap<String, usize>>> {
    let effects: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
    let seen = Arc::clone(&effects);
    receiver.reply_with(move |request| {
        let key = request.header("idempotency-key").unwrap().to_owned();
        let mut seen = seen.lock().unwrap();
        if let Some(again) = seen.get_mut(&key) {
            *again += 1;
            return HttpReply::status(201)
                .header("idempotency-status", "replayed")
                .body("made");
        }
        seen.insert(key, 1);
        HttpReply::status(201).after(Duration::from_hours(1))
    });
    effects
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_send_that_is_killed_before_its_answer_goes_on_under_the_same_key() {
    let (receiver, folder) = (HttpReceiver::start().await, tempfile::tempdir().unwrap());
    let effects = holds_back(&receiver);
    let journal = folder.path().join("journal");
    let url = receiver.url("/orders");
    let command = || {
        let mut command = hapax(&["send", &url, "-d", BODY, "--timeout", "20s", "--journal"]);
        command.arg(&journal);
        command
    };
    let mut killed = command()
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    receiver.received_at_least(1).await;
    killed.kill().unwrap();
    killed.wait().unwrap();
    let ran = ended(command()).await.ended(0);
    assert_eq!(ran.stdout, "made");
    let first = keys(&receiver);
    assert_eq!(first.len(), 2);
    assert_eq!(first[0], first[1], "another key");
    assert_eq!(
        *effects.lock().unwrap(),
        HashMap::from([(first[0].clone(), 2)])
    );
    // The request has succeeded, so the same command is a new intent with a new key.
    receiver.reply(HttpReply::status(201));
    ended(command()).await.ended(0);
    let keys = keys(&receiver);
    assert!(keys.len() == 3 && keys[2] != keys[0], "{keys:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_torn_journal_is_read_and_another_request_has_another_key() {
    let (receiver, folder) = (HttpReceiver::start().await, tempfile::tempdir().unwrap());
    let journal = folder.path().join("journal").display().to_string();
    receiver.reply(HttpReply::status(503));
    let url = receiver.url("/orders");
    let send = async |body| {
        let arguments = [&*url, "-d", body, "--attempts", "1", "--journal", &journal];
        send(&arguments).await.ended(14);
        keys(&receiver).pop().unwrap()
    };
    let first = send(BODY).await;
    let mut file = fs::OpenOptions::new().append(true).open(&journal).unwrap();
    file.write_all(b"{\"state\":\"done\",\"ke").unwrap();
    assert_ne!(send("{}").await, first);
    assert_eq!(send(BODY).await, first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_at_once_on_one_journal_do_not_harm_each_other() {
    let (receiver, folder) = (HttpReceiver::start().await, tempfile::tempdir().unwrap());
    let journal = folder.path().join("journal").display().to_string();
    receiver.reply(HttpReply::status(201));
    let url = receiver.url("/orders");
    let bodies: Vec<_> = (0..8).map(|n| format!("{{\"n\":{n}}}")).collect();
    let sends = bodies.iter().map(|body| {
        let mut command = hapax(&["send", &url, "-d", body, "--journal", &journal]);
        command.stdout(Stdio::null());
        tokio::spawn(ended(command))
    });
    for sending in sends.collect::<Vec<_>>() {
        sending.await.unwrap().ended(0);
    }
    let mut keys = keys(&receiver);
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 8);
    let lines = fs::read_to_string(&journal).unwrap();
    assert_eq!(lines.lines().count(), 16, "{lines}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_body_is_on_standard_output_and_the_attempts_on_standard_error() {
    let receiver = HttpReceiver::start().await;
    receiver.reply_next(HttpReply::status(503));
    receiver.reply(HttpReply::status(201).body(&b"\x00\x01made"[..]));
    let url = receiver.url("/orders");
    let ran = send(&[&url, "-H", "Authorization: Bearer me", "-d", BODY])
        .await
        .ended(0);
    assert_eq!(ran.stdout, "\0\u{1}made");
    let lines: Vec<_> = ran.stderr.lines().collect();
    assert_eq!(lines[0], "attempt,delay_ms,status,code,notes");
    assert_eq!(lines[1], "1,0,5xx,503,");
    assert!(
        lines[2].starts_with("2,") && lines[2].contains(",201,"),
        "{lines:?}"
    );
    let arrived = receiver.received();
    assert_eq!(arrived[0].method, "POST");
    assert_eq!(&arrived[0].body[..], BODY.as_bytes());
    assert_eq!(arrived[0].header("authorization"), Some("Bearer me"));
    assert_eq!(arrived[0].header("content-type"), Some("application/json"));
    assert_eq!(keys(&receiver)[0], keys(&receiver)[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_attempts_belong_to_one_trace_which_is_that_of_the_caller_if_it_has_one() {
    const SENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let receiver = HttpReceiver::start().await;
    let url = receiver.url("/orders");
    let parent = format!("traceparent: {SENT}");
    for more in [&[][..], &["-H", parent.as_str()]] {
        receiver.reply_next(HttpReply::status(503));
        receiver.reply_next(HttpReply::status(201));
        send(&[&[&*url, "-d", BODY][..], more].concat())
            .await
            .ended(0);
    }
    let arrived = receiver.received();
    let numbers = arrived.iter().map(|it| it.header("idempotency-attempt"));
    let expected = [Some("1"), Some("2"), Some("1"), Some("2")];
    assert_eq!(numbers.collect::<Vec<_>>(), expected);
    let context = |it: &Received| TraceContext::parse(it.header("traceparent").unwrap()).unwrap();
    let contexts: Vec<_> = arrived.iter().map(context).collect();
    assert_eq!(contexts[0].trace_id(), contexts[1].trace_id());
    assert_ne!(contexts[0].span_id(), contexts[1].span_id());
    let caller = TraceContext::parse(SENT).unwrap();
    assert!(
        contexts[2..]
            .iter()
            .all(|it| it.trace_id() == caller.trace_id())
    );
    assert_ne!(contexts[2].span_id(), contexts[3].span_id());
    assert_ne!(contexts[0].trace_id(), caller.trace_id());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn json_is_one_object_with_the_answer_and_the_attempts() {
    let receiver = HttpReceiver::start().await;
    let problem = HttpReply::status(409)
        .header("content-type", "application/problem+json")
        .body(r#"{"code":"CONFLICT.idempotency.payload_mismatch"}"#);
    receiver.reply(problem);
    let url = receiver.url("/orders");
    let ran = send(&["--json", "--key", "mine", &url, "-d", BODY])
        .await
        .ended(12);
    let outcome = ran.json();
    assert_eq!(outcome["status"], 409);
    assert_eq!(outcome["code"], "CONFLICT.idempotency.payload_mismatch");
    assert_eq!(outcome["key"], "mine");
    assert_eq!(outcome["attempts"][0]["status"], 409);
    assert_eq!(outcome["stopped"], "answered");
    assert!(
        ran.stderr.starts_with("hapax: 409 CONFLICT."),
        "{}",
        ran.stderr
    );
    assert_eq!(keys(&receiver), ["mine"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_end_has_an_exit_code() {
    let receiver = HttpReceiver::start().await;
    let url = receiver.url("/orders");
    for (status, code) in [
        (204, 0),
        (404, 3),
        (400, 10),
        (401, 11),
        (409, 12),
        (429, 13),
        (503, 14),
        (500, 15),
        (402, 17),
        (302, 18),
    ] {
        receiver.reply(HttpReply::status(status));
        send(&[&url, "--attempts", "1", "-X", "POST"])
            .await
            .ended(code);
    }
    let nobody = format!("http://127.0.0.1:{}/", free_port());
    let ran = send(&[&nobody, "--attempts", "2", "-d", BODY])
        .await
        .ended(16);
    assert!(ran.stderr.contains("no answer"), "{}", ran.stderr);
    for wrong in [
        &["ftp://a/"][..],
        &[&url, "-H", "no colon"],
        &[&url, "-H", "Idempotency-Key: k"],
        &[&url, "-X", "no method"],
        &[&url, "-d", "@/no/such/file"],
        &[&url, "--timeout", "0s"],
        &[&url, "--attempts", "0"],
        &[&url, "--backoff-base", "0s"],
        &[&url, "--backoff-cap", "soon"],
        &[&url, "--budget", "some"],
        &[&url, "--key", ""],
    ] {
        send(wrong).await.ended(2);
    }
    send(&[&url, "-d", BODY, "--journal", "/no/such/folder/journal"])
        .await
        .ended(1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_waits_and_the_budget_are_those_of_the_flags() {
    let receiver = HttpReceiver::start().await;
    receiver.reply(HttpReply::status(503));
    let url = receiver.url("/orders");
    let outcome = async |flags: &[&str]| {
        let always = [&*url, "-X", "POST", "--json", "--backoff-base", "1ms"];
        send(&[&always[..], flags].concat()).await.ended(14).json()
    };
    let ran = outcome(&["--backoff-cap", "2ms", "--attempts", "12"]).await;
    let attempts = ran["attempts"].as_array().unwrap();
    let waits = attempts.iter().filter_map(|it| it["delay_ms"].as_u64());
    assert_eq!(ran["stopped"], "exhausted", "{ran}");
    assert_eq!(attempts.len(), 12);
    assert!(waits.max() <= Some(2), "{ran}");
    let ran = outcome(&["--backoff-cap", "1ms", "--budget", "strict"]).await;
    assert_eq!(ran["stopped"], "budget", "{ran}");
    let ran = outcome(&["--backoff-cap", "1ms", "--budget", "default"]).await;
    assert_eq!(ran["stopped"], "exhausted", "{ran}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_advice_to_run_it_again_names_the_key() {
    let receiver = HttpReceiver::start().await;
    let url = receiver.url("/orders");
    let once = [&*url, "-d", BODY, "--attempts", "1"];
    for status in [408, 425, 429, 500, 502, 503, 504, 0] {
        receiver.reply(match status {
            0 => HttpReply::closed(),
            status => HttpReply::status(status),
        });
        let ran = send(&once).await;
        let key = keys(&receiver).pop().unwrap();
        let advice = format!("--key {key}");
        assert!(ran.stderr.contains(&advice), "{status}: {}", ran.stderr);
        receiver.reply(HttpReply::status(201));
        send(&[&once[..], &["--key", &key]].concat()).await.ended(0);
        assert_eq!(keys(&receiver).pop(), Some(key));
    }
    // A method that is idempotent without a key is sent without one.
    receiver.reply(HttpReply::status(503));
    let ran = send(&[&url, "--attempts", "1"]).await.ended(14);
    assert!(!ran.stderr.contains("--key"), "{}", ran.stderr);
    // A key with special characters is quoted for the shell.
    let key = ["--key", "it's $HOME"];
    let ran = send(&[&once[..], &key].concat()).await.ended(14);
    assert!(
        ran.stderr.contains(r"--key 'it'\''s $HOME'"),
        "{}",
        ran.stderr
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_the_service_may_have_forgotten_is_not_sent_again() {
    let (receiver, folder) = (HttpReceiver::start().await, tempfile::tempdir().unwrap());
    let journal = folder.path().join("journal");
    receiver.reply(HttpReply::status(503));
    let (url, path) = (receiver.url("/orders"), journal.display().to_string());
    let common = [&*url, "-d", BODY, "--attempts", "1", "--journal", &path];
    send(&common).await.ended(14);
    let first = keys(&receiver).pop().unwrap();
    let began = fs::read_to_string(&journal).unwrap();
    for hours in [25, 24, -2] {
        fs::write(&journal, moved_back(&began, hours)).unwrap();
        let ran = send(&common).await.ended(4);
        for part in [&*first, "--anew", "--resume-within"] {
            assert!(ran.stderr.contains(part), "{hours} h: {}", ran.stderr);
        }
        assert_eq!(
            receiver.received().len(),
            1,
            "{hours} h: the request was sent"
        );
    }
    // After 12 h the request may be sent again by default, after 25 h with a longer
    // `--resume-within`.
    fs::write(&journal, moved_back(&began, 12)).unwrap();
    send(&common).await.ended(14);
    fs::write(&journal, moved_back(&began, 25)).unwrap();
    let longer = [&common[..], &["--resume-within", "48h"]].concat();
    send(&longer).await.ended(14);
    assert_eq!(keys(&receiver), [&*first, &first, &first]);
    // An operator who knows the outcome can start a new intent, which gets a new key.
    receiver.reply(HttpReply::status(201));
    send(&[&common[..], &["--anew"]].concat()).await.ended(0);
    send(&common).await.ended(0);
    let keys = keys(&receiver);
    assert!(
        keys[3] != first && keys[4] != first && keys[3] != keys[4],
        "{keys:?}"
    );
}

/// The journal as if its entries had been written this many hours earlier.
fn moved_back(journal: &str, hours: i64) -> String {
    let mut moved = String::new();
    for line in journal.lines() {
        let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
        let at = line["at_ms"].as_i64().unwrap();
        line["at_ms"] = (at - hours * 3_600_000).into();
        moved.push_str(&line.to_string());
        moved.push('\n');
    }
    moved
}

/// A service that responds when the test says so, and the journal of its clients.
struct Slow {
    listener: TcpListener,
    folder: TempDir,
}

impl Slow {
    fn start() -> Self {
        Self {
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// Starts a client that sends one request.
    fn send(&self) -> Child {
        let url = format!("http://{}/orders", self.listener.local_addr().unwrap());
        let mut command = hapax(&["send", &url, "-d", BODY, "--attempts", "1"]);
        command
            .args(["--timeout", "60s", "--journal"])
            .arg(self.folder.path().join("journal"))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.spawn().unwrap()
    }

    /// Accepts the next request, and returns its connection and key.
    fn taken(&self) -> (TcpStream, String) {
        let (mut stream, _) = self.listener.accept().unwrap();
        let (mut text, mut bytes) = (String::new(), [0; 4096]);
        while !text.ends_with(BODY) {
            let read = stream.read(&mut bytes).unwrap();
            assert!(read > 0, "{text}");
            text.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
        }
        let key = text
            .lines()
            .find_map(|line| line.strip_prefix("idempotency-key: "));
        (stream, key.unwrap().to_owned())
    }
}

fn answer(mut stream: TcpStream, status: u16) {
    let answer = format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n");
    stream.write_all(answer.as_bytes()).unwrap();
}

#[test]
fn a_refusal_of_one_process_does_not_strike_out_a_key_that_another_sent_too() {
    let service = Slow::start();
    let mut first = service.send();
    let (waits, key) = service.taken();
    let mut second = service.send();
    let (lost, other) = service.taken();
    assert_eq!(key, other, "both processes must send the same key");
    // The second request may have had its effect, but its response is lost.
    drop(lost);
    assert_eq!(second.wait().unwrap().code(), Some(16));
    // The first request is rejected because its token has expired. The outcome of the second is
    // still unknown.
    answer(waits, 401);
    assert_eq!(first.wait().unwrap().code(), Some(11));
    let mut third = service.send();
    let (waits, again) = service.taken();
    answer(waits, 201);
    assert_eq!(third.wait().unwrap().code(), Some(0));
    assert_eq!(again, key, "the key was removed from the journal");
}

#[test]
fn a_process_that_is_killed_beside_another_leaves_the_journal_to_it() {
    let service = Slow::start();
    let mut killed = service.send();
    let (_lost, key) = service.taken();
    let mut other = service.send();
    let (waits, same) = service.taken();
    killed.kill().unwrap();
    killed.wait().unwrap();
    answer(waits, 401);
    assert_eq!(other.wait().unwrap().code(), Some(11));
    let mut last = service.send();
    let (waits, again) = service.taken();
    answer(waits, 201);
    assert_eq!(last.wait().unwrap().code(), Some(0));
    assert_eq!([same, again], [key.clone(), key]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_of_the_journal_is_waited_for_and_does_not_outlive_whoever_holds_it() {
    let (receiver, folder) = (HttpReceiver::start().await, tempfile::tempdir().unwrap());
    let journal = folder.path().join("journal").display().to_string();
    let lock = format!("{journal}.lock");
    let mut holder = Command::new("flock")
        .args(["--no-fork", &lock, "sleep", "1000"])
        .spawn()
        .unwrap();
    eventually(PATIENCE, async || is_held(&lock)).await;
    let url = receiver.url("/orders");
    let arguments = [&*url, "-d", BODY, "--journal", &journal];
    let ran = send(&arguments).await.ended(1);
    assert!(ran.stderr.contains("journal.lock"), "{}", ran.stderr);
    assert!(receiver.received().is_empty(), "it was sent");
    holder.kill().unwrap();
    holder.wait().unwrap();
    send(&arguments).await.ended(0);
}

/// Whether another process holds the lock of this file.
fn is_held(path: &str) -> bool {
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).open(path);
    matches!(file.unwrap().try_lock(), Err(fs::TryLockError::WouldBlock))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_is_read_from_a_file_or_from_standard_input() {
    let (receiver, folder) = (HttpReceiver::start().await, tempfile::tempdir().unwrap());
    let file = folder.path().join("body");
    fs::write(&file, b"\xff\x00from a file").unwrap();
    let url = receiver.url("/orders");
    let at = format!("@{}", file.display());
    send(&[&url, "-d", &at, "-H", "content-type: text/plain"])
        .await
        .ended(0);
    let mut command = hapax(&["send", &url, "-X", "PATCH", "-d", "@-"]);
    command.stdin(fs::File::open(&file).unwrap());
    ended(command).await.ended(0);
    let arrived = receiver.received();
    for request in &arrived {
        assert_eq!(&request.body[..], b"\xff\x00from a file");
    }
    assert_eq!(arrived[0].header("content-type"), Some("text/plain"));
    assert_eq!(arrived[1].method, "PATCH");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_the_journal_does_not_know_is_refused_while_another_is_unfinished() {
    let (receiver, folder) = (HttpReceiver::start().await, tempfile::tempdir().unwrap());
    let journal = folder.path().join("journal").display().to_string();
    receiver.reply(HttpReply::status(503));
    let url = receiver.url("/orders");
    let common = [&*url, "-d", BODY, "--attempts", "1", "--journal", &journal];
    send(&common).await.ended(14);
    send(&[&common[..], &["--key", "mine"]].concat())
        .await
        .ended(4);
    assert_eq!(receiver.received().len(), 1);
}
