//! Reading a key set from its URL or its file, once.
//!
//! The request goes through the guard of the webhook sink: only to the public internet and to the
//! networks that are allowed, without redirects and proxies, and with a bounded response.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use hapax_sinks::{
    resolve::Resolver,
    webhook::{Document, DocumentError, DocumentSettings},
};
use tokio::task::{JoinError, spawn_blocking};

use super::{
    JwksSettings,
    set::{KeySet, KeySetError},
};

/// Maximum size of a key set in bytes: 64 RSA keys of 8192 bits with their certificates.
const SET_BYTES_MAX: usize = 512 * 1024;

/// Where a key set is read from.
pub(super) enum Source {
    File(PathBuf),
    Url(Box<Document>),
}

/// Why a key set was not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("the read has taken too long")]
    Timeout,
    #[error("the file cannot be read")]
    File(#[source] io::Error),
    #[error("the file is larger than {SET_BYTES_MAX} bytes")]
    TooLarge,
    #[error("the task that reads the file has failed")]
    Task(#[source] JoinError),
    #[error("the URL cannot be read")]
    Url(#[source] DocumentError),
    #[error("the content is not a valid key set")]
    Content(#[source] KeySetError),
}

impl Source {
    pub(super) fn new(settings: &JwksSettings) -> Result<Self, String> {
        match (&settings.url, &settings.file) {
            (None, Some(file)) => Ok(Self::File(file.clone())),
            (Some(url), None) => {
                let document = Document::new(DocumentSettings {
                    url,
                    allow: settings.allow.clone(),
                    ca: settings.ca.as_deref(),
                    timeout: settings.timeout.0,
                    bytes_max: SET_BYTES_MAX,
                    resolver: Resolver::system(),
                });
                let document = document.map_err(|error| error.to_string())?;
                Ok(Self::Url(Box::new(document)))
            }
            _ => Err("url: expected either url or file".to_owned()),
        }
    }

    pub(super) async fn read(&self) -> Result<KeySet, ReadError> {
        let content = match self {
            Self::Url(document) => document.get().await.map_err(ReadError::Url)?.to_vec(),
            Self::File(path) => {
                let path = path.clone();
                let read = spawn_blocking(move || read_file(&path));
                read.await.map_err(ReadError::Task)??
            }
        };
        KeySet::parse(&content).map_err(ReadError::Content)
    }
}

/// Reads a regular file. A pipe would block the thread.
fn read_file(path: &Path) -> Result<Vec<u8>, ReadError> {
    if !fs::metadata(path).map_err(ReadError::File)?.is_file() {
        let error = io::Error::new(io::ErrorKind::InvalidInput, "expected a regular file");
        return Err(ReadError::File(error));
    }
    let mut content = Vec::new();
    let file = File::open(path).map_err(ReadError::File)?;
    file.take(SET_BYTES_MAX as u64 + 1)
        .read_to_end(&mut content)
        .map_err(ReadError::File)?;
    if content.len() > SET_BYTES_MAX {
        return Err(ReadError::TooLarge);
    }
    Ok(content)
}
