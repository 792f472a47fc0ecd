//! The demo's mail server, which stores each message as a file.
//!
//! It implements enough SMTP for any client and listens on the loopback address only. It writes and
//! syncs `<folder>/<name>.eml` before it replies 250. If a `Message-ID` was stored before, the
//! server acknowledges the message and does not write it again. Lines, messages, recipients,
//! invalid commands and connections are bounded, and only `<CR><LF>.<CR><LF>` ends a message.

use std::{
    io,
    path::{Path, PathBuf},
    str::FromStr as _,
    sync::Arc,
    time::Duration,
};

use hapax::{event::EventId, key::hex};
use sha2::{Digest as _, Sha256};
use tokio::{
    fs::{self, File, OpenOptions},
    io::{
        AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _,
        BufReader,
    },
    net::TcpListener,
    sync::Semaphore,
    task::JoinSet,
    time::timeout,
};

use crate::server::{Stop, stopped};

/// The longest line, in bytes; RFC 5321 requires 1000, and some clients send more.
const LINE_BYTES_MAX: u64 = 4096;
/// The largest message, in bytes.
const MESSAGE_BYTES_MAX: usize = 1024 * 1024;
/// The most recipients of one message.
const RECIPIENTS_MAX: usize = 100;
/// The number of invalid commands after which the connection is closed.
const MISTAKES_MAX: u32 = 10;
/// The most open connections.
const CONNECTIONS_MAX: usize = 32;
/// How long a client may take to send a line, or to read a reply.
const SILENCE: Duration = Duration::from_mins(1);
/// How long one connection may last.
const SESSION: Duration = Duration::from_mins(10);

/// Serves mail clients on `listener` until `stop` is set, and stores messages in `folder`.
pub(crate) async fn serve(listener: TcpListener, folder: PathBuf, mut stop: Stop) {
    let folder: Arc<Path> = folder.into();
    if let Err(error) = sweep(&folder).await {
        tracing::warn!(%error, "cannot remove incomplete mail files of an earlier run");
    }
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut sessions = JoinSet::new();
    loop {
        while sessions.try_join_next().is_some() {}
        let slot = Arc::clone(&slots).acquire_owned();
        let accepted = tokio::select! {
            () = stopped(&mut stop) => break,
            accepted = async { (slot.await, listener.accept().await) } => accepted,
        };
        let (Ok(slot), Ok((stream, _))) = accepted else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let folder = Arc::clone(&folder);
        sessions.spawn(async move {
            let (reader, writer) = stream.into_split();
            let session = Session::new(reader, writer, folder);
            match timeout(SESSION, session.run()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "mail session ended early"),
                Err(error) => tracing::debug!(%error, "mail session took too long"),
            }
            drop(slot);
        });
    }
}

/// The connection of one client.
struct Session<R, W> {
    reader: BufReader<R>,
    writer: W,
    folder: Arc<Path>,
    sender: bool,
    recipients: usize,
    mistakes: u32,
}

enum Go {
    On,
    Away,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Session<R, W> {
    fn new(reader: R, writer: W, folder: Arc<Path>) -> Self {
        Self {
            reader: BufReader::new(reader),
            writer,
            folder,
            sender: false,
            recipients: 0,
            mistakes: 0,
        }
    }

    async fn run(mut self) -> io::Result<()> {
        self.say("220 shop catches mail").await?;
        loop {
            let Some(line) = self.line().await? else {
                return Ok(());
            };
            if line.len() as u64 >= LINE_BYTES_MAX || self.mistakes >= MISTAKES_MAX {
                return self.say("421 4.7.0 too many mistakes").await;
            }
            if matches!(self.command(&line).await?, Go::Away) {
                return Ok(());
            }
        }
    }

    async fn command(&mut self, line: &[u8]) -> io::Result<Go> {
        let text = String::from_utf8_lossy(line);
        let text = text.trim_end();
        let verb = text
            .split([' ', ':'])
            .next()
            .unwrap_or_default()
            .to_ascii_uppercase();
        match verb.as_str() {
            "EHLO" => {
                self.reset();
                let hello = format!(
                    "250-shop\r\n250-SIZE {MESSAGE_BYTES_MAX}\r\n250-8BITMIME\r\n250 PIPELINING"
                );
                self.say(&hello).await?;
            }
            "HELO" | "RSET" => {
                self.reset();
                self.say("250 2.0.0 ok").await?;
            }
            "NOOP" => self.say("250 2.0.0 ok").await?,
            "VRFY" => self.say("252 2.1.5 cannot verify, but will try").await?,
            "MAIL" => self.mail(text).await?,
            "RCPT" => self.recipient(text).await?,
            "DATA" => return self.message().await,
            "QUIT" => {
                self.say("221 2.0.0 bye").await?;
                return Ok(Go::Away);
            }
            _ => self.mistake("502 5.5.1 unknown command").await?,
        }
        Ok(Go::On)
    }

    async fn mail(&mut self, text: &str) -> io::Result<()> {
        if !has_path(text, "MAIL FROM:") {
            return self.mistake("501 5.5.4 MAIL FROM:<address>").await;
        }
        self.reset();
        self.sender = true;
        self.say("250 2.1.0 ok").await
    }

    async fn recipient(&mut self, text: &str) -> io::Result<()> {
        if !self.sender {
            return self.mistake("503 5.5.1 MAIL first").await;
        }
        if !has_path(text, "RCPT TO:") {
            return self.mistake("501 5.5.4 RCPT TO:<address>").await;
        }
        if self.recipients == RECIPIENTS_MAX {
            return self.mistake("452 4.5.3 too many recipients").await;
        }
        self.recipients += 1;
        self.say("250 2.1.5 ok").await
    }

    async fn message(&mut self) -> io::Result<Go> {
        if self.recipients == 0 {
            self.mistake("503 5.5.1 RCPT first").await?;
            return Ok(Go::On);
        }
        self.reset();
        self.say("354 end with <CR><LF>.<CR><LF>").await?;
        let Some(message) = self.body().await? else {
            return Ok(Go::Away);
        };
        if message.len() > MESSAGE_BYTES_MAX {
            self.say("552 5.3.4 message is too large").await?;
            return Ok(Go::On);
        }
        match keep(&self.folder, &message).await {
            Ok(name) => self.say(&format!("250 2.0.0 stored as {name}")).await?,
            Err(error) => {
                tracing::warn!(%error, "cannot store a caught mail");
                self.say("452 4.3.1 cannot store it now").await?;
            }
        }
        Ok(Go::On)
    }

    /// Reads up to the line with a single dot; `None` if the client closed the connection first.
    ///
    /// Bytes beyond the limit are read and discarded, so that the client receives an error reply.
    async fn body(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut message = Vec::new();
        let mut at_line_start = true;
        loop {
            let Some(mut line) = self.line().await? else {
                return Ok(None);
            };
            if at_line_start && line == b".\r\n" {
                return Ok(Some(message));
            }
            if at_line_start && line.starts_with(b".") {
                line.remove(0);
            }
            at_line_start = line.ends_with(b"\r\n");
            if message.len() <= MESSAGE_BYTES_MAX {
                message.extend_from_slice(&line);
            }
        }
    }

    /// Reads one line, or the first `LINE_BYTES_MAX` bytes of a longer one; `None` at the end.
    async fn line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        let mut bounded = (&mut self.reader).take(LINE_BYTES_MAX);
        let read = timeout(SILENCE, bounded.read_until(b'\n', &mut line));
        read.await.map_err(|_| io::ErrorKind::TimedOut)??;
        let whole = line.ends_with(b"\n") || line.len() as u64 == LINE_BYTES_MAX;
        Ok(whole.then_some(line))
    }

    async fn mistake(&mut self, reply: &str) -> io::Result<()> {
        self.mistakes += 1;
        self.say(reply).await
    }

    async fn say(&mut self, reply: &str) -> io::Result<()> {
        let reply = format!("{reply}\r\n");
        let said = timeout(SILENCE, self.writer.write_all(reply.as_bytes()));
        said.await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }

    fn reset(&mut self) {
        self.sender = false;
        self.recipients = 0;
    }
}

fn has_path(text: &str, command: &str) -> bool {
    let named = text
        .get(..command.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(command));
    named && {
        let path = text[command.len()..].trim_start();
        path.starts_with('<') && path.contains('>')
    }
}

/// Stores a message durably, once per `Message-ID`; returns its name.
async fn keep(folder: &Path, message: &[u8]) -> io::Result<String> {
    let name = name_of(message);
    let kept = folder.join(format!("{name}.eml"));
    if fs::try_exists(&kept).await? {
        // The session that renamed the file may not have synced the folder yet.
        File::open(folder).await?.sync_all().await?;
        return Ok(name);
    }
    // Two sessions may receive the same message at the same time. Each writes its own file, and the
    // last rename wins; both files hold the same message.
    let draft = draft_path(folder, &name);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&draft)
        .await?;
    let written = async {
        file.write_all(message).await?;
        file.sync_all().await?;
        fs::rename(&draft, &kept).await?;
        File::open(folder).await?.sync_all().await
    };
    let written = written.await;
    if written.is_err() {
        let _ = fs::remove_file(&draft).await;
    }
    written.map(|()| name)
}

/// Removes the incomplete files that a crash left; their senders got no reply and will retry.
async fn sweep(folder: &Path) -> io::Result<()> {
    let mut entries = fs::read_dir(folder).await?;
    while let Some(entry) = entries.next_entry().await? {
        if entry.path().extension().is_some_and(|end| end == "part") {
            fs::remove_file(entry.path()).await?;
        }
    }
    Ok(())
}

fn draft_path(folder: &Path, name: &str) -> PathBuf {
    use std::sync::atomic::{AtomicU64, Ordering};
    static DRAFTS: AtomicU64 = AtomicU64::new(0);
    let draft = DRAFTS.fetch_add(1, Ordering::Relaxed);
    folder.join(format!("{name}.{}.{draft}.part", std::process::id()))
}

/// Returns the event id in the `Message-ID`, or a hash if it has none; never text of the sender.
fn name_of(message: &[u8]) -> String {
    let Some(message_id) = header(message, "message-id") else {
        return hex(&Sha256::digest(message)[..16]);
    };
    let inner = message_id.trim_matches(|c: char| c == '<' || c == '>' || c.is_whitespace());
    let local = inner.split('@').next().unwrap_or_default();
    match EventId::from_str(local) {
        Ok(event) if event.to_string() == local => local.to_owned(),
        _ => hex(&Sha256::digest(inner)[..16]),
    }
}

fn header(message: &[u8], name: &str) -> Option<String> {
    let end = message
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap_or(message.len());
    let head = String::from_utf8_lossy(&message[..end])
        .replace("\r\n ", " ")
        .replace("\r\n\t", " ");
    head.split("\r\n")
        .filter_map(|line| line.split_once(':'))
        .find(|(found, _)| found.trim().eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: &str = "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b";

    #[tokio::test]
    async fn a_message_is_kept_once_under_its_events_id() {
        let folder = tempfile::tempdir().unwrap();
        let message = format!("Message-ID: <{EVENT}@shop>\r\nSubject: hi\r\n\r\n..dot\r\n");
        let changed = message.replace("hi", "changed");
        for mail in [&message, &changed] {
            let said = talk(folder.path(), &sent(mail)).await;
            assert!(said.contains("250 2.0.0 stored as 0190a1b2"), "{said}");
        }
        let files = files_in(folder.path());
        assert_eq!(files, [format!("{EVENT}.eml")]);
        let text = std::fs::read_to_string(folder.path().join(&files[0])).unwrap();
        assert!(text.ends_with("Subject: hi\r\n\r\n.dot\r\n"), "{text:?}");
    }

    #[tokio::test]
    async fn drafts_that_a_crash_left_are_swept_and_mail_is_not() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.eml", "a.7.0.part"] {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }
        sweep(folder.path()).await.unwrap();
        assert_eq!(files_in(folder.path()), ["a.eml"]);
    }

    #[tokio::test]
    async fn a_hostile_message_id_names_no_file_outside() {
        let folder = tempfile::tempdir().unwrap();
        talk(
            folder.path(),
            &sent("Message-ID: <../../etc/passwd@x>\r\n\r\nx\r\n"),
        )
        .await;
        let files = files_in(folder.path());
        assert_eq!(files.len(), 1);
        assert_eq!(files[0].len(), 32 + ".eml".len());
    }

    #[tokio::test]
    async fn only_a_dot_between_whole_line_ends_ends_a_message() {
        let folder = tempfile::tempdir().unwrap();
        let body = "Message-ID: <1@x>\r\n\r\na\n.\r\nMAIL FROM:<smuggled@x>\r\n";
        let said = talk(folder.path(), &sent(body)).await;
        assert_eq!(said.matches("2.1.0 ok").count(), 1, "{said}");
    }

    #[tokio::test]
    async fn commands_out_of_order_are_refused_and_many_mistakes_end_it() {
        let folder = tempfile::tempdir().unwrap();
        let said = talk(folder.path(), "DATA\r\nRCPT TO:<a@b>\r\nMAIL a\r\nQUIT\r\n").await;
        assert!(said.contains("503 5.5.1 RCPT first"), "{said}");
        assert!(said.contains("503 5.5.1 MAIL first"), "{said}");
        assert!(said.contains("501 5.5.4 MAIL FROM"), "{said}");
        let said = talk(folder.path(), &"X\r\n".repeat(50)).await;
        assert_eq!(said.matches("502").count(), 10);
        assert!(said.ends_with("421 4.7.0 too many mistakes\r\n"));
    }

    #[tokio::test]
    async fn what_is_too_large_is_refused_and_the_session_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let large = format!("A: b\r\n\r\n{}", "x\r\n".repeat(MESSAGE_BYTES_MAX / 3 + 1));
        let said = talk(folder.path(), &sent(&large)).await;
        assert!(said.contains("552 5.3.4"), "{said}");
        assert!(said.ends_with("221 2.0.0 bye\r\n"));
        assert!(files_in(folder.path()).is_empty());
        let said = talk(folder.path(), &"x".repeat(10_000)).await;
        assert!(said.ends_with("421 4.7.0 too many mistakes\r\n"));
    }

    #[tokio::test]
    async fn a_folder_that_cannot_be_written_is_a_reason_to_try_later() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing");
        let said = talk(&missing, &sent("Message-ID: <1@x>\r\n\r\nx\r\n")).await;
        assert!(said.contains("452 4.3.1"), "{said}");
    }

    fn sent(message: &str) -> String {
        format!("EHLO a\r\nMAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\n{message}.\r\nQUIT\r\n")
    }

    async fn talk(folder: &Path, said: &str) -> String {
        let mut heard = Vec::new();
        let session = Session::new(said.as_bytes(), &mut heard, folder.into());
        session.run().await.unwrap();
        String::from_utf8(heard).unwrap()
    }

    fn files_in(folder: &Path) -> Vec<String> {
        let names = std::fs::read_dir(folder).unwrap();
        names
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }
}
