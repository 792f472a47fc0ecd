//! The unparsed settings of all layers, by key, each with its origin.
//!
//! All layers use the same keys, so a setting has the same name in the file, in the environment and
//! in error messages. Values stay text until a setting is read.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs,
    path::Path,
};

use hapax_console::nearest;

/// The type of a setting.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Text,
    List,
    /// `NAME=VALUE`, or a table in the file.
    Pairs,
}

/// All settings.
const KEYS: [(&str, Shape); 39] = [
    ("listen", Shape::Text),
    ("data_dir", Shape::Text),
    ("database", Shape::Text),
    ("relay", Shape::Text),
    ("demo", Shape::Text),
    ("tokens", Shape::Pairs),
    ("console.tokens", Shape::Pairs),
    ("webhook.urls", Shape::List),
    ("webhook.secret", Shape::Text),
    ("webhook.schedule", Shape::Text),
    ("webhook.allow_net", Shape::List),
    ("smtp.url", Shape::Text),
    ("smtp.schedule", Shape::Text),
    ("thumbnails.schedule", Shape::Text),
    ("providers.payment", Shape::Text),
    ("providers.shipping", Shape::Text),
    ("inbox.secrets", Shape::Pairs),
    ("inbox.tenant", Shape::Text),
    ("idempotency.retention", Shape::Text),
    ("idempotency.on_expired", Shape::Text),
    ("idempotency.on_store_error", Shape::Text),
    ("idempotency.on_failure", Shape::Text),
    ("idempotency.profile", Shape::Text),
    ("idempotency.wait", Shape::Text),
    ("idempotency.lease", Shape::Text),
    ("idempotency.cache_bytes", Shape::Text),
    ("idempotency.quota_keys", Shape::Text),
    ("idempotency.quota_bytes", Shape::Text),
    ("store.group_max", Shape::Text),
    ("store.connections", Shape::Text),
    ("store.pooled", Shape::Text),
    ("store.schema", Shape::Text),
    ("store.encryption_keys", Shape::Text),
    ("log.format", Shape::Text),
    ("log.level", Shape::Text),
    ("telemetry.otlp_endpoint", Shape::Text),
    ("telemetry.otlp_headers", Shape::Pairs),
    ("telemetry.sample", Shape::Text),
    ("telemetry.service", Shape::Text),
];

/// The prefix of the shop's environment variables.
const PREFIX: &str = "HAPAX__";
/// Environment variables defined by OpenTelemetry; the shop's own variables override them.
const STANDARD: [(&str, &str); 3] = [
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "telemetry.otlp_endpoint"),
    ("OTEL_EXPORTER_OTLP_HEADERS", "telemetry.otlp_headers"),
    ("OTEL_SERVICE_NAME", "telemetry.service"),
];

/// A value that has not been parsed.
#[derive(Debug)]
pub(super) enum Given {
    Text(String),
    List(Vec<String>),
}

/// The settings of the layers read so far.
#[derive(Debug, Default)]
pub(super) struct Layers(BTreeMap<&'static str, (String, Given)>);

impl Layers {
    /// Sets a value, which replaces the value of an earlier layer.
    pub(super) fn put(&mut self, key: &'static str, origin: &str, given: Given) {
        self.0.insert(key, (origin.to_owned(), given));
    }

    /// Reads a TOML file.
    pub(super) fn read_file(&mut self, path: &Path) -> Result<(), String> {
        let shown = path.display();
        let text = fs::read_to_string(path).map_err(|error| format!("{shown}: {error}"))?;
        let table: toml::Table = text
            .parse()
            .map_err(|error: toml::de::Error| format!("{shown}: {}", error.message()))?;
        self.read_table("", &table)
            .map_err(|error| format!("{shown}: {error}"))
    }

    fn read_table(&mut self, prefix: &str, table: &toml::Table) -> Result<(), String> {
        for (name, value) in table {
            let path = format!("{prefix}{name}");
            match (value, find(&path)) {
                (value, Some((key, shape))) => {
                    let given = read_value(value, shape).map_err(|bad| format!("{key} {bad}"))?;
                    self.put(key, key, given);
                }
                (toml::Value::Table(inner), None) if is_section(&path) => {
                    self.read_table(&format!("{path}."), inner)?;
                }
                _ => return Err(unknown(&path, "")),
            }
        }
        Ok(())
    }

    /// Reads the variables of OpenTelemetry, and then all that start with `HAPAX__`.
    pub(super) fn read_environment(
        &mut self,
        variables: impl Iterator<Item = (OsString, OsString)>,
    ) -> Result<(), String> {
        let variables: Vec<_> = variables.collect();
        for (name, value) in &variables {
            self.read_standard(name, value)?;
        }
        for (name, value) in variables {
            let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else {
                continue;
            };
            let path = name[PREFIX.len()..].replace("__", ".").to_ascii_lowercase();
            let (key, shape) = find(&path).ok_or_else(|| unknown(name, PREFIX))?;
            let text = value
                .into_string()
                .map_err(|_| format!("{name} is not UTF-8"))?;
            let given = match shape {
                Shape::Text => Given::Text(text),
                Shape::List | Shape::Pairs => Given::List(split(&text)),
            };
            self.put(key, name, given);
        }
        Ok(())
    }

    fn read_standard(&mut self, name: &OsStr, value: &OsStr) -> Result<(), String> {
        let known = STANDARD.iter().find(|(known, _)| name == *known);
        // OpenTelemetry specifies that an empty variable counts as unset.
        let Some((name, key)) = known.filter(|_| !value.is_empty()) else {
            return Ok(());
        };
        let text = value.to_str().ok_or(format!("{name} is not UTF-8"))?;
        let given = if *key == "telemetry.otlp_headers" {
            let bad = || format!("{name} must be a list such as name=value,name=value");
            let headers = hapax_otlp::headers_of(text).ok_or_else(bad)?;
            Given::List(
                headers
                    .iter()
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect(),
            )
        } else {
            Given::Text(text.to_owned())
        };
        self.put(key, name, given);
        Ok(())
    }

    /// Reads a setting that has a default.
    pub(super) fn one<T>(
        &self,
        key: &'static str,
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
        key: &'static str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        let Some((origin, Given::Text(text))) = self.0.get(key) else {
            return Ok(None);
        };
        read(text)
            .map(Some)
            .map_err(|bad| format!("{origin} {bad}"))
    }

    /// Returns a list setting; empty if it is not set.
    pub(super) fn list(&self, key: &'static str) -> Vec<String> {
        match self.0.get(key) {
            Some((_, Given::List(list))) => list.clone(),
            _ => Vec::new(),
        }
    }

    /// Reads a setting of `NAME=VALUE` pairs; empty if it is not set. The error shows no value.
    pub(super) fn pairs(&self, key: &'static str) -> Result<Vec<(String, String)>, String> {
        let origin = self.0.get(key).map_or(key, |(origin, _)| origin);
        self.list(key)
            .iter()
            .map(|pair| match pair.split_once('=') {
                Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
                _ => Err(format!("{origin} takes NAME=VALUE")),
            })
            .collect()
    }
}

fn find(path: &str) -> Option<(&'static str, Shape)> {
    KEYS.into_iter().find(|(key, _)| *key == path)
}

fn is_section(path: &str) -> bool {
    KEYS.iter().any(|(key, _)| {
        key.strip_prefix(path)
            .is_some_and(|rest| rest.starts_with('.'))
    })
}

fn unknown(given: &str, prefix: &str) -> String {
    let spelled = KEYS.map(|(key, _)| {
        if prefix.is_empty() {
            key.to_owned()
        } else {
            format!("{prefix}{}", key.replace('.', "__").to_ascii_uppercase())
        }
    });
    match nearest(given, spelled.iter().map(String::as_str)) {
        Some(known) => format!("unknown setting {given}: did you mean {known}?"),
        None => format!("unknown setting {given}"),
    }
}

fn read_value(value: &toml::Value, shape: Shape) -> Result<Given, String> {
    match (shape, value) {
        (Shape::Text, toml::Value::String(text)) => Ok(Given::Text(text.clone())),
        (Shape::Text, toml::Value::Boolean(switch)) => Ok(Given::Text(switch.to_string())),
        (Shape::Pairs, toml::Value::Table(table)) => table
            .iter()
            .map(|(name, value)| match value {
                toml::Value::String(text) if !name.contains('=') => Ok(format!("{name}={text}")),
                _ => Err("must be a table of strings whose names contain no =".to_owned()),
            })
            .collect::<Result<_, _>>()
            .map(Given::List),
        (Shape::List | Shape::Pairs, toml::Value::Array(items)) => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned))
            .collect::<Option<_>>()
            .map(Given::List)
            .ok_or_else(|| "must be a list of strings".to_owned()),
        (Shape::Text, _) => Err("must be a string".to_owned()),
        (Shape::List, _) => Err("must be a list of strings".to_owned()),
        (Shape::Pairs, _) => Err("must be a table of strings".to_owned()),
    }
}

fn split(text: &str) -> Vec<String> {
    text.split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_layer_replaces_a_setting_whole() {
        let mut layers = from_file("listen = \"1.1.1.1:1\"\n[webhook]\nurls = [\"a\", \"b\"]\n");
        layers
            .read_environment(variables(&[("HAPAX__WEBHOOK__URLS", "c")]))
            .unwrap();
        assert_eq!(layers.list("webhook.urls"), ["c"]);
        let listen = layers.one("listen", "", |text| Ok(text.to_owned()));
        assert_eq!(listen, Ok("1.1.1.1:1".to_owned()));
    }

    #[test]
    fn the_variables_of_opentelemetry_are_read_below_our_own() {
        let standard = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://one:4318"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Basic%20abc"),
            ("OTEL_SERVICE_NAME", ""),
        ];
        let ours = ("HAPAX__TELEMETRY__OTLP_ENDPOINT", "http://two:4318");
        let mut layers = Layers::default();
        layers
            .read_environment(variables(&[ours, standard[0], standard[1], standard[2]]))
            .unwrap();
        let text = |key, default| layers.one(key, default, |text| Ok(text.to_owned()));
        let endpoint = text("telemetry.otlp_endpoint", "");
        assert_eq!(endpoint, Ok("http://two:4318".to_owned()));
        assert_eq!(text("telemetry.service", "shop"), Ok("shop".to_owned()));
        let headers = layers.pairs("telemetry.otlp_headers").unwrap();
        let expected = ("authorization".to_owned(), "Basic abc".to_owned());
        assert_eq!(headers, [expected]);
    }

    #[test]
    fn an_unknown_key_names_the_nearest_known_one() {
        check_unknown(
            "lisen = \"x\"",
            "unknown setting lisen: did you mean listen?",
        );
        check_unknown(
            "[webhook]\nsecrt = \"x\"",
            "unknown setting webhook.secrt: did you mean webhook.secret?",
        );
        let variables = variables(&[("HAPAX__WEBHOOK__SECRT", "x")]);
        assert_eq!(
            Layers::default().read_environment(variables).unwrap_err(),
            "unknown setting HAPAX__WEBHOOK__SECRT: did you mean HAPAX__WEBHOOK__SECRET?"
        );
    }

    #[test]
    fn pairs_are_a_table_in_the_file_and_a_list_in_the_environment() {
        let expected = vec![("demo".to_owned(), "alice".to_owned())];
        assert_eq!(
            from_file("[tokens]\ndemo = \"alice\"").pairs("tokens"),
            Ok(expected.clone())
        );
        let mut layers = Layers::default();
        layers
            .read_environment(variables(&[("HAPAX__TOKENS", " demo=alice, ")]))
            .unwrap();
        assert_eq!(layers.pairs("tokens"), Ok(expected));
    }

    #[test]
    fn a_malformed_pair_is_refused_without_being_shown() {
        let mut layers = Layers::default();
        layers
            .read_environment(variables(&[("HAPAX__TOKENS", "secret")]))
            .unwrap();
        assert_eq!(
            layers.pairs("tokens"),
            Err("HAPAX__TOKENS takes NAME=VALUE".to_owned())
        );
    }

    #[track_caller]
    fn check_unknown(text: &str, expected: &str) {
        let table = text.parse().unwrap();
        assert_eq!(
            Layers::default().read_table("", &table).unwrap_err(),
            expected
        );
    }

    fn from_file(text: &str) -> Layers {
        let mut layers = Layers::default();
        layers.read_table("", &text.parse().unwrap()).unwrap();
        layers
    }

    fn variables(pairs: &[(&str, &str)]) -> impl Iterator<Item = (OsString, OsString)> {
        pairs
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect::<Vec<_>>()
            .into_iter()
    }
}
