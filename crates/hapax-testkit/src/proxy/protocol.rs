//! Parser of the PostgreSQL protocol, as far as traps need it.
//!
//! The bytes of each side are split into messages. The client's messages contain the statements,
//! through prepared statements and portals; the server's messages show which of them is completed.
//! Encrypted connections are passed through unchanged.

use std::{
    collections::{HashMap, VecDeque},
    mem,
};

use super::trap::{ClientMessage, Deed, Trap};

const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;
/// The first byte of a TLS handshake without a preceding request.
const HANDSHAKE: u8 = 0x16;

/// The state of one connection.
#[derive(Debug, Default)]
pub(super) struct Protocol {
    phase: Phase,
    /// The texts of prepared statements by name.
    statements: HashMap<String, String>,
    /// The texts of portals by name.
    portals: HashMap<String, String>,
    /// The statements without a response so far, in order.
    awaited: VecDeque<Awaited>,
    /// The latest response to the first of them.
    word: Option<String>,
    /// Number of bytes of the server's response that were parsed and kept back.
    kept: usize,
    /// The client's next statement passes, even if a trap matches.
    is_let_go: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Startup,
    /// The server will respond with one byte whether it encrypts.
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

/// The number of bytes that pass, and what happens after them.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) pass: usize,
    pub(super) sprung: Option<Trap>,
}

impl Protocol {
    /// Parses bytes of the client. Bytes that do not pass have to be given again.
    pub(super) fn client(&mut self, bytes: &[u8], traps: &[Trap]) -> Scan {
        let (mut pass, mut batch) = (0, 0);
        while let Some(Message { tag, body, length }) = self.next_of_client(&bytes[pass..]) {
            let sprung = match tag {
                None => self.opens(body, traps),
                Some(tag) => self.says(tag, body, traps),
            };
            if let Some(trap) = sprung {
                trap.spring(None);
                // The server's timeout of a statement begins with its first message, so that message is
                // held as well.
                if trap.deed() == Deed::HoldBefore {
                    pass = batch;
                }
                let sprung = Some(trap);
                return Scan { pass, sprung };
            }
            pass += length;
            if !matches!(tag, Some(b'P' | b'D' | b'B')) {
                batch = pass;
            }
        }
        if self.phase == Phase::Opaque {
            pass = bytes.len();
        }
        Scan { pass, sprung: None }
    }

    /// Parses bytes of the server. Bytes that do not pass have to be given again.
    ///
    /// A trapped response passes only when it is complete.
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

    /// Lets the client's trapped statement pass when it is given again.
    pub(super) fn let_statement_go(&mut self) {
        self.is_let_go = true;
    }

    /// Lets the server's trapped response pass. Returns the number of bytes that were kept back.
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
                if let Some(trap) = self.caught(ClientMessage::Cancel, traps) {
                    return Some(trap);
                }
                self.phase = Phase::Opaque;
            }
            _ => self.phase = Phase::Talking,
        }
        None
    }

    /// Processes a message of the client. Returns the trap that keeps it back.
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
                let trap = self.caught(ClientMessage::Statement(&runs), traps);
                return self.awaits(trap, Awaited::Execute);
            }
            b'Q' => {
                let trap = self.caught(ClientMessage::Statement(&text()), traps);
                return self.awaits(trap, Awaited::Query);
            }
            b'S' => self.awaited.push_back(Awaited::Sync),
            _ => {}
        }
        None
    }

    fn caught(&mut self, said: ClientMessage<'_>, traps: &[Trap]) -> Option<Trap> {
        if mem::take(&mut self.is_let_go) {
            return None;
        }
        traps.iter().find(|trap| trap.catches(said)).cloned()
    }

    /// Records a statement that the server will respond to, unless its trap keeps it back.
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

    /// Processes a message of the server. Returns the trap whose response is complete with it.
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

    /// After an error the server skips everything up to the next sync.
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

/// A complete message.
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
    // A length includes itself. A smaller value is not a message and is passed on, so that the
    // server refuses it.
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

/// The SQLSTATE in the fields of an error.
fn error_code(body: &[u8]) -> String {
    let mut fields = body.split(|byte| *byte == 0);
    let code = fields.find_map(|field| field.strip_prefix(b"C"));
    String::from_utf8_lossy(code.unwrap_or_default()).into_owned()
}
