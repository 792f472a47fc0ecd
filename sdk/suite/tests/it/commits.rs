//! A COMMIT whose result is lost: the key decides what became of it.

use hapax_testkit::proxy::{Deed, Moment, Proxy};

use crate::{
    answers::check_problem,
    kind::{EXPRESS, FASTAPI, Kind},
    shop::{Shop, body, database, order_until_answered},
};

#[tokio::test(flavor = "multi_thread")]
async fn express_finds_a_commit_whose_result_was_lost() {
    check_commits(EXPRESS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fastapi_finds_a_commit_whose_result_was_lost() {
    check_commits(FASTAPI).await;
}

pub(crate) async fn check_commits(kind: Kind) {
    let database = database().await;
    let proxy = Proxy::to_postgres(database.address());
    let url = proxy.url(&database.url());
    let shop = Shop::on(database, &url, &[kind]).await;
    let order = body("socks", 1);
    // The first request also checks the version of the contract, in a transaction.
    assert_eq!(shop.order(0, "first", &order).await.status, 201);
    check_result_lost(&proxy, &shop).await;
    check_request_lost(&proxy, &shop).await;
    shop.check_effects(3).await;
}

/// The server has committed: the client gets the response of this commit.
async fn check_result_lost(proxy: &Proxy, shop: &Shop) {
    let trap = proxy.once(Moment::commit(), Deed::CutAfter);
    let order = body("socks", 2);
    let first = shop.order(0, "result", &order).await;
    assert_eq!(trap.answers(), ["COMMIT"]);
    assert_eq!(first.status, 201, "{}", first.text());
    assert_eq!(first.header("idempotency-status"), Some("stored"));
    let retry = shop.order(0, "result", &order).await;
    assert_eq!(retry.header("idempotency-status"), Some("replayed"));
    assert_eq!((retry.status, retry.body), (201, first.body));
}

/// The server has not committed: the client is asked to send the request again.
async fn check_request_lost(proxy: &Proxy, shop: &Shop) {
    let trap = proxy.once(Moment::commit(), Deed::CutBefore);
    let order = body("socks", 3);
    let first = shop.order(0, "request", &order).await;
    assert_eq!(trap.count(), 1);
    check_problem(&first, 503, "DEPENDENCY.unavailable");
    assert!(first.header("retry-after").is_some());
    let retry = order_until_answered(&shop.http, &shop.urls(), 0, "request", &order).await;
    assert_eq!(
        (retry.status, retry.header("idempotency-status")),
        (201, Some("stored"))
    );
}
