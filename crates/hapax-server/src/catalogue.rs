//! The event catalogue of the configuration: read at the start, and served as a public page.

use std::{collections::BTreeSet, fs::File, io::Read as _, path::Path};

use axum::Router;
use hapax::{catalogue::Catalogue, limits::CATALOGUE_BYTES_MAX};

use crate::config::{Config, Wrong};

/// Reads and checks a catalogue. An error says what is wrong with the file.
pub(crate) fn read(path: &Path) -> Result<Catalogue, String> {
    let cannot = |error: std::io::Error| format!("{} cannot be read: {error}", path.display());
    // One byte more than is allowed, so that a larger file is refused.
    let most = u64::try_from(CATALOGUE_BYTES_MAX).unwrap_or(u64::MAX);
    let mut text = String::new();
    let file = File::open(path).map_err(cannot)?;
    let read = file.take(most.saturating_add(1)).read_to_string(&mut text);
    read.map_err(cannot)?;
    Catalogue::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Reads the catalogue of the configuration, if there is one.
pub(crate) fn configured(config: &Config) -> Result<Option<Catalogue>, Wrong> {
    let Some(path) = &config.catalogue.file else {
        return Ok(None);
    };
    let catalogue = read(path).map_err(|problem| Wrong::at("catalogue.file", problem))?;
    Ok(Some(catalogue))
}

/// The routes of the public page; none without a catalogue.
pub(crate) fn router(config: &Config) -> Result<Router, Wrong> {
    let flags: BTreeSet<String> = config.catalogue.flags.iter().cloned().collect();
    let catalogue = configured(config)?;
    Ok(catalogue.map_or_else(Router::new, |catalogue| {
        hapax_console::catalogue::router(&catalogue, &flags)
    }))
}
