//! Assignment of partitions to nodes: a pure function of the membership.
//!
//! There is no coordinator. Every node reads the same membership and computes the same assignment:
//! a free partition goes to the node with the fewest partitions, and a node with at least two more
//! partitions than another one releases one. Nodes that report that they do not know a destination
//! do not take its partitions. If two nodes take the same partition because they read the
//! membership at different times, the store decides.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::delivery::Membership;

/// Number of polls in the time after which a node without heartbeat is considered dead.
pub(super) const LOOKS: u32 = 5;
/// Number of polls after which a partition without owner is taken by any node that knows its
/// destination, even by a node that has its share already: the other nodes may run a version that
/// does not report its destinations, or may be slow.
const UNWANTED_LOOKS: u32 = 2 * LOOKS;

/// The state of a node between polls.
#[derive(Debug, Default)]
pub(super) struct Shares {
    nodes: Vec<String>,
    /// The number of polls for which a partition has had no owner.
    free: HashMap<String, u32>,
    /// Partitions that no other node took. Releasing them again would only move them back and
    /// forth.
    unwanted: HashSet<String>,
}

impl Shares {
    /// The partitions of `wanted`, each with its destination, that `node` should own until the next
    /// poll.
    pub(super) fn of(
        &mut self,
        node: &str,
        wanted: &BTreeMap<String, String>,
        membership: &Membership,
    ) -> BTreeSet<String> {
        if self.nodes != membership.nodes {
            self.nodes.clone_from(&membership.nodes);
            self.unwanted.clear();
        }
        let mut hands = Hands::of(node, wanted, membership);
        let mut ours = hands
            .place
            .map_or_else(BTreeSet::new, |place| hands.partitions[place].clone());
        self.take(wanted, &mut ours, &mut hands);
        self.let_go(&mut ours, hands);
        ours
    }

    /// Takes free partitions that belong to this node, if each free partition goes to the node with
    /// the fewest of those that know its destination.
    fn take(
        &mut self,
        wanted: &BTreeMap<String, String>,
        ours: &mut BTreeSet<String>,
        hands: &mut Hands<'_>,
    ) {
        let free: Vec<&String> = wanted
            .keys()
            .filter(|partition| hands.is_free(partition))
            .collect();
        self.free.retain(|partition, _| free.contains(&partition));
        for partition in free {
            let looks = self.free.entry(partition.clone()).or_default();
            *looks += 1;
            let falls_to = hands.poorest(partition);
            if let Some(falls_to) = falls_to {
                hands.partitions[falls_to].insert(partition.clone());
            }
            if falls_to == hands.place {
                ours.insert(partition.clone());
            } else if *looks > UNWANTED_LOOKS {
                self.unwanted.insert(partition.clone());
                ours.insert(partition.clone());
            }
        }
    }

    /// Releases partitions that another node that knows their destination should own for a more
    /// even distribution.
    fn let_go(&self, ours: &mut BTreeSet<String>, mut hands: Hands<'_>) {
        while let Some((richest, poorest, partition)) = hands.uneven(&self.unwanted) {
            hands.partitions[richest].remove(&partition);
            hands.partitions[poorest].insert(partition.clone());
            if Some(richest) == hands.place {
                ours.remove(&partition);
            }
        }
    }
}

/// The partitions that each live node has, and could have.
#[derive(Debug)]
struct Hands<'a> {
    /// By the index of the node among the live nodes.
    partitions: Vec<BTreeSet<String>>,
    /// The destinations that each node knows; `None` if it does not report them.
    knows: Vec<Option<&'a BTreeSet<String>>>,
    wanted: &'a BTreeMap<String, String>,
    /// The index of this node.
    place: Option<usize>,
}

impl<'a> Hands<'a> {
    fn of(node: &str, wanted: &'a BTreeMap<String, String>, membership: &'a Membership) -> Self {
        let nodes = membership.nodes.iter();
        let held = |node: &String| {
            let held = membership.held.iter().filter(|held| held.node == *node);
            let partitions = held.map(|held| held.partition.clone());
            partitions
                .filter(|partition| wanted.contains_key(partition))
                .collect()
        };
        Self {
            partitions: nodes.clone().map(held).collect(),
            // This node knows the destinations of all wanted partitions.
            knows: nodes
                .map(|it| membership.knows.get(it).filter(|_| it != node))
                .collect(),
            wanted,
            place: membership.nodes.iter().position(|it| it == node),
        }
    }

    fn is_free(&self, partition: &str) -> bool {
        !self
            .partitions
            .iter()
            .any(|partitions| partitions.contains(partition))
    }

    fn could_have(&self, node: usize, partition: &str) -> bool {
        let destination = self.wanted.get(partition);
        let knows = |known: &BTreeSet<String>| destination.is_some_and(|it| known.contains(it));
        self.knows[node].is_none_or(knows)
    }

    /// The node with the fewest partitions among those that could have this one.
    fn poorest(&self, partition: &str) -> Option<usize> {
        let could = (0..self.partitions.len()).filter(|node| self.could_have(*node, partition));
        could.min_by_key(|node| self.partitions[*node].len())
    }

    /// A partition that another node should own for a more even distribution: its owner, and its
    /// next owner.
    fn uneven(&self, unwanted: &HashSet<String>) -> Option<(usize, usize, String)> {
        let mut nodes: Vec<usize> = (0..self.partitions.len()).collect();
        nodes.sort_by_key(|node| self.partitions[*node].len());
        for &richest in nodes.iter().rev() {
            for &poorest in &nodes {
                if self.partitions[richest].len() < self.partitions[poorest].len() + 2 {
                    break;
                }
                let moves = |partition: &&String| {
                    let is_stuck = Some(richest) == self.place && unwanted.contains(*partition);
                    !is_stuck && self.could_have(poorest, partition)
                };
                if let Some(partition) = self.partitions[richest].iter().rfind(moves) {
                    return Some((richest, poorest, partition.clone()));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::delivery::OwnedPartition;

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

    #[test]
    fn nothing_falls_to_whoever_does_not_know_it() {
        let mut shares = Shares::default();
        let nodes = ["a stranger", "b", "c"];
        check(&mut shares, "b", &nodes, &[], &["p", "r"]);
        check(&mut shares, "c", &nodes, &[], &["q"]);
        // It is not released either, when other nodes join or leave.
        let held = [("p", "b"), ("q", "b"), ("r", "b")];
        check(
            &mut shares,
            "b",
            &["a stranger", "b"],
            &held,
            &["p", "q", "r"],
        );
        check(&mut shares, "b", &nodes, &held, &["p", "q"]);
        check(
            &mut shares,
            "b",
            &["b", "c", "x stranger"],
            &held,
            &["p", "q"],
        );
    }

    proptest! {
        /// After nodes have joined and left, every partition soon has one owner, and no node has
        /// two more than another.
        #[test]
        fn shares_become_even(partitions in 1_usize..20, nodes in 1_usize..6, owner in 0_usize..6) {
            let names: Vec<String> = (0..nodes).map(|node| format!("n{node}")).collect();
            let wanted: BTreeMap<String, String> =
                (0..partitions).map(|partition| (format!("p{partition:02}"), "d".to_owned())).collect();
            let mut held: HashMap<String, String> = match names.get(owner) {
                Some(owner) => wanted.keys().map(|partition| (partition.clone(), owner.clone())).collect(),
                None => HashMap::new(),
            };
            let mut shares: Vec<Shares> = names.iter().map(|_| Shares::default()).collect();
            for _ in 0..30 {
                let membership = Membership {
                    nodes: names.clone(),
                    held: held.iter().map(|(partition, node)| OwnedPartition {
                        partition: partition.clone(), node: node.clone(), epoch: 1,
                    }).collect(),
                    knows: BTreeMap::new(),
                    operators: None,
                };
                for (name, shares) in names.iter().zip(&mut shares) {
                    let ours = shares.of(name, &wanted, &membership);
                    held.retain(|partition, node| node != name || ours.contains(partition));
                    for partition in ours {
                        held.entry(partition).or_insert_with(|| name.clone());
                    }
                }
            }
            let counts: Vec<usize> = names.iter()
                .map(|name| held.values().filter(|node| *node == name).count())
                .collect();
            prop_assert_eq!(held.len(), partitions);
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

    /// Nodes that know only another destination. Others report nothing.
    fn strangers(nodes: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
        let strangers = nodes.iter().filter(|it| it.contains("stranger"));
        let other = BTreeSet::from(["other".to_owned()]);
        strangers
            .map(|it| ((*it).to_owned(), other.clone()))
            .collect()
    }

    fn of(
        shares: &mut Shares,
        node: &str,
        nodes: &[&str],
        held: &[(&str, &str)],
    ) -> BTreeSet<String> {
        let wanted = ["p", "q", "r"]
            .map(|it| (it.to_owned(), it.to_owned()))
            .into();
        let held = held.iter().map(|(partition, node)| OwnedPartition {
            partition: (*partition).to_owned(),
            node: (*node).to_owned(),
            epoch: 1,
        });
        let membership = Membership {
            nodes: nodes.iter().copied().map(str::to_owned).collect(),
            held: held.collect(),
            knows: strangers(nodes),
            operators: None,
        };
        shares.of(node, &wanted, &membership)
    }
}
