//! Connection for logical replication: the driver of the store has no replication mode.
//!
//! It offers what a feed needs: authentication, simple queries, and the replication stream. Host,
//! TLS and password are those of the URL, as for all other connections. Of several hosts the first
//! primary is used. Every length is checked; of a message above [`MESSAGE_BYTES_MAX`] only the first
//! bytes are kept, so the memory of the connection is bounded.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use hapax::sink::BoxError;
use postgres_protocol::{
    authentication::{
        md5_hash,
        sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256},
    },
    message::frontend,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpStream, UnixStream},
};
use tokio_postgres::{
    Config,
    config::{self, Host, SslMode},
    tls::{MakeTlsConnect, TlsConnect as _},
};

use crate::{address::Address, settings::Settings, tls};

/// Largest message that is kept whole: a changed row with all its columns.
pub(super) const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes of a larger message that are kept, so that it can be reported.
const HEAD_BYTES: usize = 1024;
/// Bytes that are read at once.
const READ_BYTES: usize = 64 * 1024;

/// Settings of the session, so that values are written as the mapping expects them.
const SESSION: [(&str, &str); 6] = [
    ("client_encoding", "UTF8"),
    ("DateStyle", "ISO"),
    ("IntervalStyle", "postgres"),
    ("TimeZone", "UTC"),
    ("extra_float_digits", "3"),
    ("bytea_output", "hex"),
];

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Queries and, in the end, the replication stream.
    Replication,
    /// Queries only: it takes none of the places for replication (`max_wal_senders`).
    Queries,
}

/// An error that the server has reported.
#[derive(Debug, thiserror::Error)]
#[error("{message} (SQLSTATE {code})")]
pub(super) struct ServerError {
    pub(super) code: String,
    message: String,
}

/// A message of the replication stream.
#[derive(Debug)]
pub(super) enum Frame {
    /// A message of the output plugin. If it is cut, only its first bytes are here.
    Data { body: Bytes, is_cut: bool },
    /// How far the server has sent its log, and whether it waits for a status.
    KeepAlive { wal_end: u64, wants_status: bool },
}

/// A byte stream with or without TLS.
trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

/// A connection to the source.
pub(super) struct Wire {
    stream: Box<dyn Duplex>,
    incoming: BytesMut,
    /// A message that is too large, of which this many bytes are still to be skipped.
    skipped: Option<(Message, usize)>,
}

/// A message of the server: its type and its body.
struct Message {
    tag: u8,
    body: Bytes,
    is_cut: bool,
}

impl Wire {
    /// Connects to the first primary of the URL.
    pub(super) async fn connect(settings: &Settings, mode: Mode) -> Result<Self, BoxError> {
        let address = Address::of(settings)?;
        let config = &address.config;
        let hosts = config.get_hosts().len().max(config.get_hostaddrs().len());
        let mut failed: BoxError = "the URL of the source names no host".into();
        for number in 0..hosts {
            match Self::open(&address, number, mode).await {
                Ok(wire) => return Ok(wire),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    async fn open(address: &Address, number: usize, mode: Mode) -> Result<Self, BoxError> {
        let mut wire = Self {
            stream: stream(address, number).await?,
            incoming: BytesMut::new(),
            skipped: None,
        };
        wire.start(&address.config, mode).await?;
        let standby = wire.query("SELECT pg_is_in_recovery()").await?;
        if text(&standby, 0) == Some("t") {
            return Err("the server is a read-only standby".into());
        }
        Ok(wire)
    }

    async fn start(&mut self, config: &Config, mode: Mode) -> Result<(), BoxError> {
        if config.get_channel_binding() == config::ChannelBinding::Require {
            return Err("channel_binding=require is not supported for feeds".into());
        }
        let user = config.get_user().ok_or("the URL names no user")?;
        let database = config.get_dbname().unwrap_or(user);
        let name = config.get_application_name().unwrap_or("hapax");
        let mut parameters = vec![
            ("user", user),
            ("database", database),
            ("application_name", name),
        ];
        parameters.extend(config.get_options().map(|options| ("options", options)));
        parameters.extend(SESSION);
        if mode == Mode::Replication {
            parameters.push(("replication", "database"));
        }
        let mut out = BytesMut::new();
        frontend::startup_message(parameters, &mut out)?;
        self.stream.write_all(&out).await?;
        self.authenticate(user, config.get_password()).await
    }

    /// Answers what the server asks until it is ready for a query.
    async fn authenticate(&mut self, user: &str, password: Option<&[u8]>) -> Result<(), BoxError> {
        let password = || password.ok_or("the server asks for a password, the URL has none");
        let mut scram: Option<ScramSha256> = None;
        loop {
            let Message { tag, mut body, .. } = self.message().await?;
            let mut out = BytesMut::new();
            match tag {
                b'Z' => return Ok(()),
                b'E' => return Err(reported(&body).into()),
                b'R' if body.len() >= 4 => match (body.get_i32(), scram.as_mut()) {
                    (0, None) => {}
                    (3, None) => frontend::password_message(password()?, &mut out)?,
                    (5, None) => {
                        let salt: [u8; 4] = body.as_ref().try_into()?;
                        let hash = md5_hash(user.as_bytes(), password()?, salt);
                        frontend::password_message(hash.as_bytes(), &mut out)?;
                    }
                    (10, None) => {
                        let new = ScramSha256::new(password()?, ChannelBinding::unsupported());
                        frontend::sasl_initial_response(SCRAM_SHA_256, new.message(), &mut out)?;
                        scram = Some(new);
                    }
                    (11, Some(scram)) => {
                        scram.update(&body)?;
                        frontend::sasl_response(scram.message(), &mut out)?;
                    }
                    (12, Some(proof)) => {
                        // The server has shown that it knows the password, too.
                        proof.finish(&body)?;
                        scram = None;
                    }
                    (other, _) => {
                        return Err(format!("authentication {other} is not supported").into());
                    }
                },
                b'S' | b'K' | b'N' | b'v' => {}
                tag => return Err(unexpected(tag)),
            }
            if !out.is_empty() {
                self.stream.write_all(&out).await?;
            }
        }
    }

    /// Runs a statement, and returns its rows as texts.
    pub(super) async fn query(&mut self, sql: &str) -> Result<Vec<Vec<Option<String>>>, BoxError> {
        self.send(sql).await?;
        let (mut rows, mut failed) = (Vec::new(), None);
        loop {
            let Message { tag, body, is_cut } = self.message().await?;
            match tag {
                b'D' if !is_cut => rows.push(columns(body)?),
                b'E' => failed = Some(reported(&body)),
                b'Z' => return failed.map_or(Ok(rows), |error| Err(error.into())),
                b'T' | b'C' | b'S' | b'N' | b'I' => {}
                tag => return Err(unexpected(tag)),
            }
        }
    }

    /// Sends the command that starts the replication, and waits until the stream begins.
    pub(super) async fn replicate(&mut self, command: &str) -> Result<(), BoxError> {
        self.send(command).await?;
        loop {
            let Message { tag, body, .. } = self.message().await?;
            match tag {
                b'W' => return Ok(()),
                b'E' => return Err(reported(&body).into()),
                b'S' | b'N' => {}
                tag => return Err(unexpected(tag)),
            }
        }
    }

    /// The next message of the stream, if it has arrived.
    pub(super) fn arrived(&mut self) -> Result<Option<Frame>, BoxError> {
        while let Some(message) = self.buffered()? {
            if let Some(frame) = frame(message)? {
                return Ok(Some(frame));
            }
        }
        Ok(None)
    }

    /// Waits for more bytes. Nothing is lost if the future is dropped.
    pub(super) async fn fill(&mut self) -> Result<(), BoxError> {
        self.incoming.reserve(READ_BYTES);
        match self.stream.read_buf(&mut self.incoming).await? {
            0 => Err("the server closed the connection".into()),
            _ => Ok(()),
        }
    }

    /// Tells the server up to where its log was received, and up to where it is not needed any more.
    pub(super) async fn status(
        &mut self,
        [received, confirmed]: [u64; 2],
        wants_reply: bool,
    ) -> Result<(), BoxError> {
        const BODY: i32 = 1 + 4 * 8 + 1;
        let mut out = BytesMut::with_capacity(64);
        out.put_u8(b'd');
        out.put_i32(4 + BODY);
        out.put_u8(b'r');
        for position in [received, confirmed, confirmed] {
            out.put_u64(position);
        }
        // The server shows this time, and does not use it.
        out.put_i64(0);
        out.put_u8(wants_reply.into());
        Ok(self.stream.write_all(&out).await?)
    }

    async fn send(&mut self, sql: &str) -> Result<(), BoxError> {
        let mut out = BytesMut::new();
        frontend::query(sql, &mut out)?;
        Ok(self.stream.write_all(&out).await?)
    }

    async fn message(&mut self) -> Result<Message, BoxError> {
        loop {
            if let Some(message) = self.buffered()? {
                return Ok(message);
            }
            self.fill().await?;
        }
    }

    /// Takes one message out of the bytes that have arrived.
    fn buffered(&mut self) -> Result<Option<Message>, BoxError> {
        if let Some((message, left)) = self.skipped.take() {
            let now = left.min(self.incoming.len());
            self.incoming.advance(now);
            if now < left {
                self.skipped = Some((message, left - now));
                return Ok(None);
            }
            return Ok(Some(message));
        }
        let Some(head) = self.incoming.first_chunk::<5>() else {
            return Ok(None);
        };
        let [tag, length @ ..] = *head;
        let length = usize::try_from(i32::from_be_bytes(length))?;
        let length = length.checked_sub(4).ok_or("a message has no length")?;
        let is_cut = length > MESSAGE_BYTES_MAX;
        let kept = if is_cut { HEAD_BYTES } else { length };
        if self.incoming.len() < 5 + kept {
            return Ok(None);
        }
        self.incoming.advance(5);
        let body = self.incoming.split_to(kept).freeze();
        let message = Message { tag, body, is_cut };
        if is_cut {
            self.skipped = Some((message, length - kept));
            return self.buffered();
        }
        Ok(Some(message))
    }
}

/// The text of the first row in a column, if there is one.
pub(super) fn text(rows: &[Vec<Option<String>>], column: usize) -> Option<&str> {
    rows.first()?.get(column)?.as_deref()
}

/// Opens the byte stream to one host of the URL.
async fn stream(address: &Address, number: usize) -> Result<Box<dyn Duplex>, BoxError> {
    let config = &address.config;
    let ports = config.get_ports();
    let port = ports.get(number).or(ports.first()).copied();
    let port = port.unwrap_or(5432);
    let host = config.get_hosts().get(number);
    let tcp = match (config.get_hostaddrs().get(number), host) {
        (Some(ip), _) => TcpStream::connect((*ip, port)).await?,
        (None, Some(Host::Tcp(name))) => TcpStream::connect((name.as_str(), port)).await?,
        (None, Some(Host::Unix(path))) => {
            let path = path.join(format!(".s.PGSQL.{port}"));
            return Ok(Box::new(UnixStream::connect(path).await?));
        }
        (None, None) => return Err("the URL names no host".into()),
    };
    tcp.set_nodelay(true)?;
    let name = match host {
        Some(Host::Tcp(name)) => name.as_str(),
        _ => "",
    };
    encrypted(address, name, tcp).await
}

/// Asks the server for TLS, as the mode of the URL says.
async fn encrypted(
    address: &Address,
    name: &str,
    mut tcp: TcpStream,
) -> Result<Box<dyn Duplex>, BoxError> {
    let mode = address.config.get_ssl_mode();
    if mode == SslMode::Disable {
        return Ok(Box::new(tcp));
    }
    let (mut request, mut reply) = (BytesMut::new(), [0]);
    frontend::ssl_request(&mut request);
    tcp.write_all(&request).await?;
    tcp.read_exact(&mut reply).await?;
    if reply != *b"S" {
        return match mode {
            SslMode::Require => Err("the server does not offer TLS".into()),
            _ => Ok(Box::new(tcp)),
        };
    }
    let mut connector = tls::connector(address)?;
    let connect = MakeTlsConnect::<TcpStream>::make_tls_connect(&mut connector, name)?;
    Ok(Box::new(connect.connect(tcp).await?))
}

/// A message of the stream; none if it is of no interest.
fn frame(message: Message) -> Result<Option<Frame>, BoxError> {
    let Message {
        tag,
        mut body,
        is_cut,
    } = message;
    match tag {
        b'd' => {}
        b'S' | b'N' => return Ok(None),
        b'E' => return Err(reported(&body).into()),
        b'c' | b'C' => return Err("the server has ended the replication".into()),
        tag => return Err(unexpected(tag)),
    }
    match body.first() {
        // Start and end of the data in the log, the time, and the data.
        Some(b'w') if body.len() >= 25 => {
            body.advance(25);
            Ok(Some(Frame::Data { body, is_cut }))
        }
        Some(b'k') if body.len() >= 18 => {
            body.advance(1);
            let wal_end = body.get_u64();
            body.advance(8);
            let wants_status = body.get_u8() != 0;
            Ok(Some(Frame::KeepAlive {
                wal_end,
                wants_status,
            }))
        }
        _ => Err("a message of the replication cannot be read".into()),
    }
}

/// The columns of a row as texts.
fn columns(mut body: Bytes) -> Result<Vec<Option<String>>, BoxError> {
    let short = "a row is shorter than it says";
    let mut columns = Vec::new();
    for _ in 0..body.try_get_u16().map_err(|_| short)? {
        let length = body.try_get_i32().map_err(|_| short)?;
        let Ok(length) = usize::try_from(length) else {
            columns.push(None);
            continue;
        };
        if body.len() < length {
            return Err(short.into());
        }
        let text = String::from_utf8(body.split_to(length).to_vec())?;
        columns.push(Some(text));
    }
    Ok(columns)
}

/// The error in a message of the server: fields of one letter each that end with a zero byte.
fn reported(body: &[u8]) -> ServerError {
    let field = |letter: u8| {
        let field = body.split(|byte| *byte == 0).find_map(|field| {
            let (first, text) = field.split_first()?;
            (*first == letter).then(|| String::from_utf8_lossy(text).into_owned())
        });
        field.unwrap_or_default()
    };
    ServerError {
        code: field(b'C'),
        message: field(b'M'),
    }
}

fn unexpected(tag: u8) -> BoxError {
    format!(
        "the server sent an unexpected message {:?}",
        char::from(tag)
    )
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire() -> Wire {
        let (here, _there) = tokio::io::duplex(1);
        Wire {
            stream: Box::new(here),
            incoming: BytesMut::new(),
            skipped: None,
        }
    }

    #[test]
    fn a_message_that_is_too_large_is_cut_and_the_next_one_is_read() {
        let mut wire = wire();
        let length = MESSAGE_BYTES_MAX + 1;
        wire.incoming.put_u8(b'd');
        wire.incoming.put_i32(i32::try_from(length + 4).unwrap());
        let mut left = length;
        while left > 0 {
            let now = left.min(1024 * 1024);
            wire.incoming.put_bytes(b'w', now);
            left -= now;
            let cut = wire.buffered().unwrap();
            assert_eq!(cut.is_some(), left == 0);
            assert!(cut.is_none_or(|it| it.is_cut && it.body.len() == HEAD_BYTES));
            assert!(wire.incoming.is_empty());
        }
        wire.incoming.put_slice(b"Z\0\0\0\x05I");
        assert_eq!(wire.buffered().unwrap().unwrap().tag, b'Z');
        assert!(wire.buffered().unwrap().is_none());
    }

    #[test]
    fn a_length_that_cannot_be_is_refused() {
        for length in [-1_i32, 0, 3] {
            let mut wire = wire();
            wire.incoming.put_u8(b'd');
            wire.incoming.put_i32(length);
            assert!(wire.buffered().is_err(), "{length}");
        }
    }

    #[tokio::test]
    async fn channel_binding_that_is_required_is_refused_and_not_left_out() {
        let config: Config = "postgres://a:secret@db/a?channel_binding=require"
            .parse()
            .unwrap();
        let refused = wire().start(&config, Mode::Replication).await;
        let refused = refused.unwrap_err().to_string();
        assert_eq!(
            refused,
            "channel_binding=require is not supported for feeds"
        );
    }

    #[test]
    fn an_error_of_the_server_is_read_by_its_fields() {
        let error = reported(b"SERROR\0C55006\0Mslot is active\0\0");
        assert_eq!(error.to_string(), "slot is active (SQLSTATE 55006)");
    }
}
