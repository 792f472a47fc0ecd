//! The job that makes thumbnails: a handler that accepts each `file.uploaded` event once.
//!
//! The handler decodes the image before its transaction. The transaction then writes the
//! thumbnails, the upload's new state and the inbox row in one commit. If the process crashes
//! before the commit, the retry makes the thumbnails again; if it crashes later, the retry finds
//! the inbox row. If an image cannot be decoded, the handler records the upload as failed,
//! permanently. If the file is missing, the event is retried on the destination's schedule, and
//! then becomes a dead letter.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use hapax::{
    event::Event,
    failpoint::Failpoints,
    key::KeyError,
    request_log::RequestLog,
    sink::{Offer, Outcome, Sink},
    store::{Keys, Transaction},
};
use hapax_sinks::handler::{Handler, HandlerError};
use serde::Deserialize;
use tokio::{sync::Semaphore, task::spawn_blocking};

use super::{
    folder::Folder,
    header::Format,
    thumbnail::{self, NoThumbnails, Thumbnail},
};
use crate::database::{Database, Rows as _, params, query};

/// The most images decoded at the same time; each may take a few hundred megabytes.
pub(crate) const DECODED: usize = 2;
/// The job's name as a consumer, which its inbox rows contain.
const CONSUMER: &str = "thumbnails";

/// The part of an event's payload that the job needs.
#[derive(Debug, Deserialize)]
struct Uploaded {
    upload_id: String,
}

/// The result of the job.
enum Made {
    Thumbnails(Vec<Thumbnail>),
    Failed(String),
    /// The upload is already finished.
    Nothing,
}

/// Returns the sink that makes thumbnails of the files in `folder`.
pub(crate) fn sink<D: Database>(
    store: D,
    folder: Folder,
    failpoints: Failpoints,
    log: RequestLog,
) -> Result<Arc<dyn Sink>, KeyError> {
    let (rows, before) = (store.clone(), failpoints.clone());
    let decoding = Arc::new(Semaphore::new(DECODED));
    let handler = Handler::prepared(
        store,
        CONSUMER,
        move |event| {
            let (rows, folder) = (rows.clone(), folder.clone());
            let decoding = Arc::clone(&decoding);
            Box::pin(async move { prepare(&rows, &folder, decoding, event).await })
        },
        move |tx: &mut D::Tx, event, made| {
            let before = before.clone();
            Box::pin(async move {
                write::<D>(tx, event, made).await?;
                before.hit("thumbnails.before");
                Ok(())
            })
        },
    )?;
    Ok(Arc::new(Watched {
        handler: handler.log(log),
        failpoints,
    }))
}

/// Reads the upload and makes its thumbnails, outside the transaction.
async fn prepare<D: Database>(
    rows: &D,
    folder: &Folder,
    decoding: Arc<Semaphore>,
    event: &Event,
) -> Result<Made, HandlerError> {
    let id = upload_of(event)?;
    let found = rows.select(query::UPLOAD_FIND, params![id.clone()]).await;
    let found = found.map_err(HandlerError::again)?.pop();
    let mut row = found.ok_or_else(|| HandlerError::never(format!("upload {id} is missing")))?;
    let mut text = |column| row.text(column).map_err(HandlerError::never);
    let (sha256, content_type, state) = (text("sha256")?, text("content_type")?, text("state")?);
    if state != "pending" {
        return Ok(Made::Nothing);
    }
    let format = Format::of(&content_type);
    let format = format.ok_or_else(|| HandlerError::never(format!("{content_type}: unknown")))?;
    let slot = decoding
        .acquire_owned()
        .await
        .map_err(HandlerError::again)?;
    let file = folder.file(&sha256);
    let making = spawn_blocking(move || {
        // A decoder cannot be cancelled, so it holds its slot until it ends, even if the caller
        // stops waiting.
        let _slot = slot;
        thumbnail::make(&file, format)
    });
    match making.await.map_err(HandlerError::again)? {
        Ok(made) => Ok(Made::Thumbnails(made)),
        Err(NoThumbnails::Failed(reason)) => Ok(Made::Failed(reason)),
        Err(NoThumbnails::Unread(error)) => Err(HandlerError::again(Unread {
            file: sha256,
            source: error,
        })),
    }
}

/// Writes the result of the job.
async fn write<D: Database>(tx: &mut D::Tx, event: &Event, made: Made) -> Result<(), HandlerError> {
    let id = upload_of(event)?;
    let (state, reason) = match made {
        Made::Nothing => return record(tx, "nothing: the upload is finished"),
        Made::Failed(reason) => ("failed", Some(reason)),
        Made::Thumbnails(made) => {
            for thumbnail in made {
                let row = params![
                    id.clone(),
                    i64::from(thumbnail.size),
                    i64::from(thumbnail.width),
                    i64::from(thumbnail.height),
                    thumbnail.sha256,
                    thumbnail.content,
                ];
                let written = tx.execute(query::THUMBNAIL_INSERT, row).await;
                written.map_err(HandlerError::again)?;
            }
            ("ready", None)
        }
    };
    let row = params![id, state.to_owned(), reason];
    let written = tx.execute(query::UPLOAD_FINISH, row).await;
    written.map_err(HandlerError::again)?;
    record(tx, state)
}

/// Records the result of the message.
fn record(tx: &mut impl Transaction, result: &str) -> Result<(), HandlerError> {
    tx.record_result(result).map_err(HandlerError::never)
}

fn upload_of(event: &Event) -> Result<String, HandlerError> {
    let uploaded: Result<Uploaded, _> = serde_json::from_slice(event.payload.bytes());
    uploaded
        .map(|uploaded| uploaded.upload_id)
        .map_err(HandlerError::never)
}

#[derive(Debug, thiserror::Error)]
#[error("cannot read uploaded file {file}: check that this is the data directory it is in")]
struct Unread {
    file: String,
    source: std::io::Error,
}

/// A handler with a failpoint after its commit.
#[derive(Debug)]
struct Watched<K: Keys> {
    handler: Handler<K>,
    failpoints: Failpoints,
}

impl<K: Keys> Sink for Watched<K> {
    fn kind(&self) -> &'static str {
        self.handler.kind()
    }

    fn deliver<'a>(&'a self, offers: &'a [Offer]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            let outcomes = self.handler.deliver(offers).await;
            self.failpoints.hit("thumbnails.after");
            outcomes
        })
    }
}
