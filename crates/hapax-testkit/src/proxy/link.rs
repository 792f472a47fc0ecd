//! One proxied connection: two directions, each with its fault.
//!
//! A direction reads, decides, and writes at the due time. After a fault has swallowed bytes, all
//! later bytes are swallowed too, because a peer that missed bytes must never receive later ones.

use std::{
    collections::VecDeque,
    future::pending,
    pin::pin,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    select,
    sync::oneshot,
};

use super::{
    Direction, Fault, Shared,
    protocol::{Protocol, Scan},
    trap::{Deed, Trap},
};

/// Maximum number of queued bytes per direction. The sender waits when it is reached.
const QUEUED_MAX: usize = 4 * 1024 * 1024;
const READ: usize = 64 * 1024;
/// The type and the length of a message, after which a simple query has its text.
const HEAD: usize = 5;
/// The interval between two pieces of sliced data.
const GAP: Duration = Duration::from_millis(1);

/// How a direction or a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The sender has closed its side.
    Eof,
    /// One of the peers is gone.
    Gone,
    /// A fault closed it.
    Cut,
    /// A fault reset it.
    Reset,
}

/// Forwards a connection until it ends.
pub(super) async fn forward(mut client: TcpStream, mut server: TcpStream, shared: &Shared) {
    let protocol = shared.is_postgres.then(Mutex::<Protocol>::default);
    let mut resets = shared.resets.subscribe();
    let end = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let there = HalfConnection::new(Direction::ToServer, shared, protocol.as_ref());
        let back = HalfConnection::new(Direction::ToClient, shared, protocol.as_ref());
        select! {
            end = both(there.run(from_client, to_server), back.run(from_server, to_client)) => end,
            _ = resets.changed() => End::Reset,
        }
    };
    match end {
        End::Eof | End::Gone => {}
        End::Cut => shared.note(|tally| tally.cut += 1),
        End::Reset => {
            shared.note(|tally| tally.reset += 1);
            for stream in [&client, &server] {
                // The connection may already be closed.
                let _set = stream.set_zero_linger();
            }
        }
    }
}

/// Waits until both directions are closed, or until one of them ends in another way.
async fn both(there: impl Future<Output = End>, back: impl Future<Output = End>) -> End {
    let (mut there, mut back) = (pin!(there), pin!(back));
    select! {
        end = &mut there => if end == End::Eof { back.await } else { end },
        end = &mut back => if end == End::Eof { there.await } else { end },
    }
}

/// One direction.
struct HalfConnection<'a> {
    direction: Direction,
    shared: &'a Shared,
    protocol: Option<&'a Mutex<Protocol>>,
    read: BytesMut,
    queue: VecDeque<(Instant, Bytes)>,
    queued: usize,
    /// The number of bytes that may still pass, with the number of the fault.
    allowance: Option<(u64, usize)>,
    state: State,
}

enum State {
    Passing,
    /// Nothing more is read; queued bytes are still sent.
    Ending(End),
    Swallowing,
    Held(Trap),
}

impl<'a> HalfConnection<'a> {
    fn new(
        direction: Direction,
        shared: &'a Shared,
        protocol: Option<&'a Mutex<Protocol>>,
    ) -> Self {
        Self {
            direction,
            shared,
            protocol,
            read: BytesMut::new(),
            queue: VecDeque::new(),
            queued: 0,
            allowance: None,
            state: State::Passing,
        }
    }

    async fn run(mut self, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> End {
        loop {
            while self
                .queue
                .front()
                .is_some_and(|(due, _)| *due <= Instant::now())
            {
                let (_, bytes) = self.queue.pop_front().unwrap_or_else(|| unreachable!());
                self.queued -= bytes.len();
                if to.write_all(&bytes).await.is_err() {
                    return End::Gone;
                }
            }
            if let (State::Ending(end), true) = (&self.state, self.queue.is_empty()) {
                if *end == End::Eof {
                    // The peer may already be gone.
                    let _shut = to.shutdown().await;
                }
                return *end;
            }
            let alarm = self
                .queue
                .front()
                .map(|(due, _)| self.shared.alarm().at(*due));
            self.step(alarm, &mut from).await;
        }
    }

    /// Waits for the first of: the due time of a chunk, more bytes, the release of a trap.
    async fn step(&mut self, alarm: Option<oneshot::Receiver<()>>, from: &mut ReadHalf<'_>) {
        self.read.reserve(READ);
        let (is_reading, held) = match &self.state {
            State::Passing => (self.queued < QUEUED_MAX, None),
            State::Swallowing => (true, None),
            State::Ending(_) => (false, None),
            State::Held(trap) => (false, Some(trap.clone())),
        };
        select! {
            biased;
            _ = async { alarm.expect("an alarm is set").await }, if alarm.is_some() => {}
            () = async { held.as_ref().expect("a trap is held").is_released().await },
                if held.is_some() => self.release(),
            read = from.read_buf(&mut self.read), if is_reading => match read {
                Ok(0) => self.hear_the_end().await,
                Ok(_) => self.take(),
                Err(_) => self.state = State::Ending(End::Gone),
            },
        }
    }

    /// A black hole also swallows the end of the connection: the peer is not informed.
    async fn hear_the_end(&mut self) {
        if matches!(self.state, State::Swallowing) {
            pending::<()>().await;
        }
        self.state = State::Ending(End::Eof);
    }

    /// Decides about the bytes that were read.
    fn take(&mut self) {
        let (fault, number) = self.shared.fault(self.direction);
        if fault == Fault::BlackHole {
            self.state = State::Swallowing;
        }
        if matches!(self.state, State::Swallowing) {
            self.swallow();
            return;
        }
        let Scan { pass, sprung } = self.scan();
        let pass = self.allowed(pass, fault, number);
        self.pass(pass, fault);
        if let Some(trap) = sprung {
            self.spring(trap);
        }
    }

    fn scan(&mut self) -> Scan {
        let Some(protocol) = self.protocol else {
            let pass = self.read.len();
            return Scan { pass, sprung: None };
        };
        let mut protocol = protocol.lock().unwrap_or_else(PoisonError::into_inner);
        match self.direction {
            Direction::ToServer => protocol.client(&self.read, &self.shared.traps()),
            Direction::ToClient => protocol.server(&self.read),
        }
    }

    /// How many of `pass` bytes a cut permits.
    fn allowed(&mut self, pass: usize, fault: Fault, number: u64) -> usize {
        let Fault::CutAfter(bytes) = fault else {
            return pass;
        };
        let left = match self.allowance {
            Some((of, left)) if of == number => left,
            _ => bytes,
        };
        self.allowance = Some((number, left.saturating_sub(pass)));
        if pass >= left {
            self.state = State::Ending(End::Cut);
        }
        pass.min(left)
    }

    fn pass(&mut self, bytes: usize, fault: Fault) {
        if bytes == 0 {
            return;
        }
        let due = match fault {
            Fault::Delay(delay) => Instant::now() + delay,
            _ => Instant::now(),
        };
        // Bytes that were sent earlier arrive earlier, even if the delay has changed.
        let mut due = self.queue.back().map_or(due, |(last, _)| due.max(*last));
        self.queued += bytes;
        let mut rest = self.read.split_to(bytes).freeze();
        if let Fault::Slice(piece) = fault {
            while rest.len() > piece.max(1) {
                self.queue.push_back((due, rest.split_to(piece.max(1))));
                due += GAP;
            }
        }
        self.queue.push_back((due, rest));
    }

    fn spring(&mut self, trap: Trap) {
        match trap.deed() {
            Deed::CutBefore | Deed::CutAfter => self.state = State::Ending(End::Cut),
            Deed::SwallowBefore | Deed::SwallowAfter => {
                self.state = State::Swallowing;
                self.swallow();
            }
            Deed::HoldBefore | Deed::HoldAfter => self.state = State::Held(trap),
            Deed::Garble => {
                if let Some(letter) = self.read.get_mut(HEAD) {
                    *letter = b'?';
                }
                self.release();
            }
        }
    }

    fn release(&mut self) {
        self.state = State::Passing;
        let protocol = self
            .protocol
            .expect("only PostgreSQL connections have traps");
        let mut protocol = protocol.lock().unwrap_or_else(PoisonError::into_inner);
        match self.direction {
            Direction::ToServer => protocol.let_statement_go(),
            Direction::ToClient => {
                let kept = protocol.let_answer_go();
                drop(protocol);
                self.pass(kept, Fault::None);
                return self.take();
            }
        }
        drop(protocol);
        self.take();
    }

    fn swallow(&mut self) {
        let bytes = self.read.len();
        self.read.clear();
        self.shared.note(|tally| tally.swallowed += bytes);
    }
}
