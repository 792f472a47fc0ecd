//! Sinks of a service in the conformance suite: a private process behind a proxy.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use hapax::sink::Sink;
use hapax_sinks::settings::DestinationSettings;
use hapax_testkit::{
    proxy::Proxy,
    sink::{Arrival, Mood, SinkUnderTest},
};

use crate::sinks;

const TIMEOUT: Duration = Duration::from_secs(4);

/// A place for events in a private service: a bucket, a queue or a topic.
pub(super) trait Place: Sized + Send + Sync + 'static {
    /// Starts the service.
    fn start() -> impl Future<Output = Self> + Send;

    /// The address of the service, as `host:port`.
    fn address(&self) -> String;

    /// Creates the place, unless it exists. Returns its name for the sink.
    fn create(&self) -> impl Future<Output = String> + Send;

    /// Deletes the place.
    fn delete(&self) -> impl Future<Output = ()> + Send;

    /// The sink of the place, with the service at this endpoint.
    fn sink(endpoint: &str, name: &str, destination: DestinationSettings) -> Arc<dyn Sink>;

    /// All stored arrivals, in order.
    fn arrivals(&self) -> impl Future<Output = Vec<Arrival>> + Send;
}

/// A place, its sink, and the proxy between them.
pub(super) struct BehindProxy<P> {
    sink: Arc<dyn Sink>,
    proxy: Proxy,
    place: P,
}

impl<P: Place> SinkUnderTest for BehindProxy<P> {
    async fn fresh() -> Self {
        let place = P::start().await;
        let name = place.create().await;
        let proxy = Proxy::to(place.address());
        let endpoint = format!("http://{}", proxy.address());
        let sink = P::sink(&endpoint, &name, sinks::within(TIMEOUT));
        Self { sink, proxy, place }
    }

    fn sink(&self) -> Arc<dyn Sink> {
        Arc::clone(&self.sink)
    }

    fn timeout(&self) -> Option<Duration> {
        Some(TIMEOUT)
    }

    async fn tell(&self, mood: Mood) -> bool {
        match mood {
            Mood::Accept => {
                self.proxy.heal().await;
                self.place.create().await;
            }
            Mood::Fail => self.place.delete().await,
            Mood::Hang => self.proxy.black_hole(),
            Mood::Down => self.proxy.shut().await,
            // S3 reads nothing of an event, so it refuses none. Refusals of single messages are
            // tested with a server of our own.
            Mood::Talk | Mood::Gone | Mood::Refuse => return false,
        }
        true
    }

    async fn arrivals(&self) -> Vec<Arrival> {
        self.place.arrivals().await
    }
}

/// The messages that were received, which the service no longer has.
#[derive(Default)]
pub(super) struct Received(Mutex<Vec<Arrival>>);

impl Received {
    /// Adds messages, and returns all of them.
    pub(super) fn add(&self, arrivals: impl Iterator<Item = Arrival>) -> Vec<Arrival> {
        let mut received = self.0.lock().unwrap();
        received.extend(arrivals);
        received.clone()
    }
}
