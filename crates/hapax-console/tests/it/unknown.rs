//! Tests of unknown outcomes in the console: the record is shown, and a decision is made once.
//!
//! The rows are those that a gateway leaves: two that wait, one of a gateway that still waits for the
//! response, and the key of another service.

use crate::scene::{ALICE, OPERATOR, Scene, VIEWER, form_of};

const OUTCOMES: &str = "INSERT INTO hapax.idempotency_key
        (tenant, operation, key, fingerprint, state, epoch, lease_until, recovery_point, created_at,
         expires_at)
    SELECT tenant, 'gateway:POST /orders', key, sha256('a'), 'in_progress', 1, lease_until, point,
        date_trunc('milliseconds', now()), now() + interval '1 day'
    FROM (VALUES
        ('acme', 'k-cut', now(), 'unknown reason=cut at=1764294000000 noted=1764294000009 status=201 received=17 upstream=http://10.0.0.7:8000'),
        ('acme', 'k-died', now(), 'sent at=1764294000000 upstream=<script>alert(1)</script>'),
        ('globex', 'k-runs', now() + interval '1 hour', 'sent at=1764294000000 upstream=orders'),
        ('acme', 'k-other', now(), 'charged')
    ) AS written (tenant, key, lease_until, point)";
const CUT: &str = "operation=gateway%3APOST+%2Forders&key=k-cut&tenant=acme";
const DIED: &str = "operation=gateway%3APOST+%2Forders&key=k-died&tenant=acme";

async fn scene() -> Scene {
    let scene = Scene::with_tokens().await;
    scene.client.batch_execute(OUTCOMES).await.unwrap();
    scene
}

#[tokio::test]
async fn unknown_outcomes_are_listed_with_what_is_known_of_them() {
    let scene = scene().await;
    let ops = scene.sign_in(OPERATOR).await;
    let all = ["k-cut", "k-died", "k-runs"];
    let cases: [(&str, &[&str]); 8] = [
        ("", &all),
        ("?q=state:waiting", &["k-cut", "k-died"]),
        ("?q=state:held", &["k-runs"]),
        ("?q=error:cut", &["k-cut"]),
        ("?q=tenant:globex", &["k-runs"]),
        ("?q=key:k-d", &["k-died"]),
        ("?q=k-d", &["k-died"]),
        ("?q=operation:%22POST+%2Fother%22", &[]),
    ];
    for (query, shown) in cases {
        let page = ops.see(&format!("/console/unknown{query}")).await;
        for key in all {
            assert_eq!(
                page.contains(key),
                shown.contains(&key),
                "{query}: {key}\n{page}"
            );
        }
        assert!(!page.contains("k-other"), "{query}");
        assert!(!page.contains("<script>alert"), "{query}");
    }
    let page = ops.see("/console/unknown?q=error:cat").await;
    assert!(page.contains("did you mean error:cut?"), "{page}");
    let page = ops.see(&format!("/console/unknown/request?{CUT}")).await;
    for text in [
        "http://10.0.0.7:8000",
        "201",
        "failed before the response",
        "It happened",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    let timeline = ops.see(&format!("/console/timeline?{CUT}")).await;
    assert!(timeline.contains("Its outcome is unknown"), "{timeline}");
}

#[tokio::test]
async fn only_an_operator_decides_and_only_when_no_gateway_waits() {
    let scene = scene().await;
    let (ops, viewer) = (scene.sign_in(OPERATOR).await, scene.sign_in(VIEWER).await);
    let page = viewer.see(&format!("/console/unknown/request?{CUT}")).await;
    assert!(!page.contains("act=settle"), "{page}");
    let runs = "operation=gateway%3APOST+%2Forders&key=k-runs&tenant=globex";
    let page = ops.see(&format!("/console/unknown/request?{runs}")).await;
    assert!(
        page.contains("still waits") && !page.contains("act=settle"),
        "{page}"
    );
    let ask = format!("/console/act?act=settle&decision=happened&{runs}");
    let early = ops.get(&ask).await;
    assert_eq!(early.status, 409, "{}", early.text());
    let alice = scene.sign_in(ALICE).await;
    let stolen = alice.get(&ask).await;
    assert_eq!(stolen.status, 404, "{}", stolen.text());
    let other = "operation=gateway%3APOST+%2Forders&key=k-other&tenant=acme";
    let none = ops.get(&format!("/console/unknown/request?{other}")).await;
    assert_eq!(none.status, 404);
}

#[tokio::test]
async fn a_decision_is_made_once_however_often_its_form_is_sent() {
    let scene = scene().await;
    let ops = scene.sign_in(OPERATOR).await;
    let form = async |decision: &str, request: &str, more: &str| {
        let ask = format!("/console/act?act=settle&decision={decision}&{request}");
        let page = ops.get(&ask).await;
        assert_eq!(page.status, 200, "{}", page.text());
        format!("{}&reason=in+the+ledger{more}", form_of(&page))
    };
    let given = "&status=201&headers=content-type%3A+application%2Fjson&body=%7B%22id%22%3A7%7D";
    let happened = form("happened", CUT, given).await;
    let did_not_happen = form("did_not_happen", DIED, "").await;
    let other = form("did_not_happen", CUT, "").await;
    for form in [&happened, &did_not_happen] {
        for _ in 0..2 {
            let done = ops.post("/console/act", form).await;
            assert_eq!(done.status, 303, "{}", done.text());
            assert_eq!(
                done.header("location"),
                Some("/console/unknown?said=settled")
            );
        }
    }
    let stored = "hapax.idempotency_key WHERE key = 'k-cut' AND state = 'completed'
        AND response_status = 201 AND convert_from(response_body, 'UTF8') = '{\"id\":7}'";
    assert_eq!(scene.count(stored).await, 1);
    let free = "hapax.idempotency_key WHERE key = 'k-died'";
    assert_eq!(scene.count(free).await, 0);
    let noted = "hapax.audit_log WHERE actor = 'ops' AND action = 'decide' AND outcome = 'done'
        AND detail::json ->> 'reason' = 'in the ledger'";
    assert_eq!(scene.count(noted).await, 2);
    // A form that was opened before the decision, and says something else.
    let late = ops.post("/console/act", &other).await;
    assert_eq!(late.status, 409, "{}", late.text());
    assert_eq!(scene.count(stored).await, 1);
}

#[tokio::test]
async fn a_response_that_no_service_could_send_is_not_stored() {
    let scene = scene().await;
    let ops = scene.sign_in(OPERATOR).await;
    let ask = format!("/console/act?act=settle&decision=happened&{CUT}");
    let form = form_of(&ops.get(&ask).await);
    for given in [
        "status=",
        "status=99",
        "status=200&headers=no+colon",
        "status=200&headers=content-length%3A+7",
        "status=204&body=x",
    ] {
        let form = format!("{form}&reason=a+test&{given}");
        let refused = ops.post("/console/act", &form).await;
        assert_eq!(refused.status, 400, "{given}: {}", refused.text());
    }
    let waits = "hapax.idempotency_key WHERE key = 'k-cut' AND state = 'in_progress'";
    assert_eq!(scene.count(waits).await, 1);
}
