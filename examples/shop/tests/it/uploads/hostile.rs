//! Tests of pictures with a valid header and invalid content: their job fails once, and disturbs no
//! other job.

use super::{
    memory,
    picture::{bomb, claiming, jpeg, png},
    sent::{count, done, path, taken},
};
use crate::shop::{ORDER, Shop, Store, on_both_stores, problem};

on_both_stores! {
    a_picture_that_cannot_be_decoded_has_failed_permanently,
    a_bomb_is_unpacked_within_bounds,
}

async fn a_picture_that_cannot_be_decoded_has_failed_permanently(on: Store) {
    let shop = Shop::start(on, &[]).await;
    let (png, jpeg) = (png(300, 200), jpeg(300, 200));
    let after = |good: &[u8], end: usize| {
        let mut file = good[..end].to_vec();
        file.extend(b"garbage ".repeat(1000));
        file
    };
    let mut wrong_sum = png.clone();
    wrong_sum[29] ^= 1;
    let scan = jpeg.windows(2).position(|it| it == [0xff, 0xda]).unwrap();
    let hostile = [
        png[..png.len() / 2].to_vec(),
        png[..33].to_vec(),
        after(&png, 33),
        after(&png, 60),
        wrong_sum,
        claiming(8000, 4000),
        jpeg[..scan].to_vec(),
        after(&jpeg, scan),
    ];
    for (number, file) in hostile.iter().enumerate() {
        let said = taken(&shop, &format!("k-{number}"), file).await;
        let known = done(&shop, &said).await;
        assert_eq!(known["state"], "failed", "{number}: {known}");
        assert!(!known["reason"].as_str().unwrap().is_empty(), "{known}");
        let none = shop.get(&format!("{}/thumbnails/128", path(&said))).await;
        problem(&none, 404, "NOT_FOUND");
        assert!(
            none.header("retry-after").is_none(),
            "a failed upload will never have thumbnails"
        );
    }
    let home = shop.home();
    let jobs = count(&home, "hapax.inbox_message", "consumer = 'thumbnails'").await;
    assert_eq!(jobs, i64::try_from(hostile.len()).unwrap());
    for table in ["hapax.delivery", "shop_thumbnail"] {
        let condition = "destination = 'thumbnails' AND state <> 'delivered'";
        let condition = if table == "hapax.delivery" {
            condition
        } else {
            "1 = 1"
        };
        assert_eq!(
            count(&home, table, condition).await,
            0,
            "{table}: a failed job must not be retried"
        );
    }
    assert_eq!(shop.post("/orders", Some("o"), ORDER).await.status, 201);
}

async fn a_bomb_is_unpacked_within_bounds(on: Store) {
    let shop = Shop::start(on, &[]).await;
    let bomb = bomb(8000, 5000);
    assert!(bomb.len() < 1024 * 1024, "{}", bomb.len());
    let before = memory::begin(&shop);
    let said = taken(&shop, "k", &bomb).await;
    let known = done(&shop, &said).await;
    assert_eq!(known["state"], "ready", "{known}");
    // The memory for forty megapixels in grey, and for the thumbnails.
    let grown = memory::peak(&shop) - before;
    assert!(grown < 192 * 1024 * 1024, "{grown}");
}
