//! Tenant from an API key, which the gateway knows only by its hash.
//!
//! A key has a visible part, which finds its entry, and 256 random bits, so that a plain SHA-256
//! protects it: there is nothing to guess. The hash of the whole key is compared in constant time.
//! A tenant may have several keys, an entry may expire or be disabled, and a file of entries is
//! read again when it changes. A file that is not valid changes nothing: the entries before it
//! stay.

mod entry;
mod key;
mod refusal;
mod reload;
mod table;

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use hapax::{Clock, key::Tenant};
use hapax_runtime::config::Span;
use http::{HeaderMap, HeaderName};
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

pub use entry::ApiKeyEntry;
pub use key::{KEY_PREFIX, NewApiKey};
pub use refusal::ApiKeyRefusal;

use self::table::Table;
use super::jwt::{Bearer, bearer};

/// API keys, in the configuration, in a file, or in both.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ApiKeySettings {
    /// The header of the key. Without it, the key is a bearer token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// The entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<ApiKeyEntry>,
    /// A file of further entries, as `[[keys]]` in TOML.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// How often the file is read again.
    #[serde(default = "refresh")]
    pub refresh: Span,
}

fn refresh() -> Span {
    Span(Duration::from_secs(10))
}

impl Default for ApiKeySettings {
    fn default() -> Self {
        Self {
            header: None,
            keys: Vec::new(),
            file: None,
            refresh: refresh(),
        }
    }
}

impl ApiKeySettings {
    /// Checks the settings and the file. A runtime is not needed.
    ///
    /// # Errors
    /// Fails if they are not valid. The text continues a sentence that begins with the name of the
    /// section.
    pub fn check(&self) -> Result<(), String> {
        prepare(self).map(drop)
    }
}

/// The header, the content of the file, and the table.
fn prepare(settings: &ApiKeySettings) -> Result<(Option<HeaderName>, String, Table), String> {
    let header = match &settings.header {
        None => None,
        Some(name) => {
            let parsed = name.parse::<HeaderName>();
            let parsed = parsed
                .map_err(|_| format!("header: expected the name of a header, got {name:?}"))?;
            Some(parsed)
        }
    };
    if settings.keys.is_empty() && settings.file.is_none() {
        return Err("has to contain keys or file".to_owned());
    }
    if settings.refresh.0.is_zero() {
        return Err("refresh: expected more than 0".to_owned());
    }
    let (content, table) = reload::read(settings)?;
    Ok((header, content, table))
}

/// Finds the tenant of an API key.
pub struct ApiKeys {
    header: Option<HeaderName>,
    table: Arc<RwLock<Arc<Table>>>,
    reloading: Option<JoinHandle<()>>,
    clock: Clock,
}

impl ApiKeys {
    /// Creates the table, and starts the task that reads its file again. With a file, it has to be
    /// called in a runtime.
    ///
    /// # Errors
    /// Fails if the settings or the file are not valid. The text continues a sentence that begins
    /// with the name of the section.
    pub fn new(settings: &ApiKeySettings, clock: Clock) -> Result<Self, String> {
        let (header, content, first) = prepare(settings)?;
        let table = Arc::new(RwLock::new(Arc::new(first)));
        let reloading = settings.file.as_ref().map(|_| {
            let task = reload::run(settings.clone(), content, Arc::clone(&table));
            tokio::spawn(task)
        });
        Ok(Self {
            header,
            table,
            reloading,
            clock,
        })
    }

    /// Returns the tenant of a request.
    ///
    /// # Errors
    /// Fails if the request has no valid key.
    pub fn tenant(&self, headers: &HeaderMap) -> Result<Tenant, ApiKeyRefusal> {
        let key = match &self.header {
            None => match bearer(headers) {
                Bearer::Token(key) => key,
                Bearer::Missing => return Err(ApiKeyRefusal::Missing),
                Bearer::Invalid => return Err(ApiKeyRefusal::Header),
            },
            Some(name) => {
                let mut values = headers.get_all(name).iter();
                let value = values.next().ok_or(ApiKeyRefusal::Missing)?;
                if values.next().is_some() {
                    return Err(ApiKeyRefusal::Header);
                }
                value.to_str().map_err(|_| ApiKeyRefusal::Unknown)?
            }
        };
        let table = Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner));
        table.find(key, self.clock.now())
    }

    /// The header of the key, which must not reach the service. `None`: `Authorization`.
    pub fn header(&self) -> Option<&HeaderName> {
        self.header.as_ref()
    }

    /// The number of keys, with those that are expired or disabled.
    pub fn count(&self) -> usize {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.count()
    }
}

impl Drop for ApiKeys {
    fn drop(&mut self) {
        if let Some(task) = &self.reloading {
            task.abort();
        }
    }
}

impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiKeys")
            .field("header", &self.header)
            .field("count", &self.count())
            .finish_non_exhaustive()
    }
}
