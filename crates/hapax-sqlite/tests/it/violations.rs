//! Errors that the database returns, by kind.

use hapax::{
    event::Headers,
    store::{DatabaseErrorKind, Keys as _, StoreError, Transaction as _},
};
use hapax_sqlite::rusqlite;

use crate::fixture::Fixture;

const TABLES: &str = "CREATE TABLE parent (id INTEGER PRIMARY KEY);
    CREATE TABLE child (
        parent INTEGER REFERENCES parent (id),
        number INTEGER UNIQUE,
        tenant TEXT NOT NULL,
        amount INTEGER CONSTRAINT child_amount CHECK (amount > 0),
        UNIQUE (tenant, amount)
    ) STRICT;
    INSERT INTO child VALUES (NULL, 7, 'alice', 1)";

#[tokio::test]
async fn constraints_and_values_that_do_not_fit_are_distinguished() {
    use DatabaseErrorKind as Kind;

    let fixture = Fixture::new().await;
    let made = fixture.store.write(|db| db.execute_batch(TABLES));
    made.await.unwrap();
    for (values, kind, constraint) in [
        (
            "NULL, 7, 'bob', 1",
            Kind::UniqueViolation,
            Some("child.number"),
        ),
        (
            "NULL, 8, 'alice', 1",
            Kind::UniqueViolation,
            Some("child.tenant, child.amount"),
        ),
        (
            "NULL, 8, NULL, 1",
            Kind::NotNullViolation,
            Some("child.tenant"),
        ),
        (
            "NULL, 8, 'bob', -1",
            Kind::CheckViolation,
            Some("child_amount"),
        ),
        ("1, 8, 'bob', 1", Kind::ForeignKeyViolation, None),
        ("NULL, 'seven', 'bob', 1", Kind::InvalidInput, None),
        ("NULL, 8, 'bob'", Kind::Other, None),
    ] {
        let sql = format!("INSERT INTO child VALUES ({values})");
        let error = refused(&fixture, sql).await;
        let outcome = error.database_error();
        let outcome = outcome.unwrap_or_else(|| panic!("{values}: {error:?}"));
        assert_eq!(outcome.kind(), kind, "{values}: {}", error.error_chain());
        assert_eq!(error.is_unique_violation(), kind == Kind::UniqueViolation);
        if kind != Kind::InvalidInput {
            assert_eq!(error.constraint(), constraint, "{values}");
        }
        assert!(outcome.driver().is::<rusqlite::Error>());
        let error_chain = error.error_chain();
        assert!(
            !error_chain.contains("seven") && !error_chain.contains("bob"),
            "{error_chain}"
        );
    }
}

/// A violated constraint that is checked at the commit is returned to the request that violates it.
#[tokio::test]
async fn a_constraint_that_is_checked_at_the_commit_is_distinguished_too() {
    const DEFERRED: &str = "CREATE TABLE parent (id INTEGER PRIMARY KEY);
        CREATE TABLE child (parent INTEGER REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)";
    let fixture = Fixture::new().await;
    let made = fixture.store.write(|db| db.execute_batch(DEFERRED));
    made.await.unwrap();
    let mut tx = fixture.store.begin(None, Headers::new()).await.unwrap();
    let inserted = tx.with(|db| db.execute("INSERT INTO child VALUES (1)", []));
    inserted.await.unwrap();
    let error = tx.commit().await.unwrap_err();
    let kind = error
        .database_error()
        .map(hapax::store::DatabaseError::kind);
    assert_eq!(
        kind,
        Some(DatabaseErrorKind::ForeignKeyViolation),
        "{error:?}"
    );
}

async fn refused(fixture: &Fixture, sql: String) -> StoreError {
    let write = fixture.store.write(move |db| db.execute(&sql, []));
    write.await.unwrap_err()
}
