//! The job that makes thumbnails: a function that takes `file.uploaded`, once.
//!
//! Decoding stands before the transaction, which then writes what was made:
//! the thumbnails, the upload's new state and the inbox row are one commit. A
//! crash before it makes them again, a crash after it finds the inbox row. A
//! picture that cannot be decoded has failed for good, and that is an outcome,
//! written down like any other; a file that is not there is asked for again on
//! the destination's schedule, and then a dead letter.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use hapax::{
    event::Event,
    failpoint::Failpoints,
    key::KeyError,
    sink::{Offer, Outcome, Sink},
    store::Keys,
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

/// Pictures that are decoded at once: each may take a few hundred megabytes.
pub(crate) const DECODED: usize = 2;
/// The name under which events are taken; the inbox knows it.
const CONSUMER: &str = "thumbnails";

/// What is read of an event.
#[derive(Debug, Deserialize)]
struct Uploaded {
    upload_id: String,
}

/// What came of an upload.
enum Made {
    Thumbnails(Vec<Thumbnail>),
    Failed(String),
    /// It was seen to before.
    Nothing,
}

/// Makes thumbnails of what is uploaded to `folder`.
pub(crate) fn sink<D: Database>(
    store: D,
    folder: Folder,
    failpoints: Failpoints,
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
        handler,
        failpoints,
    }))
}

/// Looks at the upload, and makes what is to be written about it.
async fn prepare<D: Database>(
    rows: &D,
    folder: &Folder,
    decoding: Arc<Semaphore>,
    event: &Event,
) -> Result<Made, HandlerError> {
    let id = upload_of(event)?;
    let found = rows.select(query::UPLOAD_FIND, params![id.clone()]).await;
    let found = found.map_err(HandlerError::again)?.pop();
    let mut row = found.ok_or_else(|| HandlerError::never(format!("there is no upload {id}")))?;
    let mut text = |column| row.text(column).map_err(HandlerError::never);
    let (sha256, content_type, state) = (text(0)?, text(1)?, text(2)?);
    if state != "pending" {
        return Ok(Made::Nothing);
    }
    let format = Format::of(&content_type);
    let format = format.ok_or_else(|| HandlerError::never(format!("{content_type} is new")))?;
    let slot = decoding
        .acquire_owned()
        .await
        .map_err(HandlerError::again)?;
    let file = folder.file(&sha256);
    let making = spawn_blocking(move || {
        // A decoder cannot be stopped: its place is taken until it ends, whoever still waits.
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

/// Writes down what came of the upload.
async fn write<D: Database>(tx: &mut D::Tx, event: &Event, made: Made) -> Result<(), HandlerError> {
    let id = upload_of(event)?;
    let (state, reason) = match made {
        Made::Nothing => return Ok(()),
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
    written.map(drop).map_err(HandlerError::again)
}

fn upload_of(event: &Event) -> Result<String, HandlerError> {
    let uploaded: Result<Uploaded, _> = serde_json::from_slice(event.payload.bytes());
    uploaded
        .map(|uploaded| uploaded.upload_id)
        .map_err(HandlerError::never)
}

#[derive(Debug, thiserror::Error)]
#[error("upload's file {file} cannot be read: is this the data directory it was stored in?")]
struct Unread {
    file: String,
    source: std::io::Error,
}

/// A handler whose commits a test can see from outside.
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
