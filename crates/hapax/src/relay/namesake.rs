//! The identity of this process in its store, and other processes with the same name.
//!
//! Operators choose names, and may use one twice: a machine is cloned, or two services listen on
//! the same port of two addresses. Therefore the identity of a process is its name and a number
//! that is drawn when it starts, and no process takes the partitions of another one with the same
//! name. Two processes with one name are still reported, because an operator cannot distinguish
//! them in logs and lists.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use metrics::gauge;
use tokio::time::Instant;

use crate::{clock::Random, delivery::Membership, telemetry};

use super::lease::LOOKS;

/// Separates the name and the number, which has sixteen digits.
const MARK: char = '#';
const DIGITS: usize = 16;

/// The identity of a process in the store: its name and a number.
pub(super) fn identity(name: &str, random: &Random) -> String {
    format!("{name}{MARK}{:016x}", random.bits())
}

/// The name in an identity. Older versions used the name alone.
pub(super) fn name_of(identity: &str) -> &str {
    match identity.rsplit_once(MARK) {
        Some((name, number)) if is_number(number) => name,
        _ => identity,
    }
}

fn is_number(text: &str) -> bool {
    text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Other processes with the name of this one, from poll to poll.
#[derive(Debug, Default)]
pub(super) struct Namesakes {
    /// When each of them was seen first.
    seen: HashMap<String, Instant>,
    /// The number of live ones, for the relay handle.
    living: Arc<AtomicUsize>,
}

impl Namesakes {
    /// Stores the number of live ones in `living`.
    pub(super) fn counted_by(living: Arc<AtomicUsize>) -> Self {
        gauge!(telemetry::RELAY_NAMESAKES).set(0.0);
        Self {
            seen: HashMap::new(),
            living,
        }
    }

    /// Finds other processes with the same name in the membership, and logs when their number
    /// changes.
    ///
    /// A process that was killed is considered alive until its lease is over, so a process that is
    /// restarted sees its predecessor. Only one that is seen for longer than that is alive.
    pub(super) fn look(&mut self, identity: &str, membership: &Membership, lease: Duration) {
        let name = name_of(identity);
        let is_other = |other: &&String| *other != identity && name_of(other) == name;
        let others: Vec<&String> = membership.nodes.iter().filter(is_other).collect();
        self.seen.retain(|other, _| others.contains(&other));
        let now = Instant::now();
        for other in others {
            self.seen.entry(other.clone()).or_insert(now);
        }
        let longest = lease + 2 * lease / LOOKS;
        let living = self.seen.iter();
        let living = living.filter(|(_, since)| now.duration_since(**since) > longest);
        let living: Vec<&String> = living.map(|(other, _)| other).collect();
        self.say(identity, name, &living);
    }

    fn say(&self, identity: &str, name: &str, living: &[&String]) {
        let before = self.living.swap(living.len(), Ordering::Relaxed);
        if before == living.len() {
            return;
        }
        let count = u32::try_from(living.len()).unwrap_or(u32::MAX);
        gauge!(telemetry::RELAY_NAMESAKES).set(f64::from(count));
        if let Some(other) = living.first() {
            tracing::error!(
                name,
                node = identity,
                other,
                "another live process has the name of this relay: give each relay a different \
                 name; neither takes the partitions of the other"
            );
        } else {
            tracing::info!(
                name,
                node = identity,
                "no other live process has this name any more"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(5);

    #[test]
    fn two_processes_of_one_name_are_two_nodes() {
        let numbers = std::sync::atomic::AtomicU64::new(7);
        let random = Random::new(move || numbers.fetch_add(1, Ordering::Relaxed));
        let (one, two) = (identity("vm:80", &random), identity("vm:80", &random));
        assert_ne!(one, two);
        assert_eq!((name_of(&one), name_of(&two)), ("vm:80", "vm:80"));
        for older in ["vm:80", "a#b", "#", "a#0123456789abcdeg", ""] {
            assert_eq!(name_of(older), older);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_was_killed_and_started_again_is_no_namesake_of_itself() {
        let mut namesakes = Namesakes::default();
        for _ in 0..5 {
            let living = look(&mut namesakes, &["a#0000000000000001"], LEASE / LOOKS).await;
            assert_eq!(living, 0, "its lease is not over");
        }
        assert_eq!(look(&mut namesakes, &[], LEASE / LOOKS).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_lives_on_under_our_name_is_seen_and_gone_when_it_ends() {
        let mut namesakes = Namesakes::default();
        for other in ["a#0000000000000001", "a"] {
            let mut seen = 0;
            for _ in 0..9 {
                seen = look(&mut namesakes, &["b", other], LEASE / LOOKS).await;
            }
            assert_eq!(seen, 1, "{other}");
            assert_eq!(look(&mut namesakes, &["b"], LEASE / LOOKS).await, 0);
        }
    }

    async fn look(namesakes: &mut Namesakes, others: &[&str], pause: Duration) -> usize {
        const US: &str = "a#ffffffffffffffff";
        let others = others.iter().copied().chain([US]);
        let membership = Membership {
            nodes: others.map(str::to_owned).collect(),
            ..Membership::default()
        };
        namesakes.look(US, &membership, LEASE);
        tokio::time::advance(pause).await;
        namesakes.living.load(Ordering::Relaxed)
    }
}
