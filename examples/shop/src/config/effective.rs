//! The settings in force, as the console shows them: without secrets, each with its source.

use clap::{Arg, ArgAction};
use hapax_console::Setting;
use hapax_runtime::config::{Leaf, Node};

use super::{flags, settings::Settings};

/// Settings whose values are secrets. A value that contains `@` may hold a password as well.
const SECRET: [&str; 8] = [
    "database",
    "webhook.secret",
    "tokens",
    "console.tokens",
    "inbox.secrets",
    "portal.key",
    "portal.previous_key",
    "telemetry.otlp_headers",
];
/// What is shown in the place of a secret.
const HIDDEN: &str = "***";

/// All settings, in the order of `--help`.
pub(super) fn all(settings: &Settings) -> Vec<Setting> {
    let flags = flags::settings();
    flags.iter().map(|flag| effective(flag, settings)).collect()
}

fn effective(flag: &Arg, settings: &Settings) -> Setting {
    let name = flag.get_id().to_string();
    let node = settings.node(&name);
    let value = node.map_or_else(|| default(flag), |node| shown(&name, node));
    let origin = node.and_then(Node::origin).map(ToString::to_string);
    Setting {
        name,
        value,
        origin: origin.unwrap_or_else(|| "default".to_owned()),
    }
}

/// A value that was given.
fn shown(name: &str, node: &Node) -> String {
    let value = text(node);
    let is_file = name == "database" && value.starts_with("sqlite:");
    if (SECRET.contains(&name) && !is_file) || value.contains('@') {
        return HIDDEN.to_owned();
    }
    value
}

fn text(node: &Node) -> String {
    match node {
        Node::Leaf(Leaf::Text(text), _) => text.clone(),
        Node::Leaf(Leaf::Switch(switch), _) => switch.to_string(),
        Node::List(items, _) => items.iter().map(text).collect::<Vec<_>>().join(", "),
        // Tables hold secrets, and no setting has another kind of value.
        Node::Table(_) | Node::Leaf(..) => HIDDEN.to_owned(),
    }
}

/// The default that the help of a flag names. A flag without a value turns its setting off if its
/// name begins with `no-`, and on otherwise.
fn default(flag: &Arg) -> String {
    if matches!(flag.get_action(), ArgAction::SetTrue) {
        let is_off = flag.get_long().is_some_and(|long| long.starts_with("no-"));
        return is_off.to_string();
    }
    let help = flag.get_help().map(ToString::to_string);
    let help = help.unwrap_or_default();
    let default = help.split_once("[default: ").map(|(_, rest)| rest);
    default.unwrap_or_default().trim_end_matches(']').to_owned()
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn every_setting_is_shown_with_its_source_and_no_secret_is() {
        let arguments = [
            "shop",
            "--listen",
            "127.0.0.1:1",
            "--token",
            "s3cret=alice",
            "--smtp",
            "smtp://u:s3cret@mail",
            "--database",
            "postgres://host/shop?password=s3cret",
            "--webhook",
            "https://a.example/",
            "--webhook",
            "https://b.example/",
            "--no-relay",
        ];
        let environment = [("HAPAX__LOG__LEVEL".into(), "debug".into())];
        let config = Config::load(
            arguments.map(Into::into).into_iter(),
            environment.into_iter(),
        );
        let effective = config.unwrap().effective;
        let check = |name: &str, value: &str, origin: &str| {
            let it = effective.iter().find(|it| it.name == name).unwrap();
            assert_eq!(
                (it.value.as_str(), it.origin.as_str()),
                (value, origin),
                "{name}"
            );
        };
        check("listen", "127.0.0.1:1", "--listen");
        check("tokens", "***", "--token");
        check("smtp.url", "***", "--smtp");
        check("database", "***", "--database");
        check(
            "webhook.urls",
            "https://a.example/, https://b.example/",
            "--webhook",
        );
        check("relay", "false", "--no-relay");
        check("log.level", "debug", "HAPAX__LOG__LEVEL");
        check("idempotency.retention", "24h", "default");
        check("demo", "true", "default");
        check("store.pooled", "false", "default");
        check(
            "webhook.secret",
            "created, stored and printed once",
            "default",
        );
        assert!(!format!("{effective:?}").contains("s3cret"));
        let names: Vec<_> = effective.iter().map(|it| it.name.clone()).collect();
        assert_eq!(names, super::flags::keys());
    }
}
