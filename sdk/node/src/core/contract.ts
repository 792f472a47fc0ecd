/** The functions of the SQL contract, version 2, called in an open transaction. */
import type { Param, Row, Session } from "./database.js";
import type { HeaderPairs, HttpResponse } from "./response.js";

/** Where a key is unique. */
export interface Scope {
  /** The stable id of the authenticated principal. */
  tenant: string;
  /** The method and the route template, such as `POST /orders`. */
  operation: string;
  /** The client's key. */
  key: string;
}

/** Arguments of a claim beside the scope and the fingerprint. */
export interface ClaimOptions {
  /** How long the response is kept, in milliseconds. */
  retentionMs: number;
  /** What happens to an expired key: it runs again, or is refused. */
  onExpired: "new" | "gone";
}

/** The outcome of a claim. */
export type ClaimOutcome =
  | { outcome: "open" | "mismatch" | "gone" }
  | { outcome: "in_progress"; retryAfterMs: number }
  | { outcome: "replay"; response: HttpResponse };

/** What `hapax.accept` returns. */
export type Acceptance = "first" | "duplicate" | "mismatch";

/** A message of the inbox. */
export interface MessageId {
  /** Who processes the message. */
  consumer: string;
  /** The sender's id of the message. */
  id: string;
  /** The sender whose signature was verified. */
  source: string;
}

const CLAIM =
  "SELECT outcome, status, headers::text AS headers, body, retry_after_ms " +
  "FROM hapax.claim($1::text, $2::text, $3::text, $4::bytea, " +
  "retention => $5::text::interval, on_expired => $6::text, wait => '0'::interval)";

/** Claims a key without waiting. */
export async function claim(
  session: Session,
  scope: Scope,
  fingerprint: Buffer,
  options: ClaimOptions,
): Promise<ClaimOutcome> {
  const retention = `${options.retentionMs} milliseconds`;
  const row = await one(session, CLAIM, [
    ...keyOf(scope),
    fingerprint,
    retention,
    options.onExpired,
  ]);
  switch (row.outcome) {
    case "open":
    case "mismatch":
    case "gone":
      return { outcome: row.outcome };
    case "in_progress":
      return { outcome: "in_progress", retryAfterMs: Number(row.retry_after_ms ?? 0) };
    case "replay":
      return { outcome: "replay", response: responseOf(row) };
    default:
      throw new Error(
        `hapax.claim returned the outcome ${String(row.outcome)}, which is not known`,
      );
  }
}

const COMPLETE =
  "SELECT hapax.complete($1::text, $2::text, $3::text, $4::integer, $5::text::jsonb, $6::bytea, " +
  "$7::text::jsonb)::text AS fresh_for";

/** Stores the response under the claimed key, and the events of the transaction before it. */
export async function complete(
  session: Session,
  scope: Scope,
  { status, headers, body }: HttpResponse,
  events: string,
): Promise<void> {
  await one(session, COMPLETE, [...keyOf(scope), status, JSON.stringify(headers), body, events]);
}

/** Releases the claimed key inside a transaction that continues. */
export async function release(session: Session, scope: Scope): Promise<void> {
  const text = "SELECT hapax.release($1::text, $2::text, $3::text)::text AS released";
  await one(session, text, keyOf(scope));
}

/** Adds events to the transaction, and returns their ids in order. */
export async function emitMany(session: Session, events: string): Promise<string[]> {
  const text = "SELECT to_json(hapax.emit_many($1::text::jsonb))::text AS ids";
  const row = await one(session, text, [events]);
  return JSON.parse(String(row.ids)) as string[];
}

/** Accepts a message once, in the transaction of its effect. */
export async function accept(
  session: Session,
  { consumer, id, source }: MessageId,
  payloadHash: Buffer,
): Promise<Acceptance> {
  const text = "SELECT hapax.accept($1::text, $2::text, $3::bytea, $4::text)::text AS acceptance";
  const row = await one(session, text, [consumer, id, payloadHash, source]);
  return row.acceptance as Acceptance;
}

/** Records that the effect of an accepted message was written. */
export async function processed(
  session: Session,
  { consumer, id, source }: MessageId,
  result: string | null,
): Promise<void> {
  const text = "SELECT hapax.processed($1::text, $2::text, $3::text, $4::text)::text AS done";
  await one(session, text, [consumer, id, source, result]);
}

function keyOf({ tenant, operation, key }: Scope): Param[] {
  return [tenant, operation, key];
}

async function one(session: Session, text: string, params: readonly Param[]): Promise<Row> {
  const [row] = await session.query(text, params);
  if (!row) throw new Error("a function of the SQL contract has returned no row");
  return row;
}

function responseOf(row: Row): HttpResponse {
  const headers = JSON.parse(String(row.headers)) as HeaderPairs;
  const body = row.body as Uint8Array;
  return { status: Number(row.status), headers, body: Buffer.from(body) };
}
