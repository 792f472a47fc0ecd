//! Layers: reads each layer and merges them.
//!
//! The order is: the defaults of the program, the file, standard variables of OpenTelemetry,
//! variables `HAPAX__SECTION__NAME`, the flags. A later layer replaces values and extends tables.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs,
    path::Path,
};

use super::{
    Wrong,
    node::{Node, Origin},
};

/// The prefix of environment variables that are settings.
const PREFIX: &str = "HAPAX__";
const STANDARD_HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
/// Standard variables of OpenTelemetry. Variables with our prefix override them.
const STANDARD: [(&str, &[&str]); 3] = [
    (
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        &["telemetry", "otlp_endpoint"],
    ),
    (STANDARD_HEADERS, &["telemetry", "otlp_headers"]),
    ("OTEL_SERVICE_NAME", &["telemetry", "service"]),
];

/// A setting from the command line.
#[derive(Clone, Debug)]
pub struct Given {
    key: String,
    value: Node,
}

impl Given {
    /// A setting that is one text. The key is such as `log.level`, the flag such as `--log-level`.
    pub fn text(key: impl Into<String>, flag: &str, text: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            value: Node::text(text, Origin::Flag(flag.into())),
        }
    }

    /// A setting whose flag may be repeated.
    pub fn list(
        key: impl Into<String>,
        flag: &str,
        items: impl IntoIterator<Item = String>,
    ) -> Self {
        let origin = Origin::Flag(flag.into());
        let items = items.into_iter();
        let items = items.map(|item| Node::text(item, origin.clone())).collect();
        Self {
            key: key.into(),
            value: Node::List(items, origin),
        }
    }
}

/// The merged layers.
#[derive(Clone, Debug)]
pub struct Layers(Node);

impl Layers {
    /// Reads all layers. The defaults are the text of a TOML file.
    ///
    /// # Errors
    /// The first layer that cannot be read.
    pub fn read(
        defaults: &str,
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        flags: impl IntoIterator<Item = Given>,
    ) -> Result<Self, Wrong> {
        let Some(path) = file else {
            return Self::of(defaults, None, environment, flags);
        };
        let shown = path.display().to_string();
        let text = fs::read_to_string(path);
        let text = text.map_err(|error| Wrong::at(shown, format!("cannot be read: {error}")))?;
        Self::of(defaults, Some((path, &text)), environment, flags)
    }

    /// Merges all layers, given the text of the file.
    ///
    /// # Errors
    /// The first layer that cannot be read.
    pub fn of(
        defaults: &str,
        file: Option<(&Path, &str)>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        flags: impl IntoIterator<Item = Given>,
    ) -> Result<Self, Wrong> {
        let mut tree = parse(defaults, &Origin::Default)?;
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
        for Given { key, value } in flags {
            put(&mut tree, &steps(&key), value);
        }
        Ok(Self(tree))
    }

    /// The tree of all settings.
    pub fn root(&self) -> &Node {
        &self.0
    }

    /// The source of a setting.
    pub fn origin(&self, path: &[&str]) -> Origin {
        let origin = self.0.at(path).and_then(Node::origin);
        origin.cloned().unwrap_or(Origin::Default)
    }

    /// Adds to an error the source of the setting that it names.
    #[must_use]
    pub fn with_origin(&self, wrong: Wrong) -> Wrong {
        let node = self.0.at(&steps(wrong.path()));
        wrong.came_from(node)
    }
}

/// The environment variable of a setting, such as `HAPAX__LOG__LEVEL` for `log.level`.
pub fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "__").to_ascii_uppercase())
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
    let known = STANDARD.iter().find(|(known, _)| name == *known);
    // OpenTelemetry: an empty variable counts as not set.
    let Some((name, path)) = known.filter(|_| !value.is_empty()) else {
        return Ok(());
    };
    let wrong = |problem| Wrong::at(*name, problem);
    let text = value.to_str().ok_or_else(|| wrong("is not UTF-8"))?;
    let leaf = |text: &str| Node::text(text, Origin::Variable((*name).into()));
    if *name != STANDARD_HEADERS {
        put(tree, path, leaf(text));
        return Ok(());
    }
    let headers = hapax_otlp::headers_of(text);
    let headers = headers.ok_or_else(|| wrong("must be a list such as name=value,name=value"))?;
    for (header, value) in headers {
        put(tree, &[*path, &[header.as_str()]].concat(), leaf(&value));
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
