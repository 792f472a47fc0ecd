// The HTTP contract on top of the SQL contract: `once` runs a handler once per Idempotency-Key.
import { createHash, randomUUID } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";

export const BODY_BYTES_MAX = 1024 * 1024;
const WAIT_MS = 1_000; // how long a duplicate waits for the first request
// Statuses of refusals: their response is stored, and their effect is rolled back.
const REFUSALS = new Set([402, 404, 409, 410, 422]);
// Headers that are part of the request's fingerprint if they are sent.
const CONDITIONS = ["if-match", "if-none-match", "if-unmodified-since"];
// The status and title of each problem code.
const PROBLEMS = {
  "VALIDATION.idempotency_key.missing": [400, "The Idempotency-Key header is missing"],
  "VALIDATION.idempotency_key.invalid": [400, "The Idempotency-Key header does not parse"],
  "VALIDATION.body.too_large": [413, "The body is too large"],
  "CONFLICT.idempotency.payload_mismatch": [409, "The key was used for another request"],
  "CONFLICT.idempotency.in_progress": [409, "A request with this Idempotency-Key is still running"],
  "CONFLICT.idempotency.expired": [410, "The Idempotency-Key has expired"],
  "CONFLICT.inbox.payload_mismatch": [409, "The webhook-id was used for another payload"],
  "DEPENDENCY.unavailable": [503, "The service cannot do this now"],
  "INTERNAL.statement": [500, "The database refused what the service wrote"],
  "INTERNAL": [500, "The service failed"],
};
const RETRYABLE = new Set(["CONFLICT.idempotency.in_progress", "DEPENDENCY.unavailable"]);

/** An error response, as problem+json (RFC 9457). */
export class Problem extends Error {
  constructor(code, detail, status) {
    super(detail);
    const [usual, title] = PROBLEMS[code] ?? [400, "The request cannot be served"];
    this.status = status ?? usual;
    this.words = {
      type: `https://hapax.dev/problems/${code.toLowerCase()}`, title, status: this.status, detail, code,
      retryable: RETRYABLE.has(code),
    };
  }

  answer() {
    const headers = [["content-type", "application/problem+json"]];
    if (this.words.retryable) headers.push(["retry-after", "1"]);
    const body = JSON.stringify({ ...this.words, request_id: randomUUID() });
    return { status: this.status, headers, body: Buffer.from(body) };
  }

  send(response) {
    send(response, this.answer());
  }
}

/** Turns the errors of a route into problem responses. The transaction is already rolled back. */
export function guarded(route) {
  return async (request, response) => {
    try {
      await route(request, response);
    } catch (error) {
      problemOf(error).send(response);
    }
  };
}

/** Runs `work` in one transaction and commits it. */
export async function transaction(pool, work) {
  const tx = await pool.connect();
  let lost;
  try {
    await tx.query("BEGIN");
    const result = await work(tx);
    // If the connection breaks here, the outcome of the commit is unknown; the retry finds it out.
    await tx.query("COMMIT");
    return result;
  } catch (error) {
    await tx.query("ROLLBACK").catch((failure) => { lost = failure; });
    throw error;
  } finally {
    tx.release(lost); // a connection that could not roll back is closed
  }
}

/** Returns a route that runs `handler` in the transaction that claims the request's key. */
export function once(pool, tenant, operation, handler) {
  return guarded(async (request, response) => {
    const key = keyOf(request);
    const bare = /^[!#-~]+$/.test(key);
    response.set("Idempotency-Key", bare ? key : `"${key.replace(/(["\\])/g, "\\$1")}"`);
    const body = request.body ?? Buffer.alloc(0);
    const scope = [tenant, operation, key];
    const print = fingerprint(request, operation, body);
    const until = performance.now() + WAIT_MS;
    for (let wait = 5; ; wait = Math.min(wait * 2, 100)) {
      const { outcome, answer } = await transaction(pool, (tx) =>
        attempt(tx, scope, print, handler, body));
      if (outcome === "open") return send(response, answer);
      if (outcome !== "in_progress" || performance.now() > until) {
        return send(response, known(outcome, answer));
      }
      // Wait outside the transaction, without holding a connection.
      await pause(wait);
    }
  });
}

async function attempt(tx, scope, print, handler, body) {
  const { rows: [found] } = await tx.query(
    "SELECT outcome, status, headers, body FROM hapax.claim($1, $2, $3, $4, wait => '0')",
    [...scope, print]);
  if (found.outcome !== "open") return { outcome: found.outcome, answer: found };
  await tx.query("SAVEPOINT effect");
  const answer = await handler(tx, scope[0], body).catch((error) => {
    if (error instanceof Problem) return error.answer();
    throw error;
  });
  if (answer.status >= 400) await tx.query("ROLLBACK TO SAVEPOINT effect");
  if (answer.status < 400 || REFUSALS.has(answer.status)) {
    await tx.query("SELECT hapax.complete($1, $2, $3, $4, $5, $6)", [
      ...scope, answer.status, JSON.stringify(answer.headers), answer.body,
    ]);
    return { outcome: "open", answer: withStatus(answer, "stored") };
  }
  // Release the key, so that the corrected request can use it.
  await tx.query("SELECT hapax.release($1, $2, $3)", scope);
  return { outcome: "open", answer };
}

function known(outcome, stored) {
  switch (outcome) {
    case "replay":
      return withStatus(stored, "replayed");
    case "mismatch":
      throw new Problem("CONFLICT.idempotency.payload_mismatch", "use a new key for a new request");
    case "gone":
      throw new Problem("CONFLICT.idempotency.expired", "look up the outcome before you retry");
    default:
      throw new Problem("CONFLICT.idempotency.in_progress", "retry in a moment");
  }
}

function withStatus({ status, headers, body }, word) {
  return { status, headers: [...headers, ["idempotency-status", word]], body };
}

function send(response, { status, headers, body }) {
  response.status(status);
  for (const [name, value] of headers) response.appendHeader(name, value);
  response.end(body);
}

function problemOf(error) {
  if (error instanceof Problem) return error;
  // Errors from the database have a severity; other plain Errors come from the connection.
  const passes = error.severity
    ? error.severity === "FATAL" || /^(08|40|53|57|58|55P03|25006)/.test(error.code)
    : error.constructor === Error || error instanceof AggregateError;
  if (passes) {
    console.warn(error);
    return new Problem("DEPENDENCY.unavailable", "try again");
  }
  if (error.severity) {
    // For example a violated constraint, a value out of range, or a missing table. The message may
    // repeat values of the row, so it is not logged.
    console.error(`statement refused: ${error.code}, constraint ${error.constraint}`);
    const detail = "nothing was changed; the same request would be refused again";
    return new Problem("INTERNAL.statement", detail);
  }
  console.error(error);
  return new Problem("INTERNAL", "nothing was changed; the same request would fail again");
}

/** Reads the key: a structured-field string, or the same text without quotes. */
function keyOf(request) {
  const values = request.headersDistinct["idempotency-key"] ?? [];
  if (values.length === 0) {
    throw new Problem("VALIDATION.idempotency_key.missing", "send a key with this request");
  }
  const text = values[0].trim();
  const quoted = /^"((?:[ !#-\[\]-~]|\\["\\])*)"(?:\s*;\s*[a-z*][^;"]*)*$/.exec(text);
  const key = quoted ? quoted[1].replace(/\\(.)/g, "$1") : text;
  const wellFormed = quoted || /^[!#-~]+$/.test(text);
  if (values.length > 1 || !wellFormed || key.length < 1 || key.length > 255) {
    throw new Problem("VALIDATION.idempotency_key.invalid", "1 to 255 bytes of visible ASCII, once");
  }
  if (key.startsWith("derived:")) {
    throw new Problem("VALIDATION.idempotency_key.invalid", "the prefix derived: is reserved");
  }
  return key;
}

/** Hashes the parts of the request with their lengths, so that different requests differ. */
function fingerprint(request, operation, body) {
  const [path, ...query] = request.originalUrl.split("?");
  const contentType = (request.get("content-type") ?? "").split(";")[0].trim().toLowerCase();
  const parts = [operation, path, query.join("?"), contentType, digest(body)];
  for (const name of CONDITIONS) { // another condition is another request
    const values = request.headersDistinct[name];
    if (values) parts.push(name, Buffer.from(values.map((it) => it.trim()).join(", "), "latin1"));
  }
  const hash = createHash("sha256").update("\x01");
  for (const part of parts) {
    const bytes = Buffer.from(part);
    const length = Buffer.alloc(8);
    length.writeBigUInt64BE(BigInt(bytes.length));
    hash.update(length).update(bytes);
  }
  return hash.digest();
}

function digest(body) {
  return createHash("sha256").update(body).digest();
}
