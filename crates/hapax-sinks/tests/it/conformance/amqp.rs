//! The AMQP sink in the conformance suite, with the RabbitMQ broker of this machine, through a
//! proxy.

use std::{sync::Arc, time::Duration};

use hapax::{event::NewEvent, sink::Sink};
use hapax_sinks::amqp::Amqp;
use hapax_testkit::{
    proxy::Proxy,
    sink::{Arrival, Mood, SinkUnderTest},
    sink_suite,
};

use crate::{
    amqp_broker::{BROKER, Corner},
    sinks,
};

const TIMEOUT: Duration = Duration::from_secs(4);

struct Exchange {
    sink: Arc<Amqp>,
    proxy: Proxy,
    corner: Corner,
}

sink_suite!(Exchange);

impl SinkUnderTest for Exchange {
    async fn fresh() -> Self {
        let corner = Corner::at(BROKER).await;
        corner.full_queue("full").await;
        let proxy = Proxy::to(BROKER);
        let sink = sinks::amqp(
            format!("amqp://guest:guest@{}", proxy.address()),
            sinks::within(TIMEOUT),
            |it| it.exchange.clone_from(&corner.name),
        );
        let sink = Arc::new(sink);
        Self {
            sink,
            proxy,
            corner,
        }
    }

    fn sink(&self) -> Arc<dyn Sink> {
        self.sink.clone()
    }

    fn timeout(&self) -> Option<Duration> {
        Some(TIMEOUT)
    }

    async fn tell(&self, mood: Mood) -> bool {
        self.proxy.heal().await;
        match mood {
            Mood::Accept => {
                self.corner.bind("all", "#").await;
                self.corner.unbind("full", "#").await;
            }
            Mood::Fail => {
                self.corner.bind("full", "#").await;
                self.corner.unbind("all", "#").await;
            }
            Mood::Hang => self.proxy.black_hole(),
            Mood::Down => self.proxy.shut().await,
            Mood::Refuse | Mood::Gone | Mood::Talk => return false,
        }
        true
    }

    async fn stray(&self) -> Option<NewEvent> {
        self.corner.bind("all", "order.#").await;
        self.corner.unbind("all", "#").await;
        Some(NewEvent::json("seq.next", &1))
    }

    async fn arrivals(&self) -> Vec<Arrival> {
        let taken = self.corner.taken().await.into_iter();
        taken
            .map(|message| Arrival {
                id: message.id(),
                payload: Some(message.body.into()),
            })
            .collect()
    }
}
