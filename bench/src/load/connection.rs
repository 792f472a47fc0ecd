//! A keep-alive connection with one request in flight.

use std::net::SocketAddr;

use anyhow::{Context as _, bail};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::response::{self, Head};

/// Initial size of the buffer in bytes, enough for most responses.
const BUFFER: usize = 8 * 1024;

/// A connection to the service under load.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    head: Head,
}

impl Connection {
    /// Opens a connection.
    pub(crate) async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address)
            .await
            .with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        let head = Head {
            status: 0,
            length: 0,
            body: 0,
            replayed: false,
        };
        Ok(Self {
            stream,
            buffer: vec![0; BUFFER],
            head,
        })
    }

    /// Sends a request and waits for the complete response.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> anyhow::Result<Head> {
        self.stream
            .write_all(request)
            .await
            .context("cannot send")?;
        self.head = self.receive().await?;
        Ok(self.head)
    }

    /// The status line and headers of the last response.
    pub(crate) fn head(&self) -> &[u8] {
        &self.buffer[..self.head.length]
    }

    /// The body of the last response.
    pub(crate) fn body(&self) -> &[u8] {
        &self.buffer[self.head.length..][..self.head.body]
    }

    async fn receive(&mut self) -> anyhow::Result<Head> {
        let (mut filled, mut head) = (0, None);
        loop {
            if filled == self.buffer.len() {
                self.buffer.resize(filled * 2, 0);
            }
            match self.stream.read(&mut self.buffer[filled..]).await {
                Ok(0) => bail!("the service closed the connection after {filled} bytes"),
                Ok(read) => filled += read,
                Err(error) => return Err(error).context("cannot receive"),
            }
            if head.is_none() {
                head = response::parse(&self.buffer[..filled])?;
            }
            match head {
                Some(head) if filled == head.length + head.body => return Ok(head),
                Some(head) if filled > head.length + head.body => {
                    bail!("the service sent more than one response")
                }
                _ => {}
            }
        }
    }
}
