//! Connections: reads requests one after the other, and writes their responses.
//!
//! Each request runs in a separate task, so that a client that goes away does not stop it. A body
//! that is cut, too slow or malformed never reaches a handler.

use std::{
    io, mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::{
    bugs::Bug,
    clock::http_date,
    handler,
    http::{BODY_BYTES_MAX, Head, Length, Request},
    node::{Node, Reply},
    response::Response,
};

const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Time without a byte of a body after which it is given up.
const BODY_PAUSE_MAX: Duration = Duration::from_secs(2);
/// Time for which unread bytes are taken before a connection is closed, so that the response is not
/// lost to a reset.
const LINGER: Duration = Duration::from_millis(500);
/// Pause between the parts of a response with [`Bug::LostResponseReexecutes`].
const PART_PAUSE: Duration = Duration::from_millis(20);

/// A body, or why there is none.
enum Body {
    Whole(Vec<u8>),
    /// The bytes that arrived before the connection ended or paused for too long.
    Cut(Vec<u8>),
    Malformed,
    TooLarge,
}

/// Serves a connection until one side closes it.
pub(crate) async fn serve(mut stream: TcpStream, node: Arc<Node>) {
    let mut buffer = Vec::new();
    while matches!(exchange(&mut stream, &mut buffer, &node).await, Ok(true)) {}
}

/// One request and its response; whether another may follow.
async fn exchange(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
    node: &Arc<Node>,
) -> io::Result<bool> {
    let Some(end) = head_end(stream, buffer).await? else {
        return Ok(false);
    };
    if end > HEAD_BYTES_MAX {
        return refuse(stream, 431, "the head has more than 64 KiB").await;
    }
    let rest = buffer.split_off(end + 4);
    let bytes = mem::replace(buffer, rest);
    let head = match Head::parse(&bytes[..end]) {
        Ok(head) => head,
        Err(wrong) => return refuse(stream, 400, wrong).await,
    };
    let length = match head.length() {
        Ok(length) => length,
        Err(wrong) => return refuse(stream, 400, wrong).await,
    };
    if head.expects_continue() {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
    }
    let is_last = head.is_last();
    let mut request = Request {
        head,
        body: Vec::new(),
        is_cut: false,
        is_gone: Arc::new(AtomicBool::new(false)),
    };
    match body(stream, buffer, length).await {
        Body::Whole(body) => request.body = body,
        Body::Cut(body) => {
            request.body = body;
            request.is_cut = true;
            return cut(stream, request, node).await;
        }
        Body::Malformed => return refuse(stream, 400, "a chunk is malformed").await,
        Body::TooLarge => return refuse(stream, 413, "the body has more than 1 MiB").await,
    }
    let Some(reply) = run(stream, request, node).await else {
        return Ok(false);
    };
    write(stream, reply, node, is_last).await?;
    Ok(!is_last)
}

/// Runs a request; `None` if its handler panicked.
async fn run(stream: &TcpStream, request: Request, node: &Arc<Node>) -> Option<Reply> {
    let is_gone = Arc::clone(&request.is_gone);
    let mut task = tokio::spawn(handler::handle(Arc::clone(node), request));
    let reply = tokio::select! {
        reply = &mut task => reply,
        () = closed(stream) => {
            is_gone.store(true, Ordering::Relaxed);
            // A client may have closed only its own direction.
            task.await
        }
    };
    reply.ok()
}

/// Returns when the client has closed the connection, or its direction of it.
async fn closed(stream: &TcpStream) {
    let mut byte = [0];
    if matches!(stream.peek(&mut byte).await, Ok(1..)) {
        // The next request is there already.
        std::future::pending::<()>().await;
    }
}

/// A request whose body did not arrive: no effect, and the key stays free.
async fn cut(stream: &mut TcpStream, request: Request, node: &Arc<Node>) -> io::Result<bool> {
    match node.bug {
        Some(Bug::CutBodyExecutes) => {
            let _ = run(stream, request, node).await;
        }
        Some(Bug::CutBodyPoisonsKey) => handler::poison(node, &request),
        _ => {}
    }
    refuse(stream, 408, "the body did not arrive").await
}

/// Writes a refusal, and ends the connection.
async fn refuse(stream: &mut TcpStream, status: u16, detail: &str) -> io::Result<bool> {
    let response = Response::problem(status, "VALIDATION.request", detail);
    stream
        .write_all(&response.encode(&http_date(), true))
        .await?;
    stream.shutdown().await?;
    let mut unread = [0; 1024];
    let drain = async { while matches!(stream.read(&mut unread).await, Ok(1..)) {} };
    let _ = timeout(LINGER, drain).await;
    Ok(false)
}

/// Writes a response, and stores its key if that is still to be done.
async fn write(
    stream: &mut TcpStream,
    reply: Reply,
    node: &Arc<Node>,
    is_last: bool,
) -> io::Result<()> {
    let bytes = reply.response.encode(&http_date(), is_last);
    let Some(row) = reply.unsaved else {
        return stream.write_all(&bytes).await;
    };
    // Only with the bug: the key depends on the client's presence.
    let (start, end) = (1, bytes.len() - 1);
    for part in [&bytes[..start], &bytes[start..end]] {
        let is_written = stream.write_all(part).await.is_ok();
        if !is_written || timeout(PART_PAUSE, closed(stream)).await.is_ok() {
            node.store.release(&row.scope, node.number)?;
            return Err(io::ErrorKind::ConnectionReset.into());
        }
    }
    node.store.commit(node.number, None, Some(row))?;
    stream.write_all(&bytes[end..]).await
}

/// Reads up to the empty line after a head; its position, or `None` if the connection ended.
async fn head_end(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Option<usize>> {
    loop {
        let end = buffer.windows(4).position(|four| four == b"\r\n\r\n");
        if end.is_some() || buffer.len() > HEAD_BYTES_MAX {
            return Ok(end.or(Some(buffer.len())));
        }
        buffer.reserve(4096);
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

async fn body(stream: &mut TcpStream, buffer: &mut Vec<u8>, length: Length) -> Body {
    match length {
        Length::Exact(length) if length > BODY_BYTES_MAX => Body::TooLarge,
        Length::Exact(length) => {
            if fill(stream, buffer, length).await {
                Body::Whole(take(buffer, length))
            } else {
                Body::Cut(mem::take(buffer))
            }
        }
        Length::Chunked => chunks(stream, buffer).await,
    }
}

/// Reads the chunks of a body and drops its trailers.
async fn chunks(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Body {
    let mut body = Vec::new();
    loop {
        let Some(line) = line(stream, buffer).await else {
            return Body::Cut(body);
        };
        let line = String::from_utf8_lossy(&line).into_owned();
        let size = line.split(';').next().unwrap_or_default().trim();
        let is_number = !size.is_empty() && size.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_number {
            return Body::Malformed;
        }
        let size = usize::from_str_radix(size, 16).unwrap_or(usize::MAX);
        if size > BODY_BYTES_MAX - body.len() {
            return Body::TooLarge;
        }
        if size == 0 {
            break;
        }
        if !fill(stream, buffer, size + 2).await {
            body.extend_from_slice(&buffer[..size.min(buffer.len())]);
            return Body::Cut(body);
        }
        let chunk = take(buffer, size + 2);
        if !chunk.ends_with(b"\r\n") {
            return Body::Malformed;
        }
        body.extend_from_slice(&chunk[..size]);
    }
    loop {
        match line(stream, buffer).await {
            Some(trailer) if trailer.is_empty() => return Body::Whole(body),
            Some(_) => {}
            None => return Body::Cut(body),
        }
    }
}

/// Reads a line without its end; `None` if it did not arrive.
async fn line(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Vec<u8>> {
    loop {
        if let Some(end) = buffer.windows(2).position(|pair| pair == b"\r\n") {
            let mut line = take(buffer, end + 2);
            line.truncate(end);
            return Some(line);
        }
        let wanted = buffer.len() + 1;
        if wanted > HEAD_BYTES_MAX || !fill(stream, buffer, wanted).await {
            return None;
        }
    }
}

/// Reads until the buffer has that many bytes; whether it has them.
async fn fill(stream: &mut TcpStream, buffer: &mut Vec<u8>, bytes: usize) -> bool {
    while buffer.len() < bytes {
        buffer.reserve(4096);
        match timeout(BODY_PAUSE_MAX, stream.read_buf(buffer)).await {
            Ok(Ok(1..)) => {}
            _ => return false,
        }
    }
    true
}

/// Takes bytes from the front of the buffer.
fn take(buffer: &mut Vec<u8>, bytes: usize) -> Vec<u8> {
    let rest = buffer.split_off(bytes);
    mem::replace(buffer, rest)
}
