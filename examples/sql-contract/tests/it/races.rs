//! Concurrent requests: duplicates of one request, and two requests under one key.

use futures_util::future::join_all;
use hapax_testkit::http::HttpAnswer;

use crate::{
    service::Language,
    shop::{Shop, body, order_until_answered},
};

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_duplicates_over_two_python_processes_are_one_order() {
    check_duplicates([Language::Python; 2]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_duplicates_over_two_node_processes_are_one_order() {
    check_duplicates([Language::Node; 2]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn python_and_node_share_a_key_and_replay_each_others_bytes() {
    check_duplicates([Language::Python, Language::Node]).await;
}

async fn check_duplicates(languages: [Language; 2]) {
    let shop = Shop::open(&languages).await;
    let (urls, body) = (shop.urls(), body("socks", 500));
    let post = |number| order_until_answered(&shop.http, &urls, number, "one", &body);
    let answers = join_all((0..200).map(post)).await;
    let one = &answers[0];
    assert_eq!(one.status, 201, "{}", one.text());
    for answer in &answers {
        assert_eq!((answer.status, &answer.body), (201, &one.body));
        for name in [
            "content-type",
            "location",
            "content-length",
            "idempotency-key",
        ] {
            assert!(answer.header(name).is_some(), "{name}");
            assert_eq!(answer.header(name), one.header(name), "{name}");
        }
    }
    let told = |word| {
        let said = |answer: &&HttpAnswer| answer.header("idempotency-status") == Some(word);
        answers.iter().filter(said).count()
    };
    assert_eq!((told("stored"), told("replayed")), (1, 199));
    shop.check_effects(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_payloads_under_one_key_python_takes_one() {
    check_two_payloads(Language::Python).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_payloads_under_one_key_node_takes_one() {
    check_two_payloads(Language::Node).await;
}

async fn check_two_payloads(language: Language) {
    const KEYS: usize = 20;
    let shop = Shop::open(&[language; 2]).await;
    let urls = shop.urls();
    let bodies = [body("socks", 500), body("shoes", 9_000)];
    let keys: Vec<String> = (0..KEYS).map(|number| format!("race-{number}")).collect();
    let posts = keys.iter().flat_map(|key| {
        (0..4).map(|number| {
            order_until_answered(&shop.http, &urls, number / 2, key, &bodies[number % 2])
        })
    });
    let answers = join_all(posts).await;
    for (key, four) in keys.iter().zip(answers.chunks(4)) {
        let taken = |payload: usize| (four[payload].status, four[payload + 2].status);
        let (socks, shoes) = (taken(0), taken(1));
        let one_won = [(socks, shoes), (shoes, socks)].contains(&((201, 201), (409, 409)));
        assert!(one_won, "{key}: {socks:?} {shoes:?}");
        let lost = four.iter().find(|it| it.status == 409).expect("a 409");
        let code = &lost.json().expect("a problem is JSON")["code"];
        assert_eq!(code, "CONFLICT.idempotency.payload_mismatch");
    }
    shop.check_effects(20).await;
}
