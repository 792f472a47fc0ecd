//! A response that was recorded from the shop and is sent by the reference services.
//!
//! All services send the same status, headers and body, so they differ only in the work that they
//! do for it.

use std::{fs, path::Path};

use anyhow::Context as _;
use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

/// A recorded response.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    /// Reads a file that contains status line, headers and body as they were received.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let end = end.context("the recorded response has no empty line after its headers")?;
        let mut lines = str::from_utf8(&bytes[..end])?.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1));
        let status = StatusCode::from_bytes(status.unwrap_or_default().as_bytes())?;
        let mut headers = HeaderMap::new();
        for line in lines {
            let (name, value) = line
                .split_once(": ")
                .context("a recorded header has no colon")?;
            let name = HeaderName::try_from(name)?;
            // The server adds these two itself.
            if name != header::DATE && name != header::CONTENT_LENGTH {
                headers.append(name, HeaderValue::try_from(value)?);
            }
        }
        Ok(Self {
            status,
            headers,
            body: Bytes::from(bytes).slice(end + 4..),
        })
    }

    /// The response with only these headers: as a handler returns it, before its layers add theirs.
    pub(crate) fn of_handler(mut self, own: &[HeaderName]) -> Self {
        let named = self.headers.into_iter();
        let kept = named.filter_map(|(name, value)| Some((name?, value)));
        self.headers = kept.filter(|(name, _)| own.contains(name)).collect();
        self
    }

    /// The body.
    pub(crate) fn body(&self) -> &Bytes {
        &self.body
    }

    /// The response, with the recorded body.
    pub(crate) fn respond(&self) -> Response {
        self.respond_with(self.body.clone())
    }

    /// The response, with another body.
    pub(crate) fn respond_with(&self, body: Bytes) -> Response {
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers.clone();
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_given_as_it_was_recorded_but_for_what_the_server_writes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("answer");
        let recorded = "HTTP/1.1 201 Created\r\netag: \"1\"\r\ncontent-length: 2\r\n\
                        date: Thu, 01 Jan 1970 00:00:00 GMT\r\nvary: a\r\nvary: b\r\n\r\n\r\n";
        fs::write(&file, recorded).unwrap();
        let answer = Answer::read(&file).unwrap();
        assert_eq!(answer.body().as_ref(), b"\r\n");
        let response = answer.respond();
        assert_eq!(response.status(), StatusCode::CREATED);
        let names: Vec<_> = response
            .headers()
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(names, ["etag", "vary", "vary"]);
        let own = answer.of_handler(&[header::ETAG]).respond();
        assert_eq!(own.headers().len(), 1);
    }

    #[test]
    fn a_file_that_is_no_answer_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("answer");
        for text in [
            "",
            "hello\r\n\r\n",
            "HTTP/1.1 201 Created\r\nno colon\r\n\r\n",
        ] {
            fs::write(&file, text).unwrap();
            assert!(Answer::read(&file).is_err(), "{text}");
        }
    }
}
