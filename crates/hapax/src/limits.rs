//! Every bound in one place, with its unit and its reason.
//!
//! A queue, body, header, key or retry that is not bounded is a way to fall
//! over. Where a bound is a setting, this is its default or its ceiling.

use std::time::Duration;

use crate::clock::Timestamp;

/// Bytes of an idempotency key: long enough for any id, short enough to index.
pub const KEY_BYTES_MAX: usize = 255;
/// Bytes of a tenant or of an operation: they are index columns too.
pub const SCOPE_PART_BYTES_MAX: usize = 255;
/// Bytes of a request body by default.
pub const BODY_BYTES_MAX: u64 = 1024 * 1024;
/// Bytes of a request body that are kept in memory; what is longer goes to an unnamed file.
pub const BODY_BYTES_IN_MEMORY: usize = 1024 * 1024;
/// Bytes of all request bodies that are in files at once, for one service.
pub const BODY_FILE_BYTES: u64 = 1024 * 1024 * 1024;
/// Bytes of a JSON body by default, also where an operation takes longer bodies of other types:
/// JSON is in memory whole, and again while its members are sorted.
pub const JSON_BYTES_MAX: u64 = 1024 * 1024;
/// Members of an object of a JSON body, with those of the objects around it: they are sorted.
pub const JSON_MEMBERS_MAX: usize = 10_000;
/// Bytes of a JSON body up to which it is brought into its canonical form where it is, which takes
/// up to a millisecond; a longer one goes to a thread that may block.
pub const JSON_INLINE_BYTES: usize = 64 * 1024;
/// Longer JSON bodies that are brought into their canonical form at once, where the service has
/// twice as many threads; others wait.
pub const JSON_AT_ONCE: usize = 4;
/// How deep JSON may nest: the canonicaliser recurses, and the stack is finite.
pub const JSON_DEPTH_MAX: usize = 128;
/// Parts of one multipart body.
pub const MULTIPART_PARTS_MAX: usize = 256;
/// Bytes of an answer that is stored: a row, not a file store.
pub const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of completed answers that a node keeps in memory.
pub const REPLAY_CACHE_BYTES: u64 = 8 * 1024 * 1024;
/// How long a node replays from memory without having read which keys were purged: a purge reaches
/// every node within this time.
pub const PURGES_FRESH: Duration = Duration::from_secs(1);
/// How old that reading is when a replay from memory has it read anew: half the time, so that a busy
/// node has read again before the time is up.
pub const PURGES_DUE: Duration = Duration::from_millis(500);
/// Purged keys that a store keeps for nodes to read: a node that has missed more forgets every answer.
pub const PURGES_KEPT: usize = 1_000;
/// How long a duplicate waits for the first to finish.
pub const WAIT: Duration = Duration::from_secs(1);
/// How long a handler may take before it is rolled back, unless the client has less time.
pub const HANDLER: Duration = Duration::from_secs(30);
/// How long a phased request's key stays its owner's when the owner has died; a live one renews it.
pub const LEASE: Duration = Duration::from_secs(10);
/// How long a lapsed key waits for its client's own retry before it is resumed without it.
pub const GRACE: Duration = Duration::from_secs(5);
/// How often that wait doubles, once for each owner: from 5 s to 10 minutes and no longer.
pub const GRACE_DOUBLINGS: u32 = 7;
/// Bytes of a `tracestate` that travels on: what W3C asks everybody to carry at least.
pub const TRACESTATE_BYTES_MAX: usize = 512;
/// Bytes of a phase's name.
pub const RECOVERY_POINT_BYTES_MAX: usize = 255;
/// Bytes of a request that is kept to be resumed without its client: a body and its headers.
pub const REQUEST_BYTES_MAX: usize = 1024 * 1024 + 64 * 1024;
/// Lapsed keys that one service resumes at once.
pub const RESUMED_KEYS: usize = 16;
/// How long an open transaction may hold a store whose writes go one at a time.
pub const TRANSACTION: Duration = Duration::from_secs(5);
/// How often a request runs again whose transaction lost against another one.
pub const RERUNS: u32 = 3;
/// How long it waits before that, at most and for each time it has run: who lost together must
/// not meet again at once.
pub const RERUN_PAUSE: Duration = Duration::from_millis(10);
/// Jobs that wait for a single writer; beyond this the callers wait.
pub const WRITER_JOBS: usize = 4_096;
/// How long a completed key is remembered by default.
pub const RETENTION: Duration = Duration::from_hours(24);
/// Below this a slow client's retry can come after the answer was forgotten: warn.
pub const RETENTION_WARN: Duration = Duration::from_hours(1);
/// The longest retention that an operation may ask for.
pub const RETENTION_MAX: Duration = Duration::from_hours(720);
/// How long a tombstone says "gone" after its key expired.
pub const TOMBSTONE: Duration = Duration::from_hours(168);
/// How long events stay after every destination has passed them.
pub const EVENT_RETENTION: Duration = Duration::from_hours(168);
/// How long the inbox remembers: longer than any sender's last retry.
pub const INBOX_RETENTION: Duration = Duration::from_hours(720);
/// Rows that one purge deletes: small enough not to be felt.
pub const PURGE_ROWS: usize = 500;
/// Batches of each kind that one round of retention deletes before other housekeeping has its turn.
pub const PURGE_TURNS: usize = 100;

/// Bytes of an event's type.
pub const EVENT_TYPE_BYTES_MAX: usize = 255;
/// Bytes of an aggregate's type or id.
pub const AGGREGATE_BYTES_MAX: usize = 255;
/// Bytes of an event's payload.
pub const PAYLOAD_BYTES_MAX: usize = 1024 * 1024;
/// Headers of one event.
pub const EVENT_HEADERS_MAX: usize = 64;
/// Bytes of one event header, name and value.
pub const EVENT_HEADER_BYTES_MAX: usize = 4096;
/// The moment up to which an event may be held back: year 10000, which no text of a moment writes
/// in four digits.
pub const AVAILABLE_BEFORE: Timestamp = Timestamp::from_millis(253_402_300_800_000);
/// Events of one transaction.
pub const EVENTS_PER_TRANSACTION_MAX: usize = 10_000;
/// Bytes of a message id or a consumer in the inbox.
pub const MESSAGE_ID_BYTES_MAX: usize = 255;

/// Events that the relay reads at once.
pub const READ_EVENTS: usize = 4_000;
/// Deliveries that are read together with the one that holds them up: each is one turn less to its
/// store, and a place less for others that fall due.
pub const BEHIND: usize = 16;
/// Stored bytes of events (payload, headers, names) after which one read of the outbox ends.
pub const READ_BYTES: usize = 2 * 1024 * 1024;
/// Events of one destination that are in memory: waiting for their turn or on the wire.
pub const WINDOW_EVENTS: usize = 10_000;
/// Events of one tenant in one destination's window beyond which it is a crowd, and others are
/// looked for past it.
pub const CROWD_EVENTS: usize = 2_000;
/// Events of others that are taken in past a crowd, and remembered until the crowd has passed.
pub const PAST_EVENTS: usize = 4_000;
/// Stored bytes of events beyond a full window after which no more are taken in past a crowd.
pub const PAST_BYTES: usize = 8 * 1024 * 1024;
/// Events that one look past a crowd finds at most.
pub const PAST_READ: usize = 200;
/// How often it is looked past a crowd.
pub const PAST_LOOK: Duration = Duration::from_millis(25);
/// Stored bytes of events in one destination's window; at least one event always fits.
pub const WINDOW_BYTES: usize = 8 * 1024 * 1024;
/// Order keys of one destination with a delivery in the way that are kept in memory; beyond them the
/// store is asked about the keys of each batch that is read.
pub const BLOCKED_KEYS: usize = 10_000;
/// How often it is looked whether they fit into memory again.
pub const BLOCKED_LOOK: Duration = Duration::from_secs(30);
/// Events that are read and not yet behind the checkpoint: what a crash may repeat at most.
pub const UNSETTLED_EVENTS: usize = 16_000;
/// Reads that are kept for destinations at the head of the outbox.
pub const TAIL_BATCHES: usize = 4;
/// How long a sink may take over one offer, the whole exchange.
pub const OFFER: Duration = Duration::from_secs(15);
/// How long outcomes wait to be written down together when nothing else is to be written.
pub const SETTLE_LINGER: Duration = Duration::from_millis(10);
/// How long a relay waits after its store failed, at first and at most.
pub const STORE_BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// How often a relay reports how far behind its destinations are.
pub const REPORT: Duration = Duration::from_secs(2);
/// Offers of one destination that are on the wire at once, by default.
pub const CONCURRENCY: usize = 32;
/// How soon a relay looks again that has just found something: at the next tick of the timer, which
/// comes every millisecond.
pub const POLL_BUSY: Duration = Duration::from_micros(500);
/// The same while offers are on the wire whose answers bring work enough: a look costs the others time.
pub const POLL_LADEN: Duration = Duration::from_millis(2);
/// Offers on the wire from which on a destination counts as laden.
pub const LADEN: usize = 8;
/// Which part of the time for which it has found nothing it waits before it looks again.
pub const POLL_PART: u32 = 8;
/// The longest that the relay waits before it looks again by itself.
pub const POLL_IDLE: Duration = Duration::from_millis(50);
/// How long a relay may show no sign of life before others take what it carries.
pub const NODE_LEASE: Duration = Duration::from_secs(5);
/// How long a draining relay waits for offers in flight.
pub const DRAIN: Duration = Duration::from_secs(20);
/// Bytes of a far side's response that are read and kept.
pub const RESPONSE_HEAD_BYTES: usize = 16 * 1024;
/// Signatures listed on one message: each may cost an ed25519 check, and nobody rotates more.
pub const SIGNATURES_MAX: usize = 16;
/// Bytes of an error text that are kept.
pub const ERROR_BYTES: usize = 1024;
/// Bytes of a payload or a stored answer that are shown to an operator: a page, not a download.
pub const SHOWN_BYTES_MAX: usize = 256 * 1024;
/// Failures in a row that open a destination's breaker.
pub const BREAKER_FAILURES: u32 = 10;
/// How long a destination may fail every single offer before it is disabled.
pub const FAILING_MAX: Duration = Duration::from_hours(5 * 24);
/// How much of the time between two failures counts as failing: a destination that is open is probed
/// every few seconds, and while nothing is offered nothing fails.
pub const FAILING_GAP: Duration = Duration::from_hours(1);
/// How long an open breaker waits before it probes.
pub const BREAKER_OPEN: Duration = Duration::from_secs(10);
/// Bytes of a saga's id, of its kind and of a signal's name: they are index columns.
pub const SAGA_NAME_BYTES_MAX: usize = 255;
/// Bytes of what a saga is given, and of what a step asks, makes or is told: rows, not files.
pub const SAGA_INPUT_BYTES_MAX: usize = 64 * 1024;
/// How long an answer is said to stand, each time somebody asks, whose time is over while a saga that
/// was started under its key has not ended. The SQL functions say as much.
pub const SAGA_KEY: Duration = Duration::from_mins(1);
/// How long a saga may take before what is unknown is left to a person.
pub const SAGA_DEADLINE: Duration = Duration::from_mins(15);
/// For how long behind that it is tried to write an end that fails, before a person is asked.
pub const SAGA_ENDING: Duration = Duration::from_hours(1);
/// How long one call of a saga to a foreign system may take.
pub const SAGA_CALL: Duration = Duration::from_secs(4);
/// The wait behind a step's first try, and the longest: short enough for somebody who waits.
pub const SAGA_PAUSE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_mins(1));
/// How long a foreign system is called again under one key before it is looked up instead: well
/// within the 24 h that providers promise at the least.
pub const SAGA_WINDOW: Duration = Duration::from_hours(1);
/// How long a call that was given up may still be on its way to a foreign system.
pub const SAGA_QUIET: Duration = Duration::from_secs(30);
/// How long a foreign system is taken to remember a key, from the first call under it: that it knows
/// nothing of an older one says nothing. Twice the window, where that is longer.
pub const SAGA_MEMORY: Duration = Duration::from_hours(24);
/// How often it is tried to undo a step before a person is asked: some hours of growing waits.
pub const SAGA_UNDO_ATTEMPTS: u32 = 100;
/// Sagas that one worker drives at once.
pub const SAGAS_AT_ONCE: usize = 32;
/// How long a worker waits at most until it looks for sagas by itself.
pub const SAGA_POLL: Duration = Duration::from_millis(500);
/// How far ahead of the clock a moment of the past may be: clocks differ. One that is further ahead was
/// written while the clock was wrong.
pub const CLOCK_AHEAD: Duration = Duration::from_mins(1);
/// How far ahead of the clock a lease or the next move of a saga may be before a store whose clock was
/// set back, or that is opened, brings it forward: a saga that sleeps for longer is looked at once more.
pub const SLEEP_AHEAD: Duration = Duration::from_hours(1);
/// How long sagas stay after their end.
pub const SAGA_RETENTION: Duration = Duration::from_hours(720);

/// Connections of one listener at a time: each costs a descriptor and some kilobytes.
pub const LISTENER_CONNECTIONS: usize = 1_024;
/// Descriptors that a process is taken to have where its system does not say.
pub const LISTENER_DESCRIPTORS: usize = 256;
/// Which part of the descriptors the one listener of a process takes: the other half is for files,
/// the database and what it calls itself.
pub const LISTENER_SHARE: usize = 2;
/// Which part of them each listener of a relay takes: three quarters are for deliveries.
pub const LISTENER_SHARE_OF_RELAY: usize = 8;
/// How long a client may take over a request's head, and an idle connection stays.
pub const LISTENER_HEAD: Duration = Duration::from_secs(10);
/// How long a client may take over a request's body: the largest is 64 KiB.
pub const LISTENER_BODY: Duration = Duration::from_secs(10);
/// How long a write may wait for a client that does not read its answer.
pub const LISTENER_WRITE: Duration = Duration::from_secs(30);
/// How long a listener waits for the client of a connection before another client that waits for a
/// place is given its one.
pub const LISTENER_PLACE: Duration = Duration::from_secs(1);
/// Bytes of a body per second that make up for the time that its client is waited for.
pub const LISTENER_RATE: u64 = 16 * 1024;
/// Bytes that are read from a connection ahead of whoever takes them, and so of a request's head.
pub const LISTENER_READ_AHEAD: usize = 64 * 1024;
/// How long requests in flight may take once a listener stops.
pub const LISTENER_FINISH: Duration = Duration::from_secs(35);

/// Attempts of one operation of the retry client, the first among them.
pub const SEND_ATTEMPTS: u32 = 5;
/// How long one operation of the retry client may take, all its attempts and waits.
pub const SEND: Duration = Duration::from_secs(10);
/// The ceiling of the first wait between two attempts of the retry client; it doubles with each.
pub const BACKOFF_BASE: Duration = Duration::from_millis(100);
/// What that ceiling never exceeds.
pub const BACKOFF_CAP: Duration = Duration::from_secs(2);
/// How long a far side's Retry-After is believed.
pub const RETRY_AFTER_MAX: Duration = Duration::from_hours(24);
/// Bytes of an answer that the retry client takes in.
pub const RECEIVED_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Destinations that have a retry budget of their own; those beyond share one.
pub const BUDGETS: usize = 1_024;
/// How long after it was written down a key of a client's journal is sent by default: as long as a
/// service remembers it by default.
pub const RESUME: Duration = RETENTION;
/// How far ahead of the clock a line of a journal may be: a clock that was put right. One that is
/// further ahead has no age that anybody knows.
pub const JOURNAL_CLOCK: Duration = Duration::from_mins(1);
/// How long the lock of a journal is waited for: whoever has it syncs a line.
pub const JOURNAL_LOCK: Duration = Duration::from_secs(5);
/// Bytes of a client's journal after which what is done is left out of it.
pub const JOURNAL_BYTES: u64 = 1024 * 1024;
/// Bytes of a client's journal beyond which it is refused: so much cannot be unfinished.
pub const JOURNAL_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Characters of an attempt's note that are kept.
pub const NOTE_CHARS: usize = 200;
