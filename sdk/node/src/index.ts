/**
 * Idempotency keys, outbox and inbox in your own PostgreSQL transaction.
 *
 * Import the adapter of your framework (`hapax/express`, `hapax/fastify`, `hapax/hono`,
 * `hapax/nest`) and, unless you use a pool of `pg`, that of your driver or ORM.
 */
import type { PgTransaction } from "./pg.js";
import type { Emitter } from "./core/events.js";

/**
 * Declares the type of `req.tx` for a project, if it is not that of `pg`:
 *
 * ```ts
 * declare module "hapax" {
 *   interface Register {
 *     transaction: Transaction<MyDatabase>; // of kysely
 *   }
 * }
 * ```
 */
// eslint-disable-next-line @typescript-eslint/no-empty-object-type -- projects add the member
export interface Register {}

/** The transaction of the project's driver. */
export type Client = Register extends { transaction: infer Declared extends object }
  ? Declared
  : PgTransaction;

/** The transaction of the project's driver, with `emit`. */
export type Tx = Client & Emitter;

export { Problem, type Code, type ProblemOptions } from "./core/problem.js";
export { UsageError } from "./core/errors.js";
export { FencedError } from "./core/owner.js";
export { JsonText, type Emitter, type EventOptions } from "./core/events.js";
export type { Acceptance } from "./core/contract.js";
export type { Database, Session } from "./core/database.js";
export type { FingerprintMode } from "./core/fingerprint.js";
export type { Failure, Options } from "./core/options.js";
export type { PhasedOptions } from "./core/phased.js";
export type { CallFailure, CallOptions } from "./core/call.js";
export type { Phases } from "./core/phases.js";
export type { ProfileName } from "./core/profile.js";
export type { Transactional } from "./core/tx.js";
export type { Joined } from "./core/joined.js";
