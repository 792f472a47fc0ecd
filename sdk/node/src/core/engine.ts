/**
 * Runs a handler once per idempotency key, in the transaction that claims the key.
 *
 * The response is returned after the commit, never before. A handler that throws releases the key.
 * A refusal is stored without its effect. If the result of the commit is lost, the key decides. A
 * duplicate waits without holding a connection.
 */
import { setTimeout as pause } from "node:timers/promises";
import { isShort, ROLLBACK_TO, SAVEPOINT } from "./batch.js";
import {
  claim,
  claimStatement,
  complete,
  completeStatement,
  emitMany,
  emitStatement,
  outcomeOf,
  type ClaimOutcome,
  type Scope,
} from "./contract.js";
import type { Session } from "./database.js";
import { pollDelay, tooLate, until } from "./deadline.js";
import { EndedByHandler, isOutsideTransaction, isRolledBack } from "./errors.js";
import { Events } from "./events.js";
import { RECOVERY_MS, RESPONSE_BYTES_MAX, START_MS } from "./limits.js";
import type { Policy } from "./options.js";
import { Problem, unavailable } from "./problem.js";
import { outcomeProblem, replayOf } from "./reply.js";
import type { ParsedRequest } from "./request.js";
import { Responder, unclaimed, type Handler } from "./responder.js";
import {
  disposition,
  isSame,
  splitHeaders,
  type Disposition,
  type HeaderPairs,
  type HttpResponse,
} from "./response.js";
import { lend, type Transactional } from "./tx.js";

/** A handler's response, and what is stored of it. */
export interface Ran {
  disposition: Disposition;
  /** The response as it is stored. */
  stored: HttpResponse;
  /** Headers of this exchange only. */
  exchange: HeaderPairs;
}

/** Rolls the transaction back, because nothing is stored. */
class Released extends Error {
  constructor(readonly ran: Ran) {
    super("the key is released");
  }
}

/** Protects requests of one operation. A rejection of the handler releases the key. */
export class Engine<Client extends object> extends Responder<Client, Transactional<Client>> {
  protected execute(
    parsed: ParsedRequest,
    handler: Handler<Transactional<Client>>,
  ): Promise<HttpResponse> {
    return parsed.key === undefined
      ? this.unprotected(parsed, handler)
      : this.protected(parsed, { ...parsed, key: parsed.key }, handler);
  }

  private async protected(
    request: ParsedRequest,
    scope: Scope,
    handler: Handler<Transactional<Client>>,
  ): Promise<HttpResponse> {
    const waitUntil = performance.now() + this.policy.waitMs;
    for (let count = 0; ; count += 1) {
      const ended = await this.attempt(request, scope, handler);
      if ("status" in ended) return ended;
      if (ended.outcome === "replay") return replayOf(ended.response, this.policy.profile);
      const now = performance.now();
      if (ended.outcome !== "in_progress" || now >= Math.min(waitUntil, request.endsAt)) {
        throw outcomeProblem(ended, this.policy.profile);
      }
      // Outside of the transaction, without holding a connection.
      await pause(pollDelay(count));
    }
  }

  /** One transaction: claims the key, and runs the handler if the key is free. */
  private async attempt(
    request: ParsedRequest,
    scope: Scope,
    handler: Handler<Transactional<Client>>,
  ): Promise<HttpResponse | ClaimOutcome> {
    const run = new Run(request.endsAt);
    const opening = claimStatement(scope, request.fingerprint, this.policy);
    try {
      return await run.within(
        this.database.transaction(
          async (session) => {
            const found = session.batch
              ? outcomeOf(session.batch.opened)
              : await claim(session, scope, request.fingerprint, this.policy);
            if (found.outcome !== "open") return found;
            run.hasStarted = true;
            const events = new Events();
            const ran = await effect(session, (client) =>
              this.run(run, client, events, request, handler),
            );
            if (ran.disposition === "release") throw new Released(ran);
            run.check();
            await store(session, scope, run, ran, events);
            return firstResponse(ran, "stored");
          },
          [opening, SAVEPOINT],
        ),
      );
    } catch (error) {
      if (error instanceof Released) return firstResponse(error.ran);
      if (run.committing && !isRolledBack(error))
        return this.recover(request, scope, run.committing, error);
      if (run.hasStarted && isOutsideTransaction(error)) throw new EndedByHandler(error);
      throw run.hasStarted || error instanceof Problem ? error : unclaimed(error);
    }
  }

  /** Runs the handler, and decides what is stored. */
  private async run(
    run: Run,
    client: Client,
    events: Events,
    request: ParsedRequest,
    handler: Handler<Transactional<Client>>,
  ): Promise<Ran> {
    run.check(START_MS);
    const lent = lend(client, events);
    try {
      const { response, problem } = await run.until(
        handler(lent.tx).catch((error: unknown) => this.refused(request, error)),
      );
      if (response.body.length > RESPONSE_BYTES_MAX) throw tooLarge();
      const kept = isStoreFailure(problem)
        ? "release"
        : disposition(response.status, this.policy.onFailure, this.policy.profile);
      return ranOf(response, kept, problem?.storedBody(request.requestId), this.policy);
    } finally {
      lent.end();
    }
  }

  /** The key decides whether a commit happened whose result was lost. */
  private async recover(
    request: ParsedRequest,
    scope: Scope,
    ran: Ran,
    lost: unknown,
  ): Promise<HttpResponse> {
    const until = performance.now() + RECOVERY_MS;
    for (let count = 0; ; count += 1) {
      const found = await this.database
        .transaction((session) => claim(session, scope, request.fingerprint, this.policy))
        .catch(() => undefined);
      if (found?.outcome === "replay") {
        return isSame(found.response, ran.stored)
          ? firstResponse(ran, "stored")
          : replayOf(found.response, this.policy.profile);
      }
      // An open key means that nothing was committed: the client sends the request again.
      const isKnown = found !== undefined && found.outcome !== "in_progress";
      if (isKnown || performance.now() >= until) throw unavailable(lost);
      await pause(pollDelay(count));
    }
  }

  /** Runs a request without a key, in a transaction without a claim. */
  private async unprotected(
    request: ParsedRequest,
    handler: Handler<Transactional<Client>>,
  ): Promise<HttpResponse> {
    const run = new Run(request.endsAt);
    try {
      return await run.within(
        this.database.transaction(async (session) => {
          const events = new Events();
          const ran = await this.run(run, session.client, events, request, handler);
          if (ran.disposition !== "with-effect") throw new Released(ran);
          run.check();
          await emitLast(session, run, ran, events);
          return firstResponse(ran, "bypassed");
        }),
      );
    } catch (error) {
      if (error instanceof Released) return firstResponse(error.ran, "bypassed");
      throw run.committing && !isRolledBack(error) ? unavailable(error) : error;
    }
  }
}

/**
 * Runs the handler in a savepoint. If only the response is stored, the driver's own savepoint is
 * rolled back here, and {@link store} rolls back to another one.
 */
async function effect<Client>(
  session: Session<Client>,
  work: (client: Client) => Promise<Ran>,
): Promise<Ran> {
  if (!session.savepoint) {
    if (!session.batch) await session.query(SAVEPOINT.text, []);
    return work(session.client);
  }
  let ran: Ran | undefined;
  try {
    return await session.savepoint(async (client) => {
      ran = await work(client);
      if (ran.disposition !== "with-effect") throw new Released(ran);
      return ran;
    });
  } catch (error) {
    if (ran && ran.disposition !== "with-effect") return ran;
    throw error;
  }
}

/** Stores the response, and commits if the driver can do that in the same message. */
async function store<Client>(
  session: Session<Client>,
  scope: Scope,
  run: Run,
  ran: Ran,
  events: Events,
): Promise<void> {
  const { disposition, stored } = ran;
  const kept = disposition === "with-effect" ? events.close() : "[]";
  const undo = disposition === "effect-free" && !session.savepoint ? [ROLLBACK_TO] : [];
  // Ordered events may wait for other transactions, and the deadline has to end that wait.
  if (session.batch && !events.isOrdered && isShort(stored.body, kept)) {
    run.commit(ran);
    await session.batch.commit([...undo, completeStatement(scope, stored, kept)]);
    return;
  }
  for (const { text } of undo) await session.query(text, []);
  await complete(session, scope, stored, kept);
  run.commit(ran);
}

/**
 * Writes the events of a request without a key, even if there are none: in a transaction in which
 * a statement has failed, the server would execute COMMIT as ROLLBACK, without an error.
 */
async function emitLast<Client>(
  session: Session<Client>,
  run: Run,
  ran: Ran,
  events: Events,
): Promise<void> {
  const emitted = events.close();
  if (session.batch && !events.isOrdered && isShort(emitted)) {
    run.commit(ran);
    await session.batch.commit([emitStatement(emitted)]);
    return;
  }
  await emitMany(session, emitted);
  run.commit(ran);
}

/** The state of one transaction: its deadline, and whether its commit has begun. */
class Run {
  committing: Ran | undefined;
  /** Whether the key was claimed, so that the handler runs. */
  hasStarted = false;
  private isLate = false;

  constructor(private readonly endsAt: number) {}

  /** Records that the commit follows. From now on its result is waited for. */
  commit(ran: Ran): void {
    // The response that says so may have been sent already.
    if (this.isLate) throw tooLate();
    this.committing = ran;
  }

  /** Throws if less than `leastMs` milliseconds are left. */
  check(leastMs = 0): void {
    if (performance.now() + leastMs >= this.endsAt) throw tooLate();
  }

  /** Rejects at the deadline. */
  until<Result>(work: Promise<Result>): Promise<Result> {
    return until(this.endsAt, work);
  }

  /** Rejects at the deadline even if the rollback takes longer, but waits for a commit. */
  async within<Result>(transaction: Promise<Result>): Promise<Result> {
    try {
      return await this.until(transaction);
    } catch (error) {
      if (this.committing) return transaction;
      this.isLate = true;
      // It rejects too, because its deadline is the same; its rollback may still be running.
      transaction.catch(() => undefined);
      throw error;
    }
  }
}

/** What is stored of a response. */
export function ranOf(
  response: HttpResponse,
  kept: Disposition,
  storedBody: Buffer | undefined,
  policy: Policy,
): Ran {
  const { status } = response;
  if (kept === "release") {
    return { disposition: kept, stored: response, exchange: [] };
  }
  // A retry with the same key receives a stored error again, so it does not ask for a retry.
  const lines =
    status < 400
      ? response.headers
      : response.headers.filter(([name]) => name.toLowerCase() !== "retry-after");
  const { stored, exchange } = splitHeaders(lines, policy.perRequestHeaders);
  return {
    disposition: kept,
    stored: { status, headers: stored, body: storedBody ?? response.body },
    exchange,
  };
}

/** The response to the request that has run the handler. */
export function firstResponse(ran: Ran, status?: "stored" | "bypassed"): HttpResponse {
  const { stored, exchange } = ran;
  const marks: HeaderPairs = status ? [["idempotency-status", status]] : [];
  return { ...stored, headers: [...stored.headers, ...exchange, ...marks] };
}

/** A failure of the store itself is not an outcome of the request. */
function isStoreFailure(problem: Problem | undefined): boolean {
  return problem?.code === "DEPENDENCY.unavailable" && problem.options.cause !== undefined;
}

/** The problem of a response that is too long to be stored. */
export function tooLarge(): Problem {
  const detail = `a stored response has at most ${RESPONSE_BYTES_MAX} bytes; nothing was changed`;
  return new Problem("TRANSIENT.response_too_large", detail);
}
