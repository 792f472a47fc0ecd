//! HTTP/1.1 as bytes: sends exactly what a test gives, and reads responses.
//!
//! A response is complete or an error: a client of a gateway that was killed must not take half of a
//! response for a response.

use std::{fmt::Write as _, io, net::SocketAddr, time::Duration};

use hapax_testkit::wait::answered;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
};

/// The maximum time that a test waits for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A complete response.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// The trailers of a chunked body.
    pub(crate) trailers: Vec<(String, String)>,
}

impl Answer {
    /// The first value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON, or null.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The code of a problem.
    pub(crate) fn code(&self) -> Option<String> {
        self.json()["code"].as_str().map(str::to_owned)
    }

    /// Whether the gateway says that it does not know the outcome.
    pub(crate) fn is_unknown(&self) -> bool {
        self.code().as_deref() == Some("CONFLICT.idempotency.outcome_unknown")
    }
}

/// A connection to a server.
#[derive(Debug)]
pub(crate) struct Connection(BufReader<TcpStream>);

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.get_mut().write_all(bytes).await
    }

    /// Sends the end of the connection. The other direction stays open.
    pub(crate) async fn finish(&mut self) -> io::Result<()> {
        self.0.get_mut().shutdown().await
    }

    /// Reads a response to its end.
    pub(crate) async fn answer(&mut self) -> io::Result<Answer> {
        let mut answer = self.head().await?;
        if [204, 304].contains(&answer.status) {
            return Ok(answer);
        }
        if answer.header("transfer-encoding").is_some() {
            while let Some(chunk) = self.chunk().await? {
                answer.body.extend(chunk);
            }
            answer.trailers = self.fields().await?;
            return Ok(answer);
        }
        match answer.header("content-length").map(str::parse::<usize>) {
            Some(length) => {
                answer.body = self.bytes(length.map_err(io::Error::other)?).await?;
            }
            None => {
                self.0.read_to_end(&mut answer.body).await?;
            }
        }
        Ok(answer)
    }

    /// Reads the head of a response, after interim ones.
    pub(crate) async fn head(&mut self) -> io::Result<Answer> {
        loop {
            let line = self.line().await?;
            let status = line.split(' ').nth(1).and_then(|it| it.parse::<u16>().ok());
            let status = status.ok_or_else(|| io::Error::other(format!("no status: {line}")))?;
            let headers = self.fields().await?;
            if status >= 200 || status == 101 {
                return Ok(Answer {
                    status,
                    headers,
                    body: Vec::new(),
                    trailers: Vec::new(),
                });
            }
        }
    }

    /// Reads a chunk of a body. The last one is followed by the trailers.
    pub(crate) async fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let line = self.line().await?;
        let length = usize::from_str_radix(&line, 16).map_err(io::Error::other)?;
        if length == 0 {
            return Ok(None);
        }
        let chunk = self.bytes(length).await?;
        let end = self.line().await?;
        assert_eq!(end, "", "a chunk is longer than its size");
        Ok(Some(chunk))
    }

    /// Reads this number of bytes.
    pub(crate) async fn bytes(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes).await?;
        Ok(bytes)
    }

    /// Reads what has arrived, at most `most` bytes. None at the end of the connection.
    pub(crate) async fn some(&mut self, most: usize) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = vec![0; most];
        let read = self.0.read(&mut bytes).await?;
        bytes.truncate(read);
        Ok((read > 0).then_some(bytes))
    }

    /// Reads a line, without its end.
    pub(crate) async fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line).await?;
        if line.pop() != Some(b'\n') {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(String::from_utf8_lossy(&line).into_owned())
    }

    async fn fields(&mut self) -> io::Result<Vec<(String, String)>> {
        let mut fields = Vec::new();
        loop {
            let line = self.line().await?;
            if line.is_empty() {
                return Ok(fields);
            }
            let (name, value) = line.split_once(':').unwrap_or((&line, ""));
            fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
}

/// Sends bytes on a new connection, and reads one response.
pub(crate) async fn exchange(address: SocketAddr, request: &[u8]) -> io::Result<Answer> {
    let exchanged = async {
        let mut connection = Connection::open(address).await?;
        connection.send(request).await?;
        connection.answer().await
    };
    answered(PATIENCE, exchanged).await
}

/// The bytes of a request with a body.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut bytes = format!("{method} {path} HTTP/1.1\r\nHost: gateway.test\r\n");
    for (name, value) in headers {
        write!(bytes, "{name}: {value}\r\n").unwrap();
    }
    write!(bytes, "Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    bytes.into_bytes()
}

/// The bytes of an order with a key, and the faults that the service is asked for.
pub(crate) fn order(key: &str, faults: &str) -> Vec<u8> {
    let headers = [
        ("Content-Type", "application/json"),
        ("Idempotency-Key", key),
        ("X-Fault", faults),
    ];
    let body = format!(r#"{{"item": "tea", "for": "{key}"}}"#);
    request("POST", "/orders", &headers, &body)
}

/// The SHA-256 of bytes, in hexadecimal digits.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in Sha256::digest(bytes) {
        write!(text, "{byte:02x}").unwrap();
    }
    text
}
