/**
 * Runs a handler once per idempotency key, in the transaction that claims the key.
 *
 * The response is returned after the commit, never before. A handler that throws releases the key.
 * A refusal is stored without its effect. If the result of the commit is lost, the key decides. A
 * duplicate waits without holding a connection.
 */
import { setTimeout as pause } from "node:timers/promises";
import { claim, complete, emitMany, type ClaimOutcome, type Scope } from "./contract.js";
import { checkContract, type Database, type Session } from "./database.js";
import { isRolledBack, problemOf, UsageError } from "./errors.js";
import { Events } from "./events.js";
import { POLL_MS, RECOVERY_MS, RESPONSE_BYTES_MAX, START_MS } from "./limits.js";
import type { Policy } from "./options.js";
import { Problem, unavailable } from "./problem.js";
import { outcomeProblem, replayOf, withRequest } from "./reply.js";
import { parseRequest, type IncomingRequest, type ParsedRequest } from "./request.js";
import {
  disposition,
  splitHeaders,
  type Disposition,
  type HeaderPairs,
  type HttpResponse,
} from "./response.js";
import { lend, type Transactional } from "./tx.js";

/** What a handler has produced. */
export interface Handled {
  /** The complete response. */
  response: HttpResponse;
  /** The problem that the response shows, if it is one. */
  problem?: Problem | undefined;
}

/** Runs the handler of a request. A rejection releases the key. */
export type Handler<Client> = (tx: Transactional<Client>) => Promise<Handled>;

/** A handler's response, and what is stored of it. */
interface Ran {
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

/** Protects requests of one operation. */
export class Engine<Client extends object> {
  constructor(
    private readonly database: Database<Client>,
    private readonly policy: Policy,
  ) {}

  /** Returns the response for a request. It never rejects. */
  async respond(request: IncomingRequest, handler: Handler<Client>): Promise<HttpResponse> {
    let key: string | undefined;
    try {
      const parsed = parseRequest(request, this.policy, (found) => (key = found));
      await new Run(parsed.endsAt).until(this.check());
      const response = await (parsed.key === undefined
        ? this.unprotected(parsed, handler)
        : this.protected(parsed, { ...parsed, key: parsed.key }, handler));
      return withRequest(response, key, request.requestId);
    } catch (error) {
      return withRequest(this.failed(request, error), key, request.requestId);
    }
  }

  private async check(): Promise<void> {
    try {
      await checkContract(this.database as Database<never>);
    } catch (error) {
      throw error instanceof UsageError ? error : unclaimed(error);
    }
  }

  /** The response for an error, which is logged if it is the service's. */
  failed(request: { requestId: string; operation: string }, error: unknown): HttpResponse {
    const problem = problemOf(error);
    if (problem.status >= 500) {
      const { requestId, operation } = request;
      this.policy.onError({ code: problem.code, requestId, operation, problem });
    }
    return problem.response(request.requestId);
  }

  private async protected(
    request: ParsedRequest,
    scope: Scope,
    handler: Handler<Client>,
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
    handler: Handler<Client>,
  ): Promise<HttpResponse | ClaimOutcome> {
    const run = new Run(request.endsAt);
    try {
      return await run.within(
        this.database.transaction(async (session) => {
          const found = await claim(session, scope, request.fingerprint, this.policy);
          if (found.outcome !== "open") return found;
          run.hasStarted = true;
          const events = new Events();
          const ran = await effect(session, (client) =>
            this.run(run, client, events, request, handler),
          );
          if (ran.disposition === "release") throw new Released(ran);
          run.check();
          const kept = ran.disposition === "with-effect" ? events.close() : "[]";
          await complete(session, scope, ran.stored, kept);
          run.commit(ran);
          return firstResponse(ran, "stored");
        }),
      );
    } catch (error) {
      if (error instanceof Released) return firstResponse(error.ran);
      if (run.committing && !isRolledBack(error))
        return this.recover(request, scope, run.committing, error);
      throw run.hasStarted || error instanceof Problem ? error : unclaimed(error);
    }
  }

  /** Runs the handler, and decides what is stored. */
  private async run(
    run: Run,
    client: Client,
    events: Events,
    request: ParsedRequest,
    handler: Handler<Client>,
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

  /** A problem that the handler has thrown is its response. */
  private refused(request: ParsedRequest, error: unknown): Handled {
    if (error instanceof UsageError) throw error;
    const problem = problemOf(error);
    return { response: this.failed(request, problem), problem };
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
        const isOwn =
          found.response.status === ran.stored.status &&
          found.response.body.equals(ran.stored.body);
        return isOwn ? firstResponse(ran, "stored") : replayOf(found.response, this.policy.profile);
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
    handler: Handler<Client>,
  ): Promise<HttpResponse> {
    const run = new Run(request.endsAt);
    try {
      return await run.within(
        this.database.transaction(async (session) => {
          const events = new Events();
          const ran = await this.run(run, session.client, events, request, handler);
          if (ran.disposition !== "with-effect") throw new Released(ran);
          run.check();
          if (events.length > 0) await emitMany(session, events.close());
          run.commit(ran);
          return firstResponse(ran, "bypassed");
        }),
      );
    } catch (error) {
      if (error instanceof Released) return firstResponse(error.ran, "bypassed");
      throw run.committing && !isRolledBack(error) ? unavailable(error) : error;
    }
  }
}

/** Runs the handler in a savepoint, and rolls its effect back if only the response is stored. */
async function effect<Client>(
  session: Session<Client>,
  work: (client: Client) => Promise<Ran>,
): Promise<Ran> {
  if (!session.savepoint) {
    await session.query("SAVEPOINT hapax_effect", []);
    const ran = await work(session.client);
    if (ran.disposition === "effect-free")
      await session.query("ROLLBACK TO SAVEPOINT hapax_effect", []);
    return ran;
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
    if (this.isLate) throw late();
    this.committing = ran;
  }

  /** Throws if less than `leastMs` milliseconds are left. */
  check(leastMs = 0): void {
    if (performance.now() + leastMs >= this.endsAt) throw late();
  }

  /** Rejects at the deadline. */
  async until<Result>(work: Promise<Result>): Promise<Result> {
    let timer: NodeJS.Timeout | undefined;
    const deadline = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(late()), Math.max(this.endsAt - performance.now(), 0));
    });
    try {
      return await Promise.race([work, deadline]);
    } finally {
      clearTimeout(timer);
    }
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

function ranOf(
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

function firstResponse(ran: Ran, status?: "stored" | "bypassed"): HttpResponse {
  const { stored, exchange } = ran;
  const marks: HeaderPairs = status ? [["idempotency-status", status]] : [];
  return { ...stored, headers: [...stored.headers, ...exchange, ...marks] };
}

/** A failure of the store itself is not an outcome of the request. */
function isStoreFailure(problem: Problem | undefined): boolean {
  return problem?.code === "DEPENDENCY.unavailable" && problem.options.cause !== undefined;
}

/** Full jitter under a ceiling that doubles. */
function pollDelay(count: number): number {
  const [first, most] = POLL_MS;
  return Math.max(1, Math.random() * Math.min(first * 2 ** Math.min(count, 10), most));
}

/** The store is unavailable, also if one of Hapax's own functions cannot be called. */
function unclaimed(error: unknown): Problem {
  return unavailable(error, "the key cannot be claimed now; nothing was changed, try again");
}

function late(): Problem {
  return new Problem(
    "DEPENDENCY.timeout",
    "the time ran out before the commit; nothing was changed",
  );
}

function tooLarge(): Problem {
  const detail = `a stored response has at most ${RESPONSE_BYTES_MAX} bytes; nothing was changed`;
  return new Problem("TRANSIENT.answer_too_large", detail);
}
