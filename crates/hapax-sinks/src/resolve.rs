//! DNS lookups outside the runtime's shared threads.
//!
//! The system's resolver blocks its thread until the name servers respond, for ten seconds and
//! longer if they are silent. So each lookup has its own thread, and a host has one lookup at a
//! time, which all callers share. New lookups share `LOOKUPS` slots. A slow lookup releases its
//! slot, and its host is remembered as slow: from then on it competes only with other slow hosts.
//! So hosts with silent name servers neither delay others nor use an unlimited number of threads.

use std::{
    collections::HashMap,
    fmt, io,
    net::{IpAddr, ToSocketAddrs as _},
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
    thread,
};

use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, timeout, timeout_at},
};

use crate::limits::{LOOKUP, LOOKUP_HOSTS, LOOKUP_LOST, LOOKUP_SLOW, LOOKUPS, LOOKUPS_SLOW};

type Ask = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;
type LookupResult = Result<Arc<[IpAddr]>, LookupError>;

/// Resolves host names. Clones share their threads and the list of slow hosts.
#[derive(Clone)]
pub struct Resolver(Arc<Inner>);

struct Inner {
    ask: Box<Ask>,
    places: Arc<Semaphore>,
    known: Mutex<Hosts>,
}

#[derive(Default)]
struct Hosts {
    by_name: HashMap<String, Host>,
    /// Slow lookups in progress.
    slow: usize,
    /// The number of the last lookup.
    last: u64,
}

#[derive(Default)]
struct Host {
    is_slow: bool,
    under_way: Option<UnderWay>,
}

#[derive(Clone)]
struct UnderWay {
    number: u64,
    since: Instant,
    outcome_receiver: watch::Receiver<Option<LookupResult>>,
}

/// Why a host name was not resolved.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LookupError {
    /// The resolver returned an error.
    #[error("host {0} cannot be resolved")]
    Failed(String, #[source] Arc<io::Error>),
    /// The resolver has not responded yet.
    #[error("name server has not responded within {seconds} s for host {0}", seconds = LOOKUP.as_secs())]
    Silent(String),
    /// The host was slow before, and the maximum number of slow lookups is in progress.
    #[error("name server did not respond for host {0} before, and {most} such lookups are in progress", most = LOOKUPS_SLOW)]
    Busy(String),
}

impl Resolver {
    /// The resolver of the system; one instance for the whole process.
    pub fn system() -> Self {
        static SYSTEM: LazyLock<Resolver> = LazyLock::new(|| {
            Resolver::new(|host| Ok((host, 0).to_socket_addrs()?.map(|it| it.ip()).collect()))
        });
        SYSTEM.clone()
    }

    /// A resolver that calls `ask`, which may block its thread.
    pub fn new(ask: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner {
            ask: Box::new(ask),
            places: Arc::new(Semaphore::new(LOOKUPS)),
            known: Mutex::default(),
        }))
    }

    /// Resolves a host, in the resolver's order. An IP address resolves to itself.
    ///
    /// # Errors
    /// Fails if there are no addresses, or if the resolver does not respond within 10 seconds.
    pub async fn look_up(&self, host: &str) -> Result<Arc<[IpAddr]>, LookupError> {
        if let Ok(address) = host.parse() {
            return Ok(Arc::new([address]));
        }
        let UnderWay {
            since,
            mut outcome_receiver,
            ..
        } = self.under_way(host)?;
        let silent = || LookupError::Silent(host.to_owned());
        let answer = timeout_at(since + LOOKUP, outcome_receiver.wait_for(Option::is_some)).await;
        match answer.map_err(|_| silent())?.as_deref() {
            Ok(Some(answer)) => answer.clone(),
            // The thread, or the runtime that waited for it, has ended.
            Ok(None) | Err(_) => Err(silent()),
        }
    }

    /// The lookup of a host in progress; started if there is none.
    fn under_way(&self, host: &str) -> Result<UnderWay, LookupError> {
        let mut known = self.0.known();
        if known.by_name.len() >= LOOKUP_HOSTS {
            known.by_name.retain(|_, host| host.under_way.is_some());
        }
        let Hosts {
            by_name,
            slow,
            last,
        } = &mut *known;
        let entry = by_name.entry(host.to_owned()).or_default();
        if let Some(under_way) = &entry.under_way
            && under_way.since.elapsed() < LOOKUP_LOST
        {
            return Ok(under_way.clone());
        }
        if entry.is_slow {
            if *slow >= LOOKUPS_SLOW {
                return Err(LookupError::Busy(host.to_owned()));
            }
            *slow += 1;
        }
        *last += 1;
        let (outcome_sender, outcome_receiver) = watch::channel(None);
        let turn = Lookup {
            inner: Arc::clone(&self.0),
            host: host.to_owned(),
            number: *last,
            since: Instant::now(),
            is_slow: entry.is_slow,
        };
        let under_way = UnderWay {
            number: *last,
            since: turn.since,
            outcome_receiver,
        };
        entry.under_way = Some(under_way.clone());
        drop(known);
        tokio::spawn(turn.take(outcome_sender));
        Ok(under_way)
    }
}

/// One lookup. Dropping it permits the next one of the host.
struct Lookup {
    inner: Arc<Inner>,
    host: String,
    number: u64,
    since: Instant,
    is_slow: bool,
}

impl Lookup {
    async fn take(mut self, outcome_sender: watch::Sender<Option<LookupResult>>) {
        let mut outcome = outcome_sender.subscribe();
        let place = if self.is_slow {
            None
        } else {
            Arc::clone(&self.inner.places).acquire_owned().await.ok()
        };
        let (inner, host) = (Arc::clone(&self.inner), self.host.clone());
        let thread = thread::Builder::new().name("resolve".to_owned());
        let began = thread.spawn(move || {
            let found = (inner.ask)(&host).map(Arc::from);
            let answer = found.map_err(|error| LookupError::Failed(host, Arc::new(error)));
            outcome_sender.send_replace(Some(answer));
        });
        if began.is_err() {
            // The sender was dropped with the thread that could not be started.
            return;
        }
        let mut ended = std::pin::pin!(outcome.wait_for(Option::is_some));
        if timeout(LOOKUP_SLOW, ended.as_mut()).await.is_err() {
            drop(place);
            self.is_found_slow();
            let _answer = ended.await;
        }
    }

    /// It continues without a slot.
    fn is_found_slow(&mut self) {
        let mut known = self.inner.known();
        if !std::mem::replace(&mut self.is_slow, true) {
            known.slow += 1;
        }
        if let Some(host) = known.by_name.get_mut(&self.host) {
            host.is_slow = true;
        }
    }
}

impl Drop for Lookup {
    fn drop(&mut self) {
        let took = self.since.elapsed();
        let mut known = self.inner.known();
        known.slow -= usize::from(self.is_slow);
        let is_this = |it: &UnderWay| it.number == self.number;
        if let Some(host) = known.by_name.get_mut(&self.host)
            && host.under_way.as_ref().is_some_and(is_this)
        {
            host.under_way = None;
            // A slow host whose lookup was quick this time is no longer slow.
            host.is_slow = took >= LOOKUP_SLOW && self.is_slow;
            if !host.is_slow {
                known.by_name.remove(&self.host);
            }
        }
    }
}

impl Inner {
    fn known(&self) -> MutexGuard<'_, Hosts> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolver")
    }
}

/// Waits until one of these hosts is resolved, and a short time longer for the others.
///
/// Returns the indexes of the resolved ones in order.
#[cfg(any(feature = "nats", feature = "postgres"))]
pub(crate) async fn any_of(resolver: &Resolver, hosts: &[&str]) -> Result<Vec<usize>, LookupError> {
    use futures_util::{StreamExt as _, stream::FuturesUnordered};

    /// How long to wait for the others after the first one.
    const MOMENT: std::time::Duration = std::time::Duration::from_millis(500);
    let look_up = async |(index, host): (usize, &&str)| (index, resolver.look_up(host).await);
    let mut looking: FuturesUnordered<_> = hosts.iter().enumerate().map(look_up).collect();
    let (mut found, mut failed, mut until) = (Vec::new(), None, Instant::now() + LOOKUP_LOST);
    while let Ok(Some((index, answer))) = timeout_at(until, looking.next()).await {
        match answer {
            Ok(_) => {
                if found.is_empty() {
                    until = Instant::now() + MOMENT;
                }
                found.push(index);
            }
            Err(error) => failed = Some(error),
        }
    }
    found.sort_unstable();
    match failed {
        Some(error) if found.is_empty() => Err(error),
        _ => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[tokio::test]
    async fn hosts_that_were_slow_are_forgotten_where_there_are_too_many() {
        let resolver = Resolver::new(|_| Ok(vec![Ipv4Addr::LOCALHOST.into()]));
        let slow = |number| {
            let host = Host {
                is_slow: true,
                under_way: None,
            };
            (format!("{number}.example"), host)
        };
        let many = (0..LOOKUP_HOSTS).map(slow);
        resolver.0.known().by_name.extend(many);
        resolver.look_up("well.example").await.unwrap();
        assert!(resolver.0.known().by_name.len() <= 1);
    }
}
