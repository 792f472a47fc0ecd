//! The long forms: more kills and cuts, every byte on both stores, and a gibibyte.

use hapax_testkit::proxy::Direction;

use crate::{
    cuts,
    gateway::Store,
    kills::{self, Load},
    large, probed,
};

/// How often gateways are killed, unless `HAPAX_TEST_KILLS` says otherwise.
const KILLS: &str = "500";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_key_acts_twice_in_many_kills_of_a_gateway_on_sqlite() {
    kills::check(Load {
        on: Store::Sqlite,
        gateways: 1,
        kills: kills_min(),
        seed: 11,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_key_acts_twice_in_many_kills_of_two_gateways_on_postgresql() {
    kills::check(Load {
        on: Store::Postgres,
        gateways: 2,
        kills: kills_min(),
        seed: 12,
    })
    .await;
}

fn kills_min() -> usize {
    #[expect(clippy::disallowed_methods, reason = "tests have no configuration")]
    let kills = std::env::var("HAPAX_TEST_KILLS").unwrap_or_else(|_| KILLS.to_owned());
    kills.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_byte_is_cut_on_postgresql() {
    cuts::check(Store::Postgres, Direction::ToServer, 1).await;
    cuts::check(Store::Postgres, Direction::ToClient, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gibibyte_streams_in_both_directions_in_little_memory() {
    large::check(1 << 30).await;
}

#[test]
fn the_gateway_keeps_its_own_promise() {
    probed::check("hapax");
}
