//! The settings by key, as text, each with its source.
//!
//! `hapax_runtime::config` merges the layers. All layers use the same keys, so a setting has the
//! same name in the file, in the environment and in error messages. Values stay text until a
//! setting is read, in the file too.

use std::{ffi::OsString, path::PathBuf};

use clap::ArgMatches;
use hapax_runtime::config::{Layers, Leaf, Node, Origin, Wrong, did_you_mean, variable};

use super::flags;

/// The settings of all layers.
#[derive(Debug)]
pub(super) struct Settings(Layers);

impl Settings {
    /// Reads all layers. An unknown key is refused with the nearest known one.
    pub(super) fn read(
        matches: &ArgMatches,
        environment: impl Iterator<Item = (OsString, OsString)>,
    ) -> Result<Self, Wrong> {
        let file = matches.get_one(flags::FILE).map(PathBuf::as_path);
        Self::of(Layers::read("", file, environment, flags::given(matches))?)
    }

    fn of(layers: Layers) -> Result<Self, Wrong> {
        match unknown("", layers.root(), &flags::keys()) {
            Some(wrong) => Err(wrong),
            None => Ok(Self(layers)),
        }
    }

    /// Reads a setting that has a default.
    pub(super) fn one<T>(
        &self,
        key: &str,
        default: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, String> {
        match self.maybe(key, &read)? {
            Some(value) => Ok(value),
            None => read(default).map_err(|bad| format!("{key} {bad}")),
        }
    }

    /// Reads an optional setting.
    pub(super) fn maybe<T>(
        &self,
        key: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        let Some(node) = self.node(key) else {
            return Ok(None);
        };
        let value = match node {
            Node::Leaf(Leaf::Text(text), _) => read(text),
            Node::Leaf(Leaf::Switch(switch), _) => read(&switch.to_string()),
            _ => Err("must be a string".to_owned()),
        };
        value.map(Some).map_err(|bad| wrong(key, node, bad))
    }

    /// Reads a list; empty if it is not set.
    pub(super) fn list(&self, key: &str) -> Result<Vec<String>, String> {
        let Some(node) = self.node(key) else {
            return Ok(Vec::new());
        };
        let list = node.read();
        list.map_err(|_| wrong(key, node, "must be a list of strings"))
    }

    /// Reads pairs: a table of the file, or a list of `NAME=VALUE`; empty if the setting is not set.
    /// The error shows no value.
    pub(super) fn pairs(&self, key: &str) -> Result<Vec<(String, String)>, String> {
        let pair = |(name, value): (&str, &str)| {
            (!name.is_empty()).then(|| (name.to_owned(), value.to_owned()))
        };
        let Some(node) = self.node(key) else {
            return Ok(Vec::new());
        };
        if let Node::Table(table) = node {
            let pairs = table.iter().map(|(name, value)| match value {
                Node::Leaf(Leaf::Text(text), _) if !name.contains('=') => pair((name, text)),
                _ => None,
            });
            let problem = "must be a table of strings whose names contain no =";
            return pairs
                .collect::<Option<_>>()
                .ok_or_else(|| wrong(key, node, problem));
        }
        let pairs = self.list(key)?;
        let pairs = pairs.iter().map(|text| text.split_once('=').and_then(pair));
        pairs
            .collect::<Option<_>>()
            .ok_or_else(|| wrong(key, node, "takes NAME=VALUE"))
    }

    /// The value of a setting as it was given, and its source.
    pub(super) fn node(&self, key: &str) -> Option<&Node> {
        let path: Vec<_> = key.split('.').collect();
        self.0.root().at(&path)
    }
}

/// The message about a setting, which names its source.
fn wrong(key: &str, node: &Node, problem: impl Into<String>) -> String {
    Wrong::at(key, problem).came_from(Some(node)).to_string()
}

/// Finds the first node that is not a setting.
fn unknown(path: &str, node: &Node, keys: &[String]) -> Option<Wrong> {
    let is_within = |key: &String| path.is_empty() || key.starts_with(&format!("{path}."));
    match node {
        _ if keys.iter().any(|key| key == path) => None,
        Node::Table(table) if keys.iter().any(is_within) => {
            table.iter().find_map(|(name, node)| {
                let dot = if path.is_empty() { "" } else { "." };
                unknown(&format!("{path}{dot}{name}"), node, keys)
            })
        }
        _ => {
            let meant = match node.origin() {
                Some(Origin::Variable(name)) => {
                    let known: Vec<_> = keys.iter().map(|key| variable(key)).collect();
                    did_you_mean(name, known.iter().map(String::as_str))
                }
                _ => did_you_mean(path, keys.iter().map(String::as_str)),
            };
            Some(Wrong::at(path, format!("is unknown{meant}")).came_from(Some(node)))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_later_layer_replaces_a_setting_whole() {
        let file = "listen = \"1.1.1.1:1\"\n[webhook]\nurls = [\"a\", \"b\"]\n[tokens]\na = \"b\"";
        let variables = [("HAPAX__WEBHOOK__URLS", "c"), ("HAPAX__TOKENS", "c=d")];
        let settings = settings(file, &variables, &["--token", "e=f"]).unwrap();
        assert_eq!(settings.list("webhook.urls").unwrap(), ["c"]);
        let listen = settings.one("listen", "", |text| Ok(text.to_owned()));
        assert_eq!(listen, Ok("1.1.1.1:1".to_owned()));
        let tokens = settings.pairs("tokens").unwrap();
        assert_eq!(tokens, [("e".to_owned(), "f".to_owned())]);
    }

    #[test]
    fn the_variables_of_opentelemetry_are_read_below_our_own() {
        let variables = [
            ("HAPAX__TELEMETRY__OTLP_ENDPOINT", "http://two:4318"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://one:4318"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Basic%20abc"),
            ("OTEL_SERVICE_NAME", ""),
        ];
        let settings = settings("", &variables, &[]).unwrap();
        let text = |key, default| settings.one(key, default, |text| Ok(text.to_owned()));
        let endpoint = text("telemetry.otlp_endpoint", "");
        assert_eq!(endpoint, Ok("http://two:4318".to_owned()));
        assert_eq!(text("telemetry.service", "shop"), Ok("shop".to_owned()));
        let headers = settings.pairs("telemetry.otlp_headers").unwrap();
        let expected = ("authorization".to_owned(), "Basic abc".to_owned());
        assert_eq!(headers, [expected]);
    }

    #[test]
    fn an_unknown_key_names_the_nearest_known_one() {
        check_unknown(
            "lisen = \"x\"",
            &[],
            "shop.toml: lisen is unknown: did you mean listen?",
        );
        check_unknown(
            "[webhook]\nsecrt = \"x\"",
            &[],
            "shop.toml: webhook.secrt is unknown: did you mean webhook.secret?",
        );
        check_unknown("[qqq]", &[], "qqq is unknown");
        check_unknown(
            "",
            &[("HAPAX__WEBHOOK__SECRT", "x")],
            "HAPAX__WEBHOOK__SECRT is unknown: did you mean HAPAX__WEBHOOK__SECRET?",
        );
    }

    #[test]
    fn a_value_of_the_wrong_kind_is_refused_without_being_shown() {
        let file = "listen = 7\n[webhook]\nurls = \"secret\"\n[tokens]\na = 7\n";
        let settings = settings(file, &[("HAPAX__INBOX__SECRETS", "secret")], &[]).unwrap();
        let listen = settings.maybe("listen", |_| Ok(()));
        assert_eq!(listen, Err("shop.toml: listen must be a string".to_owned()));
        let urls = settings.list("webhook.urls").unwrap_err();
        assert_eq!(urls, "shop.toml: webhook.urls must be a list of strings");
        let tokens = settings.pairs("tokens").unwrap_err();
        assert!(
            tokens.starts_with("shop.toml: tokens must be a table of strings"),
            "{tokens}"
        );
        let secrets = settings.pairs("inbox.secrets").unwrap_err();
        assert_eq!(secrets, "HAPAX__INBOX__SECRETS takes NAME=VALUE");
    }

    #[test]
    fn pairs_are_a_table_in_the_file_and_a_list_in_the_environment() {
        let expected = vec![("demo".to_owned(), "alice".to_owned())];
        for (file, variables) in [
            ("[tokens]\ndemo = \"alice\"", &[][..]),
            ("", &[("HAPAX__TOKENS", " demo=alice, ")]),
        ] {
            let settings = settings(file, variables, &[]).unwrap();
            assert_eq!(settings.pairs("tokens"), Ok(expected.clone()));
        }
    }

    #[track_caller]
    fn check_unknown(file: &str, variables: &[(&str, &str)], expected: &str) {
        let error = settings(file, variables, &[]).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }

    fn settings(
        file: &str,
        variables: &[(&str, &str)],
        arguments: &[&str],
    ) -> Result<Settings, Wrong> {
        let arguments = ["shop"].iter().chain(arguments);
        let matches = flags::command().get_matches_from(arguments);
        let variables = variables
            .iter()
            .map(|(name, value)| (name.into(), value.into()));
        let file = Some((Path::new("shop.toml"), file));
        Settings::of(Layers::of("", file, variables, flags::given(&matches))?)
    }
}
