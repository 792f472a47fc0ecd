/** Complete responses, and which parts of them are stored. */
import type { Profile } from "./profile.js";

/** Header lines in order, names repeated as they are sent. A value's bytes are Latin-1. */
export type HeaderPairs = [name: string, value: string][];

/** A complete response. */
export interface HttpResponse {
  status: number;
  headers: HeaderPairs;
  body: Buffer;
}

/** What happens to the key and to the effect after a handler has responded. */
export type Disposition = "with-effect" | "effect-free" | "release";

/** What happens to the key of a failure (5xx). */
export type OnFailure = "release" | "store";

/** Headers that belong to one exchange and are never stored. */
const PER_EXCHANGE = new Set([
  "set-cookie",
  "date",
  "server",
  "connection",
  "keep-alive",
  "proxy-connection",
  "proxy-authenticate",
  "proxy-authorization",
  "te",
  "trailer",
  "upgrade",
  "x-request-id",
  "idempotency-key",
  "idempotency-status",
  "idempotent-replayed",
  "hapax-encrypted-under",
]);
/** Headers that are computed from the stored body. */
const REBUILT = new Set(["content-length", "transfer-encoding"]);
/** Headers that only the package sets. Those of a handler are removed. */
const OWN = new Set(["idempotency-key", "idempotency-status", "idempotent-replayed"]);
/** Statuses of refusals: the response is stored, and the effect is rolled back. */
const REFUSALS = new Set([402, 404, 409, 410, 422]);

/** Decides by the status what is stored. */
export function disposition(status: number, onFailure: OnFailure, profile: Profile): Disposition {
  if (status >= 200 && status < 400) return "with-effect";
  const failure = status >= 500 && onFailure === "store" && !profile.releasesFailures;
  const stored = !profile.successesOnly && (REFUSALS.has(status) || failure);
  return stored ? "effect-free" : "release";
}

/** Whether a stored response is the one that a request has sent to the store. */
export function isSame(stored: HttpResponse, sent: HttpResponse): boolean {
  return (
    stored.status === sent.status &&
    stored.body.equals(sent.body) &&
    JSON.stringify(stored.headers) === JSON.stringify(sent.headers)
  );
}

/** Splits headers into those that are stored and those that belong to this exchange only. */
export function splitHeaders(
  headers: HeaderPairs,
  perRequest: ReadonlySet<string>,
): { stored: HeaderPairs; exchange: HeaderPairs } {
  const hops = namedByConnection(headers);
  const stored: HeaderPairs = [];
  const exchange: HeaderPairs = [];
  for (const [written, value] of headers) {
    const name = written.toLowerCase();
    if (REBUILT.has(name) || OWN.has(name)) continue;
    const isOfExchange = PER_EXCHANGE.has(name) || perRequest.has(name) || hops.has(name);
    (isOfExchange ? exchange : stored).push([name, value]);
  }
  return { stored, exchange };
}

/** Headers that the `Connection` header makes hop-by-hop. */
function namedByConnection(headers: HeaderPairs): Set<string> {
  const lines = headers.filter(([name]) => name.toLowerCase() === "connection");
  return new Set(
    lines.flatMap(([, value]) => value.split(",")).map((name) => name.trim().toLowerCase()),
  );
}
