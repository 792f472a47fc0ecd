//! Services on one database: one writes through the store, the others through the transaction of
//! their own driver.

use std::{sync::Arc, time::Duration};

use hapax::{
    event::{Headers, NewEvent},
    idempotency::{Claim, StoredResponse, Taken},
    inbox::{Acceptance, Message},
    key::Tenant,
    store::{ClaimOutcome, Effect, Keys, StoreError, Transaction},
};
use hapax_postgres::{
    Postgres,
    adapter::{self, Origin},
};
use hapax_testkit::{
    events::{claim, event, response},
    postgres::{Database, connect},
    wait::Patience,
};
use sqlx::PgPool;
use tokio_postgres::Client;

use crate::fixture::{INSERT, PATIENCE, ROWS, settings};

/// Three services on the same database: one uses the store, two use their own drivers.
#[derive(Clone)]
pub(super) enum Service {
    Store(Postgres),
    Driver { url: String },
    Sqlx(PgPool),
}

/// The outcome of a request.
#[derive(Debug, PartialEq)]
pub(super) enum NoteOutcome {
    Ran(StoredResponse),
    Taken(Taken),
}

impl Service {
    /// Claims the key, inserts a note, emits an event that describes the note, and completes the
    /// key with the response.
    pub(super) async fn note(
        &self,
        claim: Claim,
        text: &str,
        response: &StoredResponse,
    ) -> Result<NoteOutcome, StoreError> {
        match self {
            Self::Store(store) => {
                let mut tx = match store.claim(claim).await? {
                    ClaimOutcome::Taken(taken) => return Ok(NoteOutcome::Taken(taken)),
                    ClaimOutcome::Open(tx) => tx,
                };
                tx.execute(INSERT, &[&text]).await?;
                tx.emit(event(text))?;
                tx.complete(response, Effect::Keep).await?;
            }
            Self::Driver { url } => {
                let mut client = connect(url).await;
                let mut tx = client.transaction().await.unwrap();
                match adapter::tokio_postgres::claim(&mut tx, &claim).await? {
                    ClaimOutcome::Taken(taken) => return Ok(NoteOutcome::Taken(taken)),
                    ClaimOutcome::Open(()) => {}
                }
                tx.execute(INSERT, &[&text]).await.unwrap();
                adapter::tokio_postgres::emit(&mut tx, event(text), &claim).await?;
                adapter::tokio_postgres::complete(&mut tx, &claim, response).await?;
                tx.commit().await.unwrap();
            }
            Self::Sqlx(pool) => {
                let mut tx = pool.begin().await.unwrap();
                match adapter::sqlx::claim(&mut tx, &claim).await? {
                    ClaimOutcome::Taken(taken) => return Ok(NoteOutcome::Taken(taken)),
                    ClaimOutcome::Open(()) => {}
                }
                sqlx::query(INSERT)
                    .bind(text)
                    .execute(&mut *tx)
                    .await
                    .unwrap();
                adapter::sqlx::emit(&mut tx, event(text), &claim).await?;
                adapter::sqlx::complete(&mut tx, &claim, response).await?;
                tx.commit().await.unwrap();
            }
        }
        Ok(NoteOutcome::Ran(response.clone()))
    }

    /// Repeats the request until its response is known.
    pub(super) async fn insist(&self, key: &str, text: &str) -> StoredResponse {
        let patience = Patience::within(PATIENCE);
        loop {
            match self.note(claim(key), text, &response(text)).await.unwrap() {
                NoteOutcome::Ran(response) | NoteOutcome::Taken(Taken::Replay { response, .. }) => {
                    return response;
                }
                NoteOutcome::Taken(_) => patience.pause().await,
            }
        }
    }

    /// Emits an event without a claim.
    pub(super) async fn emit(&self, event: NewEvent, tenant: &Tenant, context: &Headers) {
        let origin = Origin {
            tenant: Some(tenant),
            context: Some(context),
            check: None,
        };
        match self {
            Self::Store(store) => {
                let begun = store.begin(Some(tenant.clone()), context.clone()).await;
                let mut tx = begun.unwrap();
                tx.emit(event).unwrap();
                tx.commit().await.unwrap();
            }
            Self::Driver { url } => {
                let mut client = connect(url).await;
                let mut tx = client.transaction().await.unwrap();
                adapter::tokio_postgres::emit(&mut tx, event, origin)
                    .await
                    .unwrap();
                tx.commit().await.unwrap();
            }
            Self::Sqlx(pool) => {
                let mut tx = pool.begin().await.unwrap();
                adapter::sqlx::emit(&mut tx, event, origin).await.unwrap();
                tx.commit().await.unwrap();
            }
        }
    }

    /// Accepts a new message, and commits it with a result.
    pub(super) async fn process(&self, message: &Message, result: &str) {
        match self {
            Self::Store(store) => {
                let mut tx = store.begin(None, Headers::new()).await.unwrap();
                assert_eq!(tx.accept(message).await.unwrap(), Acceptance::First);
                tx.record_result(result).unwrap();
                tx.commit().await.unwrap();
            }
            Self::Driver { url } => {
                use adapter::tokio_postgres::{accept, processed};
                let mut client = connect(url).await;
                let mut tx = client.transaction().await.unwrap();
                assert_eq!(accept(&mut tx, message).await.unwrap(), Acceptance::First);
                processed(&mut tx, message, Some(result)).await.unwrap();
                tx.commit().await.unwrap();
            }
            Self::Sqlx(pool) => {
                use adapter::sqlx::{accept, processed};
                let mut tx = pool.begin().await.unwrap();
                assert_eq!(accept(&mut tx, message).await.unwrap(), Acceptance::First);
                processed(&mut tx, message, Some(result)).await.unwrap();
                tx.commit().await.unwrap();
            }
        }
    }

    /// Accepts a message, then commits or rolls back.
    pub(super) async fn accept(&self, message: &Message, commit: bool) -> Acceptance {
        match self {
            Self::Store(store) => {
                let mut tx = store.begin(None, Headers::new()).await.unwrap();
                let accepted = tx.accept(message).await.unwrap();
                if commit {
                    tx.commit().await.unwrap();
                } else {
                    tx.rollback().await;
                }
                accepted
            }
            Self::Driver { url } => {
                let mut client = connect(url).await;
                let mut tx = client.transaction().await.unwrap();
                let accepted = adapter::tokio_postgres::accept(&mut tx, message)
                    .await
                    .unwrap();
                if commit {
                    tx.commit().await.unwrap();
                }
                accepted
            }
            Self::Sqlx(pool) => {
                let mut tx = pool.begin().await.unwrap();
                let accepted = adapter::sqlx::accept(&mut tx, message).await.unwrap();
                if commit {
                    tx.commit().await.unwrap();
                }
                accepted
            }
        }
    }
}

/// The three services, and a connection that none of them uses.
pub(super) struct Deployment {
    pub(super) services: [Service; 3],
    pub(super) plain: Client,
    _database: Arc<Database>,
}

impl Deployment {
    pub(super) async fn new() -> Self {
        let database = Arc::new(Database::fresh().await);
        let url = database.url();
        let mut settings = settings(&url);
        settings.wait = Duration::from_millis(50);
        let store = Postgres::open(settings).await.unwrap();
        store.migrate("test", &[(1, "note", ROWS)]).await.unwrap();
        Self {
            services: [
                Service::Store(store),
                Service::Driver { url: url.clone() },
                Service::Sqlx(PgPool::connect(&url).await.unwrap()),
            ],
            plain: database.client().await,
            _database: database,
        }
    }

    pub(super) async fn count(&self, of: &str) -> i64 {
        let count = format!("SELECT count(*) FROM {of}");
        self.plain.query_one(&count, &[]).await.unwrap().get(0)
    }

    pub(super) fn url(&self) -> &str {
        let [_, Service::Driver { url }, _] = &self.services else {
            unreachable!("the second service has a URL")
        };
        url
    }

    pub(super) fn pool(&self) -> &PgPool {
        let [_, _, Service::Sqlx(pool)] = &self.services else {
            unreachable!("the third service has a pool")
        };
        pool
    }
}
