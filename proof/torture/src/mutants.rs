//! The mutants of this project: patches in `proof/mutants`, each with a seeded bug.
//!
//! `cargo x torture bugs` applies all of them to a copy of the project and builds the programs, and
//! this one, from the copy. A process of that build has the bug that `HAPAX_SEEDED` names.

use std::{fs, path::Path};

use anyhow::{Context as _, bail};
use clap::ValueEnum as _;

use crate::deployment::Store;

/// Whether this build contains the bugs: `switch.patch` changes the value.
const HAS_BUGS: bool = false;
/// The patch that contains the switch instead of a bug.
const SWITCH: &str = "switch";
/// The line of a patch that names the only store on which a run can find the bug.
const STORE: &str = "Store: ";
/// The line of a patch whose bug no run can find, because no program of a run does what it needs.
const BY_TESTS: &str = "Found by: tests";

/// A patch with a seeded bug.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mutant {
    /// The name of the bug and of its patch.
    pub(crate) name: String,
    store: Option<Store>,
    /// Whether only the tests of the crates find the bug.
    is_for_tests: bool,
}

impl Mutant {
    /// All mutants, sorted by name.
    pub(crate) fn all() -> anyhow::Result<Vec<Self>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../mutants");
        let mut mutants = Vec::new();
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            if path.extension().is_some_and(|it| it == "patch") && name != SWITCH {
                let text = fs::read_to_string(&path)?;
                mutants.push(Self::of(name.into_owned(), &text)?);
            }
        }
        mutants.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(mutants)
    }

    /// The mutant of this name.
    pub(crate) fn named(name: &str) -> anyhow::Result<Self> {
        let mut all = Self::all()?.into_iter();
        all.find(|it| it.name == name)
            .with_context(|| format!("proof/mutants has no patch {name}.patch"))
    }

    fn of(name: String, patch: &str) -> anyhow::Result<Self> {
        let store = patch.lines().find_map(|line| line.strip_prefix(STORE));
        let store = store.map(|store| Store::from_str(store, false));
        let store = store.transpose().map_err(anyhow::Error::msg)?;
        Ok(Self {
            name,
            store,
            is_for_tests: patch.lines().any(|line| line == BY_TESTS),
        })
    }

    /// Whether a run on this store can find the bug.
    pub(crate) fn is_in(&self, store: Store) -> bool {
        !self.is_for_tests && self.store.is_none_or(|only| only == store)
    }
}

/// Fails if this build contains no bugs, or not this one.
pub(crate) fn check_planted(bug: &str) -> anyhow::Result<()> {
    if !HAS_BUGS {
        bail!("this build contains no seeded bugs: `cargo x torture --bug {bug}` makes one");
    }
    Mutant::named(bug).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_names_the_only_store_on_which_its_bug_is_found() {
        let on = |patch: &str| Mutant::of("a".to_owned(), patch);
        let everywhere = on("No fence.\n\nBreaks: 10\n").unwrap();
        assert!(everywhere.is_in(Store::Sqlite) && everywhere.is_in(Store::Postgres));
        let only = on("No fence.\n\nBreaks: 10\nStore: postgres\n").unwrap();
        assert!(!only.is_in(Store::Sqlite) && only.is_in(Store::Postgres));
        assert!(on("Store: mysql\n").is_err());
        let nowhere = on("It ends.\n\nBreaks: 1\nFound by: tests\n").unwrap();
        assert!(!nowhere.is_in(Store::Sqlite) && !nowhere.is_in(Store::Postgres));
    }

    #[test]
    fn every_patch_but_the_switch_is_a_mutant() {
        let all = Mutant::all().unwrap();
        assert!(all.contains(&Mutant::named("no-fence").unwrap()));
        assert!(!all.iter().any(|it| it.name == SWITCH));
        assert!(Mutant::named("no-such").is_err());
    }

    #[test]
    fn a_bug_is_refused_in_a_build_without_bugs_and_where_there_is_no_such_bug() {
        assert_eq!(check_planted("no-fence").is_ok(), HAS_BUGS);
        assert!(check_planted("no-such").is_err());
    }
}
