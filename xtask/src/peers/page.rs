//! The page with the results, in Markdown.
//!
//! The page states what was tested and what was seen, and does not rank. Text of the reports is
//! escaped, so that it cannot end a cell of a table, and shortened.

use super::{
    manifest::Peer,
    report::{Check, Report, Verdict},
};

/// How many characters of an observation or of an error are on the page.
const SEEN_MAX: usize = 240;

/// A package and its report, or the error that prevented one.
#[derive(Debug)]
pub(super) struct Tested {
    pub(super) peer: Peer,
    pub(super) outcome: Result<Report, String>,
}

/// When and with which programs the packages were probed.
#[derive(Debug)]
pub(super) struct Origin {
    pub(super) date: String,
    pub(super) tools: Vec<String>,
}

const INTRODUCTION: &str = "\
# Public packages for idempotency keys

`hapax probe` tests from outside whether an HTTP server keeps the promise of an idempotency key. This page has its
results for packages from public registries. It is written by `cargo x peers`.

Each package is set up in an app with one operation, as in an example of its documentation, with storage in memory.
`POST /orders` receives `{\"amount\": 1}`, waits 200 ms, adds an order and responds with 201. The probe counts the
orders of `GET /orders`. It uses the profile `ietf`: the draft *The Idempotency-Key HTTP Header Field*, version 07. A
package may follow other rules on purpose: [documented behaviour](#documented-behaviour) has what its documentation
states. Checks that need a second instance or a restart are left out, because the storage is in memory.
";

const FAILURES: &str = "
## Packages without results
These packages were not installed, started or probed in this run. The cause can be the package, its app, the registry or
the machine.

";

const DOCUMENTED: &str = "
## Documented behaviour
What the documentation of each package states for the same request again (replay), for a used key with another payload
(mismatch), and for a request that arrives while the first one runs (in progress).

";

const LEGEND: &str = "
## Results
- PASS: the app did what the profile requires.
- FAIL: the app did something that the profile forbids.
- UNKNOWN: the check could not be judged.
- `-`: the check does not concern this app, or the profile has no rule for it.
";

const REPEAT: &str = "
## Repeat the run
```sh
cargo x peers
cargo x peers --only NAME
```

The second command prints the page for one package, by the name of its folder. Both need curl, Node with npm, and Python
with pip. The apps, the pinned versions and the statements about the documentation are in `proof/peers`. The reports of
the probe remain in `target/peers`; they contain a `curl` line for each check. An app that does not follow the
documentation of its package is a bug of this page.
";

/// Renders the page.
pub(super) fn render(tested: &[Tested], origin: &Origin) -> String {
    let reports: Vec<(&Peer, &Report)> = tested
        .iter()
        .filter_map(|it| Some((&it.peer, it.outcome.as_ref().ok()?)))
        .collect();
    let mut page = INTRODUCTION.to_owned();
    page.push_str(&format_origin(origin));
    page.push_str(&packages(tested));
    page.push_str(&failures(tested));
    page.push_str(&documented(tested));
    page.push_str(LEGEND);
    page.push_str(&results(&reports));
    page.push_str(&observations(&reports));
    page.push_str(REPEAT);
    page
}

fn format_origin(origin: &Origin) -> String {
    let mut lines = format!("\n- date: {}\n", origin.date);
    for tool in &origin.tools {
        lines.push_str(&["- ", tool, "\n"].concat());
    }
    lines
}

fn packages(tested: &[Tested]) -> String {
    let mut table = Table::new(&[
        "package",
        "version",
        "registry",
        "installed with it",
        "setup",
    ]);
    for Tested { peer, .. } in tested {
        let dependencies: Vec<String> = peer
            .dependencies
            .iter()
            .map(|(name, version)| format!("{name} {version}"))
            .collect();
        table.row(&[
            code(&peer.package),
            peer.version.clone(),
            peer.registry.name().to_owned(),
            escaped(&dependencies.join(", ")),
            escaped(&peer.setup),
        ]);
    }
    format!("\n## Packages\n{}", table.text)
}

/// The packages without a report; empty if there is none.
fn failures(tested: &[Tested]) -> String {
    let mut table = Table::new(&["package", "version", "error"]);
    for Tested { peer, outcome } in tested {
        if let Err(error) = outcome {
            table.row(&[code(&peer.package), peer.version.clone(), escaped(error)]);
        }
    }
    if table.is_empty() {
        return String::new();
    }
    FAILURES.to_owned() + &table.text
}

fn documented(tested: &[Tested]) -> String {
    let mut table = Table::new(&["package", "replay", "mismatch", "in progress", "source"]);
    for Tested { peer, .. } in tested {
        let documented = &peer.documented;
        table.row(&[
            code(&peer.package),
            escaped(&documented.replay),
            escaped(&documented.mismatch),
            escaped(&documented.in_flight),
            format!("[documentation]({})", documented.source),
        ]);
    }
    DOCUMENTED.to_owned() + &table.text
}

/// A row for each check, and a column for each package.
fn results(reports: &[(&Peer, &Report)]) -> String {
    let packages: Vec<String> = reports.iter().map(|(it, _)| code(&it.package)).collect();
    let mut head = vec!["check", "question"];
    head.extend(packages.iter().map(String::as_str));
    let mut table = Table::new(&head);
    for check in checks(reports) {
        let mut cells = vec![code(&check.id), escaped(&check.asks)];
        for (_, report) in reports {
            let own = report.checks.iter().find(|it| it.id == check.id);
            let cell = own.map_or("-", |it| it.verdict.cell());
            cells.push(cell.to_owned());
        }
        table.row(&cells);
    }
    format!("\n{}", table.text)
}

/// The checks of all reports, each once.
fn checks<'a>(reports: &[(&'a Peer, &'a Report)]) -> Vec<&'a Check> {
    let mut checks: Vec<&Check> = Vec::new();
    for (_, report) in reports {
        for check in &report.checks {
            if checks.iter().all(|known| known.id != check.id) {
                checks.push(check);
            }
        }
    }
    checks
}

/// What was seen in each check that failed or could not be judged.
fn observations(reports: &[(&Peer, &Report)]) -> String {
    let mut text = String::from("\n## Observations\n");
    text.push_str("What the probe saw in each check with the verdict FAIL or UNKNOWN.\n");
    for (peer, report) in reports {
        let mut table = Table::new(&["check", "verdict", "seen"]);
        for check in &report.checks {
            if matches!(check.verdict, Verdict::Fail | Verdict::Unknown) {
                let verdict = check.verdict.cell().to_owned();
                table.row(&[code(&check.id), verdict, escaped(&check.seen)]);
            }
        }
        let rows: &str = if table.is_empty() {
            "No check has one of these verdicts.\n"
        } else {
            &table.text
        };
        let heading = format!("\n### {} {}\n", peer.package, peer.version);
        text.push_str(&heading);
        text.push_str(rows);
    }
    text
}

/// A table in Markdown.
#[derive(Debug)]
struct Table {
    text: String,
    rows: usize,
}

impl Table {
    fn new(head: &[&str]) -> Self {
        let rule = "---|".repeat(head.len());
        Self {
            text: format!("| {} |\n|{rule}\n", head.join(" | ")),
            rows: 0,
        }
    }

    fn row(&mut self, cells: &[String]) {
        self.text.push_str("| ");
        self.text.push_str(&cells.join(" | "));
        self.text.push_str(" |\n");
        self.rows += 1;
    }

    const fn is_empty(&self) -> bool {
        self.rows == 0
    }
}

fn code(name: &str) -> String {
    format!("`{name}`")
}

/// A text as the content of a cell: on one line, shortened, without markup except code.
fn escaped(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut cell: String = line.chars().take(SEEN_MAX).collect();
    if cell.len() < line.len() {
        cell.push('…');
    }
    // An odd backtick would begin code that ends in another cell.
    if cell.matches('`').count() % 2 == 1 {
        cell = cell.replace('`', "'");
    }
    cell.replace('|', "\\|")
        .replace('<', "&lt;")
        .replace("](", "] (")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::{manifest, report};

    fn tested(package: &str, outcome: Result<&str, &str>) -> Tested {
        let sample = manifest::SAMPLE.replace("@scope/keys", package);
        let mut peers = manifest::Manifest::parse(&sample).unwrap().peers;
        let outcome = outcome
            .map(|text| Report::parse(text).unwrap())
            .map_err(str::to_owned);
        Tested {
            peer: peers.remove(0),
            outcome,
        }
    }

    fn page(tested: &[Tested]) -> String {
        let origin = Origin {
            date: "2026-11-27".to_owned(),
            tools: vec!["hapax-probe 0.1.0".to_owned(), "Node v20.0.0".to_owned()],
        };
        render(tested, &origin)
    }

    #[test]
    fn the_page_has_a_row_for_each_check_and_a_column_for_each_package() {
        let second = report::SAMPLE
            .replace("\"fail\"", "\"unknown\"")
            .replace("time.expiry", "time.gone");
        let all = [
            tested("one", Ok(report::SAMPLE)),
            tested("two", Ok(&second)),
        ];
        let page = page(&all);
        let table = "\
| check | question | `one` | `two` |
|---|---|---|---|
| `replay.body` | Are the bytes the same? | PASS | PASS |
| `mismatch.value` | Is it refused? | FAIL | UNKNOWN |
| `time.expiry` | Does it expire? | - | - |
| `time.gone` | Does it expire? | - | - |
";
        assert!(page.contains(table), "{page}");
        assert!(page.contains("\n- date: 2026-11-27\n- hapax-probe 0.1.0\n"));
        assert!(page.contains(
            "| `one` | 1.2.3 | npm | @scope/memory 2.0.0, express 4.0.0 | The first example. |\n"
        ));
        assert!(page.contains(
            "| `one` | the stored response | 422 | 409 | [documentation](https://example.org/keys) |\n"
        ));
    }

    #[test]
    fn what_was_seen_is_escaped_and_stands_with_its_verdict() {
        let page = page(&[tested("one", Ok(report::SAMPLE))]);
        let seen = "\
### one 1.2.3
| check | verdict | seen |
|---|---|---|
| `mismatch.value` | FAIL | 201 {\"a\": 1\\|2} for &lt;b> |
";
        assert!(page.contains(seen), "{page}");
        let passes = report::SAMPLE.replace("\"fail\"", "\"pass\"");
        let page = self::page(&[tested("one", Ok(&passes))]);
        assert!(page.contains("### one 1.2.3\nNo check has one of these verdicts.\n"));
    }

    #[test]
    fn a_package_without_a_report_is_listed_with_its_error_and_has_no_column() {
        let all = [
            tested("one", Ok(report::SAMPLE)),
            tested(
                "two",
                Err("npm install ended with exit status: 1: npm error code E404"),
            ),
        ];
        let page = page(&all);
        let row =
            "| `two` | 1.2.3 | npm install ended with exit status: 1: npm error code E404 |\n";
        assert!(page.contains(row), "{page}");
        assert!(page.contains("| check | question | `one` |\n"));
        let complete = self::page(&all[..1]);
        assert!(!complete.contains("## Packages without results"));
    }

    #[test]
    fn the_page_keeps_the_conventions_for_text() {
        let page = page(&[tested("one", Ok(report::SAMPLE))]);
        assert!(page.ends_with('\n') && !page.ends_with("\n\n"));
        for line in page.lines() {
            assert!(!line.ends_with([' ', '\t']), "{line:?}");
            assert!(line.starts_with('|') || line.len() <= 120, "{line:?}");
        }
    }

    #[test]
    fn a_long_observation_is_shortened_and_code_in_it_ends() {
        let cell = escaped(&"ä".repeat(SEEN_MAX + 1));
        assert_eq!(cell.chars().count(), SEEN_MAX + 1);
        assert!(cell.ends_with('…'));
        assert_eq!(escaped("an `odd one"), "an 'odd one");
        assert_eq!(escaped("[a](b) `c`"), "[a] (b) `c`");
    }
}
