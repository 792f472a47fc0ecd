//! Tests that the documentation matches the binary: every command line, every configuration, and
//! the page of commands.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use expect_test::expect_file;

use crate::{
    hapax::{hapax, run, run_to_end},
    store::{Home, Store},
};

/// The text before the help of all commands.
const HEAD: &str = "\
# Commands and flags

What `--help` says of every verb, as it is printed; [the command line](cli.md) says what holds for all of them. This page
is written by a test: `UPDATE_EXPECT=1 cargo nextest run -p hapax-server pages::`.
";
/// The text before the checks of the probe.
const CHECKS_HEAD: &str = "\
# Checks of the probe

What `hapax probe --list` prints; [the probe](probe.md) explains verdicts and plans. The first part of an id is the group
of the check. `--only` and `--skip` take ids and groups. This page is written by a test:
`UPDATE_EXPECT=1 cargo nextest run -p hapax-server pages::`.
";
/// Options of every command, which are listed once.
const GLOBAL: [&str; 7] = [
    "--config",
    "--database",
    "--json",
    "--log",
    "--log-level",
    "--help",
    "--version",
];
/// A valid event catalogue.
const CATALOGUE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../examples/shop/catalogue.json"
);
/// The secret that replaces a file's secret, because the file does not exist here.
const SECRET: &str = "\"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"";

#[test]
fn the_page_of_commands_is_what_the_binary_says() {
    let mut page = HEAD.to_owned();
    for (verb, help) in helps() {
        let name = format!("hapax {verb}");
        let text: Vec<_> = help.lines().map(str::trim_end).collect();
        let (name, text) = (name.trim_end(), text.join("\n"));
        let section = format!("\n## `{name}`\n```text\n{}\n```\n", text.trim_end());
        page.push_str(&section);
    }
    expect_file!["../../../../docs/reference/commands.md"].assert_eq(&page);
}

#[test]
fn the_page_of_checks_is_what_the_probe_lists() {
    let list = run(&["probe", "--list", "--json"]).ended(0).stdout;
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    let rows = |list: &serde_json::Value, first: &str, others: &[&str]| -> String {
        let row = |item: &serde_json::Value| {
            let cells: Vec<_> = others
                .iter()
                .map(|it| item[*it].as_str().unwrap())
                .collect();
            let name = item[first].as_str().unwrap();
            format!("| `{name}` | {} |\n", cells.join(" | "))
        };
        list.as_array().unwrap().iter().map(row).collect()
    };
    let checks = rows(&list["checks"], "id", &["asks"]);
    let profiles = rows(&list["profiles"], "name", &["title", "version", "source"]);
    let page = format!(
        "{CHECKS_HEAD}\n## Checks\n| id | asks |\n|---|---|\n{checks}\n## Profiles\n\
         | name | specification | version | source |\n|---|---|---|---|\n{profiles}"
    );
    expect_file!["../../../../docs/reference/probe-checks.md"].assert_eq(&page);
}

#[test]
fn the_manual_has_a_page_for_each_verb() {
    let folder = tempfile::tempdir().unwrap();
    run(&["man", "--dir", folder.path().to_str().unwrap()]).ended(0);
    for verb in helps().keys() {
        let name = format!("hapax {verb}").trim_end().replace(' ', "-");
        let page = fs::read_to_string(folder.path().join(format!("{name}.1"))).unwrap();
        assert!(page.contains(".SH NAME"), "{page}");
    }
}

#[test]
fn every_command_of_the_pages_is_one_that_the_binary_knows() {
    let helps = helps();
    let mut seen = 0;
    let mut wrong = Vec::new();
    for (page, text) in pages() {
        for line in commands(&text) {
            seen += 1;
            if let Some(problem) = misunderstood(&line, &helps) {
                wrong.push(format!("{page}: `{line}`: {problem}"));
            }
        }
    }
    assert!(seen > 60, "only {seen} command lines were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_configuration_of_the_guides_can_work() {
    let mut seen = 0;
    for (page, text) in pages() {
        let is_guide = page.contains("/guides/") || page.contains("/tutorial/");
        for block in blocks(&text, "toml").filter(|_| is_guide) {
            seen += 1;
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("hapax.toml");
            // The paths in a folder of the service are replaced by a temporary folder.
            let here = folder.path().to_str().unwrap();
            let text = without_files(&with_service_account(&block)).replace("/var/lib/hapax", here);
            let text = with_certificates(text, folder.path());
            fs::copy(CATALOGUE, folder.path().join("catalogue.json")).unwrap();
            fs::write(&path, text).unwrap();
            let mut check = hapax(&["config", "check", "--database", "postgres://db/a"]);
            check.arg("--config").arg(&path);
            let ran = run_to_end(check);
            assert_eq!(ran.code, Some(0), "{page}: {}\n{block}", ran.stderr);
        }
    }
    assert!(seen >= 4, "only {seen} configurations were found");
}

#[test]
fn every_line_for_a_shell_is_one_that_bash_understands() {
    for (page, text) in pages() {
        for block in blocks(&text, "sh") {
            let mut bash = Command::new("bash")
                .arg("-n")
                .stdin(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            bash.stdin
                .take()
                .unwrap()
                .write_all(block.as_bytes())
                .unwrap();
            let ended = bash.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&ended.stderr);
            assert!(ended.status.success(), "{page}: {said}\n{block}");
        }
    }
}

#[test]
fn a_verb_and_a_flag_that_are_not_there_are_found() {
    let helps = helps();
    for (line, problem) in [
        ("hapax replay orders", "there is no such verb"),
        ("hapax dead-letters reply orders 1", "there is no such verb"),
        ("hapax relay --nod a", "there is no --nod"),
        ("hapax migrate --dry-run", "there is no --dry-run"),
    ] {
        assert_eq!(
            misunderstood(line, &helps).as_deref(),
            Some(problem),
            "{line}"
        );
    }
    for line in [
        "hapax --version",
        "hapax send -X PUT --key a URL",
        "hapax relay --json",
    ] {
        assert_eq!(misunderstood(line, &helps), None, "{line}");
    }
}

#[tokio::test]
async fn no_list_refuses_a_flag_that_its_help_offers() {
    let home = Home::migrated(Store::Sqlite).await;
    let url = home.url();
    let mut seen = 0;
    for (verb, help) in helps() {
        if !verb.ends_with(" list") {
            continue;
        }
        let (own, _) = help.split_once("\nGlobal options:").unwrap();
        let flags = own
            .lines()
            .filter_map(|line| line.trim().strip_prefix("--"));
        for name in flags.map(|flag| flag.split(' ').next().unwrap_or_default()) {
            let value = match (name, verb.as_str()) {
                // Only the list knows the next page.
                ("before" | "after", _) => continue,
                ("state", "deliveries list") => "dead",
                ("state", "keys list") => "completed",
                ("state", "endpoints list") => "enabled",
                ("state", _) => "running",
                ("since" | "until", _) => "1h",
                ("limit" | "attempts-min" | "version", _) => "1",
                ("event-id", _) => "0190c2f4-3f6e-7aaa-8000-000000000001",
                _ => "order",
            };
            let flag = format!("--{name}={value}");
            let flags = [flag.as_str(), "--database", url.as_str()];
            let call: Vec<&str> = verb.split(' ').chain(flags).collect();
            let ran = run(&call);
            assert_ne!(ran.code, Some(2), "{call:?}: {}", ran.stderr);
            seen += 1;
        }
    }
    assert!(seen > 30, "only {seen} flags were found");
}

/// The help text of every command, by its name, such as `dead-letters replay`. The name of the
/// binary itself is `""`.
fn helps() -> BTreeMap<String, String> {
    let mut helps = BTreeMap::new();
    let mut waiting = vec![(String::new(), Vec::<String>::new())];
    while let Some((verb, words)) = waiting.pop() {
        let mut call: Vec<&str> = words.iter().map(String::as_str).collect();
        call.push("--help");
        let help = run(&call).ended(0).stdout;
        let mut before = words;
        if takes_an_id_first(&help) {
            before.push("ID".to_owned());
        }
        let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        for line in listed.take_while(|line| line.starts_with("  ")) {
            match line.split_whitespace().next() {
                Some("help") | None => {}
                Some(name) => {
                    let words = before.iter().cloned().chain([name.to_owned()]).collect();
                    waiting.push((format!("{verb} {name}").trim_start().to_owned(), words));
                }
            }
        }
        helps.insert(verb, help);
    }
    helps
}

/// Whether a command has an argument before its subcommands: `sagas decide ID done`.
fn takes_an_id_first(help: &str) -> bool {
    help.lines()
        .any(|line| line.starts_with("Usage: ") && line.ends_with("> <COMMAND>"))
}

/// The error of a command line: an unknown command or flag.
fn misunderstood(line: &str, helps: &BTreeMap<String, String>) -> Option<String> {
    let words: Vec<_> = line.split_whitespace().skip(1).collect();
    let mut verb = String::new();
    for word in &words {
        let next = format!("{verb} {word}").trim_start().to_owned();
        if !helps.contains_key(&next) {
            let has_verbs = helps[&verb].contains("\nCommands:\n");
            if takes_an_id_first(&helps[&verb]) {
                continue;
            }
            let is_name = word.starts_with(|first: char| first.is_ascii_lowercase());
            if has_verbs && is_name {
                return Some("there is no such verb".to_owned());
            }
            break;
        }
        verb = next;
    }
    let flags = words.iter().filter(|word| word.starts_with("--"));
    let names = flags.map(|flag| flag.split('=').next().unwrap_or_default());
    let known: BTreeSet<_> = helps[&verb]
        .split(|letter: char| letter.is_whitespace() || letter == ',')
        .filter(|word| word.starts_with("--"))
        .chain(GLOBAL)
        .collect();
    let mut unknown = names.filter(|name| !known.contains(name));
    unknown.next().map(|flag| format!("there is no {flag}"))
}

/// The command lines of a page: the lines of its code blocks, and its inline code.
fn commands(text: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut fenced = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        let spans: Vec<&str> = if fenced {
            vec![line.trim_start().trim_start_matches("$ ")]
        } else {
            line.split('`').skip(1).step_by(2).collect()
        };
        for span in spans {
            // After one of these marks there is a comment, another command, or a placeholder.
            let end = [" # ", "  #", " | ", " > ", " ...", " '"];
            let end = end.iter().filter_map(|it| span.find(it)).min();
            let line = &span[..end.unwrap_or(span.len())];
            let is_command = line.strip_prefix("hapax ").is_some_and(|rest| {
                rest.starts_with(|first: char| first.is_ascii_lowercase() || first == '-')
            });
            // In prose, `hapax relay` can also be a name.
            if is_command {
                commands.push(line.trim_end().to_owned());
            }
        }
    }
    commands
}

/// The code blocks of a page in one language.
fn blocks<'a>(text: &'a str, language: &'a str) -> impl Iterator<Item = String> + 'a {
    let mut lines = text.lines();
    std::iter::from_fn(move || {
        let fence = format!("```{language}");
        lines.by_ref().find(|line| *line == fence)?;
        let block: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
        Some(block.join("\n") + "\n")
    })
}

/// The configuration with its secrets inline, because the files that it names do not exist here.
fn without_files(block: &str) -> String {
    let mut text = block.to_owned();
    while let Some(at) = text.find("{ file = \"") {
        let end = at + text[at..].find('}').unwrap() + 1;
        text.replace_range(at..end, SECRET);
    }
    text
}

/// The configuration with the key of a service account instead of its file.
fn with_service_account(block: &str) -> String {
    let key = include_str!("../../../hapax-sinks/tests/it/pubsub/service-account.json");
    let text = format!("'''{key}'''");
    block.replace("{ file = \"/run/secrets/pubsub.json\" }", &text)
}

/// The configuration with the certificates that it names, which are written to a folder.
fn with_certificates(mut text: String, folder: &Path) -> String {
    const START: &str = "\"/etc/hapax/";
    let vectors = include_str!("../../../hapax-gateway/tests/vectors/paypal.json");
    let vectors: serde_json::Value = serde_json::from_str(vectors).unwrap();
    while let Some(at) = text.find(START) {
        let end = at + 1 + text[at + 1..].find('"').unwrap();
        let path = folder.join(&text[at + START.len()..end]);
        fs::write(&path, vectors["certificate"].as_str().unwrap()).unwrap();
        text.replace_range(at + 1..end, path.to_str().unwrap());
    }
    text
}

/// The pages of the book and the README, by their paths.
fn pages() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = vec![root.join("README.md")];
    let mut folders: Vec<PathBuf> = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                files.push(path);
            }
        }
    }
    files.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        (path.to_string_lossy().into_owned(), text)
    };
    files.into_iter().map(read).collect()
}
