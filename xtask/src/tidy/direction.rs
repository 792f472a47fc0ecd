//! Rules for dependencies: which crate may use which other crate.
//!
//! The library contains no SQL, no HTTP, no global, and no access to environment or clock. Stores
//! do not use sinks and sinks do not use stores; only `wiring.rs` uses both.

use super::{Tree, source};

/// The crates of the project that each crate may depend on, except in tests.
const DIRECTIONS: &[(&str, &[&str])] = &[
    ("hapax", &[]),
    ("hapax-client", &["hapax"]),
    ("hapax-console", &["hapax"]),
    (
        "hapax-gateway",
        &["hapax", "hapax-http", "hapax-runtime", "hapax-sinks"],
    ),
    ("hapax-http", &["hapax"]),
    ("hapax-otlp", &["hapax"]),
    ("hapax-postgres", &["hapax"]),
    ("hapax-probe", &[]),
    ("hapax-runtime", &["hapax", "hapax-otlp"]),
    ("hapax-sinks", &["hapax"]),
    ("hapax-sqlite", &["hapax"]),
    ("hapax-testkit", &["hapax", "hapax-sqlite"]),
    (
        "hapax-server",
        &[
            "hapax",
            "hapax-client",
            "hapax-console",
            "hapax-gateway",
            "hapax-http",
            "hapax-otlp",
            "hapax-postgres",
            "hapax-probe",
            "hapax-runtime",
            "hapax-sinks",
            "hapax-sqlite",
        ],
    ),
];

const NETWORK: &[&str] = &[
    "axum",
    "http",
    "hyper",
    "hyper-util",
    "lettre",
    "reqwest",
    "tower",
];
const DATABASES: &[&str] = &["rusqlite", "sqlx", "tokio-postgres"];

/// What the library must not contain, with the reason.
const ABSENCES: &[(&str, &str)] = &[
    ("std::env", "only the configuration reads the environment"),
    ("SystemTime::now", "time is passed in"),
    ("std::time::Instant", "time is passed in"),
    ("thread_local!", "a global"),
    ("rusqlite::", "SQL belongs to a store"),
    ("http::", "HTTP belongs to hapax-http and the sinks"),
    ("hyper::", "HTTP belongs to hapax-http and the sinks"),
    ("SELECT ", "SQL belongs to a store"),
    ("INSERT INTO", "SQL belongs to a store"),
    ("DELETE FROM", "SQL belongs to a store"),
];

/// `Clock::system` is the one place of the library that reads the time.
const SYSTEM_CLOCK: (&str, &str) = ("crates/hapax/src/clock.rs", "SystemTime::now");

/// Each crate depends only on the crates that `DIRECTIONS` lists for it.
pub(super) fn crates(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in tree.within("crates/", "/Cargo.toml") {
        let name = path.split('/').nth(1).unwrap_or_default();
        let Some((_, allowed)) = DIRECTIONS.iter().find(|(known, _)| *known == name) else {
            findings.push(format!(
                "{path}: `{name}` has no entry in the directions of tidy"
            ));
            continue;
        };
        for (dependency, number) in dependencies(text) {
            let ours = dependency == "hapax" || dependency.starts_with("hapax-");
            if ours && !allowed.contains(&dependency) || foreign(name, dependency) {
                findings.push(format!(
                    "{path}:{number}: {name} must not depend on `{dependency}`"
                ));
            }
        }
    }
    findings
}

/// Whether a crate of this project must not depend on a third-party crate.
fn foreign(name: &str, dependency: &str) -> bool {
    let network = NETWORK.contains(&dependency);
    let database = DATABASES.contains(&dependency);
    match name {
        "hapax" => network || database,
        "hapax-sqlite" | "hapax-postgres" => network,
        "hapax-http" | "hapax-client" | "hapax-otlp" | "hapax-probe" => database,
        _ => false,
    }
}

/// The names in `[dependencies]`, each with its line number.
fn dependencies(manifest: &str) -> Vec<(&str, usize)> {
    let mut within = false;
    let mut names = Vec::new();
    for (line, number) in manifest.lines().zip(1..) {
        if line.starts_with('[') {
            within = line.ends_with("dependencies]") && !line.contains("dev-dependencies");
        } else if within && line.starts_with(|first: char| first.is_ascii_alphanumeric()) {
            let end = line.find(['.', ' ', '=']).unwrap_or(line.len());
            names.push((&line[..end], number));
        }
    }
    names
}

/// The library contains nothing of `ABSENCES` and no global.
pub(super) fn absences(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in tree.under("crates/hapax/src/") {
        for (line, number) in source::without_tests(text).lines().zip(1..) {
            if line.trim_start().starts_with("//") {
                continue;
            }
            let found =
                |(word, _): &&(&str, &str)| stands_in(line, word) && (path, *word) != SYSTEM_CLOCK;
            for (word, why) in ABSENCES.iter().filter(found) {
                findings.push(format!("{path}:{number}: `{}`: {why}", word.trim()));
            }
            if declares_global(line) {
                findings.push(format!("{path}:{number}: a global: state is passed in"));
            }
        }
    }
    findings
}

/// Whether `line` contains `word`, and not as the end of a longer word.
fn stands_in(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_')
    })
}

fn declares_global(line: &str) -> bool {
    let line = line.trim_start();
    let line = line.strip_prefix("pub").map_or(line, |rest| {
        rest.split_once(' ').map_or(rest, |(_, rest)| rest)
    });
    line.starts_with("static ")
}

/// Only `wiring.rs` uses both a store and a sink.
pub(super) fn wiring(tree: &Tree) -> Vec<String> {
    tree.ending(".rs")
        .filter(|(path, _)| path.contains("/src/") && !path.starts_with("xtask/"))
        .filter(|(path, _)| !path.ends_with("/wiring.rs"))
        .filter(|(_, text)| {
            let text = source::without_tests(text);
            let sees = |name: &str| {
                text.lines()
                    .any(|line| !line.trim_start().starts_with("//") && line.contains(name))
            };
            (sees("hapax_sqlite") || sees("hapax_postgres")) && sees("hapax_sinks")
        })
        .map(|(path, _)| format!("{path}: uses a store and a sink, which only wiring.rs may do"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_against_the_flow_is_found_and_a_dev_dependency_is_not() {
        let store = "[package]\nname = \"x\"\n[dependencies]\nhapax.workspace = true\n\
            hapax-sinks.workspace = true\nhttp = \"1\"\n[dev-dependencies]\nhapax-testkit = \"1\"\n";
        let tree = Tree::of(&[
            ("crates/hapax-sqlite/Cargo.toml", store),
            ("crates/hapax-odd/Cargo.toml", "[dependencies]\n"),
        ]);
        assert_eq!(
            crates(&tree),
            [
                "crates/hapax-odd/Cargo.toml: `hapax-odd` has no entry in the directions of tidy",
                "crates/hapax-sqlite/Cargo.toml:5: hapax-sqlite must not depend on `hapax-sinks`",
                "crates/hapax-sqlite/Cargo.toml:6: hapax-sqlite must not depend on `http`",
            ]
        );
    }

    #[test]
    fn the_library_holds_no_clock_no_sql_and_no_global() {
        let text = "//! No SELECT here.\nuse http::Uri;\nuse hapax_http::X;\n\
            let now = SystemTime::now();\npub static A: u8 = 1;\nfn f(x: &'static str) {}\n\
            const Q: &str = \"SELECT 1\";\n#[cfg(test)]\nmod tests {\n std::env::args();\n}\n";
        let tree = Tree::of(&[
            ("crates/hapax/src/a.rs", text),
            ("crates/hapax/src/clock.rs", "Self::new(SystemTime::now)\n"),
            ("crates/x/src/a.rs", text),
        ]);
        assert_eq!(
            absences(&tree),
            [
                "crates/hapax/src/a.rs:2: `http::`: HTTP belongs to hapax-http and the sinks",
                "crates/hapax/src/a.rs:4: `SystemTime::now`: time is passed in",
                "crates/hapax/src/a.rs:5: a global: state is passed in",
                "crates/hapax/src/a.rs:7: `SELECT`: SQL belongs to a store",
            ]
        );
    }

    #[test]
    fn a_store_and_a_sink_meet_in_wiring_alone() {
        let both = "use hapax_sinks::File;\nuse hapax_sqlite::Store;\n";
        let tree = Tree::of(&[
            ("examples/shop/src/wiring.rs", both),
            ("examples/shop/src/orders.rs", both),
            ("examples/shop/tests/it/main.rs", both),
        ]);
        assert_eq!(
            wiring(&tree),
            ["examples/shop/src/orders.rs: uses a store and a sink, which only wiring.rs may do"]
        );
    }
}
