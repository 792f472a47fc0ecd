//! Fuzz target for the configuration of the `hapax` binary: every file with every environment gives
//! a configuration or an error message.
//!
//! The input is the file, then a NUL, then lines such as `HAPAX__RELAY__LEASE=7s`. The JSON of a
//! configuration contains no secret, and is parsed as the same configuration.
#![no_main]

#[path = "../../../crates/hapax-server/src/config/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the binary uses the rest")]
mod config;
mod destination;

use std::{ffi::OsString, path::Path};

use config::{Config, DEFAULT, Layers, Node, Secret, Wrong};
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
    let file = Some((Path::new("hapax.toml"), file));
    Config::of(&Layers::of(DEFAULT, file, environment, [])?)
}

fn check(config: &Config) {
    let shown = serde_json::to_value(config).expect("a configuration can be serialized");
    let again = Node::from_json(&shown).read::<Config>();
    let again = again.expect("the JSON of a configuration can be parsed");
    assert_eq!(serde_json::to_value(&again).as_ref().ok(), Some(&shown));
    if let Some(Secret::Text(url)) = &config.database.url {
        check_secret(config, url.expose_secret());
    }
}

/// Checks that a secret is not shown, unless it also occurs elsewhere in the configuration. Short
/// secrets are not checked, because they may occur by chance.
fn check_secret(config: &Config, secret: &str) {
    let mut others = config.clone();
    others.database.url = None;
    let shown = |config: &Config| {
        let json = serde_json::to_string(config).expect("a configuration can be serialized");
        format!("{config:?}{json}")
    };
    let is_told = secret.len() > 20 && shown(config).contains(secret);
    assert!(
        !is_told || shown(&others).contains(secret),
        "the output contains a secret"
    );
}

/// Whether a message names a Rust type, which means nothing to the operator who writes settings.
fn is_ours(problem: &str) -> bool {
    let words = ["is struct ", "is enum "];
    words.iter().any(|it| problem.starts_with(it))
}
