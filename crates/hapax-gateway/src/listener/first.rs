//! The first bytes of a connection, which say whether it speaks HTTP/1.1 or HTTP/2.
//!
//! They are read into a small buffer, and handed over with the connection. A connection that waits
//! for its first byte has no other buffer.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

use super::connection::Protocol;

/// The first bytes of a client of HTTP/2 (RFC 9113, section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The first bytes of a connection, or of its next request.
#[derive(Clone, Copy, Default)]
pub(super) struct First {
    bytes: [u8; PREFACE.len()],
    length: usize,
}

impl First {
    /// Reads until at least one byte has arrived, and until the protocol is known. A client that
    /// sends a part of the preface is waited for.
    ///
    /// # Errors
    /// Fails if the connection fails, or ends before.
    pub(super) async fn read<S: AsyncRead + Unpin>(
        stream: &mut S,
        known: Option<Protocol>,
    ) -> io::Result<(Self, Protocol)> {
        let mut first = Self::default();
        loop {
            let read = stream.read(&mut first.bytes[first.length..]).await?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            first.length += read;
            if let Some(protocol) = known.or_else(|| first.protocol()) {
                return Ok((first, protocol));
            }
        }
    }

    /// The protocol, unless the bytes are only the beginning of a preface.
    fn protocol(&self) -> Option<Protocol> {
        let so_far = &self.bytes[..self.length];
        if !PREFACE.starts_with(so_far) {
            return Some(Protocol::Http1);
        }
        (self.length == PREFACE.len()).then_some(Protocol::Http2)
    }
}

/// A connection whose first bytes are read again.
pub(super) struct Begun<S> {
    first: First,
    /// How many of the first bytes were read again.
    taken: usize,
    inner: S,
}

impl<S> Begun<S> {
    pub(super) fn new(first: First, inner: S) -> Self {
        Self {
            first,
            taken: 0,
            inner,
        }
    }

    /// The connection, if the first bytes were read.
    pub(super) fn into_inner(self) -> Option<S> {
        (self.taken == self.first.length).then_some(self.inner)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Begun<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let rest = &this.first.bytes[this.taken..this.first.length];
        let fits = rest.len().min(buffer.remaining());
        if fits == 0 {
            return Pin::new(&mut this.inner).poll_read(context, buffer);
        }
        buffer.put_slice(&rest[..fits]);
        this.taken += fits;
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        // hyper would double a buffer of which only a few bytes were filled.
        match Pin::new(&mut this.inner).poll_read(context, buffer) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(())),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Begun<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test]
    async fn the_protocol_is_known_as_soon_as_the_bytes_differ_from_the_preface() {
        check(b"GET / HTTP/1.1\r\n", Some(Protocol::Http1)).await;
        check(b"P", None).await;
        check(b"PR", None).await;
        check(b"PRO", Some(Protocol::Http1)).await;
        check(&PREFACE[..23], None).await;
        check(PREFACE, Some(Protocol::Http2)).await;
        check(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\r", Some(Protocol::Http1)).await;
        check(&[&PREFACE[..], b"more"].concat(), Some(Protocol::Http2)).await;
    }

    async fn check(sent: &[u8], expected: Option<Protocol>) {
        for size in 1..=sent.len() {
            let (mut client, mut server) = duplex(64);
            let reading = async {
                let (first, protocol) = First::read(&mut server, None).await.ok()?;
                let mut again = Vec::new();
                Begun::new(first, server)
                    .read_to_end(&mut again)
                    .await
                    .unwrap();
                assert_eq!(again, sent, "{size}");
                Some(protocol)
            };
            let writing = async move {
                for part in sent.chunks(size) {
                    client.write_all(part).await.unwrap();
                }
            };
            let (found, ()) = tokio::join!(reading, writing);
            assert_eq!(found, expected, "{sent:?} in parts of {size}");
        }
    }

    #[tokio::test]
    async fn a_protocol_that_is_known_needs_one_byte() {
        let (mut client, mut server) = duplex(64);
        client.write_all(b"P").await.unwrap();
        let (_, protocol) = First::read(&mut server, Some(Protocol::Http1))
            .await
            .unwrap();
        assert_eq!(protocol, Protocol::Http1);
    }
}
