//! Tests of the event catalogue: its commands, its public page, and its descriptions, which programs of
//! other people validate.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use hapax_testkit::{
    http::HttpClient,
    port::free_port,
    program::{ProgramOutput, packages},
};

use crate::{
    admin::{OPERATOR, Served},
    hapax::{hapax, run, run_to_end, start_relay},
    store::{Home, Store},
};

/// A catalogue with what can go wrong in a description: shared and own definitions, several versions,
/// keywords of 2020-12, names that are not component names, and flags.
const CATALOGUE: &str = r##"{
    "title": "Acme",
    "version": "2.0.0",
    "$defs": {
        "money": {
            "type": "object",
            "required": ["amount"],
            "properties": {"amount": {"type": "integer"}, "currency": {"$ref": "#/$defs/currency"}}
        },
        "currency": {"enum": ["EUR", "USD"]}
    },
    "events": [
        {
            "type": "order/paid:v",
            "description": "An order was paid.",
            "deprecated": true,
            "versions": [
                {"version": 1, "schema": {"$ref": "#/$defs/money"}, "examples": [{"amount": 1}]},
                {
                    "version": 2,
                    "schema": {
                        "type": "object",
                        "required": ["total", "lines"],
                        "properties": {
                            "total": {"$ref": "#/$defs/money"},
                            "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
                            "parent": {"$ref": "#"}
                        },
                        "unevaluatedProperties": false,
                        "$defs": {
                            "line": {
                                "type": "array",
                                "prefixItems": [{"type": "string"}, {"type": "integer"}],
                                "items": false
                            }
                        }
                    },
                    "examples": [{"total": {"amount": 2, "currency": "EUR"}, "lines": [["a", 1]]}]
                }
            ]
        },
        {"type": "ping", "description": "Anything.", "versions": [{"version": 1, "schema": true}]},
        {
            "type": "order.scored",
            "description": "A score.",
            "flags": ["beta"],
            "versions": [{"version": 1, "schema": {"type": "number"}, "examples": [0.5]}]
        }
    ]
}"##;

fn shop() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/shop/catalogue.json")
}

/// A folder with the catalogue.
fn folder() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("catalogue.json");
    fs::write(&path, CATALOGUE).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

/// The file of a validator.
fn validator(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/catalogue");
    folder.join(name)
}

/// Validates an OpenAPI document with packages of PyPI.
fn validate_open_api(document: &str) -> ProgramOutput {
    let mut python = Command::new("python3");
    python
        .env(
            "PYTHONPATH",
            packages(env!("CARGO_TARGET_TMPDIR"), "openapi"),
        )
        .arg(validator("validate.py"));
    fed(python, document)
}

/// Validates an AsyncAPI document with the parser of npm.
fn validate_async_api(document: &str) -> ProgramOutput {
    let mut node = Command::new("node");
    node.arg(validator("validate.mjs"))
        .arg(packages(env!("CARGO_TARGET_TMPDIR"), "asyncapi"));
    fed(node, document)
}

/// Runs a program with this standard input.
fn fed(mut command: Command, input: &str) -> ProgramOutput {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ProgramOutput {
        code: output.status.code(),
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
    }
}

#[test]
fn the_descriptions_pass_the_validators_of_other_people() {
    let (_folder, path) = folder();
    let shop = shop();
    for (file, flag, types, examples) in [
        (shop.to_str().unwrap(), "none", 9, 9),
        (path.as_str(), "none", 2, 2),
        (path.as_str(), "beta", 3, 3),
    ] {
        let document = run(&["catalogue", "openapi", file, "--flag", flag])
            .ended(0)
            .stdout;
        let said = validate_open_api(&document).ended(0).stdout;
        assert_eq!(
            said.trim(),
            format!("webhooks {types}, examples {examples}")
        );
        let document = run(&["catalogue", "asyncapi", file, "--flag", flag])
            .ended(0)
            .stdout;
        let said = validate_async_api(&document).ended(0).stdout;
        assert_eq!(said.trim(), format!("channels {types}"));
    }
}

#[test]
fn the_validators_refuse_what_is_not_valid() {
    let shop = shop();
    let shop = shop.to_str().unwrap();
    let document = run(&["catalogue", "openapi", shop]).ended(0).stdout;
    for (from, to) in [
        ("\"info\"", "\"inform\""),
        ("\"type\": \"integer\"", "\"type\": \"thing\""),
        ("\"amount\": 4200", "\"amount\": \"much\""),
    ] {
        assert!(document.contains(from), "{from}");
        let ran = validate_open_api(&document.replace(from, to));
        assert_ne!(ran.code, Some(0), "{from}: {}", ran.stdout);
    }
    let document = run(&["catalogue", "asyncapi", shop]).ended(0).stdout;
    for (from, to) in [
        ("\"action\": \"send\"", "\"action\": \"push\""),
        ("\"type\": \"integer\"", "\"type\": \"thing\""),
        (
            "#/components/schemas/order\"",
            "#/components/schemas/none\"",
        ),
    ] {
        assert!(document.contains(from), "{from}");
        let ran = validate_async_api(&document.replace(from, to));
        assert_ne!(ran.code, Some(0), "{from}: {}", ran.stdout);
    }
}

#[test]
fn a_catalogue_is_checked_and_an_error_names_the_place() {
    let (folder, path) = folder();
    let said = run(&["catalogue", "check", &path]).ended(0).stdout;
    assert_eq!(said, "the catalogue is valid: types 3, versions 4\n");
    let wrong = folder.path().join("wrong.json");
    fs::write(&wrong, CATALOGUE.replace("[0.5]", "[\"high\"]")).unwrap();
    let wrong = wrong.to_str().unwrap();
    let said = run(&["catalogue", "check", wrong]).ended(1).stderr;
    let expected = "/events/2/versions/0/examples/0: payload of order.scored, version 1";
    assert!(said.contains(expected), "{said}");
    for verb in [&["config", "check"][..], &["relay"]] {
        let mut command = hapax(verb);
        command
            .args(["--database", "sqlite:absent.db"])
            .env("HAPAX__CATALOGUE__FILE", wrong);
        let ran = run_to_end(command).ended(2);
        assert!(ran.stderr.contains("catalogue.file"), "{}", ran.stderr);
        assert!(ran.stderr.contains(expected), "{}", ran.stderr);
    }
    run(&["catalogue", "check", "absent.json"]).ended(1);
}

#[tokio::test]
async fn the_page_is_public_on_both_listeners_and_shows_only_enabled_flags() {
    let (_folder, path) = folder();
    let home = Home::migrated(Store::Sqlite).await;
    let poll = format!("127.0.0.1:{}", free_port());
    for (flags, is_shown) in [("", false), ("\"beta\"", true)] {
        let settings = format!(
            "[admin.tokens.ops]\ntoken = \"{OPERATOR}\"\nrole = \"operator\"\n\
             [poll]\nlisten = \"{poll}\"\n\
             [catalogue]\nfile = \"{path}\"\nflags = [{flags}]\n"
        );
        let served = Served::start(&home, &settings).await;
        let client = HttpClient::new();
        let admin = served.url().replace("/admin/v1", "");
        for base in [admin, format!("http://{poll}")] {
            let page = client.get(&format!("{base}/catalogue")).await.unwrap();
            assert_eq!(page.status, 200, "{}", page.text());
            assert!(page.text().contains("order/paid:v"), "{}", page.text());
            assert_eq!(page.text().contains("order.scored"), is_shown);
            assert!(!page.text().contains("<script"));
            let policy = page.header("content-security-policy").unwrap();
            assert!(
                policy.starts_with("default-src 'none'; style-src 'sha256-"),
                "{policy}"
            );
            for name in ["openapi", "asyncapi"] {
                let url = format!("{base}/catalogue/{name}.json");
                let document = client.get(&url).await.unwrap();
                assert_eq!(document.header("content-type"), Some("application/json"));
                assert!(document.json().unwrap()[name].is_string());
                assert_eq!(document.text().contains("order.scored"), is_shown);
            }
        }
        served.relay.stop().await;
    }
}

#[tokio::test]
async fn without_a_catalogue_there_is_no_page() {
    let home = Home::migrated(Store::Sqlite).await;
    let poll = format!("127.0.0.1:{}", free_port());
    let relay = start_relay(&home.url(), &format!("[poll]\nlisten = \"{poll}\"\n")).await;
    let page = HttpClient::new()
        .get(&format!("http://{poll}/catalogue"))
        .await;
    assert_eq!(page.unwrap().status, 404);
    relay.stop().await;
}
