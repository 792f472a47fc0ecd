//! HTTP/2 as frames: enough of the protocol to send what no library would send, and to see how a
//! stream ends.
//!
//! Header blocks are literals without indexing (RFC 7541, section 6.2.2), so a field can have any
//! bytes.

use std::{io, net::SocketAddr};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// How a stream has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// With a complete response.
    Answered,
    /// With `RST_STREAM`.
    Reset,
    /// With GOAWAY, or with the connection.
    Closed,
}

/// A connection of HTTP/2 with prior knowledge.
#[derive(Debug)]
pub(crate) struct Http2(TcpStream);

impl Http2 {
    pub(crate) async fn open(address: SocketAddr) -> io::Result<Self> {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        stream.write_all(PREFACE).await?;
        let mut connection = Self(stream);
        connection.write(SETTINGS, 0, 0, &[]).await?;
        Ok(connection)
    }

    /// Sends a request with these fields, a body, and trailers if there are some.
    pub(crate) async fn send(
        &mut self,
        stream: u32,
        fields: &[(&[u8], &[u8])],
        body: Option<&[u8]>,
        trailers: &[(&[u8], &[u8])],
    ) -> io::Result<()> {
        let is_end = |is_last: bool| if is_last { END_STREAM } else { 0 };
        let flags = END_HEADERS | is_end(body.is_none() && trailers.is_empty());
        self.write(HEADERS, flags, stream, &block(fields)).await?;
        if let Some(body) = body {
            let flags = is_end(trailers.is_empty());
            self.write(DATA, flags, stream, body).await?;
        }
        if !trailers.is_empty() {
            let flags = END_HEADERS | END_STREAM;
            self.write(HEADERS, flags, stream, &block(trailers)).await?;
        }
        Ok(())
    }

    /// Reads frames until the stream has ended.
    pub(crate) async fn ended(&mut self, stream: u32) -> Ended {
        loop {
            let Ok((kind, flags, on)) = self.read().await else {
                return Ended::Closed;
            };
            let is_end = flags & END_STREAM != 0;
            match kind {
                GOAWAY => return Ended::Closed,
                RST_STREAM if on == stream => return Ended::Reset,
                DATA | HEADERS if on == stream && is_end => return Ended::Answered,
                _ => {}
            }
        }
    }

    async fn read(&mut self) -> io::Result<(u8, u8, u32)> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut content = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        self.0.read_exact(&mut content).await?;
        let (kind, flags) = (head[3], head[4]);
        let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        if [SETTINGS, PING].contains(&kind) && flags & ACK == 0 {
            let content = if kind == PING {
                content.as_slice()
            } else {
                &[]
            };
            self.write(kind, ACK, 0, content).await?;
        }
        Ok((kind, flags, stream))
    }

    async fn write(&mut self, kind: u8, flags: u8, stream: u32, content: &[u8]) -> io::Result<()> {
        let length = u32::try_from(content.len()).map_err(io::Error::other)?;
        let mut frame = length.to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(content);
        self.0.write_all(&frame).await
    }
}

/// A block of header fields.
fn block(fields: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            let length = u8::try_from(text.len()).expect("the fields of the tests are short");
            assert!(length < 127, "the fields of the tests are short");
            block.push(length);
            block.extend(*text);
        }
    }
    block
}
