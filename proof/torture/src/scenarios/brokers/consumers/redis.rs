//! Redis consumer: a consumer group of a stream. It reads the messages that it has not acknowledged
//! first.

use std::{collections::HashMap, time::Duration};

use ::redis::{AsyncConnectionConfig, Client, aio::MultiplexedConnection, cmd};

use super::{Inlet, Message};

const URL: &str = "redis://127.0.0.1:6379";
const GROUP: &str = "brokers";
const RESPONSE: Duration = Duration::from_secs(30);

type Entries = Vec<(String, HashMap<String, Vec<u8>>)>;

#[derive(Debug)]
pub(crate) struct Stream {
    name: String,
    connection: MultiplexedConnection,
    /// Whether the consumer still has to read the messages that it did not acknowledge.
    is_behind: bool,
}

impl Stream {
    pub(super) async fn fresh(name: &str) -> Self {
        let mut connection = connect().await;
        let mut made = cmd("XGROUP");
        made.arg("CREATE")
            .arg(name)
            .arg(GROUP)
            .arg("0")
            .arg("MKSTREAM");
        made.exec_async(&mut connection).await.unwrap();
        Self {
            name: name.to_owned(),
            connection,
            is_behind: false,
        }
    }

    pub(super) fn settings(&self) -> String {
        format!("{{ url = \"{URL}\", stream = \"{}\" }}", self.name)
    }
}

impl Inlet for Stream {
    type Receipt = String;

    async fn take(&mut self, max: usize) -> Vec<Message<String>> {
        let from = if self.is_behind { "0" } else { ">" };
        let mut read = cmd("XREADGROUP");
        read.arg("GROUP")
            .arg(GROUP)
            .arg("one")
            .arg("COUNT")
            .arg(max);
        read.arg("BLOCK")
            .arg(100)
            .arg("STREAMS")
            .arg(&self.name)
            .arg(from);
        let read = read.query_async(&mut self.connection).await;
        let read: Option<Vec<(String, Entries)>> = read.unwrap();
        let entries = read.into_iter().flatten().flat_map(|(_, entries)| entries);
        let messages = entries.map(|(receipt, mut fields)| Message {
            id: String::from_utf8(fields.remove("id").unwrap()).unwrap(),
            payload: fields.remove("data").unwrap(),
            receipt,
        });
        let messages: Vec<_> = messages.collect();
        self.is_behind &= !messages.is_empty();
        messages
    }

    async fn acknowledge(&mut self, receipts: Vec<String>) {
        let mut done = cmd("XACK");
        done.arg(&self.name).arg(GROUP).arg(receipts);
        done.exec_async(&mut self.connection).await.unwrap();
    }

    async fn break_off(&mut self) {
        self.connection = connect().await;
        self.is_behind = true;
    }

    async fn clear(&mut self) {
        let gone = cmd("DEL")
            .arg(&self.name)
            .exec_async(&mut self.connection)
            .await;
        gone.unwrap();
    }
}

async fn connect() -> MultiplexedConnection {
    let client = Client::open(URL).unwrap();
    // On a busy machine, Redis may respond slowly.
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(RESPONSE));
    let connected = client
        .get_multiplexed_async_connection_with_config(&config)
        .await;
    connected.unwrap_or_else(|error| panic!("no Redis at {URL}: {error}"))
}
