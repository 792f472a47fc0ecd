//! Static files: style, script and icon. They are part of the binary, named by their hash, and
//! cached by browsers without a limit.

use std::sync::LazyLock;

use axum::{
    extract::Path,
    response::{IntoResponse, Response},
};
use hapax::key::hex;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use crate::auth::hash;

/// The path of the static files.
pub(crate) const FOLDER: &str = "/console/assets/";

/// A static file.
pub(crate) struct Asset {
    /// The path.
    pub(crate) path: String,
    tag: String,
    kind: &'static str,
    text: &'static str,
}

/// The style sheet.
pub(crate) static STYLE: LazyLock<Asset> = LazyLock::new(|| {
    let text = include_str!("../assets/console.css");
    Asset::new("console", "css", "text/css; charset=utf-8", text)
});

/// The script: keyboard, live filter and live figures.
pub(crate) static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    let text = include_str!("../assets/console.js");
    Asset::new("console", "js", "text/javascript; charset=utf-8", text)
});

/// The favicon.
pub(crate) static ICON: LazyLock<Asset> = LazyLock::new(|| {
    let text = include_str!("../assets/icon.svg");
    Asset::new("icon", "svg", "image/svg+xml", text)
});

impl Asset {
    fn new(name: &str, end: &str, kind: &'static str, text: &'static str) -> Self {
        let tag = hex(&hash(text.as_bytes())[..8]);
        let path = format!("{FOLDER}{name}-{tag}.{end}");
        Self {
            path,
            tag: format!("\"{tag}\""),
            kind,
            text,
        }
    }

    /// The path of the file in another folder.
    pub(crate) fn path_in(&self, folder: &str) -> String {
        let name = self.path.strip_prefix(FOLDER).unwrap_or(&self.path);
        format!("{folder}{name}")
    }

    fn answer(&self, asked: &HeaderMap) -> Response {
        let tag = HeaderValue::from_str(&self.tag).expect("hex in quotes is a header");
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.kind));
        headers.insert(header::ETAG, tag.clone());
        let keep = HeaderValue::from_static("public, max-age=31536000, immutable");
        headers.insert(header::CACHE_CONTROL, keep);
        if asked.get(header::IF_NONE_MATCH) == Some(&tag) {
            return (StatusCode::NOT_MODIFIED, headers).into_response();
        }
        (headers, self.text).into_response()
    }
}

/// Serves a static file. A name with another hash belongs to another version.
pub(crate) async fn serve(Path(name): Path<String>, headers: HeaderMap) -> Response {
    let all = [&STYLE, &SCRIPT, &ICON];
    let found = all
        .into_iter()
        .find(|it| it.path.strip_prefix(FOLDER) == Some(name.as_str()));
    found.map_or_else(
        || StatusCode::NOT_FOUND.into_response(),
        |asset| asset.answer(&headers),
    )
}
