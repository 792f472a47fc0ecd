/** Bounds of the package. Each says its unit and its reason. */

/** Maximum length of a key in bytes, as in the SQL contract. */
export const KEY_BYTES_MAX = 255;
/** Maximum length of a tenant, an operation, a consumer or a source in bytes. */
export const NAME_BYTES_MAX = 255;
/** Default maximum length of a request body in bytes: it is held in memory. */
export const BODY_BYTES_MAX = 1024 * 1024;
/** Maximum length of a stored response body in bytes, as in `hapax.complete`. */
export const RESPONSE_BYTES_MAX = 4 * 1024 * 1024;
/** Maximum nesting depth of JSON: the canonicalizer is recursive, and the stack is finite. */
export const JSON_DEPTH_MAX = 128;
/** Maximum number of members of a JSON object, with those of the objects around it. */
export const JSON_MEMBERS_MAX = 10_000;
/** Maximum number of parts of a multipart body. */
export const MULTIPART_PARTS_MAX = 256;
/** Maximum length of an event's payload in bytes, as in `hapax.emit`. */
export const PAYLOAD_BYTES_MAX = 1024 * 1024;
/** Maximum number of events in a transaction, as in `hapax.emit`. */
export const EVENTS_MAX = 10_000;
/** How long a response is kept, in milliseconds. */
export const RETENTION_MS = 24 * 3600 * 1000;
/** How long a duplicate waits for the first request, in milliseconds. */
export const WAIT_MS = 1_000;
/** How long a handler may run, in milliseconds. Its transaction is then rolled back. */
export const HANDLER_MS = 30_000;
/** How long a key in phases belongs to its owner unless the lease is renewed, in milliseconds. */
export const LEASE_MS = 10_000;
/** The longest lease, as in `hapax.enter`, in milliseconds. */
export const LEASE_MS_MAX = 24 * 3600 * 1000;
/** Maximum length of the results of phases in bytes, as in `hapax.phase`. */
export const PHASE_DATA_BYTES_MAX = 1024 * 1024;
/** The first and the longest wait before a response is stored again, in milliseconds. */
export const STORE_RETRY_MS = [50, 1_000] as const;
/** How long a lost commit is looked up before the response is 503, in milliseconds. */
export const RECOVERY_MS = 5_000;
/** The first and the longest ceiling of the wait between two claims, in milliseconds. */
export const POLL_MS = [10, 100] as const;
/** Maximum number of digits in `X-Request-Timeout`: more milliseconds than any request takes. */
export const TIMEOUT_DIGITS_MAX = 12;
/** Remaining time below which a handler is not started, in milliseconds. */
export const START_MS = 10;
/** Maximum number of bytes of the values in a message of several statements. */
export const BATCH_BYTES_MAX = 64 * 1024;
/** The name of connections whose name nobody has set; `hapax doctor` reads the version of the contract. */
export const APPLICATION_NAME = "hapax-node/0.1.0 contract=2";
/** Maximum number of routes whose templates are remembered. */
export const ROUTES_MAX = 1_000;
/** The longest delay of a timer of Node, in milliseconds. */
export const TIMER_MS_MAX = 2 ** 31 - 1;
