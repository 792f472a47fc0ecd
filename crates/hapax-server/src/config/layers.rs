//! Configuration layers: reads each layer and merges them.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs,
    path::Path,
};

use super::{
    Config, Wrong,
    node::{Node, Origin},
};

/// The built-in defaults. The file is also the documentation of all settings.
pub(crate) const DEFAULT: &str = include_str!("../hapax.default.toml");
/// The prefix of environment variables that are settings.
const PREFIX: &str = "HAPAX__";
/// Standard variables of OpenTelemetry. Variables with our prefix override them.
const STANDARD: [(&str, &[&str]); 2] = [
    (
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        &["telemetry", "otlp_endpoint"],
    ),
    ("OTEL_SERVICE_NAME", &["telemetry", "service"]),
];
const STANDARD_HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";

/// A setting from the command line: path, flag, and value.
pub(crate) type Given = (&'static [&'static str], &'static str, Option<String>);

/// The merged layers.
#[derive(Clone, Debug)]
pub(crate) struct Layers(Node);

impl Layers {
    /// Reads all layers.
    pub(crate) fn read(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        flags: impl IntoIterator<Item = Given>,
    ) -> Result<Self, Wrong> {
        let Some(path) = file else {
            return Self::of(None, environment, flags);
        };
        let shown = path.display().to_string();
        let text = fs::read_to_string(path);
        let text = text.map_err(|error| Wrong::at(shown, format!("cannot be read: {error}")))?;
        Self::of(Some((path, &text)), environment, flags)
    }

    /// Merges all layers, given the text of the file.
    pub(crate) fn of(
        file: Option<(&Path, &str)>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        flags: impl IntoIterator<Item = Given>,
    ) -> Result<Self, Wrong> {
        let mut tree = parse(DEFAULT, &Origin::Default)?;
        if let Some((path, text)) = file {
            tree.put_over(parse(text, &Origin::file(path))?);
        }
        let environment: Vec<_> = environment.into_iter().collect();
        for (name, value) in &environment {
            put_standard(&mut tree, name, value)?;
        }
        for (name, value) in environment {
            put_variable(&mut tree, &name, value)?;
        }
        for (path, flag, text) in flags {
            if let Some(text) = text {
                put(&mut tree, path, Node::text(text, Origin::Flag(flag)));
            }
        }
        Ok(Self(tree))
    }

    /// The settings as types. Every section is checked.
    pub(crate) fn config(&self) -> Result<Config, Wrong> {
        let config: Config = self.0.read()?;
        config.check().map_err(|wrong| {
            let node = self.0.at(&steps(wrong.path()));
            wrong.came_from(node)
        })?;
        Ok(config)
    }

    /// The source of a setting.
    pub(crate) fn origin(&self, path: &[&str]) -> Origin {
        let origin = self.0.at(path).and_then(Node::origin);
        origin.cloned().unwrap_or(Origin::Default)
    }
}

fn parse(text: &str, origin: &Origin) -> Result<Node, Wrong> {
    let table: Result<toml::Table, _> = text.parse();
    let table = table.map_err(|error: toml::de::Error| {
        // The message does not quote the line, because it may contain a secret.
        let line = error
            .span()
            .map_or(1, |span| 1 + text[..span.start].matches('\n').count());
        Wrong::at(
            format!("{origin}"),
            format!("is not valid TOML in line {line}: {}", error.message()),
        )
    })?;
    Ok(Node::from_toml(&toml::Value::Table(table), origin))
}

fn put_standard(tree: &mut Node, name: &OsStr, value: &OsStr) -> Result<(), Wrong> {
    let Some(name) = name.to_str().filter(|name| name.starts_with("OTEL_")) else {
        return Ok(());
    };
    // OpenTelemetry: an empty variable counts as not set.
    let Some(text) = value.to_str().filter(|text| !text.is_empty()) else {
        return Ok(());
    };
    let leaf = |text: String| Node::text(text, Origin::Variable(name.into()));
    if let Some((_, path)) = STANDARD.iter().find(|(known, _)| *known == name) {
        put(tree, path, leaf(text.to_owned()));
    }
    if name == STANDARD_HEADERS {
        let bad = || Wrong::at(name, "must be a list such as name=value,name=value");
        for (header, value) in hapax_otlp::headers_of(text).ok_or_else(bad)? {
            put(tree, &["telemetry", "otlp_headers", &header], leaf(value));
        }
    }
    Ok(())
}

fn put_variable(tree: &mut Node, name: &OsString, value: OsString) -> Result<(), Wrong> {
    let Some(path) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else {
        return Ok(());
    };
    let name = format!("{PREFIX}{path}");
    let text = value.into_string();
    let text = text.map_err(|_| Wrong::at(name.clone(), "is not UTF-8"))?;
    let mut steps = Vec::new();
    let mut node = Some(&*tree);
    for step in path.split("__") {
        let step = spelled(node, &step.to_ascii_lowercase());
        node = node.and_then(|node| node.at(&[&step]));
        steps.push(step);
    }
    let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
    put(
        tree,
        &steps,
        Node::text(text, Origin::Variable(name.into())),
    );
    Ok(())
}

/// A name in the spelling of the earlier layers: names of environment variables contain neither
/// lowercase letters nor `-`.
fn spelled(node: Option<&Node>, step: &str) -> String {
    let plain = |name: &str| name.to_ascii_lowercase().replace(['-', '.'], "_");
    let Some(Node::Table(table)) = node else {
        return step.to_owned();
    };
    let mut known = table.keys().filter(|name| plain(name) == step);
    known.next().map_or_else(|| step.to_owned(), Clone::clone)
}

fn put(tree: &mut Node, path: &[&str], value: Node) {
    let wrap = |inner, name: &&str| Node::Table(BTreeMap::from([((*name).to_owned(), inner)]));
    tree.put_over(path.iter().rev().fold(value, wrap));
}

/// Splits `a.b[2].c` into steps.
fn steps(path: &str) -> Vec<&str> {
    path.split(['.', '['])
        .map(|step| step.trim_end_matches(']'))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_complete_and_sound() {
        let config = layers("", &[], []).unwrap().config().unwrap();
        assert!(config.destinations.is_empty());
        assert!(config.database.url.is_none());
    }

    #[test]
    fn the_variables_of_opentelemetry_are_read_below_our_own() {
        let env = [
            ("HAPAX__TELEMETRY__SAMPLE", "0.25"),
            ("HAPAX__TELEMETRY__SERVICE", "relay-7"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318"),
            (
                "OTEL_EXPORTER_OTLP_HEADERS",
                "authorization=Basic%20c2VjcmV0",
            ),
            ("OTEL_SERVICE_NAME", "relay"),
        ];
        let config = layers("", &env, []).unwrap().config().unwrap();
        let export = config
            .telemetry
            .export(|| std::time::SystemTime::UNIX_EPOCH);
        let export = export.unwrap().unwrap();
        assert_eq!(export.service, "relay-7");
        assert!((config.telemetry.sample - 0.25).abs() < f64::EPSILON);
        let shown = format!("{config:?} {export:?}");
        assert!(
            shown.contains("authorization") && !shown.contains("c2VjcmV0"),
            "{shown}"
        );
    }

    #[test]
    fn what_cannot_be_exported_to_is_refused_without_being_shown() {
        for (file, said) in [
            (
                "otlp_endpoint = \"http://a:secret@b:4318\"",
                "telemetry.otlp_endpoint",
            ),
            (
                "sample = 1.5",
                "telemetry.sample must be a number from 0 to 1",
            ),
        ] {
            let refused = layers(&format!("[telemetry]\n{file}\n"), &[], []).unwrap();
            let refused = refused.config().unwrap_err().to_string();
            assert!(
                refused.contains(said) && !refused.contains("secret"),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_later_layer_goes_over_an_earlier_one() {
        let file = "[relay]\nlease = \"7s\"\npoll = \"70ms\"\n[log]\nlevel = \"warn\"\n";
        let env = [
            ("HAPAX__RELAY__POLL", "60ms"),
            ("HAPAX__LOG__LEVEL", "error"),
        ];
        let flag = (
            &["log", "level"][..],
            "--log-level",
            Some("debug".to_owned()),
        );
        let layers = layers(file, &env, [flag]).unwrap();
        let config = layers.config().unwrap();
        assert_eq!(config.relay.lease.to_string(), "7s");
        assert_eq!(config.relay.poll.to_string(), "60ms");
        assert_eq!(config.log.level, super::super::Level::Debug);
        assert_eq!(
            layers.origin(&["log", "level"]),
            Origin::Flag("--log-level")
        );
        let variable = Origin::Variable("HAPAX__RELAY__POLL".into());
        assert_eq!(layers.origin(&["relay", "poll"]), variable);
        assert_eq!(layers.origin(&["relay", "listen"]), Origin::Default);
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_nearest_one() {
        check(
            "[relay]\nleese = \"7s\"\n",
            &[],
            "relay.leese is unknown: did you mean lease?",
        );
        check(
            "[relai]\nlease = \"7s\"\n",
            &[],
            "relai is unknown: did you mean relay?",
        );
        check(
            "",
            &[("HAPAX__RELAY__LEESE", "7s")],
            "HAPAX__RELAY__LEESE is unknown: did you mean lease?",
        );
        check(
            "[log]\nlevel = \"wran\"\n",
            &[],
            "log.level must be one of error, warn, info, debug, trace, not \"wran\": did you mean warn?",
        );
    }

    #[test]
    fn a_value_of_the_wrong_kind_is_refused_without_being_shown() {
        check(
            "[database]\nconnections = \"hunter2\"\n",
            &[],
            "database.connections must be a whole number from 0 to 65535",
        );
        check(
            "",
            &[("HAPAX__DATABASE__POOLED", "hunter2")],
            "HAPAX__DATABASE__POOLED must be true or false",
        );
        check(
            "[database]\nurl = 7\n",
            &[],
            "database.url must be a text or { file = \"/path\" }",
        );
        check(
            "[relay]\nlease = \"1ms\"\n",
            &[],
            "relay.lease must be between 1s and 10m, not 1ms",
        );
    }

    #[test]
    fn settings_without_their_names_are_refused() {
        for file in ["log = [\"human\", \"info\"]\n", "log = \"human\"\n"] {
            check(file, &[], "log must be a table of settings");
        }
        check(
            "",
            &[("HAPAX__LOG", "human, info")],
            "HAPAX__LOG must be a table of settings",
        );
    }

    #[test]
    fn a_file_that_is_no_toml_is_refused_by_line_and_not_quoted() {
        let error = layers("[database]\nurl = hunter2\n", &[], [])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("line 2") && !error.contains("hunter2"),
            "{error}"
        );
    }

    #[test]
    fn the_environment_speaks_of_destinations_as_the_file_spells_them() {
        let file = "[destinations.Order-Desk]\nsink.file.path = \"-\"\n";
        let env = [
            ("HAPAX__DESTINATIONS__ORDER_DESK__EVENTS", "a.*, b.*"),
            ("HAPAX__DESTINATIONS__ORDER_DESK__PARTITIONS", "4"),
            ("HAPAX__DESTINATIONS__ORDER_DESK__PAUSED", "true"),
            ("HAPAX__DATABASE__URL__FILE", "/run/secrets/url"),
        ];
        let config = layers(file, &env, []).unwrap().config().unwrap();
        let spec = &config.destinations["Order-Desk"];
        assert_eq!(
            (spec.events.len(), spec.partitions, spec.paused),
            (2, 4, true)
        );
        let file = super::super::Secret::File("/run/secrets/url".into());
        assert_eq!(config.database.url, Some(file));
    }

    #[test]
    fn a_number_of_the_environment_goes_as_far_as_one_of_the_file() {
        let file = "[destinations.a]\nsink.redis.url = \"redis://h\"\n";
        let name = "HAPAX__DESTINATIONS__A__SINK__REDIS__LENGTH_MAX";
        layers(file, &[(name, "9223372036854775807")], [])
            .unwrap()
            .config()
            .unwrap();
        let expected = format!("{name} must be a whole number");
        check(file, &[(name, "9223372036854775808")], &expected);
    }

    #[test]
    fn an_admin_api_for_the_network_needs_tokens() {
        let open = "[admin]\nlisten = \"0.0.0.0:9465\"\n";
        let error = layers(open, &[], []).unwrap().config().unwrap_err();
        assert_eq!(error.path(), "admin.listen");
        let tokens = format!("{open}[admin.tokens.ann]\ntoken = \"t\"\nrole = \"viewer\"\n");
        layers(&tokens, &[], []).unwrap().config().unwrap();
    }

    #[track_caller]
    fn check(file: &str, environment: &[(&str, &str)], expected: &str) {
        let read = layers(file, environment, []).and_then(|layers| layers.config());
        let error = read.unwrap_err().to_string();
        let said = error
            .rsplit_once("file.toml: ")
            .map_or(error.as_str(), |(_, rest)| rest);
        assert_eq!(said, expected);
    }

    fn layers<const N: usize>(
        file: &str,
        environment: &[(&str, &str)],
        flags: [Given; N],
    ) -> Result<Layers, Wrong> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file.toml");
        fs::write(&path, file).unwrap();
        let environment = environment
            .iter()
            .map(|(name, value)| (name.into(), value.into()));
        Layers::read(Some(&path), environment, flags)
    }
}
