/**
 * Requests in phases without HTTP: a job that calls another system between its transactions.
 *
 * ```ts
 * const request = { tenant: "alice", operation: "charge invoice", key: invoice.id, payload: body };
 * await phased(pool, request, async (phases) => {
 *   const charge = await phases.call("charge", (key) => provider.charge(order, { idempotencyKey: key }));
 *   await phases.transaction("charged", async (tx) => {
 *     await tx.query("INSERT INTO charge ...", [charge.id]);
 *   });
 *   return { status: 201, body: charge.id };
 * });
 * ```
 *
 * `phased` of `hapax/express` does the same for a route.
 */
import { randomUUID } from "node:crypto";
import type { Scope } from "./core/contract.js";
import type { Database } from "./core/database.js";
import { PhasedEngine, phasedPolicyOf, type Ended, type PhasedOptions } from "./core/phased.js";
import { FencedError } from "./core/owner.js";
import type { Phases } from "./core/phases.js";
import { sha256 } from "./core/parts.js";
import type { HeaderPairs } from "./core/response.js";
import { databaseOf, type PgPool, type PgTransaction } from "./pg.js";

export { FencedError };
export type { CallFailure, CallOptions } from "./core/call.js";
export type { Phases } from "./core/phases.js";

/** A request with its key. */
export interface PhasedRequest extends Scope {
  /** What the request asks for. Another payload under the same key is refused. */
  payload: string | Uint8Array;
}

/** What is stored under the key. */
export interface PhasedResponse {
  /** As in HTTP: 2xx is a success; 402, 404, 409, 410 and 422 are stored refusals. */
  status: number;
  headers?: HeaderPairs;
  body?: string | Uint8Array;
}

/** Options of a request in phases. */
export type PhasedRunOptions = Pick<
  PhasedOptions<never>,
  "leaseMs" | "retentionMs" | "onExpired" | "waitMs" | "handlerMs"
>;

/** How a request has ended. */
export interface PhasedResult {
  /** The response was stored now, or before, or is not stored. */
  outcome: Ended["outcome"];
  status: number;
  headers: HeaderPairs;
  body: Buffer;
}

/**
 * Runs a request in phases, or returns its stored response.
 *
 * Rejects with a `Problem` if the key was used for another payload, has another owner, or has
 * expired, and with the handler's error if its response is not stored. The same request then continues
 * after the last committed phase.
 */
export async function phased<Client extends object = PgTransaction>(
  database: PgPool | Database<Client>,
  request: PhasedRequest,
  handler: (phases: Phases<Client>) => Promise<PhasedResponse>,
  options: PhasedRunOptions = {},
): Promise<PhasedResult> {
  const { tenant, operation, key, payload } = request;
  const onError = (): void => undefined;
  const policy = phasedPolicyOf<never>({ ...options, tenant, onError });
  const engine = new PhasedEngine<Client>(databaseOf(database), policy);
  const parsed = {
    tenant,
    operation,
    key,
    requestId: randomUUID(),
    endsAt: performance.now() + policy.handlerMs,
    fingerprint: sha256(payload),
  };
  let thrown: unknown;
  const running = engine.runKeyed(parsed, async (phases) => {
    try {
      const { status, headers = [], body = "" } = await handler(phases);
      return { response: { status, headers, body: Buffer.from(body as string) } };
    } catch (error) {
      thrown = error;
      throw error;
    }
  });
  const ended = await running.catch((error: unknown) => {
    throw thrown instanceof FencedError ? thrown : (error as Error);
  });
  const { outcome, response } = ended;
  if (ended.outcome === "unstored") {
    const error = thrown ?? ended.problem;
    if (error !== undefined) throw error as Error;
  }
  const headers = response.headers.filter(([name]) => !/^idempot/i.test(name));
  return { outcome, status: response.status, headers, body: response.body };
}
