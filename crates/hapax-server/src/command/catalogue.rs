//! `hapax catalogue`: checks an event catalogue, and prints it in other formats.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::ExitCode,
};

use hapax::{catalogue::Catalogue, operational};
use serde_json::json;

use super::Failure;
use crate::{catalogue, output::Output};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Check a catalogue: its schemas, its references and its examples
    #[command(after_help = "Example:\n  hapax catalogue check catalogue.json")]
    Check {
        /// File with the catalogue, in JSON
        file: PathBuf,
    },
    /// Print a catalogue as OpenAPI 3.1, with the events as webhooks
    #[command(after_help = "Example:\n  hapax catalogue openapi catalogue.json > openapi.json")]
    Openapi(Export),
    /// Print a catalogue as AsyncAPI 3.0, for receivers at a broker
    #[command(after_help = "Example:\n  hapax catalogue asyncapi catalogue.json > asyncapi.json")]
    Asyncapi(Export),
    /// Print a catalogue as an HTML page
    #[command(
        after_help = "Example:\n  hapax catalogue page catalogue.json --flag beta > events.html"
    )]
    Page(Export),
    /// Print the catalogue of the operational events, whose `events` can be added to another one
    #[command(after_help = "Example:\n  hapax catalogue operational > operational.json")]
    Operational {
        /// Prefix of the types, as in `[operational_events]`
        #[arg(long, value_name = "TEXT", default_value = operational::PREFIX)]
        prefix: String,
    },
}

#[derive(Debug, clap::Args)]
struct Export {
    /// File with the catalogue, in JSON
    file: PathBuf,
    /// Include the event types with this flag; repeat it for several
    #[arg(long = "flag", value_name = "FLAG")]
    flags: Vec<String>,
}

impl Export {
    fn read(&self) -> Result<(Catalogue, BTreeSet<String>), Failure> {
        let flags = self.flags.iter().cloned().collect();
        Ok((read(&self.file)?, flags))
    }
}

pub(crate) fn run(args: &Args, output: Output) -> Result<ExitCode, Failure> {
    match &args.verb {
        Verb::Check { file } => {
            let catalogue = read(file)?;
            let types = catalogue.types();
            let versions: usize = types.iter().map(|event| event.versions.len()).sum();
            if output.json {
                let counts = json!({"ok": true, "types": types.len(), "versions": versions});
                output.json(&counts)?;
            } else {
                let types = types.len();
                output.line(format_args!(
                    "the catalogue is valid: types {types}, versions {versions}"
                ))?;
            }
        }
        Verb::Openapi(export) => {
            let (catalogue, flags) = export.read()?;
            output.json(&catalogue.open_api(&flags))?;
        }
        Verb::Asyncapi(export) => {
            let (catalogue, flags) = export.read()?;
            output.json(&catalogue.async_api(&flags))?;
        }
        Verb::Page(export) => {
            let (catalogue, flags) = export.read()?;
            output.text(&hapax_console::catalogue::page(&catalogue, &flags))?;
        }
        Verb::Operational { prefix } => output.json(&operational::catalogue(prefix))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn read(file: &Path) -> Result<Catalogue, Failure> {
    catalogue::read(file).map_err(|problem| Failure::from(anyhow::anyhow!(problem)))
}
