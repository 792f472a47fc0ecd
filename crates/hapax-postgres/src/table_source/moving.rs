//! Moving one batch: claim, append, mark and commit, in one pipeline.
//!
//! If there are several relays, one moves rows at a time, under an advisory lock of the
//! transaction; the others find the table busy and continue to read. If the pipeline is
//! interrupted, it does not matter whether it was committed: moved rows are marked, and unmarked
//! rows were not moved.

use hapax::{store::StoreError, telemetry};
use tokio_postgres::{Row, Statement, types::ToSql};

use super::{TableSource, TableSourceError, described::Described, statement};
use crate::{
    connection::Link, outbox::is_refused, postgres::Postgres, query, session::QueuedStatement,
    value::Param,
};

/// How often one batch is looked for past aggregates whose rows others hold.
const PASSES: u32 = 32;

/// The result of one batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Rows that are events now.
    pub rows: u64,
    /// Rows that cannot be events and were set aside.
    pub set_aside: u64,
    /// Whether another relay was at it.
    pub is_busy: bool,
}

/// Moves the rows of one table.
#[derive(Debug)]
pub(super) struct Mover {
    pub(super) name: String,
    pub(super) index: String,
    pub(super) is_served: bool,
    sql: String,
    number: i32,
}

impl Mover {
    pub(super) async fn open(
        store: &Postgres,
        table: TableSource,
    ) -> Result<Self, TableSourceError> {
        let described = Described::of(store, &table).await?;
        if described.hides_some {
            tracing::warn!(
                source = table.name,
                table = described.table,
                "row-level security is on for this table: rows that its policies hide from the role \
                 are not moved; a role with BYPASSRLS sees all of them"
            );
        }
        if described.status(&table).is_some_and(|it| !it.is_required) {
            tracing::warn!(
                source = table.name,
                table = described.table,
                "the status may be null: rows without a status are not moved"
            );
        }
        Ok(Self {
            index: statement::index(&table, &described),
            is_served: described.is_served,
            sql: statement::moving(&table, &described),
            number: described.number,
            name: table.name,
        })
    }

    /// Moves one batch. Where all of it waits for rows that others hold, it is looked past the
    /// aggregates of those: one that has many rows does not keep others from being moved.
    pub(super) async fn move_batch(&self, store: &Postgres) -> Result<Moved, StoreError> {
        let mut passed = Vec::new();
        for _ in 0..PASSES {
            let (moved, waiting) = self.move_past(store, &passed).await?;
            let is_new = |aggregate: &String| !passed.contains(aggregate);
            if moved != Moved::default() || !waiting.iter().any(is_new) {
                return Ok(moved);
            }
            passed.extend(waiting);
        }
        Ok(Moved::default())
    }

    /// Moves one batch of rows of other aggregates than `passed`; says which of them wait for rows
    /// that others hold.
    async fn move_past(
        &self,
        store: &Postgres,
        passed: &[String],
    ) -> Result<(Moved, Vec<String>), StoreError> {
        let mut session = store.session().await?;
        let ready = session.run(async |link| {
            let hold = link.ready([query!("table_source/hold")]).await?;
            Ok((hold, self.ready(link).await?))
        });
        // All of it is ready before anything is sent: the commit must not go first.
        let ([hold], moving) = ready.await?;
        let (begin, now) = (store.begin_read_committed(), store.now());
        let source = self.name.as_str();
        let table: [&dyn Param; 1] = [&self.number];
        let params: [&dyn Param; 3] = [&source, &now, &passed];
        store.settings().failpoints.hit("postgres.commit.before");
        let results =
            session.pipeline_from(Some(&begin), |link: &Link| -> Vec<QueuedStatement<'_>> {
                vec![
                    Box::pin(link.rows(&hold, &table)),
                    Box::pin(self.rows(link, moving.as_ref(), &params)),
                    Box::pin(link.none("COMMIT")),
                ]
            });
        let results = results.await;
        match results {
            Ok(completed) => {
                session.end();
                store.settings().failpoints.hit("postgres.commit.after");
                let waiting = completed[2].first().map(|row| row.get("waiting"));
                Ok((self.moved(&completed[2]), waiting.unwrap_or_default()))
            }
            Err(failed) => {
                let is_busy = failed.statement == 1 && is_refused(&failed.cause);
                session.rollback().await;
                if is_busy {
                    let moved = Moved {
                        is_busy,
                        ..Moved::default()
                    };
                    return Ok((moved, Vec::new()));
                }
                Err(failed.cause.into())
            }
        }
    }

    /// Prepares the statement, unless there is a pooler.
    async fn ready(&self, link: &Link) -> Result<Option<Statement>, tokio_postgres::Error> {
        if link.is_pooled() {
            return Ok(None);
        }
        link.prepared(&self.sql).await.map(Some)
    }

    /// Sends the statement; sent when it is first polled.
    async fn rows(
        &self,
        link: &Link,
        prepared: Option<&Statement>,
        params: &[&dyn Param],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        if let Some(statement) = prepared {
            let params: Vec<&(dyn ToSql + Sync)> = params.iter().map(|it| *it as _).collect();
            return link.object().query(statement, &params).await;
        }
        let typed = params.iter().map(|it| (*it as _, it.of_type()));
        let typed: Vec<(&(dyn ToSql + Sync), _)> = typed.collect();
        link.object().query_typed(&self.sql, &typed).await
    }

    fn moved(&self, rows: &[Row]) -> Moved {
        let Some(row) = rows.first() else {
            return Moved::default();
        };
        let count = |column| row.get::<_, i64>(column).unsigned_abs();
        let moved = Moved {
            rows: count("moved"),
            set_aside: count("set_aside"),
            is_busy: false,
        };
        if moved.set_aside > 0 {
            let (source, rows) = (&self.name, moved.set_aside);
            let examples: Vec<String> = row.get("examples");
            tracing::error!(
                source,
                rows,
                examples = examples.join("; "),
                "rows cannot be events and were set aside: see hapax.set_aside"
            );
            metrics::counter!(telemetry::SOURCE_SET_ASIDE, "source" => self.name.clone())
                .increment(rows);
        }
        metrics::counter!(telemetry::SOURCE_MOVED, "source" => self.name.clone())
            .increment(moved.rows);
        moved
    }
}
