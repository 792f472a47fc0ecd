//! Seeded bug: follows redirects to any address. Used in tests only.

use bytes::Bytes;
use http::{Request, Response, Uri, header::LOCATION};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, Error, connect::HttpConnector},
    rt::TokioExecutor,
};

/// The target of a redirect.
pub(super) fn place(response: &Response<Incoming>) -> Option<Uri> {
    let location = response.headers().get(LOCATION)?;
    let place = location.to_str().ok()?.parse().ok()?;
    response.status().is_redirection().then_some(place)
}

/// Sends the request to the target without the guard.
pub(super) async fn follow(
    place: Uri,
    mut request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, Error> {
    *request.uri_mut() = place;
    let client = Client::builder(TokioExecutor::new()).build(HttpConnector::new());
    client.request(request).await
}
