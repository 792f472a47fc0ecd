//! Versions of the contract, the callers of version 1, and the profiles.

use hapax_postgres::CONTRACT_VERSION;

use super::{SCOPE, claim, open};
use crate::fixture::Fixture;

#[tokio::test]
async fn the_database_says_which_version_it_speaks() {
    let fixture = Fixture::new().await;
    let version = "SELECT hapax.contract_version()::bigint";
    assert_eq!(fixture.count(version).await, i64::from(CONTRACT_VERSION));
}

#[tokio::test]
async fn callers_of_version_1_need_no_change() {
    let fixture = Fixture::new().await;
    let mut client = fixture.database.client().await;
    for (key, arguments) in [
        ("four", "201"),
        ("five", "201, '[[\"a\", \"b\"]]'"),
        ("six", "201, '[[\"a\", \"b\"]]', 'body'"),
        ("named", "status => 201, body => 'body'"),
    ] {
        let tx = client.transaction().await.unwrap();
        let sql = format!(
            "SELECT outcome, status, headers::text, body, extract(epoch FROM fresh_for)::float8
             FROM hapax.claim({SCOPE}, sha256('x'), '1 hour', 'new', '0')"
        );
        let row = tx.query_one(&sql, &[&key]).await.unwrap();
        assert_eq!(row.get::<_, String>(0), "open", "{key}");
        let sql = format!("SELECT hapax.complete({SCOPE}, {arguments})::text");
        let row = tx.query_one(&sql, &[&key]).await.unwrap();
        assert_eq!(row.get::<_, String>(0), "01:00:00", "{key}");
        tx.commit().await.unwrap();
    }
}

/// Functions and views of a service that name a function of the contract depend on it, and keep the
/// function of version 1.
#[tokio::test]
async fn the_functions_of_version_1_are_still_there() {
    let fixture = Fixture::new().await;
    let mut client = fixture.database.client().await;
    let tx = client.transaction().await.unwrap();
    let sql = format!("SELECT outcome FROM hapax.claim_1({SCOPE}, sha256('x'))");
    let row = tx.query_one(&sql, &[&"k"]).await.unwrap();
    assert_eq!(row.get::<_, String>(0), "open");
    let sql = format!("SELECT hapax.complete_1({SCOPE}, 201, '[]', 'body')");
    tx.execute(&sql, &[&"k"]).await.unwrap();
    tx.commit().await.unwrap();
    let sql = format!("SELECT outcome, body FROM hapax.claim_1({SCOPE}, sha256('x'))");
    let row = fixture.plain.query_one(&sql, &[&"k"]).await.unwrap();
    let replay = (row.get::<_, String>(0), row.get::<_, Vec<u8>>(1));
    assert_eq!(replay, ("replay".to_owned(), b"body".to_vec()));
}

#[tokio::test]
async fn a_claim_says_when_to_try_again_and_only_while_the_key_is_in_progress() {
    let fixture = Fixture::new().await;
    let mut client = fixture.database.client().await;
    let tx = open(&mut client, "k").await;
    let again = async |payload: &str| {
        let sql = format!(
            "SELECT outcome, retry_after_ms FROM hapax.claim({SCOPE}, {payload}, wait => '0')"
        );
        let row = fixture.plain.query_one(&sql, &[&"k"]).await.unwrap();
        (row.get::<_, String>(0), row.get::<_, Option<i32>>(1))
    };
    let same = "decode(repeat('01', 32), 'hex')";
    assert_eq!(again(same).await, ("in_progress".to_owned(), Some(1000)));
    assert_eq!(again("sha256('x')").await, ("mismatch".to_owned(), None));
    let sql = format!("SELECT hapax.complete({SCOPE}, 204)");
    tx.execute(&sql, &[&"k"]).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(again(same).await, ("replay".to_owned(), None));
    assert_eq!(claim(&fixture.plain, "k").await.unwrap().status, Some(204));
}

/// The columns of `hapax.profile` in one text: first the statuses, then the names that are true, then
/// the codes. The values are those of `hapax_http::Profile`.
const PROFILES: [(&str, &str); 7] = [
    (
        "hapax",
        "255 409 409 400 400 410 00:00:00 24:00:00 json decided | key_required |",
    ),
    (
        "ietf",
        "255 422 409 400 400 410 00:00:00 24:00:00 json decided | key_required |",
    ),
    (
        "stripe",
        "255 400 409 400 400 410 00:00:00 24:00:00 json decided | key_required marks_replay |",
    ),
    (
        "acp",
        "255 422 409 400 400 410 24:00:00 24:00:00 json-semantic decided | key_required \
         marks_replay releases_failures requires_key_for_post | idempotency_key_required \
         idempotency_conflict idempotency_in_flight",
    ),
    (
        "ucp",
        "255 409 409 400 400 410 24:00:00 24:00:00 raw decided | fails_closed key_required |",
    ),
    (
        "adcp",
        "255 409 409 400 400 410 00:00:00 24:00:00 json-semantic successes | key_required \
         refuses_expired releases_failures says_retry_after | IDEMPOTENCY_CONFLICT \
         IDEMPOTENCY_IN_FLIGHT IDEMPOTENCY_EXPIRED",
    ),
    (
        "iceberg",
        "255 409 409 400 400 410 00:00:00 24:00:00 json decided | needs_uuid_v7 |",
    ),
];

#[tokio::test]
async fn a_profile_has_the_rules_of_the_http_contract() {
    let fixture = Fixture::new().await;
    let sql = "SELECT concat_ws(' ', key_max, mismatch_status, in_progress_status, missing_status,
            invalid_status, gone_status, min_retention, default_retention, fingerprint_mode, stores,
            '|', (SELECT string_agg(key, ' ' ORDER BY key COLLATE \"C\")
                  FROM jsonb_each(to_jsonb(profile)) WHERE value = 'true'),
            '|', missing_code, mismatch_code, in_progress_code, expired_code)
        FROM hapax.profile($1) AS profile";
    for (name, rules) in PROFILES {
        let row = fixture.plain.query_one(sql, &[&name]).await.unwrap();
        assert_eq!(row.get::<_, String>(0), rules, "{name}");
    }
    for name in [Some("other"), None] {
        let outcome = fixture.plain.query_one(sql, &[&name]).await;
        assert_eq!(super::state(outcome), "HX001", "{name:?}");
    }
}
