/**
 * The functions of the SQL contract for requests in phases. Each is called in a separate transaction,
 * or last in the transaction of a phase.
 */
import type { Statement } from "./batch.js";
import { keyOf, only, takenOf, type ClaimOptions, type Scope, type Taken } from "./contract.js";
import type { Param, Row } from "./database.js";
import type { HttpResponse } from "./response.js";

/** The ownership of a key. Every later owner has a higher epoch. */
export interface Owned extends Scope {
  /** The epoch, as text: it is an integer of 64 bits. */
  epoch: string;
  /** When the key was entered, in milliseconds since 1970. With the epoch it identifies the row. */
  enteredMs: string;
}

/** A key that was entered. */
export interface Entered {
  owned: Owned;
  /** Whether the key had an earlier owner that did not finish. */
  isResumed: boolean;
  /** The last committed phase. */
  phase: string | undefined;
  /** What that phase has recorded. */
  data: unknown;
}

/** Arguments of an entry beside the scope and the fingerprint. */
export interface EntryOptions extends ClaimOptions {
  /** How long the key belongs to its owner unless the lease is renewed, in milliseconds. */
  leaseMs: number;
  /** The name of the process, for operators. */
  owner: string;
}

const ENTER =
  "SELECT outcome, epoch::text AS epoch, phase, data::text AS data, status, " +
  "headers::text AS headers, pg_catalog.encode(body, 'hex') AS body, retry_after_ms, " +
  "(extract(epoch FROM entered_at) * 1000)::bigint::text AS entered_ms " +
  "FROM hapax.enter($1::text, $2::text, $3::text, $4::bytea, lease => $5::text::interval, " +
  "retention => $6::text::interval, on_expired => $7::text, owner => $8::text)";

/** The statement that enters a key. Its transaction is committed at once. */
export function enterStatement(
  scope: Scope,
  fingerprint: Buffer,
  { leaseMs, retentionMs, onExpired, owner }: EntryOptions,
): Statement {
  const terms = [interval(leaseMs), interval(retentionMs), onExpired, owner];
  return { text: ENTER, params: [...keyOf(scope), fingerprint, ...terms] };
}

/** The outcome in the rows of an entry. */
export function enteredOf(rows: readonly Row[] | undefined, scope: Scope): Entered | Taken {
  const row = only(rows);
  if (row.outcome !== "entered" && row.outcome !== "resumed") return takenOf(row);
  const { tenant, operation, key } = scope;
  return {
    owned: {
      tenant,
      operation,
      key,
      epoch: String(row.epoch),
      enteredMs: String(row.entered_ms),
    },
    isResumed: row.outcome === "resumed",
    phase: typeof row.phase === "string" ? row.phase : undefined,
    data: typeof row.data === "string" ? (JSON.parse(row.data) as unknown) : undefined,
  };
}

/** The statement that records a phase, with its events. It is the last one of its transaction. */
export function phaseStatement(
  owned: Owned,
  name: string,
  data: string,
  events: string,
): Statement {
  const text =
    `SELECT hapax.phase(${arguments_(1)}, $5::text, $6::text::jsonb, $7::text::jsonb, ` +
    `${moment(8)})::text AS done`;
  return { text, params: [...ownerOf(owned), name, data, events, owned.enteredMs] };
}

/** The statement that stores the response, with the last events. */
export function finishStatement(
  owned: Owned,
  { status, headers, body }: HttpResponse,
  events: string,
): Statement {
  const text =
    `SELECT hapax.finish(${arguments_(1)}, $5::integer, $6::text::jsonb, $7::bytea, ` +
    `$8::text::jsonb, ${moment(9)})::text AS fresh_for`;
  const response = [status, JSON.stringify(headers), body];
  return { text, params: [...ownerOf(owned), ...response, events, owned.enteredMs] };
}

/** The statement that sets the end of the lease. With 0 it gives the key back. */
export function renewStatement(owned: Owned, leaseMs: number): Statement {
  const text =
    `SELECT hapax.renew(${arguments_(1)}, $5::text::interval, ${moment(6)})` +
    "::text AS lease_until";
  return { text, params: [...ownerOf(owned), interval(leaseMs), owned.enteredMs] };
}

/** The statement that returns the key for a step at a provider, and renews the lease before. */
export function providerKeyStatement(owned: Owned, step: string, leaseMs: number): Statement {
  const text =
    `SELECT hapax.renew(${arguments_(1)}, $5::text::interval, ${moment(6)})::text AS lease_until, ` +
    `hapax.provider_key(${arguments_(7)}, $11::text, ${moment(12)}) AS provider_key`;
  const renewed = [...ownerOf(owned), interval(leaseMs), owned.enteredMs];
  return { text, params: [...renewed, ...ownerOf(owned), step, owned.enteredMs] };
}

/** The statement that releases a key whose request has had no effect in another system. */
export function nothingHappenedStatement(owned: Owned): Statement {
  const text = `SELECT hapax.nothing_happened(${arguments_(1)}, ${moment(5)})::text AS done`;
  return { text, params: [...ownerOf(owned), owned.enteredMs] };
}

/** The four arguments that name an owner, from the parameter `first`. */
function arguments_(first: number): string {
  const [tenant, operation, key, epoch] = [first, first + 1, first + 2, first + 3];
  return `$${tenant}::text, $${operation}::text, $${key}::text, $${epoch}::text::bigint`;
}

/** The time of the entry. As text it would depend on the settings of the session. */
function moment(parameter: number): string {
  return `timestamptz 'epoch' + $${parameter}::text::bigint * interval '1 millisecond'`;
}

function ownerOf(owned: Owned): Param[] {
  return [...keyOf(owned), owned.epoch];
}

function interval(ms: number): string {
  return `${ms} milliseconds`;
}
