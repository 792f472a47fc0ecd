//! The count of effects: by a URL, by a command, or by webhooks that the probe receives itself.

use std::{
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    process::Command,
    time::timeout,
};

use crate::{
    http::{Connector, Request, Target},
    plan::Oracle,
};

/// The maximum number of pages of a list.
const PAGES_MAX: usize = 1_000;
/// How long a command or a request that counts effects may take.
const COUNT_MAX: Duration = Duration::from_secs(30);
/// The maximum size of a webhook in bytes.
const WEBHOOK_MAX: usize = 1024 * 1024;

/// Counts webhooks at a port of loopback. Each request is one effect.
#[derive(Debug)]
pub(crate) struct Listener {
    received: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl Listener {
    pub(crate) async fn start(port: u16) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let received = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&received);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(receive(stream, Arc::clone(&counter)));
            }
        });
        Ok(Self { received, task })
    }

    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Reads one webhook, counts it and accepts it.
async fn receive(mut stream: TcpStream, counter: Arc<AtomicU64>) {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    while bytes.len() < WEBHOOK_MAX {
        let Ok(read @ 1..) = stream.read(&mut buffer).await else {
            return;
        };
        bytes.extend_from_slice(&buffer[..read]);
        if is_complete(&bytes) {
            counter.fetch_add(1, Ordering::Relaxed);
            let _ = stream
                .write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
                .await;
            return;
        }
    }
}

/// Whether a request has arrived with its whole body.
fn is_complete(bytes: &[u8]) -> bool {
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut head = httparse::Request::new(&mut fields);
    let Ok(httparse::Status::Complete(length)) = head.parse(bytes) else {
        return false;
    };
    let value = |name: &str| {
        head.headers
            .iter()
            .find(|it| it.name.eq_ignore_ascii_case(name))
            .map(|it| String::from_utf8_lossy(it.value).into_owned())
    };
    if value("transfer-encoding").is_some() {
        return bytes.ends_with(b"0\r\n\r\n");
    }
    let body = value("content-length").and_then(|it| it.trim().parse().ok());
    bytes.len() - length >= body.unwrap_or(0_usize)
}

/// Returns the number of effects so far.
pub(crate) async fn count(
    oracle: &Oracle,
    listener: Option<&Listener>,
    connector: &Connector,
) -> Result<u64, String> {
    match oracle {
        Oracle::Url {
            target,
            path,
            pages,
            headers,
        } => {
            let mut count = 0;
            let mut target = target.clone();
            for _ in 0..PAGES_MAX {
                let page = page(&target, headers, connector).await?;
                count += path.query(&page).len() as u64;
                let Some((pages, next)) = pages
                    .as_ref()
                    .and_then(|it| Some((it, cursor(page.pointer(&it.next)?)?)))
                else {
                    return Ok(count);
                };
                target = target.with_query(&pages.cursor, &next);
            }
            Err(format!("the list has more than {PAGES_MAX} pages"))
        }
        Oracle::Command(command) => by_command(command).await,
        Oracle::Listen { settle, .. } => {
            let listener = listener.ok_or("the port is not open")?;
            tokio::time::sleep(*settle).await;
            Ok(listener.received())
        }
    }
}

/// Returns one page of a list.
async fn page(
    target: &Target,
    headers: &[(String, String)],
    connector: &Connector,
) -> Result<serde_json::Value, String> {
    let mut request = Request::new("GET", target);
    for (name, value) in headers {
        request = request.header(name, value.as_bytes());
    }
    let answer = connector
        .exchange(&request, None, COUNT_MAX)
        .await
        .map_err(|failure| format!("{}: {failure}", request.describe()))?;
    if !answer.is_success() {
        return Err(format!("{}: {}", request.describe(), answer.describe()));
    }
    answer
        .json()
        .ok_or_else(|| format!("{}: the body is not JSON", request.describe()))
}

/// Returns a cursor as text, unless it is missing.
fn cursor(value: &serde_json::Value) -> Option<String> {
    match value {
        serde_json::Value::String(text) if !text.is_empty() => Some(text.clone()),
        serde_json::Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

async fn by_command(command: &str) -> Result<u64, String> {
    let run = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(COUNT_MAX, run)
        .await
        .map_err(|_| format!("{command:?} took longer than {COUNT_MAX:?}"))?
        .map_err(|error| format!("{command:?}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(format!("{command:?} ended with {}", output.status));
    }
    text.trim()
        .parse()
        .map_err(|_| format!("{command:?} printed {text:?}, expected a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connector() -> Connector {
        Connector::new(false, &[]).expect("a TLS configuration")
    }

    #[tokio::test]
    async fn a_command_prints_the_count() {
        let oracle = Oracle::Command("echo 42".to_owned());
        assert_eq!(count(&oracle, None, &connector()).await, Ok(42));
        for wrong in ["echo many", "exit 3"] {
            let oracle = Oracle::Command(wrong.to_owned());
            assert!(count(&oracle, None, &connector()).await.is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_last_page_has_no_cursor() {
        let of = |value: serde_json::Value| cursor(&value);
        assert_eq!(of("ord_1".into()), Some("ord_1".to_owned()));
        assert_eq!(of(7.into()), Some("7".to_owned()));
        assert_eq!(of(serde_json::Value::Null), None);
        assert_eq!(of("".into()), None);
    }

    #[tokio::test]
    async fn webhooks_are_counted_when_they_are_complete() {
        let listener = Listener::start(0).await;
        assert!(listener.is_ok());
        assert!(is_complete(
            b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nok"
        ));
        assert!(!is_complete(
            b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nok"
        ));
        assert!(!is_complete(b"POST / HTTP/1.1\r\n"));
    }
}
