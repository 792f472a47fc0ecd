//! Tests of violated constraints, which handlers convert into problems.

use axum::{Router, routing::post};
use hapax_http::{
    ConflictOn as _, Idempotency, Json, Problem, RequestIds, Settings, Tx, WritePlan,
    problem::{self, Code},
};
use hapax_postgres::Postgres;
use hapax_sqlite::Statement;
use hapax_testkit::{
    clock::{ManualClock, seeded_random},
    postgres::Database,
};
use http::StatusCode;

use crate::stage::{Sent, Stage, post_json, send};

const TAKEN: Code = Code::new("CONFLICT.number.taken", 409, "The number is taken");
const TABLE: &str = "CREATE TABLE numbered (
    number BIGINT CONSTRAINT numbered_number_key UNIQUE,
    amount BIGINT NOT NULL CONSTRAINT numbered_amount_check CHECK (amount > 0))";

#[tokio::test]
async fn an_unmapped_violation_is_not_retryable_and_releases_the_key() {
    let stage = stage().await;
    for body in ["[1,-1]", "[1,null]"] {
        let sent = stage.send(post_json("/bare", "k", body)).await;
        sent.check_problem(500, "INTERNAL.statement");
        assert_eq!(sent.json()["retryable"], false);
        assert_eq!(sent.idempotency(), None);
        let said = String::from_utf8(sent.body).unwrap();
        assert!(!said.contains("numbered"), "{said}");
    }
    let sent = stage.send(post_json("/bare", "k", "[1,1]")).await;
    assert_eq!(sent.idempotency(), Some("stored"));
    let twice = stage.send(post_json("/bare", "l", "[1,1]")).await;
    twice.check_problem(500, "INTERNAL.statement");
}

#[tokio::test]
async fn a_mapped_violation_is_a_conflict_that_is_stored() {
    let stage = stage().await;
    for (number, path) in ["/mapped", "/planned", "/phased"].into_iter().enumerate() {
        let body = format!("[{number},1]");
        let first = stage.send(post_json(path, "k", &body)).await;
        assert_eq!(
            (first.status, first.idempotency()),
            (StatusCode::CREATED, Some("stored"))
        );
        for status in ["stored", "replayed"] {
            let taken = stage.send(post_json(path, "l", &body)).await;
            taken.check_problem(409, "CONFLICT.number.taken");
            assert_eq!(taken.idempotency(), Some(status), "{path}");
        }
        let other = stage.send(post_json(path, "m", "[100,-1]")).await;
        // The key of a phased request stays in progress, and a retry continues.
        let (code, retryable) = match path {
            "/phased" => ("TRANSIENT.internal", true),
            _ => ("INTERNAL.statement", false),
        };
        assert_eq!(other.json()["code"], code, "{path}");
        assert_eq!(other.json()["retryable"], retryable, "{path}");
    }
    assert_eq!(stage.count("SELECT count(*) FROM numbered").await, 3);
}

#[tokio::test]
async fn a_plan_without_a_key_answers_the_conflict_too() {
    let stage = stage().await;
    let first = stage.send(post_json("/optional", "", "[1,1]")).await;
    assert_eq!(first.status, StatusCode::CREATED);
    let taken = stage.send(post_json("/optional", "", "[1,1]")).await;
    taken.check_problem(409, "CONFLICT.number.taken");
}

#[tokio::test]
async fn postgresql_names_the_constraint() {
    let database = Database::fresh().await;
    let random = seeded_random(1);
    let clock = ManualClock::new().clock();
    let settings = hapax_postgres::Settings::new(database.url(), clock.clone(), random.clone());
    let store = Postgres::open(settings).await.unwrap();
    store
        .migrate("test", &[(1, "numbered", TABLE)])
        .await
        .unwrap();
    let idempotency = Idempotency::new(store, {
        let mut settings = Settings::new(clock, random.clone());
        settings.tenant = Some(hapax::key::Tenant::new("alice").unwrap());
        settings
    });
    let insert = async |mut tx: Tx<hapax_postgres::Tx>, Json(row): Json<Row>| {
        let sql = "INSERT INTO numbered VALUES ($1, $2)";
        tx.execute(sql, &[&row.0, &row.1])
            .await
            .conflict_on("numbered_number_key", TAKEN)
            .conflict_on("numbered_amount_check", problem::MEMBER_INVALID)?;
        Ok::<_, Problem>(StatusCode::CREATED)
    };
    let router = Router::new()
        .route(
            "/numbers",
            post(insert).layer(idempotency.operation("/numbers")),
        )
        .layer(RequestIds::new(random));
    let sent = async |key: &str, body: &str| -> Sent {
        send(router.clone(), post_json("/numbers", key, body)).await
    };
    assert_eq!(sent("k", "[1,1]").await.status, StatusCode::CREATED);
    sent("l", "[1,1]")
        .await
        .check_problem(409, "CONFLICT.number.taken");
    assert_eq!(sent("l", "[1,1]").await.idempotency(), Some("replayed"));
    sent("m", "[2,-1]")
        .await
        .check_problem(400, "VALIDATION.member");
    sent("n", "[2,null]")
        .await
        .check_problem(500, "INTERNAL.statement");
}

type Row = (i64, Option<i64>);

async fn stage() -> Stage {
    let mut stage = Stage::new().await;
    let table = stage.store.write(|db| db.execute(TABLE, []));
    table.await.unwrap();
    let operation = |path| stage.idempotency.operation(path);
    let routes = [
        ("/bare", post(bare).layer(operation("/bare"))),
        ("/mapped", post(mapped).layer(operation("/mapped"))),
        ("/phased", post(phased).layer(operation("/phased").phased())),
        (
            "/planned",
            post(write_plan).layer(operation("/planned").single_shot()),
        ),
        (
            "/optional",
            post(write_plan).layer(operation("/optional").single_shot().optional()),
        ),
    ];
    for (path, methods) in routes {
        stage.route(path, methods);
    }
    stage
}

const INSERT: &str = "INSERT INTO numbered VALUES (?1, ?2)";

async fn bare(mut tx: Tx<hapax_sqlite::Tx>, Json(row): Json<Row>) -> Result<StatusCode, Problem> {
    tx.with(move |db| db.execute(INSERT, row)).await?;
    Ok(StatusCode::CREATED)
}

async fn mapped(mut tx: Tx<hapax_sqlite::Tx>, Json(row): Json<Row>) -> Result<StatusCode, Problem> {
    tx.with(move |db| db.execute(INSERT, row))
        .await
        .conflict_on("numbered.number", TAKEN)?;
    Ok(StatusCode::CREATED)
}

async fn phased(
    mut phased: hapax_http::Phased<hapax_sqlite::Tx>,
    Json(row): Json<Row>,
) -> Result<StatusCode, Problem> {
    let mut last = phased.last().await?;
    last.with(move |db| db.execute(INSERT, row))
        .await
        .conflict_on("numbered.number", TAKEN)?;
    Ok(StatusCode::CREATED)
}

async fn write_plan(Json(row): Json<Row>) -> WritePlan<Statement> {
    let row = [
        row.0.into(),
        row.1
            .map_or(hapax_sqlite::rusqlite::types::Value::Null, Into::into),
    ];
    WritePlan::new(StatusCode::CREATED)
        .statement(Statement::new(INSERT, row))
        .conflict_on("numbered.number", TAKEN)
}
