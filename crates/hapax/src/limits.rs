//! Default values and upper limits of queues, bodies, headers, keys, retries and waiting times.
//!
//! Each constant gives its unit and the reason for its value. If the limit is a setting, the
//! constant is the default or the maximum of that setting.

use std::time::Duration;

use crate::clock::Timestamp;

/// Maximum length of an idempotency key in bytes. Every id format fits, and the key can be indexed.
pub const KEY_BYTES_MAX: usize = 255;
/// Maximum length of a tenant name or an operation name in bytes. Both are index columns.
pub const SCOPE_PART_BYTES_MAX: usize = 255;
/// Default maximum size of a request body in bytes.
pub const BODY_BYTES_MAX: u64 = 1024 * 1024;
/// Bytes of a request body that are kept in memory. The rest is written to an unnamed file.
pub const BODY_BYTES_IN_MEMORY: usize = 1024 * 1024;
/// Maximum number of bytes in the body files of one service at any time, all requests together.
pub const BODY_FILE_BYTES: u64 = 1024 * 1024 * 1024;
/// Default maximum size of a JSON body in bytes. It also applies to operations that accept larger
/// bodies of other types, because a JSON body is held in memory twice while its members are sorted.
pub const JSON_BYTES_MAX: u64 = 1024 * 1024;
/// Maximum number of members of a JSON object, including those of the objects that contain it.
/// Members are sorted to compute the fingerprint.
pub const JSON_MEMBERS_MAX: usize = 10_000;
/// JSON bodies up to this size are canonicalized on the async worker, which takes up to a
/// millisecond. Larger bodies are canonicalized on a separate thread.
pub const JSON_INLINE_BYTES: usize = 64 * 1024;
/// Maximum number of large JSON bodies that are canonicalized at the same time, in a service with
/// at least twice as many threads. Further requests wait.
pub const JSON_AT_ONCE: usize = 4;
/// Maximum nesting depth of JSON. The canonicalizer is recursive, and the stack is finite.
pub const JSON_DEPTH_MAX: usize = 128;
/// Maximum number of parts of a multipart body.
pub const MULTIPART_PARTS_MAX: usize = 256;
/// Maximum size of a stored response in bytes. A response is stored in a table row.
pub const RESPONSE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Size in bytes of the cache of completed responses on each node.
pub const REPLAY_CACHE_BYTES: u64 = 8 * 1024 * 1024;
/// How long a node may replay responses from its cache without reading the list of purged keys. A
/// purge reaches every node within this time.
pub const PURGES_FRESH: Duration = Duration::from_secs(1);
/// Age of the list of purged keys at which a cached replay triggers a new read. It is half of
/// [`PURGES_FRESH`], so that a busy node has read the list again before it is too old.
pub const PURGES_DUE: Duration = Duration::from_millis(500);
/// Number of purged keys that a store keeps for nodes to read. A node that has missed more clears
/// its whole cache.
pub const PURGES_KEPT: usize = 1_000;
/// The number of tenants that have a separate bucket in the rate limit of a service; all others
/// share one. A bucket takes about a hundred bytes.
pub const RATE_TENANTS: usize = 65_536;
/// How long a duplicate request waits for the first one to complete.
pub const WAIT: Duration = Duration::from_secs(1);
/// How long a handler may run before its transaction is rolled back, unless the client's own
/// deadline is shorter.
pub const HANDLER: Duration = Duration::from_secs(30);
/// How long a phased request keeps its key after the process that owns it has died. A live process
/// renews the lease.
pub const LEASE: Duration = Duration::from_secs(10);
/// How long a key whose lease has expired waits for the client's own retry before the service
/// resumes the request.
pub const GRACE: Duration = Duration::from_secs(5);
/// How many times [`GRACE`] is doubled, once for each previous owner: from 5 s to about 10 minutes.
pub const GRACE_DOUBLINGS: u32 = 7;
/// Maximum length in bytes of a `tracestate` that is propagated: the minimum that W3C Trace Context
/// asks for.
pub const TRACESTATE_BYTES_MAX: usize = 512;
/// Maximum length of the name of a phase in bytes.
pub const RECOVERY_POINT_BYTES_MAX: usize = 255;
/// Maximum size in bytes of a request (body and headers) that is stored so that it can be resumed
/// without its client.
pub const REQUEST_BYTES_MAX: usize = 1024 * 1024 + 64 * 1024;
/// Maximum number of keys with an expired lease that one service resumes at the same time.
pub const RESUMED_KEYS: usize = 16;
/// How long an open transaction may occupy a store that executes writes one at a time.
pub const TRANSACTION: Duration = Duration::from_secs(5);
/// How many times a request is run again after its transaction has failed because of a deadlock or
/// a serialization failure.
pub const RERUNS: u32 = 3;
/// Maximum pause before a request is run again, multiplied by the number of runs so far. The pause
/// is random, so that transactions that have conflicted do not conflict again.
pub const RERUN_PAUSE: Duration = Duration::from_millis(10);
/// Maximum number of jobs in the queue of a single writer. When the queue is full, callers wait.
pub const WRITER_JOBS: usize = 4_096;
/// Default time for which a completed key is kept.
pub const RETENTION: Duration = Duration::from_hours(24);
/// A shorter retention is accepted with a warning: a slow client's retry can arrive after the
/// response was deleted.
pub const RETENTION_WARN: Duration = Duration::from_hours(1);
/// Maximum retention that an operation may set.
pub const RETENTION_MAX: Duration = Duration::from_hours(720);
/// How long the tombstone of an expired key is kept. During this time, requests with the key
/// receive "gone".
pub const TOMBSTONE: Duration = Duration::from_hours(168);
/// How long events are kept after every destination has settled them.
pub const EVENT_RETENTION: Duration = Duration::from_hours(168);
/// How long the inbox remembers a message. This is longer than any known sender retries.
pub const INBOX_RETENTION: Duration = Duration::from_hours(720);
/// Maximum number of rows that one purge statement deletes, so that it does not delay other work.
pub const PURGE_ROWS: usize = 500;
/// Number of purge batches of each kind in one round of retention, before other housekeeping runs.
pub const PURGE_TURNS: usize = 100;

/// Maximum length of an event type in bytes.
pub const EVENT_TYPE_BYTES_MAX: usize = 255;
/// Maximum length of an aggregate type or an aggregate id in bytes.
pub const AGGREGATE_BYTES_MAX: usize = 255;
/// Maximum size of an event payload in bytes.
pub const PAYLOAD_BYTES_MAX: usize = 1024 * 1024;
/// Maximum number of headers of one event.
pub const EVENT_HEADERS_MAX: usize = 64;
/// Maximum size of one event header in bytes, name and value together.
pub const EVENT_HEADER_BYTES_MAX: usize = 4096;
/// Upper bound of the time until which an event may be delayed: the year 10000, the first year that
/// does not fit a four-digit timestamp.
pub const AVAILABLE_BEFORE: Timestamp = Timestamp::from_millis(253_402_300_800_000);
/// Maximum number of events that one transaction may emit.
pub const EVENTS_PER_TRANSACTION_MAX: usize = 10_000;
/// Maximum length of a message id or a consumer name in the inbox, in bytes.
pub const MESSAGE_ID_BYTES_MAX: usize = 255;
/// Maximum length in bytes of the result that a consumer records for a message. It is a short text or
/// JSON for operators, in a row that is kept for [`INBOX_RETENTION`].
pub const MESSAGE_RESULT_BYTES_MAX: usize = 1024;

/// Maximum number of events in one read of the outbox.
pub const READ_EVENTS: usize = 4_000;
/// Maximum number of waiting deliveries that are loaded together with the delivery that blocks
/// them. More of them save reads, but leave less room for other deliveries that are due.
pub const BEHIND: usize = 16;
/// Stored size (payload, headers, names) in bytes at which one read of the outbox ends.
pub const READ_BYTES: usize = 2 * 1024 * 1024;
/// Maximum number of events of one destination in memory, either queued or in flight.
pub const WINDOW_EVENTS: usize = 10_000;
/// Number of events of one tenant in a destination's window at which the relay starts to read ahead
/// for other tenants.
pub const CROWD_EVENTS: usize = 2_000;
/// Maximum number of events that are read ahead for other tenants and remembered until the
/// checkpoint has reached them.
pub const PAST_EVENTS: usize = 4_000;
/// Maximum stored size in bytes of events that are read ahead for other tenants while the window is
/// full.
pub const PAST_BYTES: usize = 8 * 1024 * 1024;
/// Maximum number of events found by one read ahead for other tenants.
pub const PAST_READ: usize = 200;
/// Interval between two reads ahead for other tenants.
pub const PAST_LOOK: Duration = Duration::from_millis(25);
/// Maximum stored size in bytes of the events in one destination's window. One event always fits.
pub const WINDOW_BYTES: usize = 8 * 1024 * 1024;
/// Maximum number of blocked order keys of one destination in memory. If there are more, the relay
/// asks the store about the keys of each batch that it reads.
pub const BLOCKED_KEYS: usize = 10_000;
/// Interval at which the relay checks whether the blocked keys fit into memory again.
pub const BLOCKED_LOOK: Duration = Duration::from_secs(30);
/// Maximum number of events that are read but are not covered by the checkpoint yet. After a crash
/// at most this many are delivered again.
pub const UNSETTLED_EVENTS: usize = 16_000;
/// Number of recent reads that are kept for destinations at the head of the outbox.
pub const TAIL_BATCHES: usize = 4;
/// Default time limit for one delivery attempt by a sink, from connecting to the response.
pub const OFFER: Duration = Duration::from_secs(15);
/// How long outcomes are collected before they are written together, if there is nothing else to
/// write.
pub const SETTLE_LINGER: Duration = Duration::from_millis(10);
/// First and longest pause of a relay after its store has failed.
pub const STORE_BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// Interval at which a relay reports the backlog of its destinations.
pub const REPORT: Duration = Duration::from_secs(2);
/// The same while nothing is committed or settled: the backlogs then hardly change, and reading
/// them would be most of the work of an idle relay.
pub const REPORT_IDLE: Duration = Duration::from_secs(10);
/// Default number of concurrent delivery attempts of one destination.
pub const CONCURRENCY: usize = 32;
/// Poll interval after a read that has found events. The effective interval is the next tick of the
/// timer, which has a resolution of one millisecond.
pub const POLL_BUSY: Duration = Duration::from_micros(500);
/// Poll interval while at least [`LADEN`] attempts are in flight: their outcomes are work enough,
/// and each poll costs the other destinations time.
pub const POLL_LADEN: Duration = Duration::from_millis(2);
/// Number of attempts in flight at which [`POLL_LADEN`] applies.
pub const LADEN: usize = 8;
/// Poll interval as a fraction of the idle time: after being idle for `t`, the relay waits
/// `t / POLL_PART`.
pub const POLL_PART: u32 = 8;
/// Longest poll interval of a relay that receives no notification. It polls once for all of its
/// partitions that have nothing to do.
pub const POLL_IDLE: Duration = Duration::from_millis(50);
/// Poll interval of a relay that its source wakes. A wake-up that is lost delays an event by at
/// most this much.
pub const POLL_ASLEEP: Duration = Duration::from_secs(2);
/// Time without events after which a relay asks its source to wake it.
pub const SLEEP_AFTER: Duration = Duration::from_secs(1);
/// How long a relay waits before it asks its source again to wake it, if the source could not at
/// the moment.
pub const SLEEP_RETRY: Duration = Duration::from_secs(1);
/// How often a relay asks again while it relies on another process to be woken.
pub const SLEEP_SHARED: Duration = Duration::from_secs(5);
/// How long a relay waits before it asks its source again to wake it, after an error. The source
/// may open connections for each question.
pub const SLEEP_FAILED: Duration = Duration::from_secs(30);
/// Maximum number of events that a relay reads at once to learn which of its idle partitions have
/// some. If there are so many, it wakes all of them.
pub const LOOKOUT_EVENTS: usize = 64;
/// How long after an event a relay wakes the idle partitions for which there was none: their
/// checkpoints have to pass it.
pub const CATCH_UP: Duration = Duration::from_millis(250);
/// Interval at which a relay asks which of its partitions have a parked delivery that is due:
/// another process may have changed it, for example for an operator, or the clock may have been
/// set.
pub const POLL_PARKED: Duration = Duration::from_millis(500);
/// The same while its source wakes the relay.
pub const POLL_PARKED_ASLEEP: Duration = Duration::from_secs(2);
/// Poll interval of a partition for which the relay as a whole polls.
pub const POLL_RESTING: Duration = Duration::from_hours(1);
/// How often a relay reads what operators have set for its destinations: a pause takes effect within a
/// second.
pub const OPERATOR_POLL: Duration = Duration::from_millis(500);
/// The same while the store reports with each heartbeat, at least once in [`HEARTBEAT_SOON`], that
/// there are no changes.
pub const OPERATOR_POLL_KNOWN: Duration = Duration::from_secs(30);
/// Interval of heartbeats up to which a relay relies on them to learn of changes by operators.
pub const HEARTBEAT_SOON: Duration = Duration::from_secs(1);
/// How long a relay may miss its heartbeat before other relays take its partitions.
pub const NODE_LEASE: Duration = Duration::from_secs(5);
/// How long a draining relay waits for attempts in flight.
pub const DRAIN: Duration = Duration::from_secs(20);
/// Maximum number of bytes of a receiver's response that are read and kept.
pub const RESPONSE_HEAD_BYTES: usize = 16 * 1024;
/// Maximum number of signatures on one message. Each may cost an ed25519 verification, and a key
/// rotation needs two.
pub const SIGNATURES_MAX: usize = 16;
/// Maximum length in bytes of a stored error message.
pub const ERROR_BYTES: usize = 1024;
/// Maximum number of bytes of a payload or a stored response that are shown to an operator.
pub const SHOWN_BYTES_MAX: usize = 256 * 1024;
/// Number of consecutive failures that open the circuit breaker of a destination.
pub const BREAKER_FAILURES: u32 = 10;
/// How long every attempt at a destination may fail before the destination is disabled.
pub const FAILING_MAX: Duration = Duration::from_hours(5 * 24);
/// Maximum part of the time between two failures that counts as failing. A destination with an open
/// breaker is probed every few seconds; without events there are no failures.
pub const FAILING_GAP: Duration = Duration::from_hours(1);
/// How long an open breaker waits before it sends a probe.
pub const BREAKER_OPEN: Duration = Duration::from_secs(10);
/// Maximum length in bytes of a saga id, a saga kind and a signal name. They are index columns.
pub const SAGA_NAME_BYTES_MAX: usize = 255;
/// Maximum size in bytes of a saga's input, and of the request, result and response of a step. They
/// are stored in table rows.
pub const SAGA_INPUT_BYTES_MAX: usize = 64 * 1024;
/// Remaining retention that is reported for a response whose retention is over while a saga that
/// was started under its key has not ended. The SQL functions report the same value.
pub const SAGA_KEY: Duration = Duration::from_mins(1);
/// How long a saga may run before a step with an unknown outcome is left to an operator.
pub const SAGA_DEADLINE: Duration = Duration::from_mins(15);
/// How long after the deadline a failing end transaction is retried before the saga needs
/// attention.
pub const SAGA_ENDING: Duration = Duration::from_hours(1);
/// Time limit of one call of a saga to a remote system.
pub const SAGA_CALL: Duration = Duration::from_secs(4);
/// First and longest pause between two attempts of a step. The first is short because a client may
/// be waiting.
pub const SAGA_PAUSE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_mins(1));
/// How long a remote system is called again under the same key. After that the outcome is looked up
/// instead. Providers keep keys for at least 24 h.
pub const SAGA_WINDOW: Duration = Duration::from_hours(1);
/// How long a call that was given up may still arrive at the remote system.
pub const SAGA_SETTLE_TIME: Duration = Duration::from_secs(30);
/// How long a remote system is assumed to remember a key, from the first call under it. That it
/// does not know an older key proves nothing. If twice the window is longer, that is used instead.
pub const SAGA_MEMORY: Duration = Duration::from_hours(24);
/// How many times the compensation of a step is attempted before the saga needs attention: some
/// hours of growing pauses.
pub const SAGA_UNDO_ATTEMPTS: u32 = 100;
/// Maximum number of sagas that one worker runs at the same time.
pub const SAGAS_AT_ONCE: usize = 32;
/// Longest poll interval of a saga worker.
pub const SAGA_POLL: Duration = Duration::from_millis(500);
/// How far in the future a timestamp of a past event may be, because clocks differ. A timestamp
/// that is further ahead was written while the clock was wrong.
pub const CLOCK_AHEAD: Duration = Duration::from_mins(1);
/// How far in the future a lease or the next step of a saga may be when a store is opened or its
/// clock was set back. A later time is replaced by this one; a saga that is really meant to sleep
/// longer is then looked at once more.
pub const SLEEP_AHEAD: Duration = Duration::from_hours(1);
/// How long sagas are kept after their end.
pub const SAGA_RETENTION: Duration = Duration::from_hours(720);

/// Maximum number of connections of one listener. Each costs a file descriptor and some kilobytes.
pub const LISTENER_CONNECTIONS: usize = 1_024;
/// Number of file descriptors that a process is assumed to have if the system does not report it.
pub const LISTENER_DESCRIPTORS: usize = 256;
/// Divisor for the file descriptors of a process with one listener: it gets half. The rest is for
/// files, the database and outgoing connections.
pub const LISTENER_SHARE: usize = 2;
/// Divisor for the file descriptors that each listener of a relay gets: an eighth. Three quarters
/// remain for deliveries.
pub const LISTENER_SHARE_OF_RELAY: usize = 8;
/// How long a client may take to send the head of a request, and how long an idle connection is
/// kept.
pub const LISTENER_HEAD: Duration = Duration::from_secs(10);
/// How long a client may take to send the body of a request. The largest is 64 KiB.
pub const LISTENER_BODY: Duration = Duration::from_secs(10);
/// How long a write may wait for a client that does not read its response.
pub const LISTENER_WRITE: Duration = Duration::from_secs(30);
/// How long a listener waits for the client of a connection before it may close the connection in
/// favor of a new client, if all connections are in use.
pub const LISTENER_PLACE: Duration = Duration::from_millis(500);
/// The same while it waits for the head of a connection's first request. A client sends that head
/// right after it has connected, and a flood of connections without one is to be over before a new
/// client gives up: a thousand of them pass through a hundred places in a second and a half. It is
/// closed a quarter of this time later, if its head has not been read until then.
pub const LISTENER_PLACE_HEAD: Duration = Duration::from_millis(100);
/// Rate in bytes per second at which bytes of a body that arrive make up for time spent waiting for
/// the client.
pub const LISTENER_RATE: u64 = 16 * 1024;
/// Maximum number of bytes that are read ahead from a connection. This also bounds the head of a
/// request.
pub const LISTENER_READ_AHEAD: usize = 64 * 1024;
/// How long requests in flight may take after a listener was asked to stop.
pub const LISTENER_FINISH: Duration = Duration::from_secs(35);
/// Maximum number of threads for blocking work, such as file writes, in the shop and in the `hapax`
/// binary. The allocator keeps memory for each thread.
pub const BLOCKING_THREADS: usize = 32;

/// Maximum number of attempts of one operation of the retry client, including the first.
pub const SEND_ATTEMPTS: u32 = 5;
/// Time limit of one operation of the retry client, including all attempts and pauses.
pub const SEND: Duration = Duration::from_secs(10);
/// Upper bound of the first pause of the retry client. It doubles with each attempt.
pub const BACKOFF_BASE: Duration = Duration::from_millis(100);
/// Maximum of the upper bound of a pause of the retry client.
pub const BACKOFF_CAP: Duration = Duration::from_secs(2);
/// Longest `Retry-After` of a remote system that is honored.
pub const RETRY_AFTER_MAX: Duration = Duration::from_hours(24);
/// Maximum size in bytes of a response that the retry client accepts.
pub const RECEIVED_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Number of remote systems with a separate retry budget. All others share one budget.
pub const BUDGETS: usize = 1_024;
/// Default maximum age of a key in a client's journal at which it is still sent. It equals the
/// default retention of a service.
pub const RESUME: Duration = RETENTION;
/// How far in the future the timestamp of a journal line may be, for a clock that was corrected.
/// The age of a line that is further ahead is unknown.
pub const JOURNAL_CLOCK: Duration = Duration::from_mins(1);
/// How long to wait for the lock of a journal. Its holder writes and syncs one line.
pub const JOURNAL_LOCK: Duration = Duration::from_secs(5);
/// Size of a client's journal in bytes at which finished entries are removed from it.
pub const JOURNAL_BYTES: u64 = 1024 * 1024;
/// Size of a client's journal in bytes above which it is refused. Unfinished entries alone do not
/// take this much.
pub const JOURNAL_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Maximum number of characters of the note of an attempt.
pub const NOTE_CHARS: usize = 200;
