//! The response to a settlement's COMMIT is lost, and an operator changes the dead letter before
//! the settlement is sent again.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures_util::future::BoxFuture;
use hapax::{
    relay::{Destination, Relay, Settings},
    sink::{Offer, Outcome, Receipt, Sink, SinkError},
    store::DeadLetters,
};
use hapax_testkit::{
    clock::seeded_random,
    proxy::{Deed, Moment},
    wait::eventually,
};
use tokio::sync::Semaphore;

use super::day::{Day, RequestKind, ask};
use crate::fixture::{PATIENCE, clock};

/// Rejects the first offer, as soon as it is allowed to, and accepts all others.
struct Far {
    offered: AtomicUsize,
    gate: Semaphore,
}

impl Far {
    fn offered(&self) -> usize {
        self.offered.load(Ordering::SeqCst)
    }

    async fn judge(&self) -> Outcome {
        if self.offered.fetch_add(1, Ordering::SeqCst) > 0 {
            return Ok(Receipt::default());
        }
        self.gate.acquire().await.unwrap().forget();
        Err(SinkError::rejected("told", "told to"))
    }
}

impl Sink for Far {
    fn kind(&self) -> &'static str {
        "far"
    }

    fn deliver<'a>(&'a self, offers: &'a [Offer]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            let mut outcomes = Vec::new();
            for _ in offers {
                outcomes.push(self.judge().await);
            }
            outcomes
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_operator_does_with_a_dead_letter_stands_though_its_settlement_comes_again() {
    for is_replayed in [false, true] {
        let day = Day::new().await;
        let store = &day.good.store;
        let far = Arc::new(Far {
            offered: AtomicUsize::new(0),
            gate: Semaphore::new(0),
        });
        let sink: Arc<dyn Sink> = far.clone();
        let settings = Settings::new(clock(), seeded_random(2));
        let destinations = vec![Destination::new("far", sink)];
        let relay = Relay::spawn(&day.node, destinations, &settings, &day.node.notifier());
        ask(store, RequestKind::PlannedRequest, "a").await;
        eventually(PATIENCE, async || far.offered() == 1).await;

        let trap = day.proxy.once(Moment::commit(), Deed::HoldAfter);
        far.gate.add_permits(1);
        trap.sprung().await;
        day.proxy.refuse(true).await;
        day.proxy.reset();
        let dead = store.dead_letters("far", 0, 10).await.unwrap();
        let position = dead[0].event.position;
        let is_done = if is_replayed {
            store.replay("far", position).await
        } else {
            store.discard("far", position, "never mind").await
        };
        assert!(is_done.unwrap());
        day.proxy.heal().await;

        ask(store, RequestKind::PlannedRequest, "b").await;
        let offers = 2 + usize::from(is_replayed);
        eventually(PATIENCE, async || far.offered() == offers).await;
        relay.drain().await;
        assert_eq!(store.dead_letters("far", 0, 10).await.unwrap().len(), 0);
        assert_eq!(far.offered(), offers);
        let left = "SELECT count(*) FROM hapax.delivery WHERE state = 'discarded'";
        assert_eq!(day.good.count(left).await, i64::from(!is_replayed));
    }
}
