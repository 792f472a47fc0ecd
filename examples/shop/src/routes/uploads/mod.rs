//! Routes of uploads: store an image, read its state, fetch its thumbnails.
//!
//! The file is on disk before its row is committed. It is named by the hash of its content, so a
//! request that runs twice stores it once. The event that is committed with the row starts the job:
//! `uploads::job` makes the thumbnails and changes the state from `pending` to `ready` or `failed`.

mod form;

use std::sync::Arc;

use axum::{
    Extension,
    body::Body,
    extract::State,
    response::{IntoResponse as _, Response},
};
use hapax::{Timestamp, event::NewEvent, key::Tenant, store::StoreError};
use hapax_http::{Json, Path, Query, problem::Problem};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};

use super::Shop;
use crate::{
    database::{Database, Row, Rows as _, params, query},
    ids::written,
    members::{self, NoQuery},
    uploads::{SIZES, Stored},
};

/// The `Retry-After` while the thumbnails are being made.
const PENDING: std::time::Duration = std::time::Duration::from_secs(1);

/// An upload in a response.
#[derive(Debug, Serialize)]
struct Upload {
    id: String,
    name: String,
    bytes: i64,
    sha256: String,
    content_type: String,
    width: i64,
    height: i64,
    state: String,
    /// The reason for the state `failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Absent in the response to `POST /uploads`.
    #[serde(skip_serializing_if = "Option::is_none")]
    thumbnails: Option<Vec<Listed>>,
    created_at: String,
}

/// A thumbnail in the list of an upload.
#[derive(Debug, Serialize)]
struct Listed {
    size: i64,
    path: String,
    width: i64,
    height: i64,
    bytes: i64,
}

#[derive(Debug, Serialize)]
struct Uploaded<'a> {
    upload_id: &'a str,
    name: &'a str,
    bytes: i64,
    sha256: &'a str,
    content_type: &'a str,
    width: i64,
    height: i64,
}

/// The path parameters of a thumbnail.
#[derive(Debug, Deserialize)]
pub(super) struct Wanted {
    id: String,
    size: String,
}

/// `POST /uploads`.
pub(super) async fn create<D: Database>(
    State(shop): State<Arc<Shop<D>>>,
    Extension(tenant): Extension<Tenant>,
    Query(NoQuery {}): Query<NoQuery>,
    headers: HeaderMap,
    mut tx: hapax_http::Tx<D::Tx>,
    body: Body,
) -> Result<Response, Problem> {
    let (name, stored) = form::receive(&shop.uploads, &headers, body).await?;
    shop.failpoints.hit("uploads.stored");
    let now = shop.ids.now();
    let upload = Upload::of(shop.ids.mint("upl"), name, stored, now);
    let row = params![
        upload.id.clone(),
        tenant.as_str().to_owned(),
        upload.name.clone(),
        upload.bytes,
        upload.sha256.clone(),
        upload.content_type.clone(),
        upload.width,
        upload.height,
        now.as_millis(),
    ];
    tx.execute(query::UPLOAD_INSERT, row).await?;
    tx.emit(upload.event())?;
    let location = format!("/uploads/{}", upload.id);
    let mut response = (StatusCode::CREATED, Json(upload)).into_response();
    super::locate(&mut response, &location);
    Ok(response)
}

/// `GET /uploads/{id}`.
pub(super) async fn read<D: Database>(
    State(shop): State<Arc<Shop<D>>>,
    Extension(tenant): Extension<Tenant>,
    Path(id): Path<String>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Response, Problem> {
    let mut upload = find(&shop, &tenant, id).await?;
    // The state is read before the thumbnails, so a ready upload lists all of them.
    let mut thumbnails = Vec::new();
    if upload.state == "ready" {
        let key = params![upload.id.clone()];
        let rows = shop.store.select(query::THUMBNAIL_LIST, key).await?;
        let listed = rows.iter().map(|row| Listed::read(&upload.id, row));
        thumbnails = listed.collect::<Result<_, _>>()?;
    }
    upload.thumbnails = Some(thumbnails);
    Ok(Json(upload).into_response())
}

/// `GET /uploads/{id}/thumbnails/{size}`.
pub(super) async fn thumbnail<D: Database>(
    State(shop): State<Arc<Shop<D>>>,
    Extension(tenant): Extension<Tenant>,
    Path(Wanted { id, size }): Path<Wanted>,
    Query(NoQuery {}): Query<NoQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let size = SIZES.into_iter().find(|known| known.to_string() == size);
    let size = size.ok_or_else(Problem::not_found)?;
    let upload = find(&shop, &tenant, id).await?;
    match upload.state.as_str() {
        "pending" => {
            return Err(Problem::not_found()
                .detail("the thumbnail is not ready yet")
                .retry_after(PENDING));
        }
        "failed" => return Err(Problem::not_found().detail("the upload failed: no thumbnails")),
        _ => {}
    }
    let key = params![upload.id, i64::from(size)];
    let rows = shop.store.select(query::THUMBNAIL_SELECT, key).await?;
    let mut row = rows.into_iter().next().ok_or_else(Problem::not_found)?;
    let tag = format!("\"{}\"", row.text("sha256")?);
    let mut response = if is_known(&headers, &tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let content_type = HeaderValue::from_str(&upload.content_type);
        let content_type = content_type.map_err(Problem::internal)?;
        (
            [(header::CONTENT_TYPE, content_type)],
            row.bytes("content")?,
        )
            .into_response()
    };
    let lasting = [
        (header::ETAG, HeaderValue::from_str(&tag)),
        // A thumbnail never changes, and belongs to one tenant.
        (
            header::CACHE_CONTROL,
            HeaderValue::from_str("private, max-age=31536000, immutable"),
        ),
        // The file is untrusted, so browsers must not guess its type.
        (
            header::X_CONTENT_TYPE_OPTIONS,
            HeaderValue::from_str("nosniff"),
        ),
    ];
    for (name, value) in lasting {
        let value = value.expect("a hash and two words are visible ASCII");
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}

async fn find<D: Database>(shop: &Shop<D>, tenant: &Tenant, id: String) -> Result<Upload, Problem> {
    members::id(&id)?;
    let key = params![tenant.as_str().to_owned(), id];
    let rows = shop.store.select(query::UPLOAD_SELECT, key).await?;
    let row = rows.into_iter().next().ok_or_else(Problem::not_found)?;
    Ok(Upload::read(row)?)
}

/// Returns whether `If-None-Match` contains this tag.
fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let sent = headers.get_all(header::IF_NONE_MATCH);
    sent.iter().filter_map(|it| it.to_str().ok()).any(|it| {
        let mut tags = it.split(',').map(str::trim);
        tags.any(|it| it == "*" || it.trim_start_matches("W/") == tag)
    })
}

impl Upload {
    fn of(id: String, name: String, stored: Stored, now: Timestamp) -> Self {
        let header = stored.header;
        Self {
            id,
            name,
            bytes: i64::try_from(stored.bytes).unwrap_or(i64::MAX),
            sha256: stored.sha256,
            content_type: header.format.content_type().to_owned(),
            width: header.width.into(),
            height: header.height.into(),
            state: "pending".to_owned(),
            reason: None,
            thumbnails: None,
            created_at: written(now),
        }
    }

    fn read(mut row: Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.text("id")?,
            name: row.text("name")?,
            bytes: row.integer("bytes")?,
            sha256: row.text("sha256")?,
            content_type: row.text("content_type")?,
            width: row.integer("width")?,
            height: row.integer("height")?,
            state: row.text("state")?,
            reason: row.maybe_text("reason")?,
            thumbnails: None,
            created_at: written(Timestamp::from_millis(row.integer("created_at")?)),
        })
    }

    fn event(&self) -> NewEvent {
        let uploaded = Uploaded {
            upload_id: &self.id,
            name: &self.name,
            bytes: self.bytes,
            sha256: &self.sha256,
            content_type: &self.content_type,
            width: self.width,
            height: self.height,
        };
        NewEvent::json("file.uploaded", &uploaded).about("upload", self.id.clone())
    }
}

impl Listed {
    fn read(upload: &str, row: &Row) -> Result<Self, StoreError> {
        let size = row.integer("size")?;
        Ok(Self {
            size,
            path: format!("/uploads/{upload}/thumbnails/{size}"),
            width: row.integer("width")?,
            height: row.integer("height")?,
            bytes: row.integer("bytes")?,
        })
    }
}
