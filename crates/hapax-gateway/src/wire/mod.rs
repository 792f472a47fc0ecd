//! Check of the bytes of a client's connection, for ambiguities that hyper resolves without a
//! trace, and a time limit for a client that does not read.
//!
//! hyper accepts lines that end in a bare LF, and drops `Content-Length` if there is a
//! `Transfer-Encoding`. Something in front of the gateway may read such a request as another one,
//! or as two. The connection is closed before hyper sees the bytes. HTTP/2 has none of these
//! ambiguities, and neither has a connection after an upgrade: their bytes are not checked.
//!
//! A response occupies a place at the upstream until it has ended. A client that reads nothing would keep
//! its place without a limit, so a connection that takes no bytes for too long is closed.

mod activity;
mod scanner;

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

pub(crate) use activity::{Activity, InService};
use scanner::Scanner;

/// The beginning of the response after which a connection speaks another protocol.
const SWITCHING: &[u8] = b"HTTP/1.1 101";

/// How long a connection may take no bytes while there are some to be sent.
const WRITE_MAX: Duration = Duration::from_mins(1);

/// A connection whose requests are checked.
pub(crate) struct Checked<S> {
    inner: S,
    scanner: Scanner,
    activity: Arc<Activity>,
    write_max: Duration,
    /// The limit of the write that waits for the client.
    write_end: Option<Pin<Box<Sleep>>>,
}

impl<S> Checked<S> {
    pub(crate) fn new(inner: S, activity: Arc<Activity>) -> Self {
        Self {
            inner,
            scanner: Scanner::new(),
            activity,
            write_max: WRITE_MAX,
            write_end: None,
        }
    }

    /// Limits how long a write may wait for the client.
    fn limited<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.write_end = None;
            return written;
        }
        let write_max = self.write_max;
        let end = self
            .write_end
            .get_or_insert_with(|| Box::pin(sleep(write_max)));
        ready!(end.as_mut().poll(context));
        tracing::debug!("closed a connection whose client does not read");
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Records a write, and stops to check if the connection changes its protocol.
    fn written(&mut self, bytes: &[u8]) {
        self.activity.set_unflushed(true);
        if bytes.starts_with(SWITCHING) && self.activity.is_upgraded() {
            self.scanner.stop();
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Checked<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(context, buffer);
        let is_blocked = read.is_pending() && self.scanner.is_between_requests();
        self.activity.set_blocked(is_blocked);
        ready!(read)?;
        let scanned = self.scanner.scan(&buffer.filled()[before..]);
        if let Err(ambiguity) = scanned {
            tracing::debug!(%ambiguity, "closed a connection");
            buffer.set_filled(before);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, ambiguity)));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Checked<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.written(bytes);
        let written = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.limited(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.written(parts.first().map_or(&[][..], |first| &first[..]));
        let written = Pin::new(&mut self.inner).poll_write_vectored(context, parts);
        self.limited(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(context);
        if let Poll::Ready(Ok(())) = flushed {
            self.activity.set_unflushed(false);
        }
        self.limited(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.inner).poll_shutdown(context);
        self.limited(context, ended)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test]
    async fn a_client_that_does_not_read_loses_its_connection() {
        let (mut client, server) = duplex(4);
        let mut server = Checked::new(server, Arc::default());
        server.write_max = Duration::from_millis(20);
        server.write_all(b"1234").await.unwrap();
        // A client that reads has the whole time for each part.
        let mut part = [0; 4];
        client.read_exact(&mut part).await.unwrap();
        server.write_all(b"5678").await.unwrap();
        let error = server.write_all(b"9").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
