//! SMTP server on loopback that records mail and has configurable faults.
//!
//! It supports EHLO, HELO, MAIL, RCPT, DATA, RSET, NOOP and QUIT, which is what a sender needs, and
//! STARTTLS and AUTH if it is started with a certificate. It keeps accepted mail in memory.

use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};
use tokio_rustls::TlsAcceptor;

use crate::wait;

/// `\0shop\0p@ss` in base64.
const LOGIN: &str = "AHNob3AAcEBzcw==";

/// A received mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mail {
    /// The envelope sender.
    pub from: String,
    /// The envelope recipients.
    pub to: Vec<String>,
    /// Headers and body, with dots unstuffed.
    pub content: Vec<u8>,
}

impl Mail {
    /// Headers and body as text, lossily.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.content).into_owned()
    }

    /// The value of a header on a single line.
    pub fn header(&self, name: &str) -> Option<String> {
        let text = self.text();
        let head = text.split("\r\n\r\n").next()?;
        head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found
                .eq_ignore_ascii_case(name)
                .then(|| value.trim().to_owned())
        })
    }
}

/// A stage of the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The sender has connected.
    Greeting,
    /// After the `MAIL` command.
    Mail,
    /// After a `RCPT` command.
    Recipient,
    /// After the `DATA` command.
    Data,
    /// After the final dot.
    Dot,
}

/// A fault at a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SmtpFault {
    /// Replies with this code, which starts with 4 or 5, and does not accept the mail.
    Refuse(Stage, u16),
    /// Replies with this code and quotes the last address, as many servers do.
    Quote(Stage, u16),
    /// Replies with this line, which starts with 4 or 5, and does not accept the mail.
    Say(Stage, &'static str),
    /// Closes the connection without a reply. At the final dot the mail has been accepted.
    Drop(Stage),
    /// Sends no more replies and keeps the connection open. At the final dot the mail has been
    /// accepted.
    Hang(Stage),
}

impl SmtpFault {
    fn stage(&self) -> Stage {
        match self {
            Self::Refuse(stage, _)
            | Self::Quote(stage, _)
            | Self::Say(stage, _)
            | Self::Drop(stage)
            | Self::Hang(stage) => *stage,
        }
    }
}

/// The encryption that a server with a login offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offers {
    /// No encryption.
    Nothing,
    /// STARTTLS, and login after it.
    StartTls,
    /// TLS from the first byte.
    Wrapped,
}

/// A listener on loopback that records every accepted mail.
///
/// Dropping it closes the listener and all connections.
#[derive(Debug)]
pub struct SmtpReceiver {
    address: SocketAddr,
    script: Arc<Mutex<Script>>,
    serving: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Script {
    next: VecDeque<SmtpFault>,
    usual: Option<SmtpFault>,
    mails: Vec<Mail>,
    commands: Vec<(bool, String)>,
}

impl Script {
    /// The fault at this stage, if any.
    fn strike(&mut self, stage: Stage) -> Option<SmtpFault> {
        let due = |fault: &SmtpFault| fault.stage() == stage;
        match self.next.front() {
            Some(fault) if due(fault) => self.next.pop_front(),
            Some(_) => None,
            None => self.usual.clone().filter(due),
        }
    }
}

impl SmtpReceiver {
    /// Starts a server on a free port of 127.0.0.1 that accepts all mail.
    ///
    /// # Panics
    /// Panics if all ports are in use.
    pub async fn start() -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        Self::start_at(any).await.expect("loopback has a free port")
    }

    /// Starts a server at `address`, for example again after an outage.
    ///
    /// # Errors
    /// Fails if the address is in use.
    pub async fn start_at(address: SocketAddr) -> io::Result<Self> {
        Self::listen(address, None).await
    }

    /// Starts a server that accepts the login `shop` with `p@ss`, and all mail.
    ///
    /// # Panics
    /// Panics if all ports are in use.
    pub async fn start_secured(offers: Offers, acceptor: TlsAcceptor) -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listening = Self::listen(any, Some((offers, acceptor))).await;
        listening.expect("loopback has a free port")
    }

    async fn listen(address: SocketAddr, security: Option<Security>) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let script = Arc::new(Mutex::new(Script::default()));
        let serving = tokio::spawn(serve(listener, Arc::clone(&script), security));
        Ok(Self {
            address,
            script,
            serving,
        })
    }

    /// The address of the listener.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Adds a fault to the queue. Each occurs once, when its stage is next reached.
    pub fn fail_next(&self, fault: SmtpFault) {
        lock(&self.script).next.push_back(fault);
    }

    /// Sets or removes a fault that occurs every time.
    pub fn fail(&self, fault: Option<SmtpFault>) {
        lock(&self.script).usual = fault;
    }

    /// All accepted mails so far, in order.
    pub fn mails(&self) -> Vec<Mail> {
        lock(&self.script).mails.clone()
    }

    /// All commands so far, each with whether it was encrypted.
    pub fn commands(&self) -> Vec<(bool, String)> {
        lock(&self.script).commands.clone()
    }

    /// Waits until `count` mails were accepted, and returns all accepted mails.
    ///
    /// # Panics
    /// Panics if fewer arrive within 10 seconds.
    pub async fn mails_at_least(&self, count: usize) -> Vec<Mail> {
        let within = Duration::from_secs(30);
        wait::eventually(within, async || lock(&self.script).mails.len() >= count).await;
        self.mails()
    }
}

impl Drop for SmtpReceiver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

type Security = (Offers, TlsAcceptor);

/// A connection with or without encryption.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

async fn serve(listener: TcpListener, script: Arc<Mutex<Script>>, security: Option<Security>) {
    // Dropping the set with this task aborts all connections.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let conversation = converse(stream, Arc::clone(&script), security.clone());
                // A sender may leave at any time. The next one is served nevertheless.
                connections.spawn(async { drop(conversation.await) });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn converse(
    stream: TcpStream,
    script: Arc<Mutex<Script>>,
    security: Option<Security>,
) -> io::Result<()> {
    let mut conversation = Conversation {
        stream: BufReader::new(Box::new(stream)),
        script,
        security,
        is_encrypted: false,
        from: None,
        to: Vec::new(),
        heard: String::new(),
    };
    if matches!(conversation.security, Some((Offers::Wrapped, _))) {
        conversation = conversation.encrypted().await?;
    }
    conversation.hold().await
}

struct Conversation {
    stream: BufReader<Box<dyn Stream>>,
    script: Arc<Mutex<Script>>,
    security: Option<Security>,
    is_encrypted: bool,
    from: Option<String>,
    to: Vec<String>,
    heard: String,
}

impl Conversation {
    /// Continues with TLS.
    async fn encrypted(self) -> io::Result<Self> {
        let (_, acceptor) = self.security.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let stream = acceptor.accept(self.stream.into_inner()).await?;
        Ok(Self {
            stream: BufReader::new(Box::new(stream)),
            is_encrypted: true,
            ..self
        })
    }

    async fn hold(mut self) -> io::Result<()> {
        if self.reach(Stage::Greeting).await? {
            self.say("220 localhost ESMTP").await?;
        }
        while let Some(line) = self.line().await? {
            let line = String::from_utf8_lossy(&line).into_owned();
            let verb = line.get(..4).unwrap_or_default().to_ascii_uppercase();
            let command = (self.is_encrypted, line.clone());
            lock(&self.script).commands.push(command);
            match verb.as_str() {
                "EHLO" => self.hello().await?,
                "STAR" => {
                    self.say("220 go on").await?;
                    self = self.encrypted().await?;
                }
                "AUTH" if line.contains(LOGIN) => self.say("235 welcome").await?,
                "AUTH" => self.say("535 no shop:p@ss").await?,
                "HELO" | "NOOP" => self.say("250 ok").await?,
                "MAIL" => self.mail(&line).await?,
                "RCPT" => self.recipient(&line).await?,
                "DATA" => self.data().await?,
                "RSET" => {
                    self.forget();
                    self.say("250 ok").await?;
                }
                "QUIT" => return self.say("221 bye").await,
                _ => self.say("500 what?").await?,
            }
        }
        Ok(())
    }

    async fn hello(&mut self) -> io::Result<()> {
        let offer = match self.security {
            None => "",
            Some((Offers::StartTls, _)) if !self.is_encrypted => "250-STARTTLS\r\n",
            Some(_) => "250-AUTH PLAIN\r\n",
        };
        let reply = format!("250-localhost\r\n{offer}250 8BITMIME");
        self.say(&reply).await
    }

    async fn mail(&mut self, line: &str) -> io::Result<()> {
        if self.reach(Stage::Mail).await? {
            self.forget();
            self.from = Some(address(line));
            self.say("250 ok").await?;
        }
        Ok(())
    }

    async fn recipient(&mut self, line: &str) -> io::Result<()> {
        if self.from.is_none() {
            return self.say("503 MAIL first").await;
        }
        self.heard = address(line);
        if self.reach(Stage::Recipient).await? {
            self.to.push(address(line));
            self.say("250 ok").await?;
        }
        Ok(())
    }

    async fn data(&mut self) -> io::Result<()> {
        if self.to.is_empty() {
            return self.say("503 RCPT first").await;
        }
        if !self.reach(Stage::Data).await? {
            return Ok(());
        }
        self.say("354 go on").await?;
        let content = self.content().await?;
        let mail = Mail {
            from: self.from.take().unwrap_or_default(),
            to: std::mem::take(&mut self.to),
            content,
        };
        let fault = self.strike(Stage::Dot);
        if !matches!(
            fault,
            Some(SmtpFault::Refuse(..) | SmtpFault::Quote(..) | SmtpFault::Say(..))
        ) {
            lock(&self.script).mails.push(mail);
        }
        if self.suffer(fault).await? {
            self.say("250 taken").await?;
        }
        Ok(())
    }

    /// Reads up to the final dot and removes dot stuffing.
    async fn content(&mut self) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        loop {
            let line = self.line().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
            if line == b"." {
                return Ok(content);
            }
            let start = usize::from(line.first() == Some(&b'.'));
            content.extend_from_slice(&line[start..]);
            content.extend_from_slice(b"\r\n");
        }
    }

    /// Applies the fault of a stage. Returns true if the conversation continues normally.
    async fn reach(&mut self, stage: Stage) -> io::Result<bool> {
        let fault = self.strike(stage);
        self.suffer(fault).await
    }

    fn strike(&self, stage: Stage) -> Option<SmtpFault> {
        lock(&self.script).strike(stage)
    }

    async fn suffer(&mut self, fault: Option<SmtpFault>) -> io::Result<bool> {
        match fault {
            None => Ok(true),
            Some(SmtpFault::Refuse(_, code)) => {
                self.say(&format!("{code} no")).await?;
                Ok(false)
            }
            Some(SmtpFault::Quote(_, code)) => {
                let heard = self.heard.clone();
                self.say(&format!("{code} no: <{heard}>")).await?;
                Ok(false)
            }
            Some(SmtpFault::Say(_, line)) => {
                self.say(line).await?;
                Ok(false)
            }
            Some(SmtpFault::Drop(_)) => Err(io::ErrorKind::ConnectionAborted.into()),
            Some(SmtpFault::Hang(_)) => std::future::pending().await,
        }
    }

    fn forget(&mut self) {
        self.from = None;
        self.to.clear();
    }

    async fn say(&mut self, line: &str) -> io::Result<()> {
        self.stream.write_all(line.as_bytes()).await?;
        self.stream.write_all(b"\r\n").await?;
        self.stream.flush().await
    }

    /// A line without its line break; `None` if the sender has closed the connection.
    async fn line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        if self.stream.read_until(b'\n', &mut line).await? == 0 {
            return Ok(None);
        }
        while line
            .last()
            .is_some_and(|byte| matches!(byte, b'\r' | b'\n'))
        {
            line.pop();
        }
        Ok(Some(line))
    }
}

/// The text between the angle brackets.
fn address(line: &str) -> String {
    let inner = line
        .split_once('<')
        .and_then(|(_, rest)| rest.split_once('>'));
    inner.map_or_else(String::new, |(address, _)| address.to_owned())
}

fn lock(script: &Mutex<Script>) -> MutexGuard<'_, Script> {
    script.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENVELOPE: &str = "MAIL FROM:<a@example.com>\r\nRCPT TO:<b@example.com>\r\n";

    #[tokio::test]
    async fn a_mail_is_recorded_with_its_dots_unstuffed() {
        let server = SmtpReceiver::start().await;
        let content = "Subject: hi\r\n\r\n..dot\r\nend\r\n";
        let outcome = speak(
            &server,
            &format!("EHLO me\r\n{ENVELOPE}DATA\r\n{content}.\r\nQUIT\r\n"),
        )
        .await;
        assert_eq!(
            codes(&outcome),
            ["220", "250", "250", "250", "354", "250", "221"]
        );
        let mails = server.mails();
        assert_eq!(mails.len(), 1);
        assert_eq!(mails[0].from, "a@example.com");
        assert_eq!(mails[0].to, ["b@example.com"]);
        assert_eq!(mails[0].text(), "Subject: hi\r\n\r\n.dot\r\nend\r\n");
        assert_eq!(mails[0].header("subject").as_deref(), Some("hi"));
    }

    #[tokio::test]
    async fn a_refused_stage_takes_no_mail_and_the_next_try_does() {
        let server = SmtpReceiver::start().await;
        server.fail_next(SmtpFault::Refuse(Stage::Recipient, 450));
        server.fail_next(SmtpFault::Refuse(Stage::Dot, 554));
        let outcome = speak(&server, &format!("{ENVELOPE}QUIT\r\n")).await;
        assert_eq!(codes(&outcome), ["220", "250", "450", "221"]);
        let whole = format!("{ENVELOPE}DATA\r\nx\r\n.\r\nQUIT\r\n");
        let outcome = speak(&server, &whole).await;
        assert_eq!(codes(&outcome), ["220", "250", "250", "354", "554", "221"]);
        assert_eq!(server.mails(), []);
        speak(&server, &whole).await;
        assert_eq!(server.mails().len(), 1);
    }

    #[tokio::test]
    async fn a_connection_dropped_at_the_final_dot_has_taken_the_mail() {
        let server = SmtpReceiver::start().await;
        server.fail_next(SmtpFault::Drop(Stage::Dot));
        let outcome = speak(&server, &format!("{ENVELOPE}DATA\r\nx\r\n.\r\n")).await;
        assert_eq!(codes(&outcome), ["220", "250", "250", "354"]);
        assert_eq!(server.mails().len(), 1);
    }

    #[tokio::test]
    async fn a_hang_says_nothing_more() {
        let server = SmtpReceiver::start().await;
        server.fail(Some(SmtpFault::Hang(Stage::Greeting)));
        let silence = tokio::time::timeout(Duration::from_millis(50), speak(&server, "")).await;
        assert!(silence.is_err(), "{silence:?}");
    }

    /// Sends everything at once and reads until the server closes the connection.
    async fn speak(server: &SmtpReceiver, text: &str) -> String {
        use tokio::io::AsyncReadExt;
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut outcome = Vec::new();
        // A dropped connection may end with a reset. The bytes that were received before count.
        drop(stream.read_to_end(&mut outcome).await);
        String::from_utf8(outcome).unwrap()
    }

    fn codes(outcome: &str) -> Vec<&str> {
        let last = |line: &&str| line.as_bytes().get(3) != Some(&b'-');
        outcome
            .lines()
            .filter(last)
            .map(|line| &line[..3])
            .collect()
    }
}
