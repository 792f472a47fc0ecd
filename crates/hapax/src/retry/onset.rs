//! A test of the first seconds of an outage: every client has a full retry budget, and together the
//! clients must not cause a wave of retries.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use hapax_testkit::clock::seeded_random;

use super::{Again, Backoff, Balance, Budget};
use crate::clock::Timestamp;

const CLIENTS: usize = 100;
/// The time span in which every attempt fails, in milliseconds.
const DOWN: (i64, i64) = (3_000, 33_000);
/// The maximum time between two first attempts of a client; the average is half of it.
const PACE_MS: f64 = 1_000.0;

/// A future attempt: its time, its client, its number, and the start of its operation.
type Attempt = Reverse<(i64, usize, u32, i64)>;

#[test]
fn a_fleet_whose_destination_goes_away_makes_no_wave() {
    for seed in 0..40 {
        let tenths = arrivals(seed);
        let mean = tenths.iter().sum::<u32>() / u32::try_from(tenths.len()).unwrap();
        let most = *tenths.iter().max().unwrap();
        assert!(
            most < 4 * mean,
            "seed {seed}: {most} in 100 ms, {mean} on average"
        );
    }
}

/// The number of attempts of all clients in every 100 ms of the outage.
fn arrivals(seed: u64) -> Vec<u32> {
    let random = seeded_random(seed);
    let millis = |most: f64| {
        let wait = Duration::from_secs_f64(random.unit() * most / 1_000.0);
        i64::try_from(wait.as_millis()).unwrap()
    };
    let backoff = Backoff::default();
    let at = Timestamp::from_millis;
    let mut balances = vec![Balance::new(Budget::default(), at(0)); CLIENTS];
    let mut due: BinaryHeap<Attempt> = BinaryHeap::new();
    for client in 0..CLIENTS {
        let first = millis(PACE_MS);
        due.push(Reverse((first, client, 1, first)));
    }
    let tenth = |moment: i64| usize::try_from((moment - DOWN.0) / 100).unwrap();
    let mut tenths = vec![0; tenth(DOWN.1)];
    while let Some(Reverse((moment, client, number, began))) = due.pop() {
        if moment >= DOWN.1 {
            break;
        }
        let balance = &mut balances[client];
        if number == 1 {
            balance.first(at(moment));
            let next = moment + millis(PACE_MS);
            due.push(Reverse((next, client, 1, next)));
        } else if !balance.take(at(moment)) {
            continue;
        }
        if moment < DOWN.0 {
            continue;
        }
        tenths[tenth(moment)] += 1;
        balance.failed(at(moment));
        let left = backoff.total.saturating_sub(at(moment).since(at(began)));
        if let Again::After(wait) = backoff.after(number, left, random.unit(), None)
            && balance.allows(at(moment))
        {
            let wait = i64::try_from(wait.as_millis()).unwrap();
            due.push(Reverse((moment + wait, client, number + 1, began)));
        }
    }
    tenths
}
