//! JSON Lines sink: writes events to a file or to standard output.
//!
//! Each line is a CloudEvents 1.0 event; readers deduplicate by `id`. A batch is one write and is
//! delivered when it is on disk. If a crash leaves an incomplete line, the line is ended when the
//! file is opened again. The reader then sees one invalid line, and its event is delivered again.

use std::{
    fmt,
    fs::{File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::future::BoxFuture;
use hapax::sink::{Offer, Outcome, Receipt, Sink, SinkError};

pub use crate::settings::FileSettings;
use crate::{
    format,
    limits::LINES_MAX,
    settings::{DestinationSettings, SettingError},
};

/// A JSON Lines sink.
#[derive(Clone)]
pub struct JsonLines {
    source: Arc<str>,
    place: Arc<Mutex<Output>>,
}

enum Output {
    File { file: File, torn: bool },
    Stdout,
}

impl JsonLines {
    /// Creates a sink: [`open`](Self::open) with a path, standard output if the path is `-`.
    ///
    /// # Errors
    /// Fails if the file cannot be opened, read or written.
    pub fn new(
        settings: &FileSettings,
        destination: &DestinationSettings,
    ) -> Result<Self, SettingError> {
        let (path, source) = (&settings.path, &destination.source);
        if path.as_os_str() == "-" {
            return Ok(Self::of(source, Output::Stdout));
        }
        Self::open(path, source).map_err(|error| {
            let problem = format!("{} cannot be used: {error}", path.display());
            SettingError::new("path", problem)
        })
    }

    /// Appends to the file at `path`. If the file does not exist, it is created with access for its
    /// owner only, because it contains payloads. To give others access, create the file beforehand.
    ///
    /// `source` is the CloudEvents source, such as `/shop`.
    ///
    /// # Errors
    /// Fails if the file cannot be opened, read or written.
    pub fn open(path: impl AsRef<Path>, source: &str) -> io::Result<Self> {
        let path = path.as_ref();
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(path)?;
        end_torn_line(&mut file)?;
        synced(file.sync_all())?;
        if let Some(directory) = path.parent().filter(|path| !path.as_os_str().is_empty()) {
            // Without this a power failure could lose the name of a new file.
            File::open(directory)?.sync_all()?;
        }
        let torn = false;
        Ok(Self::of(source, Output::File { file, torn }))
    }

    fn of(source: &str, place: Output) -> Self {
        Self {
            source: source.into(),
            place: Arc::new(Mutex::new(place)),
        }
    }
}

impl Sink for JsonLines {
    fn kind(&self) -> &'static str {
        "file"
    }

    fn deliver<'a>(&'a self, offers: &'a [Offer]) -> BoxFuture<'a, Vec<Outcome>> {
        let mut lines = Vec::new();
        for offer in offers {
            format::push_line(&mut lines, format::cloud_event(offer.event(), &self.source));
        }
        let place = Arc::clone(&self.place);
        Box::pin(async move {
            let written = tokio::task::spawn_blocking(move || {
                // A writer that panicked leaves at most an incomplete line, which is marked.
                let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
                place.write(&lines)
            });
            let failure = match written.await {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(Arc::new(error)),
                Err(stopped) => Some(Arc::new(io::Error::other(stopped))),
            };
            let outcome = |_| match &failure {
                None => Ok(Receipt::default()),
                Some(error) => Err(SinkError::unavailable("io", Arc::clone(error))),
            };
            offers.iter().map(outcome).collect()
        })
    }

    fn batch_max(&self) -> usize {
        LINES_MAX
    }
}

impl Output {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(lines)?;
                out.flush()
            }
            Self::File { file, torn } => {
                if *torn {
                    end_torn_line(file)?;
                }
                // Set before the write, so that any interruption leaves the mark.
                *torn = true;
                file.write_all(lines)?;
                *torn = false;
                synced(file.sync_data())
            }
        }
    }
}

impl fmt::Debug for JsonLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonLines")
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

/// A pipe or a device cannot be synced and reports the call as invalid.
fn synced(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        result => result,
    }
}

fn end_torn_line(file: &mut File) -> io::Result<()> {
    if file.metadata()?.len() == 0 {
        return Ok(());
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    if last == *b"\n" {
        Ok(())
    } else {
        file.write_all(b"\n")
    }
}
