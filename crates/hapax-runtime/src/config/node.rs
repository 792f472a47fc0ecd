//! Configuration tree: settings as given, each with its source.
//!
//! All layers use the same tree, so a setting has one name in the file, in the environment and in
//! an error. A later layer replaces values and extends tables. `read` converts the tree, or a part
//! of it, into a type.

use std::{collections::BTreeMap, fmt, path::Path, sync::Arc};

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::read::Wrong;

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The built-in defaults.
    Default,
    /// A configuration file.
    File(Arc<str>),
    /// An environment variable, by name.
    Variable(Arc<str>),
    /// A command-line flag, by name.
    Flag(Arc<str>),
    /// A text from outside this process: a request or a row.
    Elsewhere,
}

impl Origin {
    /// A configuration file.
    pub(super) fn file(path: &Path) -> Self {
        Self::File(path.display().to_string().into())
    }

    /// Whether all values are texts, so that numbers, booleans and lists have to be parsed from
    /// them.
    pub(super) fn is_text(&self) -> bool {
        matches!(self, Self::Variable(_) | Self::Flag(_))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(name) | Self::Variable(name) | Self::Flag(name) => f.write_str(name),
            Self::Elsewhere => f.write_str("elsewhere"),
        }
    }
}

/// A node of the tree.
#[derive(Clone, Debug)]
pub enum Node {
    /// Nodes by name.
    Table(BTreeMap<String, Node>),
    /// A list of nodes, and the source of the list.
    List(Vec<Node>, Origin),
    /// One value.
    Leaf(Leaf, Origin),
}

/// One value.
#[derive(Clone, Debug)]
pub enum Leaf {
    /// A text.
    Text(String),
    /// A whole number.
    Whole(i64),
    /// A number that is not a whole number.
    Fraction(f64),
    /// `true` or `false`.
    Switch(bool),
    /// `null`, in JSON.
    Nothing,
}

impl Node {
    /// A text.
    pub fn text(text: impl Into<String>, origin: Origin) -> Self {
        Self::Leaf(Leaf::Text(text.into()), origin)
    }

    /// Converts JSON from a request or a row.
    pub fn from_json(value: &Value) -> Self {
        let leaf = |leaf| Self::Leaf(leaf, Origin::Elsewhere);
        match value {
            Value::Null => leaf(Leaf::Nothing),
            Value::Bool(switch) => leaf(Leaf::Switch(*switch)),
            Value::String(text) => leaf(Leaf::Text(text.clone())),
            Value::Number(number) => leaf(match number.as_i64() {
                Some(whole) => Leaf::Whole(whole),
                None => Leaf::Fraction(number.as_f64().unwrap_or(f64::NAN)),
            }),
            Value::Array(items) => Self::List(
                items.iter().map(Self::from_json).collect(),
                Origin::Elsewhere,
            ),
            Value::Object(members) => {
                let member =
                    |(name, value): (&String, &Value)| (name.clone(), Self::from_json(value));
                Self::Table(members.iter().map(member).collect())
            }
        }
    }

    /// Converts TOML from a file.
    pub(super) fn from_toml(value: &toml::Value, origin: &Origin) -> Self {
        let leaf = |leaf| Self::Leaf(leaf, origin.clone());
        match value {
            toml::Value::String(text) => leaf(Leaf::Text(text.clone())),
            toml::Value::Integer(whole) => leaf(Leaf::Whole(*whole)),
            toml::Value::Float(fraction) => leaf(Leaf::Fraction(*fraction)),
            toml::Value::Boolean(switch) => leaf(Leaf::Switch(*switch)),
            toml::Value::Datetime(moment) => leaf(Leaf::Text(moment.to_string())),
            toml::Value::Array(items) => {
                let items = items.iter().map(|item| Self::from_toml(item, origin));
                Self::List(items.collect(), origin.clone())
            }
            toml::Value::Table(table) => {
                let part = |(name, value): (&String, &toml::Value)| {
                    (name.clone(), Self::from_toml(value, origin))
                };
                Self::Table(table.iter().map(part).collect())
            }
        }
    }

    /// Overrides this node with a later layer.
    pub(super) fn put_over(&mut self, later: Self) {
        match (self, later) {
            (Self::Table(table), Self::Table(later)) => {
                for (name, part) in later {
                    match table.get_mut(&name) {
                        Some(under) => under.put_over(part),
                        None => {
                            table.insert(name, part);
                        }
                    }
                }
            }
            (under, later) => *under = later,
        }
    }

    /// The node at a path.
    pub fn at(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |node, name| match node {
            Self::Table(table) => table.get(*name),
            Self::List(items, _) => items.get(name.parse::<usize>().ok()?),
            Self::Leaf(..) => None,
        })
    }

    /// The source of the node; for a table, the source of its first node.
    pub fn origin(&self) -> Option<&Origin> {
        match self {
            Self::Table(table) => table.values().find_map(Self::origin),
            Self::List(_, origin) | Self::Leaf(_, origin) => Some(origin),
        }
    }

    /// Converts the node into a type. Unknown fields are refused.
    ///
    /// # Errors
    /// The first setting that is not valid, with its source.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Wrong> {
        T::deserialize(self)
    }
}
