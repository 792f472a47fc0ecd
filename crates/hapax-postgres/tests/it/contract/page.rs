//! The reference page of the contract: it lists every argument with its type, and every error that
//! a caller can receive.

use std::collections::BTreeSet;

use crate::fixture::Fixture;

const PAGE: &str = include_str!("../../../../../docs/reference/sql-contract.md");
/// The functions that services call. The page has a section for each, except `emit_bytes`, which is
/// described with `emit`.
const FUNCTIONS: [(&str, &str); 16] = [
    ("claim", "claim"),
    ("complete", "complete"),
    ("release", "release"),
    ("emit", "emit"),
    ("emit_bytes", "emit"),
    ("emit_many", "emit_many"),
    ("accept", "accept"),
    ("processed", "processed"),
    ("enter", "enter"),
    ("phase", "phase"),
    ("finish", "finish"),
    ("nothing_happened", "nothing_happened"),
    ("renew", "renew"),
    ("take_over", "take_over"),
    ("provider_key", "provider_key"),
    ("profile", "profile"),
];

#[tokio::test]
async fn the_page_names_every_argument_with_its_type() {
    let fixture = Fixture::new().await;
    let arguments = "SELECT a.name, format_type(a.kind, NULL)
        FROM pg_proc AS p,
            unnest(p.proargnames[1:p.pronargs], p.proargtypes::oid[]) AS a (name, kind)
        WHERE p.pronamespace = 'hapax'::regnamespace AND p.proname = $1::text::name";
    for (function, section) in FUNCTIONS {
        let section = section_of(section);
        let found = fixture.plain.query(arguments, &[&function]).await.unwrap();
        assert!(!found.is_empty(), "{function} has no arguments");
        for row in found {
            let (name, kind): (String, String) = (row.get(0), row.get(1));
            let kind = kind.replace("timestamp with time zone", "timestamptz");
            let spans = section.split('`').skip(1).step_by(2);
            let names = |span: &str| {
                span.split(|it: char| !it.is_alphanumeric() && it != '_')
                    .any(|word| word == name)
            };
            assert!(
                spans.clone().any(names),
                "the page has no argument {name} of {function}"
            );
            let rows = section.lines().filter(|line| {
                let first = line
                    .strip_prefix("| ")
                    .and_then(|it| it.split(" | ").next());
                first
                    .unwrap_or_default()
                    .split(", ")
                    .any(|it| it == format!("`{name}`"))
            });
            for line in rows.filter(|_| function == section_name(function)) {
                let said = line.split(" | ").nth(1).unwrap_or_default();
                assert!(
                    said.starts_with(&kind),
                    "{name} of {function} is {kind}: {line}"
                );
            }
        }
    }
}

#[tokio::test]
async fn the_page_has_every_error_of_the_contract_and_no_other() {
    let fixture = Fixture::new().await;
    // HX006 belongs to the audit log, and HX000 is caught where it is raised.
    let raised = "SELECT DISTINCT found[1]
        FROM pg_proc AS p, regexp_matches(p.prosrc, 'HX00[1-57]|HX01[01]', 'g') AS found
        WHERE p.pronamespace = 'hapax'::regnamespace";
    let rows = fixture.plain.query(raised, &[]).await.unwrap();
    let raised: BTreeSet<String> = rows.iter().map(|row| row.get(0)).collect();
    let said = section_of("errors");
    let said = said.split('`').skip(1).step_by(2);
    let said: BTreeSet<String> = said
        .filter(|it| it.starts_with("HX"))
        .map(str::to_owned)
        .collect();
    assert_eq!(said, raised);
}

fn section_name(function: &str) -> &str {
    let found = FUNCTIONS.iter().find(|(name, _)| *name == function);
    found.map_or(function, |(_, section)| section)
}

/// The text under a heading.
fn section_of(name: &str) -> &'static str {
    let heading = match name {
        "errors" => "\n## Errors\n".to_owned(),
        function => format!("\n## `hapax.{function}`\n"),
    };
    let (_, rest) = PAGE.split_once(&heading).unwrap();
    rest.split("\n## ").next().unwrap()
}
