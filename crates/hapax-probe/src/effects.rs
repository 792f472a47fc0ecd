//! The count of effects: by a URL, by a command, or by webhooks that the probe receives itself.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::Instant,
};

use crate::{
    http::{Connector, Request, Target},
    plan::{Oracle, Pages},
    shell::prints,
    verdict::Stop,
};

/// The maximum number of pages of a list.
const PAGES_MAX: usize = 1_000;
/// How long a command or the requests that count effects may take.
const COUNT_MAX: Duration = Duration::from_secs(30);
/// The maximum number of characters of a command's output in an error.
const PRINTED_MAX: usize = 40;
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

/// Returns the number of effects so far. `admit` is asked before each request and each command.
pub(crate) async fn count(
    oracle: &Oracle,
    listener: Option<&Listener>,
    connector: &Connector,
    admit: impl AsyncFn() -> Result<(), Stop>,
) -> Result<u64, Stop> {
    match oracle {
        Oracle::Url {
            target,
            path,
            pages,
            headers,
        } => {
            let mut list = List {
                target: target.clone(),
                pages: pages.as_ref(),
                headers,
                cursors: HashSet::new(),
                left: COUNT_MAX,
            };
            let mut count = 0;
            loop {
                admit().await?;
                let page = list.page(connector).await.map_err(Stop::Effects)?;
                count += path.query(&page).len() as u64;
                if !list.goes_on(&page).map_err(Stop::Effects)? {
                    return Ok(count);
                }
            }
        }
        Oracle::Command(command) => {
            admit().await?;
            by_command(command).await.map_err(Stop::Effects)
        }
        Oracle::Listen { .. } => {
            let listener =
                listener.ok_or_else(|| Stop::Effects("the port is not open".to_owned()))?;
            Ok(listener.received())
        }
    }
}

/// A list of effects that is read page by page.
struct List<'a> {
    /// The next page.
    target: Target,
    pages: Option<&'a Pages>,
    headers: &'a [(String, String)],
    /// The cursors so far: a list that comes back to one of them would have no end.
    cursors: HashSet<String>,
    /// How much time is left for all pages. To wait for the rate of the plan is not part of it.
    left: Duration,
}

impl List<'_> {
    /// Returns the next page.
    async fn page(&mut self, connector: &Connector) -> Result<serde_json::Value, String> {
        let mut request = Request::new("GET", &self.target);
        for (name, value) in self.headers {
            request = request.header(name, value.as_bytes());
        }
        let start = Instant::now();
        let answer = connector
            .list(&request, self.left)
            .await
            .map_err(|failure| format!("{}: {failure}", request.describe()))?;
        self.left = self.left.saturating_sub(start.elapsed());
        if !answer.is_success() {
            return Err(format!("{}: {}", request.describe(), answer.describe()));
        }
        answer
            .json()
            .ok_or_else(|| format!("{}: the body is not JSON", request.describe()))
    }

    /// Turns to the page after this one, and returns whether there is one.
    fn goes_on(&mut self, page: &serde_json::Value) -> Result<bool, String> {
        let next = self
            .pages
            .and_then(|it| Some((it, cursor(page.pointer(&it.next)?)?)));
        let Some((pages, next)) = next else {
            return Ok(false);
        };
        self.target = self.target.with_query(&pages.cursor, &next);
        if !self.cursors.insert(next) {
            return Err("the cursor of a page is that of an earlier page".to_owned());
        }
        if self.cursors.len() >= PAGES_MAX {
            return Err(format!("the list has more than {PAGES_MAX} pages"));
        }
        if self.left.is_zero() {
            return Err(format!("the pages took longer than {COUNT_MAX:?}"));
        }
        Ok(true)
    }
}

/// Returns a cursor as text, unless it is missing.
fn cursor(value: &serde_json::Value) -> Option<String> {
    match value {
        serde_json::Value::String(text) if !text.is_empty() => Some(text.clone()),
        serde_json::Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Returns the number that a command prints. The command is not repeated in an error: it can contain a
/// secret.
async fn by_command(command: &str) -> Result<u64, String> {
    let text = prints(command, COUNT_MAX)
        .await
        .map_err(|error| format!("the count command {error}"))?;
    text.trim().parse().map_err(|_| {
        let shown: String = text.trim().chars().take(PRINTED_MAX).collect();
        format!("the count command printed {shown:?}, expected a number")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn counted(command: &str) -> Result<u64, Stop> {
        let oracle = Oracle::Command(command.to_owned());
        let connector = Connector::new(false, &[]).expect("a TLS configuration");
        count(&oracle, None, &connector, async || Ok(())).await
    }

    #[tokio::test]
    async fn a_command_prints_the_count() {
        assert_eq!(counted("echo 42").await.expect("a count"), 42);
        for wrong in ["SECRET=1; echo many", "SECRET=1; exit 3"] {
            let error = counted(wrong).await.expect_err("it prints no number");
            assert!(!error.to_string().contains("SECRET"), "{error}");
        }
    }

    #[test]
    fn a_list_that_comes_back_to_an_earlier_page_is_an_error() {
        let pages = Pages {
            next: "/next".to_owned(),
            cursor: "after".to_owned(),
        };
        let mut list = List {
            target: "http://h/orders?limit=2".parse().expect("a URL"),
            pages: Some(&pages),
            headers: &[],
            cursors: HashSet::new(),
            left: COUNT_MAX,
        };
        let mut goes_on = |next: &str| list.goes_on(&serde_json::json!({ "next": next }));
        assert_eq!(goes_on("a"), Ok(true));
        assert_eq!(goes_on("b"), Ok(true));
        assert!(goes_on("a").is_err());
        assert_eq!(goes_on(""), Ok(false));
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
