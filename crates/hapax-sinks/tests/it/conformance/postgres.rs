//! The PostgreSQL sink in the conformance suite, with a table whose trigger fails on request.

use std::{sync::Arc, time::Duration};

use hapax::{
    event::{EventId, NewEvent},
    sink::Sink,
};
use hapax_sinks::postgres::Postgres;
use hapax_testkit::{
    postgres::Database,
    proxy::Proxy,
    sink::{Arrival, Mood, SinkUnderTest},
    sink_suite,
};
use tokio_postgres::Client;

use crate::{postgres::prepare, sinks};

const TIMEOUT: Duration = Duration::from_secs(4);

const MOODY: &str = "
CREATE TABLE mood (event_id uuid, mood text);
CREATE FUNCTION moody() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE its text := (SELECT mood FROM mood WHERE event_id = NEW.event_id OR event_id IS NULL
                     ORDER BY event_id LIMIT 1);
BEGIN
    IF NEW.type = 'seq.next' THEN RAISE 'no place for it'; END IF;
    IF its = 'Fail' THEN RAISE 'not now'; END IF;
    IF its = 'Refuse' THEN RAISE 'never'
        USING ERRCODE = 'check_violation', CONSTRAINT = 'mood'; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER moody BEFORE INSERT ON inbox_event FOR EACH ROW EXECUTE FUNCTION moody()";

struct Table {
    sink: Arc<Postgres>,
    proxy: Proxy,
    direct: Client,
    _database: Database,
}

sink_suite!(Table);

impl SinkUnderTest for Table {
    async fn fresh() -> Self {
        let database = Database::empty().await;
        let direct = prepare(&database, "bytea").await;
        direct.batch_execute(MOODY).await.unwrap();
        let proxy = Proxy::to_postgres(database.address());
        let sink = sinks::postgres(proxy.url(&database.url()), sinks::within(TIMEOUT), |_| {});
        Self {
            sink: Arc::new(sink),
            proxy,
            direct,
            _database: database,
        }
    }

    fn sink(&self) -> Arc<dyn Sink> {
        self.sink.clone()
    }

    fn timeout(&self) -> Option<Duration> {
        Some(TIMEOUT)
    }

    async fn tell(&self, mood: Mood) -> bool {
        match mood {
            Mood::Accept => {
                self.proxy.heal().await;
                self.direct.batch_execute("DELETE FROM mood").await.unwrap();
            }
            Mood::Fail | Mood::Refuse => self.say(None, mood).await,
            Mood::Hang => self.proxy.black_hole(),
            Mood::Down => self.proxy.shut().await,
            Mood::Talk | Mood::Gone => return false,
        }
        true
    }

    async fn tell_about(&self, event: EventId, mood: Mood) -> bool {
        self.say(Some(event.to_string()), mood).await;
        true
    }

    async fn stray(&self) -> Option<NewEvent> {
        Some(NewEvent::json("seq.next", &1))
    }

    async fn arrivals(&self) -> Vec<Arrival> {
        let read = "SELECT event_id::text, payload FROM inbox_event ORDER BY position";
        let rows = self.direct.query(read, &[]).await.unwrap();
        let arrivals = rows.iter().map(|row| Arrival {
            id: row.get(0),
            payload: Some(row.get::<_, Vec<u8>>(1).into()),
        });
        arrivals.collect()
    }
}

impl Table {
    async fn say(&self, event: Option<String>, mood: Mood) {
        let insert = "INSERT INTO mood VALUES ($1::text::uuid, $2)";
        let mood = format!("{mood:?}");
        self.direct.execute(insert, &[&event, &mood]).await.unwrap();
    }
}
