//! Fruitless reads: frontiers beyond which this node has found nothing, so that destinations that
//! have read everything do not search the same rows again.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use hapax::{
    delivery::{Frontier, Shards},
    store::StoreError,
};

use crate::frontier::Mark;

/// Maximum number of remembered frontiers beyond which nothing was found, for destinations that
/// have read everything.
const LOOKS: usize = 64;

/// The results of reads that this node keeps, in addition to the frontiers.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// Frontiers beyond which nothing was found, each with a newer mark of the same meaning.
    vain: Mutex<VecDeque<Vain>>,
}

/// A frontier beyond which nothing was found.
#[derive(Debug)]
struct Vain {
    from: Frontier,
    shards: Shards,
    mark: Mark,
}

impl Looks {
    /// The newest mark that has the same meaning as `frontier`, so that rows that were searched
    /// without a result are not searched again.
    pub(crate) fn newest(&self, frontier: &Frontier, shards: Shards) -> Result<Mark, StoreError> {
        let vain = self.vain.lock().unwrap_or_else(PoisonError::into_inner);
        let known = vain.iter().find(|vain| vain.is_of(frontier, shards));
        known.map_or_else(|| Mark::of(frontier), |vain| Ok(vain.mark.clone()))
    }

    pub(crate) fn in_vain(&self, from: &Frontier, shards: Shards, mark: &Mark) {
        let mut vain = self.vain.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = vain.iter_mut().find(|vain| vain.is_of(from, shards)) {
            known.mark = mark.clone();
            return;
        }
        if vain.len() == LOOKS {
            vain.pop_front();
        }
        vain.push_back(Vain {
            from: from.clone(),
            shards,
            mark: mark.clone(),
        });
    }

    /// Forgets the marks of another history.
    pub(crate) fn forget(&self) {
        let mut vain = self.vain.lock().unwrap_or_else(PoisonError::into_inner);
        vain.clear();
    }
}

impl Vain {
    fn is_of(&self, from: &Frontier, shards: Shards) -> bool {
        self.shards == shards && self.from == *from
    }
}
