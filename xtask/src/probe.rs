//! `cargo x probe`: probes the toy server and the shop. `cargo x probe bugs` probes the shop with each of our
//! seeded bugs that its clients can see.
//!
//! The build is that of `cargo x torture bugs`: a copy of the project that contains all seeded bugs. In the copy, the
//! test of the shop that probes it runs once without a bug, and once with each bug. `proof/mutants/probe.toml` has the
//! checks that have to fail.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use serde::Deserialize;

use crate::{
    gate,
    mutants::FOLDER,
    postgres,
    step::{Steps, from_a_shell},
    torture,
};

/// The file with the checks that find each bug.
const EXPECTED: &str = "probe.toml";
/// The environment variable that turns a bug on.
const SWITCH: &str = "HAPAX_SEEDED";
/// The line of a patch whose bug exists on PostgreSQL only.
const ON_POSTGRES: &str = "Store: postgres";
/// The profile of the contract, with which the lines of the test begin.
const PROFILE: &str = "hapax ";

/// The checks that find a bug, or why none does.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    /// Each of them fails.
    #[serde(default)]
    always: BTreeSet<String>,
    /// At least one of them fails.
    #[serde(default)]
    any: BTreeSet<String>,
    /// Each of them fails if there are two shops.
    #[serde(default)]
    two_nodes: BTreeSet<String>,
    /// Why a client does not see the bug.
    unseen: Option<String>,
}

/// The store of the shops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Store {
    /// One shop.
    Sqlite,
    /// Two shops.
    Postgres,
}

/// Which bugs are probed, and where.
#[derive(Debug, Default, PartialEq, Eq)]
struct Arguments {
    names: Vec<String>,
    /// Whether the bugs that no client sees are probed too.
    has_unseen: bool,
    /// Whether two shops on PostgreSQL are probed with every bug.
    on_postgres: bool,
}

/// The build with the seeded bugs.
#[derive(Debug)]
struct Seeded {
    folder: PathBuf,
    environment: Vec<(&'static str, String)>,
}

/// Runs the whole probes, or those of the seeded bugs.
pub(crate) fn probe(steps: &mut Steps, root: &Path, arguments: &[String]) -> anyhow::Result<()> {
    match arguments {
        [] => gate::probe(steps),
        [part, rest @ ..] if part == "bugs" => {
            let arguments = Arguments::parse(rest)?;
            steps.run("probes of the seeded bugs", || bugs(root, &arguments))
        }
        [other, ..] => bail!("`cargo x probe` takes bugs only, not `{other}`"),
    }
}

/// Probes a shop without a bug and with each chosen one. Fails if a bug is not found.
fn bugs(root: &Path, arguments: &Arguments) -> anyhow::Result<()> {
    let expected = expected(root)?;
    let chosen = arguments.choose(&expected)?;
    let folder = torture::seeded(root)?;
    let server = postgres::for_tests()?;
    let seeded = Seeded {
        folder,
        environment: postgres::environment(server.as_ref()),
    };
    let mut missed = Vec::new();
    println!("| bug | store | found by | other checks that failed |\n|---|---|---|---|");
    let sound = arguments.stores(false);
    for store in sound {
        let failed = seeded.failed(None, *store)?;
        println!("| none | {} | | {} |", store.name(), list(failed.iter()));
        if !failed.is_empty() {
            missed.push(format!("{}: checks fail without a bug", store.name()));
        }
    }
    for (bug, expected) in chosen {
        let patch = root.join(FOLDER).join(format!("{bug}.patch"));
        let patch = fs::read_to_string(&patch).with_context(|| patch.display().to_string())?;
        let is_on_postgres_only = patch.lines().any(|line| line == ON_POSTGRES);
        for store in arguments.stores(is_on_postgres_only) {
            let failed = seeded.failed(Some(bug), *store)?;
            let all = expected.all(*store);
            let found = list(failed.intersection(&all));
            let others = list(failed.difference(&all));
            println!("| `{bug}` | {} | {found} | {others} |", store.name());
            let lacks = expected.missed(&failed, *store);
            let store = store.name();
            missed.extend(lacks.map(|what| format!("{bug} on {store}: not found by {what}")));
        }
    }
    if missed.is_empty() {
        return Ok(());
    }
    bail!("{}", missed.join("\n"))
}

/// Reads the checks that find each bug.
fn expected(root: &Path) -> anyhow::Result<BTreeMap<String, Expected>> {
    let path = root.join(FOLDER).join(EXPECTED);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    toml::from_str(&text).with_context(|| path.display().to_string())
}

fn list<'a>(checks: impl Iterator<Item = &'a String>) -> String {
    checks.map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// The checks that failed, as the test of the shop prints them.
fn failed(output: &str) -> BTreeSet<String> {
    let lines = output.lines().filter_map(|line| line.strip_prefix(PROFILE));
    let findings = lines.filter_map(|line| line.split_once(": "));
    let failed = findings.filter(|(_, verdict)| verdict.starts_with("fail "));
    failed.map(|(check, _)| check.to_owned()).collect()
}

impl Arguments {
    fn parse(words: &[String]) -> anyhow::Result<Self> {
        let mut arguments = Self::default();
        for word in words {
            match word.as_str() {
                "--all" => arguments.has_unseen = true,
                "--postgres" => arguments.on_postgres = true,
                flag if flag.starts_with('-') => {
                    bail!("`cargo x probe bugs` takes --all, --postgres and names, not `{flag}`")
                }
                name => arguments.names.push(name.to_owned()),
            }
        }
        Ok(arguments)
    }

    /// The named bugs; without names those that have to be found, or all.
    fn choose<'a>(
        &self,
        expected: &'a BTreeMap<String, Expected>,
    ) -> anyhow::Result<Vec<(&'a str, &'a Expected)>> {
        if let Some(unknown) = self.names.iter().find(|it| !expected.contains_key(*it)) {
            bail!("{FOLDER}{EXPECTED} has no bug {unknown}");
        }
        let is_chosen = |(name, it): &(&String, &Expected)| match self.names.as_slice() {
            [] => self.has_unseen || it.unseen.is_none(),
            names => names.contains(*name),
        };
        let chosen = expected.iter().filter(is_chosen);
        Ok(chosen.map(|(name, it)| (name.as_str(), it)).collect())
    }

    /// The stores on which a bug is probed. One shop on SQLite is enough, unless the bug does not exist there.
    fn stores(&self, is_on_postgres_only: bool) -> &'static [Store] {
        match (self.on_postgres, is_on_postgres_only) {
            (_, true) => &[Store::Postgres],
            (true, false) => &[Store::Sqlite, Store::Postgres],
            (false, false) => &[Store::Sqlite],
        }
    }
}

impl Expected {
    /// All checks that may find the bug on this store.
    fn all(&self, store: Store) -> BTreeSet<String> {
        let one_node = self.always.union(&self.any).cloned();
        match store {
            Store::Sqlite => one_node.collect(),
            Store::Postgres => one_node.chain(self.two_nodes.iter().cloned()).collect(),
        }
    }

    /// The checks that should have failed.
    fn missed(&self, failed: &BTreeSet<String>, store: Store) -> impl Iterator<Item = String> {
        let two_nodes = self.two_nodes.iter();
        let always = self.always.iter();
        let always = always.chain(two_nodes.filter(|_| store == Store::Postgres));
        let missed: Vec<String> = always.filter(|it| !failed.contains(*it)).cloned().collect();
        let has_none = !self.any.is_empty() && self.any.is_disjoint(failed);
        let any = has_none.then(|| format!("any of {}", list(self.any.iter())));
        missed.into_iter().chain(any)
    }
}

impl Store {
    fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
        }
    }

    /// The test that probes shops on this store.
    fn test(self) -> &'static str {
        match self {
            Self::Sqlite => "promise::whole::the_contract_is_kept_on_sqlite",
            Self::Postgres => "promise::the_contract_is_kept_on_postgres_by_two_shops",
        }
    }
}

impl Seeded {
    /// Probes shops that have this bug, or none. Returns the checks that failed.
    fn failed(&self, bug: Option<&str>, store: Store) -> anyhow::Result<BTreeSet<String>> {
        let mut cargo = from_a_shell("cargo");
        cargo
            .args(["test", "--quiet", "--package", "shop", "--test", "it", "--"])
            .args(["--exact", store.test()])
            .current_dir(self.folder.join("source"))
            .env("CARGO_TARGET_DIR", &self.folder)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .envs(bug.map(|bug| (SWITCH, bug)));
        let output = cargo.output().context("cargo cannot be run")?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        let failed = failed(&text);
        // With a bug, checks may be unknown. Without one, the shop has to be judged.
        let has_findings = text.lines().any(|line| line.starts_with(PROFILE));
        let is_judged = !failed.is_empty() || bug.is_some() && has_findings;
        let has_ended = output.status.success() || is_judged;
        if !has_ended || !text.contains("running 1 test") {
            let bug = bug.unwrap_or("no bug");
            bail!("the probe of the shop with {bug} failed:\n{text}");
        }
        Ok(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seeded_bug_has_checks_or_a_reason() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let expected = expected(root).unwrap();
        let patches = fs::read_dir(root.join(FOLDER)).unwrap();
        let patches = patches.map(|it| it.unwrap().file_name().into_string().unwrap());
        let patches = patches.filter_map(|it| it.strip_suffix(".patch").map(str::to_owned));
        let patches: BTreeSet<String> = patches.filter(|it| it != "switch").collect();
        assert_eq!(expected.keys().cloned().collect::<BTreeSet<_>>(), patches);
        let checks = fs::read_to_string(root.join("docs/reference/probe-checks.md")).unwrap();
        for (bug, expected) in &expected {
            let all = expected.all(Store::Postgres);
            assert_eq!(all.is_empty(), expected.unseen.is_some(), "{bug}");
            for check in all {
                let (operation, id) = check.split_once(' ').unwrap();
                assert!(["orders", "payments"].contains(&operation), "{check}");
                assert!(checks.contains(&format!("| `{id}` |")), "{check}");
            }
        }
    }

    #[test]
    fn the_failed_checks_are_read_from_the_output_of_the_test() {
        let output = "\nrunning 1 test\nthread 'a' panicked at b.rs:1:2:\n\
            hapax orders replay.body: fail the bodies differ: hapax orders x: fail y\n\
            hapax payments restart.replay: unknown no response\n\
            hapax payments: too few checks passed\nstripe orders replay.body: fail it\n";
        assert_eq!(failed(output), set(&["orders replay.body"]));
    }

    #[test]
    fn a_bug_is_found_by_all_of_some_checks_and_by_one_of_others() {
        let bug = Expected {
            always: set(&["a", "b"]),
            any: set(&["c", "d"]),
            two_nodes: set(&["e"]),
            unseen: None,
        };
        let check = |failed: &[&str], store: Store, expected: &[&str]| {
            let missed: Vec<String> = bug.missed(&set(failed), store).collect();
            assert_eq!(missed, expected, "{failed:?}");
        };
        check(&["a", "b", "d", "x"], Store::Sqlite, &[]);
        check(&["a", "b", "d", "e"], Store::Postgres, &[]);
        check(&["a", "b", "d"], Store::Postgres, &["e"]);
        check(&["a", "c"], Store::Sqlite, &["b"]);
        check(&["a", "b", "x"], Store::Sqlite, &["any of c, d"]);
    }

    #[test]
    fn bugs_are_chosen_by_name_or_by_whether_a_client_sees_them() {
        let visible = Expected::default();
        let unseen = Expected {
            unseen: Some("no request reaches it".to_owned()),
            ..Expected::default()
        };
        let expected = BTreeMap::from([("a".to_owned(), visible), ("b".to_owned(), unseen)]);
        let choose = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&it| it.to_owned()).collect();
            let chosen = Arguments::parse(&words)?.choose(&expected)?;
            anyhow::Ok(chosen.iter().map(|(name, _)| *name).collect::<Vec<_>>())
        };
        assert_eq!(choose(&[]).unwrap(), ["a"]);
        assert_eq!(choose(&["--all"]).unwrap(), ["a", "b"]);
        assert_eq!(choose(&["b", "--postgres"]).unwrap(), ["b"]);
        assert!(choose(&["c"]).is_err());
        assert!(choose(&["--sqlite"]).is_err());
    }

    #[test]
    fn a_bug_of_one_store_is_probed_there() {
        let on = |on_postgres| Arguments {
            on_postgres,
            ..Arguments::default()
        };
        assert_eq!(on(false).stores(false), [Store::Sqlite]);
        assert_eq!(on(false).stores(true), [Store::Postgres]);
        assert_eq!(on(true).stores(false), [Store::Sqlite, Store::Postgres]);
    }

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|&it| it.to_owned()).collect()
    }
}
