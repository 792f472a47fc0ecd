//! Tests of queries that operators make, over HTTP and with commands: keys, the inbox, sagas, the
//! timeline of a request, the backlog and the overview.

use std::time::Duration;

use bytes::Bytes;
use hapax::{
    event::{Headers, NewEvent},
    idempotency::{Claim, OnExpired, StoredResponse},
    inbox::{Acceptance, Message},
    key::{FingerprintBuilder, IdempotencyKey, Operation, Scope, Tenant},
    limits::RETENTION,
    saga::{Kind, NewSaga, Owned, SagaStatus, State},
    store::{ClaimOutcome, Effect, LockedSaga, SagaRows as _, Sagas, Transaction as _},
};
use http::Method;
use serde_json::{Value, json};

use crate::{
    admin::{ALICE, OPERATOR, Served, VIEWER, check},
    hapax::{ProgramOutput, run},
    store::{Home, Store, on_both_stores},
};

on_both_stores! {
    what_is_nobodys_business_is_shown_nowhere,
    keys_are_listed_shown_and_purged_over_http,
    one_request_is_followed_over_http,
    sagas_are_listed_shown_and_decided_about_over_http,
    a_token_of_a_tenant_asks_in_vain_for_what_another_tenant_has,
    a_viewer_sees_all_of_it,
    keys_and_messages_are_looked_at_by_verbs,
}

/// The path at which an operator decides about the saga of `acme`.
const DECIDE: &str = "/sagas/saga-acme/decide";
const LEASE: Duration = Duration::from_secs(5);

/// A request of a tenant with a response, an event that is accepted by a consumer, and a saga that
/// needs attention. The content contains data that must be masked.
async fn request(store: &impl Sagas, name: &str) {
    let tenant = Tenant::new(name).unwrap();
    let secret = format!("4242{name}");
    let key = IdempotencyKey::new(format!("key-{name}")).unwrap();
    let hash = key.short_hash();
    let claim = Claim {
        scope: Scope {
            tenant: tenant.clone(),
            operation: Operation::new("POST /orders").unwrap(),
            key,
        },
        fingerprint: FingerprintBuilder::new(1).part(b"a").finish(),
        retention: RETENTION,
        on_expired: OnExpired::New,
        context: Headers::new(),
    };
    let ClaimOutcome::Open(mut tx) = store.claim(claim).await.unwrap() else {
        panic!("the key is free");
    };
    let payload = json!({"order": 1, "card": {"number": secret}});
    let event = tx.emit(NewEvent::json("order.created", &payload)).unwrap();
    let message = Message::new("mailer", "shop", event.to_string(), b"").unwrap();
    let accepted = tx.accept(&message).await.unwrap();
    assert_eq!(accepted, Acceptance::First);
    let response = StoredResponse {
        status: 201,
        headers: vec![
            ("content-type".to_owned(), "application/json".into()),
            ("x-auth-token".to_owned(), Bytes::from(secret.clone())),
        ],
        body: json!({"id": 1, "email": secret, "shop_id": secret})
            .to_string()
            .into(),
    };
    tx.complete(&response, Effect::Keep).await.unwrap();
    needs_attention(store, name, tenant, hash).await;
}

/// Starts a saga of the request and lets it need attention. It does not keep the key.
async fn needs_attention(store: &impl Sagas, name: &str, tenant: Tenant, hash: String) {
    let id = format!("saga-{name}");
    let mut tx = store.begin(None, Headers::new()).await.unwrap();
    let saga = NewSaga {
        id: id.clone(),
        kind: Kind {
            name: "checkout".to_owned(),
            version: 1,
        },
        tenant: Some(tenant),
        input: json!({"token": format!("4242{name}"), "amount": 7})
            .to_string()
            .into(),
        headers: [("idempotency_key_hash".to_owned(), hash)].into(),
        deadline: Duration::from_hours(1),
    };
    assert!(tx.start_saga(&saga).await.unwrap());
    tx.commit().await.unwrap();
    let saga = store.seize_saga(&id, LEASE).await.unwrap().unwrap();
    let owned = Owned::of(&saga);
    let LockedSaga { mut tx, .. } = store.lock_saga(&owned, LEASE).await.unwrap();
    let status = SagaStatus {
        state: State::NeedsAttention,
        ..saga.status.clone()
    };
    tx.write_status(&owned, &status).await.unwrap();
    tx.commit().await.unwrap();
    let given = store.give_back_saga(&owned, Duration::ZERO, "", 0);
    given.await.unwrap();
}

/// Creates two tenants with one request each.
async fn stage(on: Store) -> Home {
    let home = Home::migrated(on).await;
    match on {
        Store::Sqlite => {
            let store = home.sqlite();
            for tenant in ["acme", "other"] {
                request(&store, tenant).await;
            }
            store.close().await.unwrap();
        }
        Store::Postgres => {
            let store = home.postgres().await;
            for tenant in ["acme", "other"] {
                request(&store, tenant).await;
            }
            store.close();
        }
    }
    home
}

/// The id of the event of a tenant.
fn event_of(home: &Home, tenant: &str) -> String {
    let url = home.url();
    let list = ["events", "list", "--tenant", tenant, "--json"];
    let listed = run(&[&list[..], &["--database", &url]].concat());
    let listed = listed.ended(0).json();
    listed["items"][0]["id"].as_str().unwrap().to_owned()
}

async fn what_is_nobodys_business_is_shown_nowhere(on: Store) {
    let database = stage(on).await;
    let token = format!("[admin.tokens.ops]\ntoken = \"{OPERATOR}\"\nrole = \"operator\"\n");
    let served = Served::with(&database, "mask = [\"shop id\"]", &token).await;
    let event = event_of(&database, "acme");
    for path in [
        "/keys/POST%20%2Forders/key-acme".to_owned(),
        "/sagas/saga-acme".to_owned(),
        format!("/events/{event}"),
        format!("/timeline?event={event}"),
        "/timeline?key=key-acme".to_owned(),
    ] {
        let shown = served.get(&path).await.to_string();
        assert!(shown.contains("***"), "{path}: {shown}");
        assert!(!shown.contains("4242acme"), "{path}: {shown}");
    }
    served.relay.stop().await;
}

async fn keys_are_listed_shown_and_purged_over_http(on: Store) {
    let database = stage(on).await;
    let served = Served::with_tokens(&database).await;
    check_list_of_keys(&served).await;
    check_wrong_filters_of_keys(&served).await;
    let path = "/keys/POST%20%2Forders/key-acme";
    let shown = served.get(path).await;
    assert_eq!(shown["state"], "completed");
    assert_eq!(shown["body"]["content_type"], "application/json");
    assert_eq!(shown["headers"][1], json!(["x-auth-token", "***"]));
    check_purge_needs_version_and_reason(&served, path, &shown["version"]).await;
    use_key_again(&database).await;
    purge_seen_key(&served, path, &shown["version"]).await;
    let log = served.get("/audit").await;
    assert_eq!(
        (&log["items"][0]["action"], &log["items"][0]["actor"]),
        (&json!("purge"), &json!("ops"))
    );
    check_running_key_is_not_purged(&database, &served).await;
    served.relay.stop().await;
}

async fn one_request_is_followed_over_http(on: Store) {
    let database = stage(on).await;
    let served = Served::with_tokens(&database).await;
    let event = event_of(&database, "acme");
    for query in [
        format!("event={event}"),
        "key=key-acme&operation=POST%20/orders&tenant=acme".to_owned(),
    ] {
        let shown = served.get(&format!("/timeline?{query}")).await;
        assert_eq!(shown["key"]["key"], "key-acme", "{shown}");
        assert_eq!(shown["events"][0]["id"], json!(event));
        assert_eq!(shown["events"][0]["is_of_answer"], true);
        assert_eq!(shown["events"][0]["taken"][0]["consumer"], "mailer");
        assert_eq!(shown["sagas"][0]["id"], "saga-acme");
        assert_eq!(
            (
                &shown["is_whole"],
                shown["events"].as_array().unwrap().len()
            ),
            (&json!(true), 1)
        );
    }
    for wrong in [
        "",
        "event=x",
        "event=a&key=b",
        &format!("event={event}&tenant=acme"),
    ] {
        let answer = served
            .ask(OPERATOR, Method::GET, &format!("/timeline?{wrong}"), None)
            .await;
        check(&answer, 400, "VALIDATION.member");
    }
    check(
        &served
            .ask(OPERATOR, Method::GET, "/timeline?key=none", None)
            .await,
        404,
        "NOT_FOUND",
    );
    served.relay.stop().await;
}

async fn sagas_are_listed_shown_and_decided_about_over_http(on: Store) {
    let database = stage(on).await;
    let served = Served::with_tokens(&database).await;
    check_list_of_sagas(&served).await;
    let shown = served.get("/sagas/saga-acme").await;
    assert_eq!(shown["input"], json!({"token": "***", "amount": 7}));
    check_decision_needs_epoch_and_reason(&served, &shown["epoch"]).await;
    check_sagas_are_stalled(&served).await;
    close_saga(&served, &shown["epoch"]).await;
    let none = served
        .post(
            "/sagas/none/decide",
            &json!({"epoch": 1, "decision": "close", "reason": "x"}),
        )
        .await;
    check(&none, 404, "NOT_FOUND");
    assert_eq!(served.get("/sagas/saga-acme").await["state"], "failed");
    served.relay.stop().await;
}

async fn a_token_of_a_tenant_asks_in_vain_for_what_another_tenant_has(on: Store) {
    let database = stage(on).await;
    let served = Served::with_tokens(&database).await;
    check_lists_of_a_tenant(&served).await;
    check_foreign_rows_are_not_found(&served, &event_of(&database, "other")).await;
    let own_key = "/keys/POST%20%2Forders/key-acme";
    let version = served.get_as_alice(own_key).await.json().unwrap()["version"].clone();
    let why = json!({"version": version, "reason": "x"});
    check_foreign_rows_are_not_changed(&served, &why).await;
    let own = event_of(&database, "acme");
    check_own_figures(&served, &own).await;
    let purge = format!("{own_key}/purge");
    let purged = served.ask(ALICE, Method::POST, &purge, Some(&why)).await;
    assert_eq!(purged.status, 204);
    served.relay.stop().await;
}

async fn a_viewer_sees_all_of_it(on: Store) {
    let database = stage(on).await;
    let served = Served::with_tokens(&database).await;
    let event = event_of(&database, "acme");
    for path in [
        "/keys".to_owned(),
        "/keys/POST%20%2Forders/key-acme".to_owned(),
        "/inbox".to_owned(),
        "/sagas".to_owned(),
        "/sagas/saga-acme".to_owned(),
        format!("/timeline?event={event}"),
        "/stalled".to_owned(),
        "/overview".to_owned(),
    ] {
        let seen = served.ask(VIEWER, Method::GET, &path, None).await;
        assert_eq!(seen.status, 200, "{path}: {}", seen.text());
    }
    let inbox = served.get(&format!("/inbox?message_id={event}")).await;
    assert_eq!(inbox["items"][0]["source"], "shop");
    served.relay.stop().await;
}

async fn keys_and_messages_are_looked_at_by_verbs(on: Store) {
    let database = stage(on).await;
    let url = database.url();
    let call = |arguments: &[&str]| -> ProgramOutput {
        let mut all = arguments.to_vec();
        all.extend(["--database", url.as_str()]);
        run(&all)
    };
    let table = call(&["keys", "list"]).ended(0);
    assert!(table.stdout.starts_with("OPERATION"), "{table:?}");
    let listed = call(&["keys", "list", "--key", "key-a", "--json"])
        .ended(0)
        .json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    let shown = call(&["keys", "show", "POST /orders", "key-acme"]).ended(0);
    assert!(
        shown.stdout.contains("completed") && shown.stdout.contains("\"email\":\"***\""),
        "{shown:?}"
    );
    call(&["keys", "show", "POST /orders", "none"]).ended(3);
    call(&["keys", "list", "--state", "lost"]).ended(2);
    let purge = [
        "keys",
        "purge",
        "POST /orders",
        "key-acme",
        "--reason",
        "by hand",
    ];
    call(&purge).ended(4);
    let mut sure = purge.to_vec();
    sure.push("--yes");
    let shown = call(&["keys", "show", "POST /orders", "key-acme", "--json"]);
    let seen = shown.ended(0).json()["version"].clone();
    use_key_again(&database).await;
    let stale = [&sure[..], &["--if-version", seen.as_str().unwrap()]].concat();
    let outcome = call(&stale).ended(4);
    assert!(outcome.stderr.contains("used again"), "{outcome:?}");
    call(&sure).ended(0);
    call(&sure).ended(3);

    let event = event_of(&database, "acme");
    let taken = call(&["inbox", "list", "--consumer", "mailer", "--json"])
        .ended(0)
        .json();
    assert_eq!(taken["items"].as_array().unwrap().len(), 2);
    let one = call(&["inbox", "show", &event]).ended(0);
    assert!(one.stdout.contains("mailer"), "{one:?}");
    call(&["inbox", "show", "none"]).ended(3);
    let masked = call(&["events", "show", &event, "--json"]).ended(0).json();
    assert!(
        masked["payload"].as_str().unwrap().contains("***"),
        "{masked}"
    );
    let whole = call(&["events", "show", &event, "--unmasked"]).ended(0);
    assert!(whole.stdout.contains("4242acme"), "{whole:?}");

    // No worker and no relay are running.
    let outcome = call(&["doctor", "--database-only", "--json"]).json();
    let says = |check: &str, part: &str| {
        let is = |it: &&Value| it["check"] == check && it["found"].as_str().unwrap().contains(part);
        assert!(
            outcome.as_array().unwrap().iter().any(|it| is(&it)),
            "{outcome:#}"
        );
    };
    says("sagas", "2 of the sagas checkout need attention");
    says("stalled", "no destination is stalled");
}

async fn check_list_of_keys(served: &Served) {
    let listed = served
        .get("/keys?operation=POST%20/orders&state=completed")
        .await;
    let items = listed["items"].as_array().unwrap();
    assert_eq!(items.len(), 2, "{listed}");
    assert_eq!(items[0]["key"], "key-other");
    assert_eq!(items[0]["status"], 201);
    let hash = items[1]["short_hash"].as_str().unwrap();
    for query in ["key=key-a".to_owned(), format!("key=%23{}", &hash[..6])] {
        let found = served.get(&format!("/keys?{query}")).await;
        assert_eq!(
            found["items"].as_array().unwrap().len(),
            1,
            "{query}: {found}"
        );
    }
    let first = served.get("/keys?limit=1").await;
    let next = first["next"].as_str().unwrap();
    let second = served.get(&format!("/keys?limit=1&before={next}")).await;
    assert_eq!(second["items"][0]["key"], "key-acme");
}

async fn check_wrong_filters_of_keys(served: &Served) {
    for wrong in [
        "state=lost",
        "before=x",
        "since=yesterday",
        "tenant=",
        "limit=x",
        "kye=a",
    ] {
        let answer = served
            .ask(OPERATOR, Method::GET, &format!("/keys?{wrong}"), None)
            .await;
        assert_eq!(answer.status, 400, "{wrong}: {}", answer.text());
    }
}

async fn check_purge_needs_version_and_reason(served: &Served, path: &str, version: &Value) {
    let purge = format!("{path}/purge");
    for wrong in [
        json!({"version": version, "reason": ""}),
        json!({"version": "1", "reason": "x"}),
    ] {
        check(&served.post(&purge, &wrong).await, 400, "VALIDATION.member");
    }
    // Without a version, the API cannot know which state the operator has seen.
    let unseen = served.post(&purge, &json!({"reason": "x"})).await;
    assert_eq!(unseen.status, 400, "{}", unseen.text());
}

/// Changes the version of the key of `acme`.
async fn use_key_again(home: &Home) {
    home.change(
        "UPDATE hapax_idempotency_key SET xid = coalesce(xid, 0) + 1000 WHERE key = 'key-acme'",
        "UPDATE hapax.idempotency_key SET on_expired = on_expired WHERE key = 'key-acme'",
    )
    .await;
}

/// Purges a key that was used after this version, which only works with the current version.
async fn purge_seen_key(served: &Served, path: &str, version: &Value) {
    let purge = format!("{path}/purge");
    let stale = json!({"version": version, "reason": "charged by hand"});
    let refused = served.post(&purge, &stale).await;
    check(&refused, 409, "CONFLICT.state");
    assert!(refused.text().contains("used again"), "{}", refused.text());
    let version = &served.get(path).await["version"];
    let seen = json!({"version": version, "reason": "charged by hand"});
    let purged = served.post(&purge, &seen).await;
    assert_eq!(purged.status, 204, "{}", purged.text());
    check(&served.post(&purge, &seen).await, 404, "NOT_FOUND");
}

async fn check_running_key_is_not_purged(home: &Home, served: &Served) {
    home.change(
        "UPDATE hapax_idempotency_key SET state = 'in_progress', lease_until = 1",
        "UPDATE hapax.idempotency_key SET state = 'in_progress', lease_until = now()",
    )
    .await;
    let running = "/keys/POST%20%2Forders/key-other";
    let shown = served.get(running).await;
    assert_eq!(shown["is_lapsed"], true);
    let seen = json!({"version": shown["version"], "reason": "x"});
    let refused = served.post(&format!("{running}/purge"), &seen).await;
    check(&refused, 409, "CONFLICT.state");
}

async fn check_list_of_sagas(served: &Served) {
    let listed = served
        .get("/sagas?state=needs_attention&name=checkout&version=1&limit=1")
        .await;
    assert_eq!(listed["items"][0]["id"], "saga-acme");
    let next = listed["next"].as_str().unwrap();
    let second = served.get(&format!("/sagas?after={next}")).await;
    assert_eq!(second["items"][0]["id"], "saga-other", "{second}");
    assert!(
        served.get("/sagas?version=2").await["items"]
            .as_array()
            .unwrap()
            .is_empty()
    );
}

async fn check_decision_needs_epoch_and_reason(served: &Served, epoch: &Value) {
    for (decision, reason) in [("close", ""), ("forget", "x")] {
        let wrong = json!({"epoch": epoch, "decision": decision, "reason": reason});
        check(&served.post(DECIDE, &wrong).await, 400, "VALIDATION.member");
    }
    // Without an epoch, the API cannot know which state the operator has seen.
    let unseen = json!({"decision": "close", "reason": "x"});
    let unseen = served.post(DECIDE, &unseen).await;
    assert_eq!(unseen.status, 400, "{}", unseen.text());
    let stale = json!({"epoch": epoch.as_i64().unwrap() - 1, "decision": "close", "reason": "x"});
    let refused = served.post(DECIDE, &stale).await;
    check(&refused, 409, "CONFLICT.state");
    let said = refused.text();
    assert!(
        said.contains("has changed since it was looked at"),
        "{said}"
    );
}

async fn check_sagas_are_stalled(served: &Served) {
    let seen = served.get("/stalled").await;
    let item = seen["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["saga"] == "checkout")
        .unwrap();
    assert_eq!(
        (&item["cause"], &item["waiting"]),
        (&json!("needs_attention"), &json!(2))
    );
}

/// Closes the saga of `acme`, which can be done only once.
async fn close_saga(served: &Served, epoch: &Value) {
    let closed = served
        .post(
            DECIDE,
            &json!({"epoch": epoch, "decision": "close", "reason": "by hand"}),
        )
        .await;
    assert_eq!(closed.status, 204, "{}", closed.text());
    check(
        &served
            .post(
                DECIDE,
                &json!({"epoch": epoch, "decision": "close", "reason": "again"}),
            )
            .await,
        409,
        "CONFLICT.state",
    );
}

async fn check_lists_of_a_tenant(served: &Served) {
    for (path, count) in [
        ("/keys", 1),
        ("/keys?key=key-", 1),
        ("/sagas", 1),
        ("/inbox", 0),
    ] {
        let seen = served.get_as_alice(path).await;
        let items = seen.json().unwrap()["items"].clone();
        assert_eq!(items.as_array().unwrap().len(), count, "{path}: {items}");
        assert!(!seen.text().contains("other"), "{path}: {}", seen.text());
    }
    for path in [
        "/keys?tenant=other",
        "/keys?key=key-other",
        "/inbox?consumer=mailer",
    ] {
        let seen = served.get_as_alice(path).await;
        assert_eq!(seen.json().unwrap(), json!({"items": []}), "{path}");
    }
}

async fn check_foreign_rows_are_not_found(served: &Served, event: &str) {
    for path in [
        "/keys/POST%20%2Forders/key-other".to_owned(),
        "/keys/POST%20%2Forders/key-other?tenant=other".to_owned(),
        "/sagas/saga-other".to_owned(),
        format!("/timeline?event={event}"),
        "/timeline?key=key-other&tenant=other".to_owned(),
    ] {
        check(&served.get_as_alice(&path).await, 404, "NOT_FOUND");
    }
}

async fn check_foreign_rows_are_not_changed(served: &Served, why: &Value) {
    let post =
        async |path: &str, body: &Value| served.ask(ALICE, Method::POST, path, Some(body)).await;
    for path in [
        "/keys/POST%20%2Forders/key-other/purge",
        "/keys/POST%20%2Forders/key-other/purge?tenant=other",
    ] {
        check(&post(path, why).await, 404, "NOT_FOUND");
    }
    let close = json!({"epoch": 1, "decision": "close", "reason": "x"});
    check(
        &post("/sagas/saga-other/decide", &close).await,
        404,
        "NOT_FOUND",
    );
}

/// Checks that a tenant sees the timeline of an event that it owns, and only its own rows in the figures.
async fn check_own_figures(served: &Served, own: &str) {
    let timeline = served.get_as_alice(&format!("/timeline?event={own}")).await;
    assert_eq!(timeline.status, 200, "{}", timeline.text());
    assert!(!timeline.text().contains("other"), "{}", timeline.text());
    let stalled = served.get_as_alice("/stalled").await.json().unwrap();
    assert_eq!(stalled["items"].as_array().unwrap().len(), 1, "{stalled}");
    assert_eq!(stalled["items"][0]["waiting"], 1, "{stalled}");
    let figures = served.get_as_alice("/overview").await.json().unwrap();
    assert_eq!(
        figures["committed"],
        json!({"number": 1, "kind": "exact"}),
        "{figures}"
    );
    assert_eq!(figures["keys"][0]["count"]["number"], 1, "{figures}");
    assert_eq!(served.get("/overview").await["committed"]["number"], 2);
}
