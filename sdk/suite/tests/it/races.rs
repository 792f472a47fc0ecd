//! Two requests under one key that are sent at once to services in different languages.

use futures_util::future::join_all;

use crate::{
    kind::{EXPRESS, FASTAPI},
    shop::{Shop, body, order_until_answered},
};

#[tokio::test(flavor = "multi_thread")]
async fn of_two_payloads_under_one_key_one_is_taken_whichever_language_gets_it() {
    const KEYS: usize = 20;
    let shop = Shop::open(&[EXPRESS, FASTAPI]).await;
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
    shop.check_effects(KEYS).await;
}
