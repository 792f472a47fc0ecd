//! A mail server with TLS and login, which the recording server does not support.

use std::sync::{Arc, Mutex};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;

/// `\0shop\0p@ss` in base64.
const LOGIN: &str = "AHNob3AAcEBzcw==";

/// The encryption that the server offers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offers {
    /// No encryption.
    Nothing,
    /// STARTTLS, and login after it.
    StartTls,
    /// TLS from the first byte.
    Wrapped,
}

/// All commands that were received, each with whether it was encrypted.
pub(crate) type Log = Arc<Mutex<Vec<(bool, String)>>>;

/// Starts a server on loopback that accepts the login `shop` with `p@ss` and all mails.
pub(crate) async fn start(offers: Offers, acceptor: TlsAcceptor) -> (u16, Log) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let log = Log::default();
    let theirs = log.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            stream.set_nodelay(true).unwrap();
            tokio::spawn(converse(stream, offers, acceptor.clone(), theirs.clone()));
        }
    });
    (port, log)
}

async fn converse(stream: TcpStream, offers: Offers, acceptor: TlsAcceptor, log: Log) {
    if offers == Offers::Wrapped {
        let Ok(stream) = acceptor.accept(stream).await else {
            return;
        };
        drop(talk(stream, offers, true, &log).await);
    } else if let Ok(Some(stream)) = talk(stream, offers, false, &log).await
        && let Ok(stream) = acceptor.accept(stream).await
    {
        drop(talk(stream, offers, true, &log).await);
    }
}

/// Talks until the sender closes the connection. Returns the stream when TLS is to be started.
async fn talk<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    offers: Offers,
    encrypted: bool,
    log: &Log,
) -> std::io::Result<Option<S>> {
    let mut stream = BufReader::new(stream);
    if !encrypted || offers == Offers::Wrapped {
        stream.write_all(b"220 hello\r\n").await?;
    }
    let mut line = String::new();
    while stream.read_line(&mut line).await? > 0 {
        log.lock()
            .unwrap()
            .push((encrypted, line.trim_end().to_owned()));
        let verb = line.split_whitespace().next().unwrap_or_default();
        let reply = match verb {
            "EHLO" if encrypted => "250-hello\r\n250 AUTH PLAIN\r\n",
            "EHLO" if offers == Offers::StartTls => "250-hello\r\n250 STARTTLS\r\n",
            "EHLO" => "250-hello\r\n250 AUTH PLAIN\r\n",
            "STARTTLS" => "220 go on\r\n",
            "AUTH" if !line.contains(LOGIN) => "535 no shop:p@ss\r\n",
            "DATA" => "354 go on\r\n",
            "." | "AUTH" | "MAIL" | "RCPT" | "NOOP" => "250 ok\r\n",
            _ => "",
        };
        stream.write_all(reply.as_bytes()).await?;
        stream.flush().await?;
        if verb == "STARTTLS" {
            return Ok(Some(stream.into_inner()));
        }
        line.clear();
    }
    Ok(None)
}
