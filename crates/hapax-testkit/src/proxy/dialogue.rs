//! What a client and PostgreSQL say to each other, as far as a trap must understand it.
//!
//! Each side's bytes are cut into messages. The client's say which statement is to run, by way of
//! prepared statements and portals; the server's say which of them is answered. What a
//! connection says once it is encrypted is passed as it is.

use std::{
    collections::{HashMap, VecDeque},
    mem,
};

use super::trap::{Said, Trap};

const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;
/// The first byte of a TLS handshake without a request for it.
const HANDSHAKE: u8 = 0x16;

/// One connection's conversation.
#[derive(Debug, Default)]
pub(super) struct Dialogue {
    phase: Phase,
    /// Texts of prepared statements, by name.
    statements: HashMap<String, String>,
    /// Texts of what portals run, by name.
    portals: HashMap<String, String>,
    /// What the server has yet to answer, in order.
    awaited: VecDeque<Awaited>,
    /// The latest word of the server about the statement at the head.
    word: Option<String>,
    /// Bytes of the server's answer that were looked at and kept back.
    kept: usize,
    /// The client's next statement passes, whoever waits for it.
    is_let_go: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Startup,
    /// The server is to answer with one byte whether it encrypts.
    Asked,
    Talking,
    Opaque,
}

#[derive(Debug)]
enum Awaited {
    Execute(Option<Trap>),
    Query(Option<Trap>),
    Sync,
}

/// How many bytes pass, and what happens behind them.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) pass: usize,
    pub(super) sprung: Option<Trap>,
}

impl Dialogue {
    /// Looks through what the client says; it must be told again what does not pass.
    pub(super) fn client(&mut self, bytes: &[u8], traps: &[Trap]) -> Scan {
        let mut pass = 0;
        while let Some(Message { tag, body, length }) = self.next_of_client(&bytes[pass..]) {
            let sprung = match tag {
                None => self.opens(body, traps),
                Some(tag) => self.says(tag, body, traps),
            };
            if let Some(trap) = sprung {
                trap.spring(None);
                let sprung = Some(trap);
                return Scan { pass, sprung };
            }
            pass += length;
        }
        if self.phase == Phase::Opaque {
            pass = bytes.len();
        }
        Scan { pass, sprung: None }
    }

    /// Looks through what the server says; it must be told again what does not pass.
    ///
    /// A trapped answer does not pass before it is whole.
    pub(super) fn server(&mut self, bytes: &[u8]) -> Scan {
        let mut pass = 0;
        if self.phase == Phase::Asked && !bytes.is_empty() {
            let refused = bytes[0] == b'N';
            self.phase = if refused {
                Phase::Startup
            } else {
                Phase::Opaque
            };
            pass = 1;
        }
        if self.phase == Phase::Opaque {
            pass = bytes.len();
        }
        let mut seen = pass + mem::take(&mut self.kept);
        let mut sprung = None;
        while let Some(Message { tag, body, length }) = tagged(&bytes[seen..]) {
            let is_trapped = self.is_trapped();
            sprung = self.hears(tag.unwrap_or_default(), body);
            seen += length;
            if sprung.is_some() {
                break;
            }
            if !is_trapped {
                pass = seen;
            }
        }
        self.kept = seen - pass;
        if let Some(trap) = &sprung {
            trap.spring(self.word.take());
        }
        Scan { pass, sprung }
    }

    /// The client's trapped statement passes when it is told again.
    pub(super) fn let_statement_go(&mut self) {
        self.is_let_go = true;
    }

    /// How many bytes of the server's trapped answer were kept back, and pass now.
    pub(super) fn let_answer_go(&mut self) -> usize {
        mem::take(&mut self.kept)
    }

    fn next_of_client<'a>(&mut self, bytes: &'a [u8]) -> Option<Message<'a>> {
        match self.phase {
            Phase::Startup if bytes.first() == Some(&HANDSHAKE) => {
                self.phase = Phase::Opaque;
                None
            }
            Phase::Startup => untagged(bytes),
            Phase::Talking => tagged(bytes),
            Phase::Asked | Phase::Opaque => None,
        }
    }

    fn opens(&mut self, body: &[u8], traps: &[Trap]) -> Option<Trap> {
        let code = body
            .first_chunk()
            .map_or(0, |code| u32::from_be_bytes(*code));
        match code {
            SSL_REQUEST | GSS_REQUEST => self.phase = Phase::Asked,
            CANCEL_REQUEST => {
                if let Some(trap) = self.caught(Said::Cancel, traps) {
                    return Some(trap);
                }
                self.phase = Phase::Opaque;
            }
            _ => self.phase = Phase::Talking,
        }
        None
    }

    /// Takes in a message of the client; returns the trap that keeps it back.
    fn says(&mut self, tag: u8, body: &[u8], traps: &[Trap]) -> Option<Trap> {
        let mut texts = body.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        let mut text = || texts.next().unwrap_or_default().into_owned();
        match tag {
            b'P' => {
                self.statements.insert(text(), text());
            }
            b'B' => {
                let (portal, statement) = (text(), text());
                let runs = self.statements.get(&statement).cloned();
                self.portals.insert(portal, runs.unwrap_or_default());
            }
            b'E' => {
                let runs = self.portals.get(&text()).cloned().unwrap_or_default();
                let trap = self.caught(Said::Statement(&runs), traps);
                return self.awaits(trap, Awaited::Execute);
            }
            b'Q' => {
                let trap = self.caught(Said::Statement(&text()), traps);
                return self.awaits(trap, Awaited::Query);
            }
            b'S' => self.awaited.push_back(Awaited::Sync),
            _ => {}
        }
        None
    }

    fn caught(&mut self, said: Said<'_>, traps: &[Trap]) -> Option<Trap> {
        if mem::take(&mut self.is_let_go) {
            return None;
        }
        traps.iter().find(|trap| trap.catches(said)).cloned()
    }

    /// Notes a statement that the server is to answer, unless its trap keeps it back.
    fn awaits(
        &mut self,
        trap: Option<Trap>,
        awaited: impl FnOnce(Option<Trap>) -> Awaited,
    ) -> Option<Trap> {
        match trap {
            Some(trap) if !trap.deed().is_after() => Some(trap),
            trap => {
                self.awaited.push_back(awaited(trap));
                None
            }
        }
    }

    /// Takes in a message of the server; returns the trap whose answer is whole with it.
    fn hears(&mut self, tag: u8, body: &[u8]) -> Option<Trap> {
        match tag {
            b'C' | b'I' | b's' => {
                self.word = Some(first_text(body));
                match self.awaited.front() {
                    Some(Awaited::Execute(_)) => self.answered(),
                    _ => None,
                }
            }
            b'E' => {
                self.word = Some(error_code(body));
                self.failed()
            }
            b'Z' => match self.awaited.front() {
                Some(Awaited::Sync | Awaited::Query(_)) => self.answered(),
                _ => None,
            },
            _ => None,
        }
    }

    /// After an error the server skips all that was to run before the next sync.
    fn failed(&mut self) -> Option<Trap> {
        let mut sprung = None;
        while let Some(Awaited::Execute(_)) = self.awaited.front() {
            sprung = sprung.or(self.answered());
        }
        sprung
    }

    fn answered(&mut self) -> Option<Trap> {
        match self.awaited.pop_front()? {
            Awaited::Execute(trap) | Awaited::Query(trap) => trap,
            Awaited::Sync => None,
        }
    }

    fn is_trapped(&self) -> bool {
        matches!(
            self.awaited.front(),
            Some(Awaited::Execute(Some(_)) | Awaited::Query(Some(_)))
        )
    }
}

/// A whole message.
struct Message<'a> {
    tag: Option<u8>,
    body: &'a [u8],
    length: usize,
}

fn tagged(bytes: &[u8]) -> Option<Message<'_>> {
    let (tag, rest) = bytes.split_first()?;
    let message = untagged(rest)?;
    Some(Message {
        tag: Some(*tag),
        length: message.length + 1,
        ..message
    })
}

fn untagged(bytes: &[u8]) -> Option<Message<'_>> {
    let length = u32::from_be_bytes(*bytes.first_chunk()?) as usize;
    // A length counts itself; less is no message, and is passed on for the server to refuse.
    let body = bytes.get(4..length.max(4))?;
    Some(Message {
        tag: None,
        body,
        length: length.max(4),
    })
}

fn first_text(body: &[u8]) -> String {
    let text = body.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// The SQLSTATE among an error's fields.
fn error_code(body: &[u8]) -> String {
    let mut fields = body.split(|byte| *byte == 0);
    let code = fields.find_map(|field| field.strip_prefix(b"C"));
    String::from_utf8_lossy(code.unwrap_or_default()).into_owned()
}
