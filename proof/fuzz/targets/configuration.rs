//! The configuration of the `hapax` binary: any file and any environment are a configuration, or an error in words.
//!
//! The input is the file and, behind a NUL, lines such as `HAPAX__RELAY__LEASE=7s`. What was read can be shown, shows no
//! secret, and read again as it was shown is the same.
#![no_main]

#[path = "../../../crates/hapax-server/src/config/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the binary uses the rest")]
mod config;
mod destination;

use std::{ffi::OsString, path::Path};

use config::{Config, Layers, Node, Secret, Wrong};
use libfuzzer_sys::fuzz_target;
use secrecy::ExposeSecret as _;

fuzz_target!(|text: &str| {
    let (file, environment) = text.split_once('\0').unwrap_or((text, ""));
    let pairs = environment.lines().filter_map(|line| line.split_once('='));
    let environment = pairs.map(|(name, value)| (OsString::from(name), OsString::from(value)));
    match read(file, environment) {
        Ok(config) => check(&config),
        Err(wrong) => {
            let told = wrong.to_string();
            assert!(
                !wrong.problem().is_empty() && !told.starts_with(' '),
                "{told:?}"
            );
            assert!(!is_ours(wrong.problem()), "{told:?}");
        }
    }
});

fn read(
    file: &str,
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Config, Wrong> {
    Layers::of(Some((Path::new("hapax.toml"), file)), environment, [])?.config()
}

fn check(config: &Config) {
    let shown = serde_json::to_value(config).expect("a configuration can be shown");
    let again = Node::from_json(&shown).read::<Config>();
    let again = again.expect("what was shown can be read");
    assert_eq!(serde_json::to_value(&again).as_ref().ok(), Some(&shown));
    if let Some(Secret::Text(url)) = &config.database.url {
        check_secret(config, url.expose_secret());
    }
}

/// A secret that stands nowhere else is not shown; one that is as short as a word may stand there by chance.
fn check_secret(config: &Config, secret: &str) {
    let mut others = config.clone();
    others.database.url = None;
    let shown = |config: &Config| {
        let json = serde_json::to_string(config).expect("a configuration can be shown");
        format!("{config:?}{json}")
    };
    let is_told = secret.len() > 20 && shown(config).contains(secret);
    assert!(
        !is_told || shown(&others).contains(secret),
        "a secret is shown"
    );
}

/// Whether a problem names a type of the program, which nobody knows who writes settings.
fn is_ours(problem: &str) -> bool {
    let words = ["is struct ", "is enum "];
    words.iter().any(|it| problem.starts_with(it))
}
