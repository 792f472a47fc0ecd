//! Tests that the token of a tenant gives access to the rows of this tenant only.

use crate::scene::{ALICE, Scene};

#[tokio::test]
async fn a_tenant_sees_its_own_rows_and_no_other() {
    let scene = Scene::with_tokens().await;
    let alice = scene.sign_in(ALICE).await;
    for (path, own) in [
        ("/console", "Overview"),
        ("/console/events", "order.created"),
        ("/console/deliveries", "mailbox"),
        ("/console/dead-letters", "mailbox"),
        ("/console/keys", "key-of-acme"),
        ("/console/inbox", "Messages have no tenant"),
        ("/console/sagas", "saga-1"),
        ("/console/destinations", "There are no destinations"),
        ("/console/endpoints", "ep_orders"),
        ("/console/endpoints/ep_orders", "order.created"),
        ("/console/endpoints/ep_orders/try", "Trial for ep_orders"),
        ("/console/polling", "acme-poll"),
        ("/console/advanced", "The audit log is empty"),
        ("/console/configuration", "No setting matches"),
    ] {
        let page = alice.see(path).await;
        assert!(page.contains(own), "{path}: {own}\n{page}");
        for others in [
            "globex",
            "saga-2",
            "m-1",
            "turtle",
            "relay.lease",
            "connection refused",
        ] {
            assert!(!page.contains(others), "{path}: {others}\n{page}");
        }
    }
    for path in [
        "/console/events/2",
        "/console/timeline?key=key-of-globex",
        "/console/timeline?key=key-of-globex&tenant=globex",
        "/console/sagas/saga-2",
        "/console/destinations/turtle",
        "/console/endpoints/ep_globex",
        "/console/endpoints/ep_globex/try",
        "/console/polling/globex-poll",
        "/console/act?act=disable-endpoint&tenant=globex&endpoint=ep_globex",
        "/console/act?act=disable-endpoint&tenant=acme&endpoint=ep_globex",
        "/console/act?act=seek&polling=globex-poll",
        "/console/act?act=replay&partition=hooks&position=2",
        "/console/act?act=decide&saga=saga-2&decision=close",
    ] {
        let answer = alice.get(path).await;
        assert_eq!(answer.status, 404, "{path}: {}", answer.text());
    }
    let page = alice.see("/console/events?q=tenant:globex").await;
    assert!(page.contains("No event matches"), "{page}");
    let page = alice.see("/console/endpoints?q=tenant:globex").await;
    assert!(page.contains("No endpoint matches"), "{page}");
}

#[tokio::test]
async fn a_tenant_does_not_see_the_responses_of_another_tenants_receiver() {
    let scene = Scene::with_tokens().await;
    let alice = scene.sign_in(ALICE).await;
    let page = alice.see("/console/events/1").await;
    assert!(page.contains("mail"), "{page}");
    let answered = page.matches("&lt;script&gt;").count();
    let ops = scene.sign_in(crate::scene::OPERATOR).await;
    let whole = ops.see("/console/events/1").await;
    assert!(whole.matches("&lt;script&gt;").count() > answered);
}
