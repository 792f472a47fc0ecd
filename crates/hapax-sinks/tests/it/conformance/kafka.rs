//! The Kafka sink in the conformance suite, with a cluster that fails on request.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use hapax::{event::NewEvent, sink::Sink};
use hapax_sinks::kafka::Kafka;
use hapax_testkit::{
    sink::{Arrival, Mood, SinkUnderTest},
    sink_suite,
};
use rdkafka::{Message as _, types::RDKafkaRespErr};

use crate::{
    kafka_cluster::{Cluster, header},
    sinks,
};

const TIMEOUT: Duration = Duration::from_secs(3);
const TOPIC: &str = "order.created";

struct Topic {
    sink: Arc<Kafka>,
    cluster: Cluster,
}

sink_suite!(Topic);

impl SinkUnderTest for Topic {
    async fn fresh() -> Self {
        let cluster = Cluster::start(&[(TOPIC, 3)]);
        let sink = sinks::kafka(&cluster.servers, sinks::within(TIMEOUT), |_| {});
        let sink = Arc::new(sink);
        Self { sink, cluster }
    }

    fn sink(&self) -> Arc<dyn Sink> {
        self.sink.clone()
    }

    fn timeout(&self) -> Option<Duration> {
        Some(TIMEOUT)
    }

    async fn tell(&self, mood: Mood) -> bool {
        use RDKafkaRespErr::{
            RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
        };
        self.cluster.heal();
        match mood {
            Mood::Accept => {}
            Mood::Fail => {
                let error = RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
                self.cluster.refuse(error, 100);
            }
            Mood::Refuse => self
                .cluster
                .refuse(RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, 100),
            Mood::Hang => self.cluster.tell(|broker| {
                broker
                    .broker_round_trip_time(1, Duration::from_hours(1))
                    .unwrap();
            }),
            Mood::Down => self.cluster.tell(|broker| broker.broker_down(1).unwrap()),
            Mood::Gone | Mood::Talk => return false,
        }
        true
    }

    async fn stray(&self) -> Option<NewEvent> {
        let missing = RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
        self.cluster
            .tell(move |broker| broker.topic_error("seq.next", missing).unwrap());
        Some(NewEvent::json("seq.next", &1))
    }

    async fn arrivals(&self) -> Vec<Arrival> {
        // Records cannot be read while the cluster is down, and reading them does not change
        // anything.
        self.cluster.tell(|broker| {
            broker.broker_round_trip_time(1, Duration::ZERO).unwrap();
            broker.broker_up(1).unwrap();
        });
        let records = self.cluster.records(TOPIC).await.into_iter();
        records
            .map(|record| Arrival {
                id: header(&record, "ce_id").unwrap(),
                payload: record.payload().map(Bytes::copy_from_slice),
            })
            .collect()
    }
}
