//! A sink that does what a script says, and records the events that it was offered.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use futures_util::future::BoxFuture;
use hapax::sink::{Offer, Outcome, Receipt, Sink, SinkError};
use tokio::sync::Semaphore;

/// The reaction of the sink to an offer.
pub(crate) enum Reply {
    Take,
    Fail(SinkError),
    /// Never responds.
    Hang,
    /// Takes the event and never responds.
    TakeAndHang,
    /// Takes the event when there is a permit.
    TakeWith(Arc<Semaphore>),
}

type Script = dyn Fn(&Offer) -> Reply + Send + Sync;

/// Removes an event from the list of hanging offers when the relay drops its offer.
struct GivenUp<'a>(&'a Mutex<Vec<i64>>, i64);

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        let Self(hanging, position) = self;
        hanging.lock().unwrap().retain(|it| it != position);
    }
}

#[derive(Clone)]
pub(crate) struct Recorder {
    script: Arc<Mutex<Arc<Script>>>,
    offers: Arc<Mutex<Vec<(i64, u32)>>>,
    taken: Arc<Mutex<Vec<i64>>>,
    hanging: Arc<Mutex<Vec<i64>>>,
    batch_max: usize,
}

impl Recorder {
    pub(crate) fn new(script: impl Fn(&Offer) -> Reply + Send + Sync + 'static) -> Self {
        Self {
            script: Arc::new(Mutex::new(Arc::new(script))),
            offers: Arc::default(),
            taken: Arc::default(),
            hanging: Arc::default(),
            batch_max: 1,
        }
    }

    /// A sink that takes everything.
    pub(crate) fn taking() -> Self {
        Self::new(|_| Reply::Take)
    }

    /// A sink that takes everything but the event at this position.
    pub(crate) fn except(position: i64, reply: fn() -> Reply) -> Self {
        Self::new(move |offer| match offer.event.position {
            at if at == position => reply(),
            _ => Reply::Take,
        })
    }

    pub(crate) fn batches(mut self, batch_max: usize) -> Self {
        self.batch_max = batch_max;
        self
    }

    pub(crate) fn now(&self, script: impl Fn(&Offer) -> Reply + Send + Sync + 'static) {
        *self.script.lock().unwrap() = Arc::new(script);
    }

    /// All offers, in order: position and attempt.
    pub(crate) fn offers(&self) -> Vec<(i64, u32)> {
        self.offers.lock().unwrap().clone()
    }

    /// All events that were taken, in order, with repetitions.
    pub(crate) fn taken(&self) -> Vec<i64> {
        self.taken.lock().unwrap().clone()
    }

    /// The number of times that each event was taken.
    pub(crate) fn counts(&self) -> BTreeMap<i64, usize> {
        let mut counts = BTreeMap::new();
        for position in self.taken() {
            *counts.entry(position).or_default() += 1;
        }
        counts
    }

    /// The events of the offers that never get a response, while the relay waits for them.
    pub(crate) fn hanging(&self) -> Vec<i64> {
        self.hanging.lock().unwrap().clone()
    }

    async fn hang(&self, position: i64) {
        self.hanging.lock().unwrap().push(position);
        let _given_up = GivenUp(&self.hanging, position);
        std::future::pending::<()>().await;
    }

    async fn reply(&self, offer: &Offer) -> Outcome {
        self.offers
            .lock()
            .unwrap()
            .push((offer.event.position, offer.attempt));
        let script = Arc::clone(&self.script.lock().unwrap());
        let take = || self.taken.lock().unwrap().push(offer.event.position);
        match script(offer) {
            Reply::Take => take(),
            Reply::Fail(error) => return Err(error),
            Reply::Hang => self.hang(offer.event.position).await,
            Reply::TakeWith(gate) => {
                gate.acquire().await.unwrap().forget();
                take();
            }
            Reply::TakeAndHang => {
                take();
                self.hang(offer.event.position).await;
            }
        }
        Ok(Receipt::default())
    }
}

impl Sink for Recorder {
    fn kind(&self) -> &'static str {
        "recorder"
    }

    fn deliver<'a>(&'a self, offers: &'a [Offer]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            let mut outcomes = Vec::new();
            for offer in offers {
                outcomes.push(self.reply(offer).await);
            }
            outcomes
        })
    }

    fn batch_max(&self) -> usize {
        self.batch_max
    }
}
