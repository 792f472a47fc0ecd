//! Tests of uploads: one file, one row and one pair of thumbnails, even after failures.

mod picture;
pub(crate) mod sent;
mod kept;
mod refused;
mod hostile;
mod storm;
mod crash;
mod swept;
mod shared;
pub(crate) mod memory;
mod full;

use hapax_testkit::http::HttpResponse;

use crate::shop::Shop;

/// Uploads a small picture as alice.
pub(crate) async fn taken_png(shop: &Shop) -> HttpResponse {
    sent::upload(shop, "png", "a.png", &picture::png(20, 20)).await
}
