//! Serves a console in this process, and requests its pages.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use hapax::Clock;
use hapax_console::{Console, Settings};
use hapax_postgres::Postgres;
use tokio::{net::TcpListener, task::JoinHandle};

use super::{
    Timed,
    pages::{Kind, Page, Place},
};
use crate::{
    histogram::Histogram,
    load::Connection,
    sources::{clock, now, random},
};

/// Number of warm-up requests for each page, which are not counted.
pub(super) const WARM_UP: usize = 5;
/// Time limit for all requests for a page.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// Longer than the time for which the console keeps the figures of the overview.
const STALE_MS: u64 = 2_500;

/// A running console.
pub(super) struct Served {
    address: SocketAddr,
    /// How far the clock of the console is ahead. It is moved on between requests, so that the
    /// console reads the figures of the overview for each request. For lists it is not ahead,
    /// because their filters depend on the time.
    ahead_ms: Arc<AtomicU64>,
    task: JoinHandle<std::io::Result<()>>,
}

/// The response of a page.
struct Answer {
    status: u16,
    bytes: usize,
    took: Duration,
}

impl Served {
    /// Creates the tables, and serves a console for them on loopback.
    pub(super) async fn start(url: &str) -> anyhow::Result<Self> {
        let settings = hapax_postgres::Settings::new(url, clock(), random());
        let store = Postgres::open(settings).await;
        let store = store.context("cannot open the store")?;
        let ahead_ms = Arc::new(AtomicU64::new(0));
        let ahead = Arc::clone(&ahead_ms);
        let clock =
            Clock::new(move || now() + Duration::from_millis(ahead.load(Ordering::Relaxed)));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let router = Console::new(store, Settings::new(clock)).router();
        let task = tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self {
            address,
            ahead_ms,
            task,
        })
    }

    /// Requests a page repeatedly. Returns `None` if the page is the second of a list with only
    /// one.
    pub(super) async fn time(&self, page: Page, requests: usize) -> anyhow::Result<Option<Timed>> {
        let mut connection = Connection::open(self.address).await?;
        if page.kind != Kind::Overview {
            self.ahead_ms.store(0, Ordering::Relaxed);
        }
        let path = match &page.place {
            Place::At(path) => path.clone(),
            Place::After(path) => {
                self.ask(&mut connection, path).await?;
                let html = std::str::from_utf8(connection.body())?;
                match older(html) {
                    Some(path) => path,
                    None => return Ok(None),
                }
            }
        };
        let (start, mut times) = (Instant::now(), Histogram::new());
        let mut bytes = 0;
        for request in 0..WARM_UP + requests {
            if page.is_a_look {
                self.ahead_ms.fetch_add(STALE_MS, Ordering::Relaxed);
            }
            let answer = self.ask(&mut connection, &path).await?;
            let Answer { status, .. } = answer;
            ensure!(
                status == page.status,
                "{path} returned status {status}, expected {}",
                page.status
            );
            bytes = answer.bytes;
            if request >= WARM_UP {
                times.record(answer.took);
            }
            if times.count() > 0 && start.elapsed() > PATIENCE {
                break;
            }
        }
        Ok(Some(Timed { page, bytes, times }))
    }

    async fn ask(&self, connection: &mut Connection, path: &str) -> anyhow::Result<Answer> {
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", self.address);
        let start = Instant::now();
        let head = connection.exchange(request.as_bytes()).await;
        let head = head.with_context(|| format!("cannot request {path}"))?;
        Ok(Answer {
            status: head.status,
            bytes: head.body,
            took: start.elapsed(),
        })
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The path of the next page of a list.
fn older(html: &str) -> Option<String> {
    let (before, _) = html.split_once("\" rel=\"next\"")?;
    let (_, path) = before.rsplit_once("href=\"")?;
    Some(path.replace("&amp;", "&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_is_where_the_link_says() {
        let html = "<a href=\"/a\">first</a><a href=\"/b?q=&amp;before=7\" rel=\"next\">Older</a>";
        assert_eq!(older(html).as_deref(), Some("/b?q=&before=7"));
        assert_eq!(older("<a href=\"/a\">first</a>"), None);
    }
}
