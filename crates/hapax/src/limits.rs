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
/// Default maximum size of a JSON body in bytes, also for operations that accept larger bodies of other
/// types, because a JSON body is held in memory twice while its members are sorted.
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
/// Maximum size of a filter of a destination in bytes. It is part of a declaration, and is read again
/// with it.
pub const FILTER_BYTES_MAX: usize = 16 * 1024;
/// Maximum nesting depth of a filter. Filters are compiled and applied recursively.
pub const FILTER_DEPTH_MAX: usize = 16;
/// Maximum number of conditions of a filter. An event costs at most the size of its value for each.
pub const FILTER_CONDITIONS_MAX: usize = 100;
/// Maximum number of values in a list of a filter. Each is compared with the value of the event.
pub const FILTER_VALUES_MAX: usize = 1_000;
/// Size in bytes up to which a payload is read by filters. Stores accept no larger one.
pub const FILTER_PAYLOAD_BYTES_MAX: usize = PAYLOAD_BYTES_MAX;
/// Size in bytes up to which a payload is filtered for endpoints, and tried, on an async worker.
pub const FILTERED_INLINE_BYTES: usize = 16 * 1024;
/// Maximum number of stored events on which a filter is tried at once.
pub const FILTER_TRIAL_EVENTS: usize = 1_000;
/// How long a filter is tried on stored events before the result so far is returned.
pub const FILTER_TRIAL: Duration = Duration::from_secs(10);
/// Maximum size of a mapping in bytes, as of a filter.
pub const MAPPING_BYTES_MAX: usize = 16 * 1024;
/// Maximum nesting depth of a mapping. Mappings are compiled and applied recursively.
pub const MAPPING_DEPTH_MAX: usize = 16;
/// Maximum number of values in a mapping: objects, arrays, paths and literals.
pub const MAPPING_VALUES_MAX: usize = 1_000;
/// Maximum number of paths in a mapping. Each is evaluated once for each item of a list.
pub const MAPPING_PATHS_MAX: usize = 100;
/// Maximum number of items that all lists of a mapping have together for one event. Each costs at most the
/// size of the mapping.
pub const MAPPING_ITEMS_MAX: usize = 10_000;
/// Maximum size in bytes of what a mapping makes of an event. Receivers of webhooks often accept less.
pub const MAPPED_BYTES_MAX: usize = 256 * 1024;
/// Maximum number of stored events on which a mapping is tried at once. Each result is returned whole.
pub const MAPPING_TRIAL_EVENTS: usize = 20;
/// Maximum number of stored events on which the settings of an endpoint are tried at once.
pub const ENDPOINT_TRIAL_EVENTS: usize = 50;
/// Maximum number of trials that the admin API, the console and the portal of a process each run at the same
/// time: for one tenant, and in all. One whose client has disconnected counts until its current event is done.
pub const TRIALS: (usize, usize) = (2, 8);
/// Maximum size of the file of an event catalogue in bytes. It is read whole, once at the start.
pub const CATALOGUE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Maximum number of event types of a catalogue. The public page lists all of them.
pub const CATALOGUE_TYPES_MAX: usize = 1_000;
/// Maximum number of versions of an event type.
pub const CATALOGUE_VERSIONS_MAX: usize = 32;
/// Maximum number of examples of a version.
pub const CATALOGUE_EXAMPLES_MAX: usize = 16;
/// Maximum number of flags of an event type.
pub const CATALOGUE_FLAGS_MAX: usize = 16;
/// Maximum length of a flag, and of the name of a definition, in bytes.
pub const CATALOGUE_NAME_BYTES_MAX: usize = 64;
/// Maximum number of definitions that all schemas of a catalogue share, and of those of one schema.
pub const CATALOGUE_DEFINITIONS_MAX: usize = 128;
/// Maximum size of a schema as compact JSON in bytes. The time for which it is compiled grows with the
/// square of its size.
pub const CATALOGUE_SCHEMA_BYTES_MAX: usize = 64 * 1024;
/// Maximum nesting depth of a schema. Schemas are compiled and applied recursively.
pub const CATALOGUE_SCHEMA_DEPTH_MAX: usize = 32;
/// Maximum nesting depth of a payload that is checked. A schema may refer to itself, and is then
/// applied at each level.
pub const CATALOGUE_PAYLOAD_DEPTH_MAX: usize = 64;
/// Maximum number of schemas that a schema applies to one value, itself or through others. Each reference to
/// a definition counts with what the definition applies.
pub const CATALOGUE_VALUE_STEPS_MAX: usize = 10_000;
/// Maximum number of steps of the check of a payload, about one for each schema that is applied to a value and
/// two for each value inside. They take about a second; a list that fills a payload takes 1,500,000 with one
/// schema for its items.
pub const CATALOGUE_STEPS_MAX: usize = 5_000_000;
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

/// Number of events of a polling endpoint's page if the consumer does not ask for another number.
pub const POLLING_EVENTS: usize = 100;
/// Maximum number of events on a page of a polling endpoint.
pub const POLLING_EVENTS_MAX: usize = 500;
/// Maximum number of bytes of the events on a page of a polling endpoint, except that a page has at
/// least one event if there is one. One read of the outbox fits.
pub const POLLING_BYTES: usize = 4 * 1024 * 1024;
/// Number of events that one read for a polling endpoint returns, including those of other tenants.
pub const POLLING_READ: usize = 500;
/// Number of reads of the outbox for one page of a polling endpoint. A page among many events of
/// other tenants may be empty; its cursor has moved.
pub const POLLING_READS: usize = 16;
/// Maximum time for which a poll waits for events. Proxies close requests that are silent for a
/// minute.
pub const POLLING_WAIT: Duration = Duration::from_secs(30);
/// Maximum number of polls of a process that wait for events. Each holds a connection.
pub const POLLING_WAITING: usize = 256;
/// Maximum number of polls that wait at one polling endpoint: a few consumers and their retries.
pub const POLLING_WAITING_EACH: usize = 4;
/// How often a process looks for events while polls wait, unless a commit in the same process wakes
/// it.
pub const POLLING_LOOK: Duration = Duration::from_millis(100);
/// Minimum time between two such looks, however many transactions are committed.
pub const POLLING_LOOK_PAUSE: Duration = Duration::from_millis(10);
/// Requests per second of one polling endpoint in one process, in the long run.
pub const POLLING_RATE: u32 = 20;
/// Requests of one polling endpoint that may come at once after a pause.
pub const POLLING_BURST: u32 = 60;
/// How many requests of the rate limit a seek counts as: it may read a day of events.
pub const POLLING_SEEK_COST: u32 = 20;
/// Number of look-ups of polling endpoints that run at the same time in one process. Requests with
/// wrong tokens are looked up too.
pub const POLLING_LOOKUPS: usize = 8;
/// Maximum length of the text of a cursor in bytes. It holds a number for each transaction that was
/// writing when the page was read, and has to fit into a URL.
pub const POLLING_CURSOR_BYTES: usize = 16 * 1024;
/// Minimum time between two updates of the time at which a polling endpoint was polled last.
pub const POLLING_NOTED: Duration = Duration::from_mins(1);
/// Maximum number of patterns of event types of a polling endpoint. Each event is compared with all.
pub const POLLING_PATTERNS: usize = 32;
/// Number of events after the position of a polling endpoint that are looked at for its lag.
pub const POLLING_LAG_READ: usize = 5_000;
/// Maximum time for which the previous token of a polling endpoint stays valid after a rotation.
pub const POLLING_OVERLAP_MAX: Duration = Duration::from_hours(30 * 24);
/// Maximum number of previous tokens of a polling endpoint that are valid at the same time. Each is
/// read and compared by every request.
pub const POLLING_PREVIOUS_TOKENS: u64 = 4;

/// Default maximum number of endpoints of one tenant.
pub const ENDPOINTS_PER_TENANT: u32 = 50;
/// Maximum of the configured limit of endpoints of one tenant. Each event of the tenant is sent to all
/// that match.
pub const ENDPOINTS_PER_TENANT_MAX: u32 = 10_000;
/// Maximum length of an endpoint's URL in bytes: what browsers and servers accept.
pub const ENDPOINT_URL_BYTES_MAX: usize = 2_048;
/// Maximum length of an endpoint's description in bytes.
pub const ENDPOINT_DESCRIPTION_BYTES_MAX: usize = 1_024;
/// Maximum number of patterns of event types of an endpoint. Each event of the tenant is compared with all.
pub const ENDPOINT_PATTERNS: usize = 32;
/// Maximum time for which the previous secret of an endpoint signs after a rotation.
pub const ENDPOINT_OVERLAP_MAX: Duration = Duration::from_hours(30 * 24);
/// Maximum number of previous secrets of an endpoint that sign at the same time. Each is one more signature
/// of every request; receivers accept up to [`SIGNATURES_MAX`].
pub const ENDPOINT_PREVIOUS_SECRETS: usize = 4;
/// Maximum number of bytes of a request's body, and of a response, that are stored with an attempt at
/// an endpoint.
pub const ENDPOINT_EXCERPT_BYTES: usize = 4 * 1024;
/// Maximum number of events that are sent to their endpoints at the same time, and recorded in one
/// transaction.
pub const ENDPOINT_BATCH: usize = 32;
/// Default maximum number of first attempts at one endpoint at the same time, and of retries.
pub const ENDPOINT_CONCURRENCY: usize = 4;
/// Default maximum number of first attempts at endpoints at the same time. Each has a connection.
pub const ENDPOINT_SENDS: usize = 512;
/// Default maximum number of retries at endpoints at the same time. They have separate places, so
/// that endpoints which are down do not delay first attempts at others.
pub const ENDPOINT_RETRIES: usize = 256;
/// Default time that a first attempt may take before its event is put into the queue.
pub const ENDPOINT_PATIENCE: Duration = Duration::from_millis(250);
/// Duration from which an endpoint gets its events one at a time.
pub const ENDPOINT_SLOW: Duration = Duration::from_secs(5);
/// Number of consecutive failures after which an endpoint is slowed.
pub const ENDPOINT_SLOW_FAILURES: u32 = 5;
/// The first and the longest pause of a slowed endpoint, between two attempts at it.
pub const ENDPOINT_PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));
/// Default maximum number of deliveries that wait for one endpoint. Each has a copy of its event.
pub const ENDPOINT_WAITING: u32 = 100_000;
/// Maximum of the configured limit of deliveries that wait for one endpoint. They are counted regularly.
pub const ENDPOINT_WAITING_MAX: u32 = 10_000_000;
/// Maximum number of deliveries that one statement ends because too many wait for their endpoints.
pub const ENDPOINT_DROPPED: usize = 10_000;
/// Default number of consecutive failures before an endpoint is disabled: more than one event has attempts.
pub const ENDPOINT_DISABLE_FAILURES: u32 = 20;
/// Number of spans of time that the failures of an endpoint have to be spread over before it is disabled.
/// A clock that jumps forward makes one of them.
pub const ENDPOINT_DISABLE_SPANS: u32 = 4;
/// Part of the time after which a failing endpoint is disabled that is one span: twice the spans that are
/// required, because an endpoint with few events has few attempts.
pub const ENDPOINT_DISABLE_PART: u32 = 8;
/// Default wait before the first probe of an endpoint that was disabled because it failed, and the longest
/// wait between two probes. Each wait is twice the one before.
pub const ENDPOINT_PROBE: (Duration, Duration) = (Duration::from_mins(5), Duration::from_hours(6));
/// How often a relay looks for endpoints that are due to be probed.
pub const ENDPOINT_PROBE_LOOK: Duration = Duration::from_secs(1);
/// Maximum number of probes that one claim returns.
pub const ENDPOINT_PROBES: usize = 16;
/// Wait before a delivery that this relay has no key for is due again, to this relay or another one.
pub const ENDPOINT_POSTPONE: Duration = Duration::from_mins(1);
/// Bounds of the random wait before a delivery whose mapping could not begin in time is due again.
pub const ENDPOINT_BUSY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));
/// How much longer than two timeouts of a request, of which an attempt takes 1.5, a relay owns its claims.
pub const ENDPOINT_LEASE_MARGIN: Duration = Duration::from_secs(2);
/// Default time for which attempts at endpoints and ended deliveries are kept.
pub const ENDPOINT_RETENTION: Duration = Duration::from_hours(7 * 24);
/// Number of types that the index of endpoints remembers for each tenant.
pub const ENDPOINT_INDEX_TYPES: usize = 64;
/// Number of changes of endpoints that one statement reads.
pub const ENDPOINT_PAGE: usize = 1_000;
/// Age of the index of endpoints at which it is read from the beginning. The rows of deleted endpoints
/// are kept for [`ENDPOINT_DELETED`].
pub const ENDPOINT_REREAD: Duration = Duration::from_hours(24);
/// How long the row of a deleted endpoint is kept, so that each relay learns of it.
pub const ENDPOINT_DELETED: Duration = Duration::from_hours(7 * 24);
/// Maximum number of first attempts whose end waits for the dispatcher.
pub const ENDPOINT_LATE: usize = 1_024;
/// Maximum number of attempts that wait for the log. Each has a few kilobytes.
pub const ENDPOINT_LOGGED: usize = 4_096;
/// Maximum number of deliveries that one claim returns.
pub const ENDPOINT_CLAIM: usize = 64;
/// Maximum number of endpoints that one claim looks at.
pub const ENDPOINT_CLAIM_SCAN: usize = 256;
/// How often a relay looks for deliveries to endpoints that are due, unless it is woken.
pub const ENDPOINT_LOOK: Duration = Duration::from_millis(500);
/// How often a relay counts what waits for endpoints.
pub const ENDPOINT_REPORT: Duration = Duration::from_secs(10);
/// Number of waiting deliveries up to which they are counted.
pub const ENDPOINT_BACKLOG_COUNTED: usize = 100_000;
/// How often old attempts and deliveries of endpoints are deleted. After a full batch, the next one
/// follows when as much time has passed as the batch has taken.
pub const ENDPOINT_UPKEEP: Duration = Duration::from_secs(30);
/// Pause after a batch of deliveries that were dropped.
pub const ENDPOINT_UPKEEP_PAUSE: Duration = Duration::from_millis(50);
/// Maximum number of rows of a batch that is deleted.
pub const ENDPOINT_PURGE_ROWS: usize = 1_000;
/// How long a relay that stops waits for attempts at endpoints.
pub const ENDPOINT_END: Duration = Duration::from_secs(2);
/// Maximum number of deliveries that one call replays.
pub const ENDPOINT_REPLAYED: usize = 10_000;
/// Number of events that one statement visits to find those that an endpoint never got.
pub const ENDPOINT_UNSENT_VISITED: usize = 10_000;
/// Maximum number of events that one transaction puts into the queue of an endpoint that never got them.
pub const ENDPOINT_UNSENT_BATCH: usize = 500;
/// Time after which a call that looks for events that an endpoint never got ends. It can be continued.
pub const ENDPOINT_UNSENT_CALL: Duration = Duration::from_secs(5);
/// Age of an event from which it counts as never sent to an endpoint that exists. Younger ones may be in
/// flight, or their attempts not logged yet.
pub const ENDPOINT_UNSENT_AGE: Duration = Duration::from_mins(1);
/// Number of attempts of an endpoint from which its health is computed.
pub const ENDPOINT_HEALTH_ATTEMPTS: usize = 10_000;
/// Number of the newest attempts of an endpoint from which its health is computed in a list of
/// endpoints. A page has up to a thousand endpoints.
pub const ENDPOINT_STATUS_ATTEMPTS: usize = 200;
/// Number of deliveries of an endpoint up to which they are counted in a list of endpoints.
pub const ENDPOINT_STATUS_COUNTED: usize = 1_000;
/// Maximum number of endpoints that are looked at for the deliveries of one event.
pub const ENDPOINT_TRACED: usize = 1_000;
/// Maximum number of an event's deliveries to endpoints that are listed.
pub const ENDPOINT_TRACES: usize = 100;
/// Maximum number of disabled endpoints that operators are shown as needing attention.
pub const ENDPOINT_ATTENTION: usize = 10;
/// Maximum number of endpoints whose backlogs are compared over time.
pub const ENDPOINT_BACKLOGS: usize = 50;
/// Maximum number of endpoints with waiting deliveries that are looked at for the longest backlogs.
pub const ENDPOINT_BACKLOGS_SCAN: usize = 256;
/// Maximum number of test events that one process sends to endpoints at the same time: for one tenant, and in
/// all. A test waits as long as the endpoint does not respond.
pub const ENDPOINT_TESTS: (usize, usize) = (2, 32);
/// Maximum number of HTTP clients of endpoints. Each is closed after [`ENDPOINT_CLIENT_IDLE`].
pub const ENDPOINT_CLIENTS: usize = 512;
/// Time after which the client of an endpoint is closed, with its connections, unless it is used.
pub const ENDPOINT_CLIENT_IDLE: Duration = Duration::from_mins(1);

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
