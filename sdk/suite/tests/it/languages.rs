//! Duplicates of one request at services in three languages, which share a database.

use futures_util::future::join_all;
use hapax_testkit::http::{HttpClient, HttpResponse};

use crate::{
    axum_shop::AxumShop,
    kind::{EXPRESS, FASTAPI},
    shop::{Shop, body, order_until_answered},
};

const DUPLICATES: usize = 200;

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_duplicates_at_express_fastapi_and_axum_are_one_order() {
    let shop = Shop::open(&[EXPRESS, FASTAPI]).await;
    let axum = AxumShop::start(&shop.database_url()).await;
    let mut urls = shop.urls();
    urls.push(axum.url.clone());
    check_round(&shop.http, &urls, "all-at-once", None).await;
    // Each language once responds first, and the others replay its bytes.
    for (number, url) in urls.iter().enumerate() {
        let first = std::slice::from_ref(url);
        let key = format!("first-{number}");
        let first = order_until_answered(&shop.http, first, 0, &key, &body("socks", 500)).await;
        assert_eq!(first.header("idempotency-status"), Some("stored"));
        check_round(&shop.http, &urls, &key, Some(&first)).await;
    }
    shop.check_effects(1 + urls.len()).await;
}

/// Sends duplicates to all services at once, and compares their responses.
async fn check_round(http: &HttpClient, urls: &[String], key: &str, first: Option<&HttpResponse>) {
    let order = body("socks", 500);
    let post = |number| order_until_answered(http, urls, number, key, &order);
    let answers = join_all((0..DUPLICATES).map(post)).await;
    let expected = first.unwrap_or(&answers[0]);
    for answer in &answers {
        assert_eq!(answer.status, 201, "{key}: {}", answer.text());
        assert_eq!(answer.body, expected.body, "{key}");
        for name in [
            "content-type",
            "location",
            "content-length",
            "idempotency-key",
        ] {
            assert!(answer.header(name).is_some(), "{key}: {name}");
            assert_eq!(answer.header(name), expected.header(name), "{key}: {name}");
        }
    }
    let count = |status: &str| {
        let has = |answer: &&HttpResponse| answer.header("idempotency-status") == Some(status);
        answers.iter().filter(has).count()
    };
    let stored = usize::from(first.is_none());
    assert_eq!(
        (count("stored"), count("replayed")),
        (stored, DUPLICATES - stored),
        "{key}"
    );
}
