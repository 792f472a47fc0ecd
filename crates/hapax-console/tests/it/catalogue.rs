//! Tests of the event catalogue in the console.

use http::Method;

use crate::scene::{ALICE, OPERATOR, Scene};

#[tokio::test]
async fn the_catalogue_is_linked_and_shows_schemas_and_examples() {
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(OPERATOR).await;
    let list = ops.see("/console/catalogue").await;
    for said in [
        "order.created",
        "order.scored",
        "internal",
        "Shop, version 1.2.0",
        "data-key=\"y\"",
    ] {
        assert!(list.contains(said), "{said}\n{list}");
    }
    let page = ops.see("/console/catalogue/order.created").await;
    for said in [
        "A customer has placed an order.",
        "JSON Schema",
        "Example of order.created, version 1",
        "q=type%3Aorder.created",
    ] {
        assert!(page.contains(said), "{said}\n{page}");
    }
    let event = ops.see("/console/events/1").await;
    let link = "href=\"/console/catalogue/order.created\"";
    assert!(event.contains(link), "{event}");
    let unknown = ops.see("/console/events/2").await;
    assert!(!unknown.contains("href=\"/console/catalogue/"), "{unknown}");
    let filtered = ops.see("/console/catalogue?q=scored").await;
    assert!(
        filtered.contains("order.scored") && !filtered.contains("order.created"),
        "{filtered}"
    );
}

#[tokio::test]
async fn a_tenant_sees_the_types_of_the_public_page() {
    let scene = Scene::with_tokens().await;
    let alice = scene.sign_in(ALICE).await;
    let list = alice.see("/console/catalogue").await;
    assert!(
        list.contains("order.created") && !list.contains("order.scored"),
        "{list}"
    );
    let hidden = alice.get("/console/catalogue/order.scored").await;
    assert_eq!(hidden.status, 404, "{}", hidden.text());
}

#[tokio::test]
async fn a_console_without_a_catalogue_has_no_pages_for_it() {
    let scene = Scene::without_a_catalogue().await;
    let get = async |path| scene.send(Method::GET, path, &[], "").await;
    let page = get("/console").await.text();
    assert!(!page.contains("/console/catalogue"), "{page}");
    assert_eq!(get("/console/catalogue").await.status, 404);
}
