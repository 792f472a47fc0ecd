//! Which parts this node should carry: numbers in, decision out.
//!
//! Nobody assigns. Every node sees the same attendance and reckons alike: what
//! is free falls to whoever has least, and whoever has two more than another
//! lets one go. Two that take the same part at once, for they looked at
//! different moments, are told apart by the store.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::delivery::Attendance;

/// Looks in the time after which a node that was not seen is taken for dead.
pub(super) const LOOKS: u32 = 5;
/// Looks after which a part that nobody takes is taken by whoever knows of it, whatever its share:
/// the others may not have been told of that destination yet.
const UNWANTED_LOOKS: u32 = 2 * LOOKS;

/// What one node remembers from look to look.
#[derive(Debug, Default)]
pub(super) struct Shares {
    nodes: Vec<String>,
    /// For how many looks nobody has held a part.
    free: HashMap<String, u32>,
    /// Parts that nobody else wanted: letting them go would only move them to and fro.
    unwanted: HashSet<String>,
}

impl Shares {
    /// The parts of `wanted` that `node` should carry until the next look.
    pub(super) fn of(
        &mut self,
        node: &str,
        wanted: &BTreeSet<String>,
        attendance: &Attendance,
    ) -> BTreeSet<String> {
        if self.nodes != attendance.nodes {
            self.nodes.clone_from(&attendance.nodes);
            self.unwanted.clear();
        }
        let held = attendance.held.iter();
        let holder: HashMap<&str, &str> = held
            .map(|held| (held.part.as_str(), held.node.as_str()))
            .filter(|(part, _)| wanted.contains(*part))
            .collect();
        let mut ours: BTreeSet<String> = wanted
            .iter()
            .filter(|part| holder.get(part.as_str()) == Some(&node))
            .cloned()
            .collect();
        let mut counts = self.counts(&holder);
        let place = self.nodes.iter().position(|other| other == node);
        self.take(place, wanted, &mut ours, &holder, &mut counts);
        self.let_go(place, &mut ours, &mut counts);
        ours
    }

    /// How many parts each node holds.
    fn counts(&self, holder: &HashMap<&str, &str>) -> Vec<usize> {
        let held = |node: &String| holder.values().filter(|holder| *holder == node).count();
        self.nodes.iter().map(held).collect()
    }

    /// Takes what is free and falls to us, when each part falls to whoever has least.
    fn take(
        &mut self,
        place: Option<usize>,
        wanted: &BTreeSet<String>,
        ours: &mut BTreeSet<String>,
        holder: &HashMap<&str, &str>,
        counts: &mut [usize],
    ) {
        let is_free = |part: &String| !holder.contains_key(part.as_str());
        self.free
            .retain(|part, _| wanted.contains(part) && is_free(part));
        for part in wanted.iter().filter(|part| is_free(part)) {
            let looks = self.free.entry(part.clone()).or_default();
            *looks += 1;
            let falls_to = (0..counts.len()).min_by_key(|node| counts[*node]);
            if let Some(falls_to) = falls_to {
                counts[falls_to] += 1;
            }
            if falls_to == place {
                ours.insert(part.clone());
            } else if *looks > UNWANTED_LOOKS {
                self.unwanted.insert(part.clone());
                ours.insert(part.clone());
            }
        }
    }

    /// Lets go of what makes the shares more even in another node's hands.
    fn let_go(&self, place: Option<usize>, ours: &mut BTreeSet<String>, counts: &mut [usize]) {
        loop {
            let richest = (0..counts.len()).max_by_key(|node| counts[*node]);
            let poorest = (0..counts.len()).min_by_key(|node| counts[*node]);
            let Some((richest, poorest)) = richest.zip(poorest) else {
                return;
            };
            if counts[richest] < counts[poorest] + 2 {
                return;
            }
            counts[richest] -= 1;
            counts[poorest] += 1;
            if Some(richest) == place {
                let part = ours.iter().rfind(|part| !self.unwanted.contains(*part));
                let Some(part) = part.cloned() else { return };
                ours.remove(&part);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::delivery::Held;

    #[test]
    fn a_node_that_is_alone_carries_everything() {
        let mut shares = Shares::default();
        check(&mut shares, "a", &["a"], &[], &["p", "q", "r"]);
    }

    #[test]
    fn what_another_node_holds_is_left_to_it() {
        let mut shares = Shares::default();
        let held = [("p", "b"), ("q", "b")];
        check(&mut shares, "a", &["a", "b"], &held, &["r"]);
        let held = [("p", "b"), ("q", "a")];
        check(&mut shares, "b", &["a", "b"], &held, &["p"]);
    }

    #[test]
    fn who_has_more_than_another_could_lets_go() {
        let mut shares = Shares::default();
        let held = [("p", "a"), ("q", "a"), ("r", "a")];
        check(&mut shares, "a", &["a", "b"], &held, &["p", "q"]);
        let held = [("p", "a"), ("q", "a")];
        check(&mut shares, "a", &["a", "b"], &held, &["p", "q"]);
        let held = [("p", "a"), ("q", "a"), ("r", "b")];
        check(&mut shares, "a", &["a", "b"], &held, &["p", "q"]);
    }

    #[test]
    fn what_nobody_takes_is_taken_in_the_end_and_kept() {
        let mut shares = Shares::default();
        let held = [("p", "a"), ("q", "a")];
        let nodes = ["a", "b"];
        for _ in 0..UNWANTED_LOOKS {
            check(&mut shares, "a", &nodes, &held, &["p", "q"]);
        }
        check(&mut shares, "a", &nodes, &held, &["p", "q", "r"]);
        let held = [("p", "a"), ("q", "a"), ("r", "a")];
        let ours = of(&mut shares, "a", &nodes, &held);
        assert!(ours.contains("r"), "{ours:?}");
    }

    proptest! {
        /// Whoever comes and goes, soon every part has one carrier and no node two more than
        /// another.
        #[test]
        fn shares_become_even(parts in 1_usize..20, nodes in 1_usize..6, owner in 0_usize..6) {
            let names: Vec<String> = (0..nodes).map(|node| format!("n{node}")).collect();
            let wanted: BTreeSet<String> = (0..parts).map(|part| format!("p{part:02}")).collect();
            let mut held: HashMap<String, String> = match names.get(owner) {
                Some(owner) => wanted.iter().map(|part| (part.clone(), owner.clone())).collect(),
                None => HashMap::new(),
            };
            let mut shares: Vec<Shares> = names.iter().map(|_| Shares::default()).collect();
            for _ in 0..30 {
                let attendance = Attendance {
                    nodes: names.clone(),
                    held: held.iter().map(|(part, node)| Held {
                        part: part.clone(), node: node.clone(), epoch: 1,
                    }).collect(),
                };
                for (name, shares) in names.iter().zip(&mut shares) {
                    let ours = shares.of(name, &wanted, &attendance);
                    held.retain(|part, node| node != name || ours.contains(part));
                    for part in ours {
                        held.entry(part).or_insert_with(|| name.clone());
                    }
                }
            }
            let counts: Vec<usize> = names.iter()
                .map(|name| held.values().filter(|node| *node == name).count())
                .collect();
            prop_assert_eq!(held.len(), parts);
            let (least, most) = (counts.iter().min(), counts.iter().max());
            prop_assert!(most.unwrap() - least.unwrap() <= 1, "{:?}", counts);
        }
    }

    #[track_caller]
    fn check(
        shares: &mut Shares,
        node: &str,
        nodes: &[&str],
        held: &[(&str, &str)],
        expected: &[&str],
    ) {
        let expected: BTreeSet<String> = expected.iter().copied().map(str::to_owned).collect();
        assert_eq!(of(shares, node, nodes, held), expected);
    }

    fn of(
        shares: &mut Shares,
        node: &str,
        nodes: &[&str],
        held: &[(&str, &str)],
    ) -> BTreeSet<String> {
        let wanted = ["p", "q", "r"].map(str::to_owned).into();
        let held = held.iter().map(|(part, node)| Held {
            part: (*part).to_owned(),
            node: (*node).to_owned(),
            epoch: 1,
        });
        let attendance = Attendance {
            nodes: nodes.iter().copied().map(str::to_owned).collect(),
            held: held.collect(),
        };
        shares.of(node, &wanted, &attendance)
    }
}
