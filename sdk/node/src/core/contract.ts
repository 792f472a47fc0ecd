/** The functions of the SQL contract, version 2, called in an open transaction. */
import type { Statement } from "./batch.js";
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
export type ClaimOutcome = { outcome: "open" } | Taken;

/** The state of a key that is not free. */
export type Taken =
  | { outcome: "mismatch" | "gone" }
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
  "SELECT outcome, status, headers::text AS headers, pg_catalog.encode(body, 'hex') AS body, " +
  "retry_after_ms FROM hapax.claim($1::text, $2::text, $3::text, $4::bytea, " +
  "retention => $5::text::interval, on_expired => $6::text, wait => '0'::interval)";

/** Claims a key without waiting. */
export async function claim(
  session: Session,
  scope: Scope,
  fingerprint: Buffer,
  options: ClaimOptions,
): Promise<ClaimOutcome> {
  return outcomeOf(await run(session, claimStatement(scope, fingerprint, options)));
}

/** The statement that claims a key without waiting. */
export function claimStatement(
  scope: Scope,
  fingerprint: Buffer,
  { retentionMs, onExpired }: ClaimOptions,
): Statement {
  const params = [...keyOf(scope), fingerprint, `${retentionMs} milliseconds`, onExpired];
  return { text: CLAIM, params };
}

/** The outcome in the rows of a claim. */
export function outcomeOf(rows: readonly Row[] | undefined): ClaimOutcome {
  const row = only(rows);
  return row.outcome === "open" ? { outcome: "open" } : takenOf(row);
}

/** The state of a key that is not free, in the row of a claim or of an entry. */
export function takenOf(row: Row): Taken {
  switch (row.outcome) {
    case "mismatch":
    case "gone":
      return { outcome: row.outcome };
    case "in_progress":
      return { outcome: "in_progress", retryAfterMs: Number(row.retry_after_ms ?? 0) };
    case "replay":
      return { outcome: "replay", response: responseOf(row) };
    default:
      throw new Error(`the outcome ${String(row.outcome)} of a key is not known`);
  }
}

const COMPLETE =
  "SELECT hapax.complete($1::text, $2::text, $3::text, $4::integer, $5::text::jsonb, $6::bytea, " +
  "$7::text::jsonb)::text AS fresh_for";

/** Stores the response under the claimed key, and the events of the transaction before it. */
export async function complete(
  session: Session,
  scope: Scope,
  response: HttpResponse,
  events: string,
): Promise<void> {
  only(await run(session, completeStatement(scope, response, events)));
}

/** The statement that stores the response and the events. */
export function completeStatement(
  scope: Scope,
  { status, headers, body }: HttpResponse,
  events: string,
): Statement {
  const params = [...keyOf(scope), status, JSON.stringify(headers), body, events];
  return { text: COMPLETE, params };
}

/** Releases the claimed key inside a transaction that continues. */
export async function release(session: Session, scope: Scope): Promise<void> {
  const text = "SELECT hapax.release($1::text, $2::text, $3::text)::text AS released";
  await one(session, text, keyOf(scope));
}

/** Adds events to the transaction, and returns their ids in order. */
export async function emitMany(session: Session, events: string): Promise<string[]> {
  const row = only(await run(session, emitStatement(events)));
  return JSON.parse(String(row.ids)) as string[];
}

/** The statement that adds events to the transaction. */
export function emitStatement(events: string): Statement {
  const text = "SELECT to_json(hapax.emit_many($1::text::jsonb))::text AS ids";
  return { text, params: [events] };
}

/** Accepts a message once, in the transaction of its effect. */
export async function accept(
  session: Session,
  message: MessageId,
  payloadHash: Buffer,
): Promise<Acceptance> {
  return acceptanceOf(await run(session, acceptStatement(message, payloadHash)));
}

/** The statement that accepts a message once. */
export function acceptStatement(
  { consumer, id, source }: MessageId,
  payloadHash: Buffer,
): Statement {
  const text = "SELECT hapax.accept($1::text, $2::text, $3::bytea, $4::text)::text AS acceptance";
  return { text, params: [consumer, id, payloadHash, source] };
}

/** The acceptance in the rows of an accepted message. */
export function acceptanceOf(rows: readonly Row[] | undefined): Acceptance {
  return only(rows).acceptance as Acceptance;
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

/** The arguments that name a key. */
export function keyOf({ tenant, operation, key }: Scope): Param[] {
  return [tenant, operation, key];
}

async function one(session: Session, text: string, params: readonly Param[]): Promise<Row> {
  return only(await session.query(text, params));
}

function run(session: Session, { text, params }: Statement): Promise<Row[]> {
  return session.query(text, params);
}

/** The only row of a result. */
export function only(rows: readonly Row[] | undefined): Row {
  const row = rows?.[0];
  if (!row) throw new Error("a function of the SQL contract has returned no row");
  return row;
}

function responseOf(row: Row): HttpResponse {
  const headers = JSON.parse(String(row.headers)) as HeaderPairs;
  return { status: Number(row.status), headers, body: Buffer.from(String(row.body), "hex") };
}
