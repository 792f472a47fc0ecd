//! Verification of the signatures of the sink by published libraries.
//!
//! The libraries are pinned, and are installed next to the build by the clients of their
//! registries.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{self, Command, Stdio},
};

use hapax::{
    event::{NewEvent, Payload},
    signature::SigningKey,
};
use hapax_sinks::webhook::{Webhook, WebhookSettings};
use hapax_testkit::{clock::system_clock, program::Program};
use tempfile::TempDir;

use crate::{
    events::{deliver, offer},
    sinks,
};

const PYTHON: &str = "standardwebhooks==1.1.0";
const NODE: &str = "standardwebhooks@1.1.1";
const SECRET: &str = sinks::SECRET;
const OTHER: &str = "whsec_plJ3nmyCDGBKInavdOK15jsl3s2nWHpEPL9hCjZ1lFE=";

#[tokio::test]
async fn published_libraries_verify_what_the_sink_sends() {
    let python = python_with_library();
    let node = node_with_library();
    for (command, script, library) in [
        ("python3", "verify.py", ("PYTHONPATH", python)),
        ("node", "verify.js", ("NODE_PATH", node)),
    ] {
        let (_receiver, url) = receiver(command, script, &library, SECRET);
        check(&url, &[SECRET], true).await;
        check(&url, &[OTHER, SECRET], true).await;
        check(&url, &[OTHER], false).await;
    }
}

#[tokio::test]
async fn the_ed25519_of_node_verifies_what_the_sink_signs() {
    let library = ("NODE_PATH", node_with_library());
    let (key, other) = (SigningKey::mint([1; 32]), SigningKey::mint([2; 32]));
    let public = key.verifying_key().to_string();
    let (_receiver, url) = receiver("node", "verify.js", &library, &public);
    check(&url, &[&key.reveal()], true).await;
    check(&url, &[SECRET, &other.reveal(), &key.reveal()], true).await;
    check(&url, &[SECRET, &other.reveal()], false).await;
}

async fn check(url: &str, keys: &[&str], verified: bool) {
    let (first, further) = keys.split_first().unwrap();
    let settings = WebhookSettings {
        url: url.to_owned(),
        secret: (*first).into(),
        further_secrets: further.iter().map(|key| (*key).into()).collect(),
        allow: vec!["127.0.0.0/8".parse().unwrap()],
        ..WebhookSettings::default()
    };
    // The libraries read the real time.
    let webhook = Webhook::new(&settings, sinks::destination(), system_clock()).unwrap();
    for (number, text) in (0..).zip([
        "{\"amount\": 500}",
        "[1.0,\n 9007199254740993]",
        "\"é\\u00e9€😀\"",
    ]) {
        let event = NewEvent::new("order.created", Payload::Json(text.to_owned()));
        let outcome = deliver(&webhook, offer(number, event)).await;
        assert_eq!(outcome.is_ok(), verified, "{text}: {outcome:?}");
    }
}

/// Starts a receiver, which ends when the returned program is dropped.
fn receiver(
    command: &str,
    script: &str,
    (variable, library): &(&str, PathBuf),
    secret: &str,
) -> ((Program, TempDir), String) {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/verify");
    let mut command = Command::new(command);
    command
        .arg(scripts.join(script))
        .arg(secret)
        .env(variable, library)
        .stdin(Stdio::null());
    let folder = tempfile::tempdir().unwrap();
    let (program, port) = Program::announced(command, &folder.path().join("log"));
    ((program, folder), format!("http://127.0.0.1:{port}/"))
}

fn python_with_library() -> PathBuf {
    installed(PYTHON, "python3 with pip (Debian: python3-pip)", |to| {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--no-input", "--no-deps"]);
        pip.args(["--disable-pip-version-check", PYTHON, "--target"])
            .arg(to);
        pip
    })
}

fn node_with_library() -> PathBuf {
    let installed = installed(NODE, "node and npm (Debian: nodejs npm)", |to| {
        let mut npm = Command::new("npm");
        npm.args([
            "install",
            "--silent",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
        ]);
        npm.args([NODE, "--prefix"]).arg(to);
        npm
    });
    installed.join("node_modules")
}

/// Installs a library once. Several tests may try at the same time.
fn installed(library: &str, needed: &str, install: impl Fn(&Path) -> Command) -> PathBuf {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let place = home.join(library);
    if !place.exists() {
        let ours = home.join(format!("{library}.{}", process::id()));
        let done = fs::create_dir_all(&ours).and_then(|()| install(&ours).output());
        let done = done.unwrap_or_else(|error| panic!("install {needed}: {error}"));
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(
            done.status.success(),
            "install {needed}; {library} failed: {said}"
        );
        // Another test may have installed the same library first.
        if fs::rename(&ours, &place).is_err() {
            fs::remove_dir_all(&ours).unwrap();
        }
    }
    place
}
