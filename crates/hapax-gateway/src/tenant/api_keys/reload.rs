//! Reading the file of API keys, and reading it again.
//!
//! The content is compared, not the time of the file, so that a replaced file is never missed. A
//! file that cannot be read or is not valid is logged, and the keys before it stay in use.

use std::{
    fs::{self, File},
    io::Read as _,
    path::Path,
    sync::{Arc, PoisonError, RwLock},
};

use serde::Deserialize;
use tokio::{task::spawn_blocking, time::sleep};

use super::{ApiKeySettings, entry::ApiKeyEntry, table::Table};

/// Maximum size of the file in bytes.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The content of the file.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    #[serde(default)]
    keys: Vec<ApiKeyEntry>,
}

/// Reads the file and builds the table of all keys. The first value is the content of the file.
pub(super) fn read(settings: &ApiKeySettings) -> Result<(String, Table), String> {
    let text = match &settings.file {
        Some(path) => read_file(path).map_err(|problem| format!("file: {problem}"))?,
        None => String::new(),
    };
    let table = build(settings, &text)?;
    Ok((text, table))
}

/// Reads the file again and again. A table with a changed content replaces the one before.
pub(super) async fn run(
    settings: ApiKeySettings,
    mut content: String,
    table: Arc<RwLock<Arc<Table>>>,
) {
    let Some(path) = settings.file.clone() else {
        return;
    };
    let mut last_problem = String::new();
    loop {
        sleep(settings.refresh.0).await;
        let path = path.clone();
        let Ok(read) = spawn_blocking(move || read_file(&path)).await else {
            continue;
        };
        let built = match read {
            Ok(text) if text == content => Ok(None),
            Ok(text) => build(&settings, &text).map(|built| Some((text, built))),
            Err(problem) => Err(problem),
        };
        match built {
            Ok(changed) => {
                last_problem.clear();
                if let Some((text, built)) = changed {
                    let keys = built.count();
                    tracing::info!(keys, "the file of API keys was read again");
                    content = text;
                    *table.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(built);
                }
            }
            // A problem that lasts is logged once.
            Err(problem) if problem != last_problem => {
                let error = problem.as_str();
                tracing::error!(
                    error,
                    "the file of API keys is not used; the last keys stay"
                );
                last_problem = problem;
            }
            Err(_) => {}
        }
    }
}

fn build(settings: &ApiKeySettings, text: &str) -> Result<Table, String> {
    // The message of the parser quotes the line, which may contain a hash.
    let content: Content =
        toml::from_str(text).map_err(|error| format!("file: {}", error.message()))?;
    Table::new(settings.keys.iter().chain(&content.keys))
}

/// Reads a regular file. A pipe would block the thread.
fn read_file(path: &Path) -> Result<String, String> {
    let unreadable = |error| format!("cannot be read: {error}");
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err("expected a regular file".to_owned());
    }
    let mut text = String::new();
    let file = File::open(path).map_err(unreadable)?;
    let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    if read.map_err(unreadable)? as u64 > FILE_BYTES_MAX {
        return Err(format!("is larger than {FILE_BYTES_MAX} bytes"));
    }
    Ok(text)
}
