//! `hapax config`: prints the settings and their sources, and checks them.

use std::process::ExitCode;

use serde::Serialize;
use serde_json::Value;

use super::{Again, Failure};
use crate::{
    admin, catalogue,
    config::{Config, DEFAULT, Layers, Wrong},
    destination,
    destination_set::{Declared, DestinationSet},
    environment,
    output::Output,
    portal,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Print every setting with its default and description
    #[command(after_help = "Example:\n  hapax config default > hapax.toml")]
    Default,
    /// Read all layers, keys and tokens, build the destinations, and report errors
    #[command(after_help = "Example:\n  hapax config check --config hapax.toml")]
    Check,
    /// Print the value and the source of every setting; secrets are printed as ***
    #[command(after_help = "Example:\n  hapax config show --config hapax.toml")]
    Show,
}

/// One setting.
#[derive(Debug, Serialize)]
pub(crate) struct Setting {
    name: String,
    value: Value,
    origin: String,
}

impl Setting {
    /// The setting as the console shows it.
    pub(crate) fn shown(self) -> hapax_console::Setting {
        hapax_console::Setting {
            value: said(&self.value),
            name: self.name,
            origin: self.origin,
        }
    }
}

/// A value in readable form.
fn said(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

pub(crate) fn run(args: &Args, again: &Again, output: Output) -> Result<ExitCode, Failure> {
    match args.what {
        What::Default => output.text(DEFAULT)?,
        What::Check => {
            let config = Config::of(&again.layers()?)?;
            config.database.place()?;
            admin::check(&config)?;
            catalogue::configured(&config)?;
            portal::check(&config)?;
            DestinationSet::new(environment::clock())
                .check(&Declared::in_configuration(&config))?;
            checked(&config, output)?;
        }
        What::Show => show(&settings(&again.layers()?)?, output)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints that the configuration can work, and what is probably not meant.
fn checked(config: &Config, output: Output) -> std::io::Result<()> {
    let of_one = |(name, spec): (&String, &destination::Spec)| {
        let found = destination::warnings(spec).into_iter();
        let named = found.map(|warning| format!("destinations.{name}.{warning}"));
        named.collect::<Vec<_>>()
    };
    let warnings: Vec<String> = config.destinations.iter().flat_map(of_one).collect();
    if output.json {
        return output.json(&serde_json::json!({ "ok": true, "warnings": warnings }));
    }
    for warning in &warnings {
        output.line(format_args!("warning: {warning}"))?;
    }
    let count = config.destinations.len();
    output.line(format_args!(
        "the configuration can work: destinations {count}"
    ))
}

/// The value of every setting; secrets are ***.
pub(crate) fn settings(layers: &Layers) -> Result<Vec<Setting>, Wrong> {
    let config = Config::of(layers)?;
    let tree = serde_json::to_value(&config)
        .map_err(|error| Wrong::at("configuration", error.to_string()))?;
    let mut settings = Vec::new();
    flatten(layers, &mut Vec::new(), &tree, &mut settings);
    Ok(settings)
}

fn flatten<'a>(
    layers: &Layers,
    path: &mut Vec<&'a str>,
    value: &'a Value,
    into: &mut Vec<Setting>,
) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                path.push(name);
                flatten(layers, path, value, into);
                path.pop();
            }
        }
        value => into.push(Setting {
            name: path.join("."),
            value: value.clone(),
            origin: layers.origin(path).to_string(),
        }),
    }
}

fn show(settings: &[Setting], output: Output) -> std::io::Result<()> {
    if output.json {
        return output.json(&settings);
    }
    let row = |setting: &Setting| {
        let Setting {
            name,
            value,
            origin,
        } = setting;
        [name.clone(), said(value), origin.clone()]
    };
    let rows: Vec<_> = settings.iter().map(row).collect();
    output.table(["SETTING", "VALUE", "FROM"], &rows)
}
