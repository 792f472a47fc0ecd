//! The Redis sink in the conformance suite, with a private stream, through a proxy.

use std::{sync::Arc, time::Duration};

use hapax::sink::Sink;
use hapax_sinks::redis::Redis;
use hapax_testkit::{
    name::unused,
    proxy::Proxy,
    sink::{Arrival, Mood, SinkUnderTest},
    sink_suite,
};
use redis::aio::MultiplexedConnection;

use crate::{
    redis::{connection, read},
    sinks,
};

const SERVER: &str = "127.0.0.1:6379";
const TIMEOUT: Duration = Duration::from_secs(4);

struct Stream {
    sink: Arc<Redis>,
    proxy: Proxy,
    name: String,
    direct: MultiplexedConnection,
}

sink_suite!(Stream);

impl SinkUnderTest for Stream {
    async fn fresh() -> Self {
        let name = unused("hapax-law");
        let proxy = Proxy::to(SERVER);
        let sink = sinks::redis(
            format!("redis://{}/1", proxy.address()),
            sinks::within(TIMEOUT),
            |it| it.stream = Some(name.clone()),
        );
        let direct = connection(SERVER, 1).await;
        Self {
            sink: Arc::new(sink),
            proxy,
            name,
            direct,
        }
    }

    fn sink(&self) -> Arc<dyn Sink> {
        self.sink.clone()
    }

    fn timeout(&self) -> Option<Duration> {
        Some(TIMEOUT)
    }

    async fn tell(&self, mood: Mood) -> bool {
        let mut direct = self.direct.clone();
        let kind: String = redis::cmd("TYPE")
            .arg(&self.name)
            .query_async(&mut direct)
            .await
            .unwrap();
        match mood {
            Mood::Accept => {
                self.proxy.heal().await;
                if kind == "string" {
                    forget(&mut direct, &self.name).await;
                }
            }
            Mood::Fail => {
                let mut set = redis::cmd("SET");
                set.arg(&self.name).arg("x");
                set.exec_async(&mut direct).await.unwrap();
            }
            Mood::Hang => self.proxy.black_hole(),
            Mood::Down => self.proxy.shut().await,
            // Redis has no response for a permanent refusal.
            Mood::Talk | Mood::Gone | Mood::Refuse => return false,
        }
        true
    }

    async fn arrivals(&self) -> Vec<Arrival> {
        let mut direct = self.direct.clone();
        let kind: String = redis::cmd("TYPE")
            .arg(&self.name)
            .query_async(&mut direct)
            .await
            .unwrap();
        if kind == "string" {
            return Vec::new();
        }
        let entries = read(&mut direct, &self.name).await;
        let arrivals = entries.into_iter().map(|entry| Arrival {
            id: String::from_utf8(entry["id"].clone()).unwrap(),
            payload: Some(entry["data"].clone().into()),
        });
        arrivals.collect()
    }
}

async fn forget(direct: &mut MultiplexedConnection, name: &str) {
    redis::cmd("DEL")
        .arg(name)
        .exec_async(direct)
        .await
        .unwrap();
}

impl Drop for Stream {
    fn drop(&mut self) {
        let (mut direct, name) = (self.direct.clone(), self.name.clone());
        tokio::spawn(async move { forget(&mut direct, &name).await });
    }
}
