//! The conformance suite of stores, run against this store over the connection type that the
//! environment selects.

use hapax::{Clock, Random, operational::OperationalEvents};
use hapax_postgres::{Migration, Postgres, Settings, Statement, Tx, Value};
use hapax_testkit::{
    events::keyring,
    store::{Images, StoreUnderTest},
};

use crate::matrix::{ConnectionType, Reached};

const ROWS: &[Migration<'static>] =
    &[(1, "business", "CREATE TABLE business (value text NOT NULL)")];
const INSERT: &str = "INSERT INTO business (value) VALUES ($1)";

/// Copies the rows of the schema and the values of its sequences.
const IMAGE: &str = "
    DROP SCHEMA IF EXISTS image CASCADE;
    CREATE SCHEMA image;
    CREATE TABLE image.sequence (name text, stands bigint, is_called boolean);
    DO $$ DECLARE name text; BEGIN
        FOR name IN SELECT relname FROM pg_class
            WHERE relnamespace = 'hapax'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
        LOOP
            EXECUTE format('CREATE TABLE image.%I AS TABLE hapax.%1$I', name);
        END LOOP;
        FOR name IN SELECT relname FROM pg_class
            WHERE relnamespace = 'hapax'::regnamespace AND relkind = 'S'
        LOOP
            EXECUTE format('INSERT INTO image.sequence
                SELECT %L, last_value, is_called FROM hapax.%1$I', name);
        END LOOP;
    END $$";
/// Replaces the current rows by the copied ones in one transaction, as restoring a dump does.
const SET_BACK: &str = "
    BEGIN;
    SET LOCAL session_replication_role = replica;
    DO $$ DECLARE name text; BEGIN
        FOR name IN SELECT relname FROM pg_class
            WHERE relnamespace = 'hapax'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
        LOOP
            EXECUTE format('TRUNCATE hapax.%I CASCADE', name);
        END LOOP;
        FOR name IN SELECT relname FROM pg_class
            WHERE relnamespace = 'hapax'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
        LOOP
            EXECUTE format('INSERT INTO hapax.%I OVERRIDING SYSTEM VALUE TABLE image.%1$I', name);
        END LOOP;
        PERFORM setval('hapax.' || sequence.name, stands, is_called) FROM image.sequence;
    END $$;
    COMMIT";

/// A store on a fresh database, connected through a pooler or as the environment selects.
pub(crate) struct Server<const POOLED: bool = false, const ENCRYPTED: bool = false> {
    pub(crate) store: Postgres,
    pub(crate) settings: Settings,
    pub(crate) reached: Reached,
}

impl<const POOLED: bool, const ENCRYPTED: bool> Server<POOLED, ENCRYPTED> {
    /// A fresh store that emits these operational events.
    pub(crate) async fn opened(clock: Clock, random: Random, events: OperationalEvents) -> Self {
        let way = if POOLED {
            ConnectionType::Pooled
        } else {
            ConnectionType::asked()
        };
        let reached = Reached::fresh(way).await;
        let mut settings = reached.settings(clock, random);
        settings.operational_events = events;
        if ENCRYPTED {
            settings.keyring = keyring(&[1]);
        }
        Self {
            store: reached.open(settings.clone(), ROWS).await,
            settings,
            reached,
        }
    }
}

impl<const POOLED: bool, const ENCRYPTED: bool> StoreUnderTest for Server<POOLED, ENCRYPTED> {
    type Store = Postgres;

    async fn fresh(clock: Clock, random: Random) -> Self {
        Self::opened(clock, random, OperationalEvents::none()).await
    }

    async fn reopen(self) -> Self {
        let Self {
            store,
            settings,
            reached,
        } = self;
        store.close();
        let store = Postgres::open(settings.clone()).await;
        Self {
            store: store.expect("the store does not open again"),
            settings,
            reached,
        }
    }

    fn store(&self) -> &Postgres {
        &self.store
    }

    async fn write_row(tx: &mut Tx, value: &str) {
        let wrote = tx.execute(INSERT, &[&value]).await;
        wrote.expect("the row was not written");
    }

    fn row_statement(value: &str) -> Statement {
        Statement::new(INSERT, [Value::from(value)])
    }

    fn failing_statement() -> Statement {
        Statement::new(INSERT, [Value::Null])
    }

    async fn rows(&self) -> Vec<String> {
        let rows = self.store.read("SELECT value FROM business", &[]).await;
        let rows = rows.expect("the rows were not read");
        rows.iter().map(|row| row.get(0)).collect()
    }
}

impl<const POOLED: bool, const ENCRYPTED: bool> Images for Server<POOLED, ENCRYPTED> {
    async fn keep_image(&self) {
        let client = self.reached.client().await;
        client
            .batch_execute(IMAGE)
            .await
            .expect("the rows were not copied");
    }

    async fn set_back(&self) {
        let client = self.reached.client().await;
        client
            .batch_execute(SET_BACK)
            .await
            .expect("the rows were not replaced");
    }
}

hapax_testkit::store_suite!(Server);
