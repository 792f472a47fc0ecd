//! The handler sink in the conformance suite, with a function that writes the events that it
//! receives.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use hapax::{
    event::{EventId, NewEvent},
    sink::Sink,
};
use hapax_sinks::handler::{Handler, HandlerError};
use hapax_sqlite::{Sqlite, Tx};
use hapax_testkit::{
    sink::{Arrival, Mood, SinkUnderTest},
    sink_suite,
};
use tempfile::TempDir;

use crate::consumer::store;

struct Function {
    sink: Arc<Handler<Sqlite>>,
    store: Sqlite,
    mood: Arc<Mutex<Mood>>,
    moods: Arc<Mutex<HashMap<EventId, Mood>>>,
    _directory: TempDir,
}

sink_suite!(Function);

impl SinkUnderTest for Function {
    async fn fresh() -> Self {
        let tables = "CREATE TABLE arrivals (id TEXT, payload BLOB)";
        let (store, directory) = store(tables).await;
        let mood = Arc::new(Mutex::new(Mood::Accept));
        let moods = Arc::<Mutex<HashMap<EventId, Mood>>>::default();
        let (usual, special) = (mood.clone(), moods.clone());
        let sink = Handler::new(store.clone(), "law", move |tx: &mut Tx, event| {
            let special = special.lock().unwrap().get(&event.id).copied();
            let mood = special.unwrap_or(*usual.lock().unwrap());
            let is_stray = event.kind == "seq.next";
            Box::pin(async move {
                let row = (event.id.to_string(), event.payload.bytes().to_vec());
                let insert = "INSERT INTO arrivals (id, payload) VALUES (?1, ?2)";
                let written = tx.with(move |rows| rows.execute(insert, row)).await;
                written.map_err(HandlerError::again)?;
                assert!(!is_stray, "the function panics as configured");
                match mood {
                    Mood::Fail => Err(HandlerError::again("not now")),
                    Mood::Refuse => Err(HandlerError::never("never")),
                    Mood::Hang => std::future::pending().await,
                    _ => Ok(()),
                }
            })
        });
        Self {
            sink: Arc::new(sink.unwrap()),
            store,
            mood,
            moods,
            _directory: directory,
        }
    }

    fn sink(&self) -> Arc<dyn Sink> {
        self.sink.clone()
    }

    async fn tell(&self, mood: Mood) -> bool {
        *self.mood.lock().unwrap() = mood;
        is_known(mood)
    }

    async fn tell_about(&self, event: EventId, mood: Mood) -> bool {
        self.moods.lock().unwrap().insert(event, mood);
        is_known(mood)
    }

    async fn stray(&self) -> Option<NewEvent> {
        Some(NewEvent::json("seq.next", &1))
    }

    async fn arrivals(&self) -> Vec<Arrival> {
        let read = |rows: &hapax_sqlite::rusqlite::Connection| {
            let mut query = rows.prepare("SELECT id, payload FROM arrivals ORDER BY rowid")?;
            let arrivals = query.query_map([], |row| {
                Ok(Arrival {
                    id: row.get(0)?,
                    payload: Some(Bytes::from(row.get::<_, Vec<u8>>(1)?)),
                })
            })?;
            arrivals.collect()
        };
        self.store.read(read).await.unwrap()
    }
}

fn is_known(mood: Mood) -> bool {
    matches!(mood, Mood::Accept | Mood::Fail | Mood::Refuse | Mood::Hang)
}
