/**
 * Runs a handler in phases: the key is committed first, each phase commits what the next owner of the
 * key needs to know, and the response is stored last.
 *
 * A run that does not complete gives the key back, so that a retry continues at once. If an owner has
 * lost its key, its own response is dropped, and its client receives that of the new owner.
 */
import { hostname } from "node:os";
import { setTimeout as pause } from "node:timers/promises";
import { runAlone } from "./batch.js";
import { claim, type Scope, type Taken } from "./contract.js";
import type { Database } from "./database.js";
import { pollDelay, until } from "./deadline.js";
import { firstResponse, ranOf, tooLarge, type Ran } from "./engine.js";
import { isConnectionError, isRolledBack, problemOf, sqlState, UsageError } from "./errors.js";
import {
  LEASE_MS,
  LEASE_MS_MAX,
  RECOVERY_MS,
  RESPONSE_BYTES_MAX,
  STORE_RETRY_MS,
} from "./limits.js";
import { policyOf, type Options, type Policy } from "./options.js";
import { FencedError, Owner } from "./owner.js";
import { enteredOf, enterStatement } from "./phased-contract.js";
import { Phases, progressOf, type Progress } from "./phases.js";
import { Problem, unavailable, type Code } from "./problem.js";
import type { Profile } from "./profile.js";
import { outcomeProblem, replayOf } from "./reply.js";
import type { ParsedRequest } from "./request.js";
import { Responder, unclaimed, type Handled, type Handler } from "./responder.js";
import { disposition, isSame, type HttpResponse } from "./response.js";

/** Options of an operation in phases. A key is always required, and no failure is stored. */
export interface PhasedOptions<Request> extends Omit<Options<Request>, "key" | "onFailure"> {
  /**
   * How long the key belongs to a process that has died, in milliseconds; by default 10 s. A process
   * that is alive renews the lease.
   */
  leaseMs?: number;
}

/** The policy of an operation in phases. */
export interface PhasedPolicy extends Policy {
  readonly leaseMs: number;
}

/** Applies the defaults. */
export function phasedPolicyOf<Request>(options: PhasedOptions<Request>): PhasedPolicy {
  const { leaseMs = LEASE_MS } = options;
  if (!(leaseMs > 0 && leaseMs <= LEASE_MS_MAX)) {
    throw new UsageError(`leaseMs is more than 0 and at most ${LEASE_MS_MAX}, not ${leaseMs}`);
  }
  return { ...policyOf(options), keyOptional: false, leaseMs };
}

/** How a request in phases has ended, with its response. */
export type Ended =
  | { outcome: "stored" | "replayed"; response: HttpResponse }
  | { outcome: "unstored"; response: HttpResponse; problem: Problem | undefined };

/** A request whose key is known. */
export type KeyedRequest = ParsedRequest & Scope;

/** A key that was entered. */
interface Owning<Client extends object> {
  owner: Owner<Client>;
  phases: Phases<Client>;
}

/** What happens to the key after the handler has responded. */
type Verdict = "with-effect" | "effect-free" | "release" | "give-back";

/** Runs the requests of one operation in phases. */
export class PhasedEngine<Client extends object> extends Responder<Client, Phases<Client>> {
  private readonly leaseMs: number;

  constructor(database: Database<Client>, policy: PhasedPolicy) {
    super(database, policy);
    this.leaseMs = policy.leaseMs;
  }

  protected async execute(
    parsed: ParsedRequest,
    handler: Handler<Phases<Client>>,
  ): Promise<HttpResponse> {
    // The policy requires a key.
    const request = { ...parsed, key: parsed.key ?? "" };
    return (await this.run(request, handler)).response;
  }

  /** Runs a request of a caller that has no HTTP. */
  async runKeyed(request: KeyedRequest, handler: Handler<Phases<Client>>): Promise<Ended> {
    await until(request.endsAt, this.check());
    return this.run(request, handler);
  }

  /** Enters the key, waits for its owner if it has one, and runs the handler. */
  private async run(request: KeyedRequest, handler: Handler<Phases<Client>>): Promise<Ended> {
    const waitUntil = Math.min(performance.now() + this.policy.waitMs, request.endsAt);
    for (let count = 0; ; count += 1) {
      const askedAt = performance.now();
      const entering = this.enter(request, askedAt);
      const entered = await until(request.endsAt, entering).catch((error: unknown) => {
        // If the time is over, nobody runs what is entered later.
        void entering.then(abandon, () => undefined);
        throw error;
      });
      if (!("outcome" in entered)) return this.own(request, entered, handler);
      if (entered.outcome !== "in_progress" || performance.now() >= waitUntil) {
        return this.taken(entered);
      }
      await pause(pollDelay(count));
    }
  }

  private async enter(request: KeyedRequest, askedAt: number): Promise<Owning<Client> | Taken> {
    const { retentionMs, onExpired } = this.policy;
    const terms = { retentionMs, onExpired, leaseMs: this.leaseMs, owner: PROCESS };
    const statement = enterStatement(request, request.fingerprint, terms);
    try {
      const entered = enteredOf(await runAlone(this.database, statement), request);
      if ("outcome" in entered) return entered;
      const owner = new Owner(this.database, entered, this.leaseMs, askedAt);
      return { owner, phases: new Phases(owner, entered.phase, entered.data) };
    } catch (error) {
      throw unclaimed(error);
    }
  }

  private taken(taken: Taken): Ended {
    const { profile } = this.policy;
    if (taken.outcome !== "replay") throw outcomeProblem(taken, profile);
    return { outcome: "replayed", response: replayOf(taken.response, profile) };
  }

  /** Runs the handler as the owner of the key. */
  private async own(
    request: KeyedRequest,
    { owner, phases }: Owning<Client>,
    handler: Handler<Phases<Client>>,
  ): Promise<Ended> {
    owner.keep();
    const running = handler(phases).catch((error: unknown) => this.refused(request, error));
    // It may fail after its time.
    running.catch(() => undefined);
    let handled: Handled;
    try {
      handled = await until(request.endsAt, Promise.race([running, owner.fenced()]), outOfTime);
      if (handled.response.body.length > RESPONSE_BYTES_MAX) throw tooLarge();
    } catch (error) {
      const problem = error instanceof FencedError ? undefined : error;
      handled = this.failure(request, problem ?? unavailable(error));
    }
    await owner.settle();
    if (owner.lost !== undefined) handled = this.failure(request, lostPhase(owner.lost));
    handled = inPhases(handled, request.requestId);
    return this.finish(request, owner, handled, progressOf(phases as Phases<never>));
  }

  /** The response for an error. The service's own are logged, except that another owner has the key. */
  private failure(request: KeyedRequest, error: unknown): Handled {
    const isFenced = error instanceof Problem && error.options.cause instanceof FencedError;
    const response = isFenced ? error.response(request.requestId) : this.failed(request, error);
    return { response, problem: error instanceof Problem ? error : undefined };
  }

  /** Stores the response, or lets the key go. */
  private async finish(
    request: KeyedRequest,
    owner: Owner<Client>,
    { response, problem }: Handled,
    progress: Progress,
  ): Promise<Ended> {
    const verdict =
      owner.lost === undefined
        ? verdictOf(response.status, progress, this.policy.profile)
        : "give-back";
    const isStored = verdict === "with-effect" || verdict === "effect-free";
    // A statement that still runs delays the rollback, and not the response.
    if (owner.isFenced() || verdict !== "with-effect") void progress.last?.rollback();
    if (owner.isFenced()) return this.ofNewOwner(request);
    if (!isStored) {
      await letGo(owner, verdict);
      return owner.isFenced()
        ? this.ofNewOwner(request)
        : { outcome: "unstored", response, problem };
    }
    const ran = ranOf(response, verdict, problem?.storedBody(request.requestId), this.policy);
    try {
      if (verdict === "with-effect" && progress.last) await progress.last.commit(ran.stored);
      else await this.complete(owner, ran.stored);
    } catch (error) {
      return this.unfinished(request, owner, ran, error);
    }
    return { outcome: "stored", response: firstResponse(ran, "stored") };
  }

  /**
   * Stores a response in a separate commit. If the store fails, tries again while the key is held: only
   * this process knows the outcome of the request.
   */
  private async complete(owner: Owner<Client>, stored: HttpResponse): Promise<void> {
    const [first, most] = STORE_RETRY_MS;
    for (let wait: number = first; ; wait = Math.min(wait * 2, most)) {
      try {
        await owner.finish(stored);
        return;
      } catch (error) {
        if (!isTransient(error) || !owner.isHeld()) throw error;
      }
      await pause(wait * (0.5 + Math.random() / 2));
    }
  }

  /** The response was not stored, or the result of the commit was lost. The key decides. */
  private async unfinished(
    request: KeyedRequest,
    owner: Owner<Client>,
    ran: Ran,
    error: unknown,
  ): Promise<Ended> {
    const isKnown = isRolledBack(error) && !owner.isFenced() && owner.lost === undefined;
    const found = isKnown ? undefined : await this.lookUp(request);
    if (found?.outcome === "replay") {
      return isSame(found.response, ran.stored)
        ? { outcome: "stored", response: firstResponse(ran, "stored") }
        : this.taken(found);
    }
    if (owner.isFenced()) return this.ofNewOwner(request);
    await letGo(owner, "give-back");
    if (!isRolledBack(error)) throw unavailable(error);
    const problem = problemOf(error);
    throw ofPhases(problem) ?? problem;
  }

  /** Waits for the response of the owner that has taken the key over. */
  private async ofNewOwner(request: KeyedRequest): Promise<Ended> {
    const waitUntil = performance.now() + this.policy.waitMs;
    for (let count = 0; ; count += 1) {
      const found = await this.lookUp(request);
      if (found && found.outcome !== "in_progress") return this.taken(found);
      if (performance.now() >= waitUntil) {
        return this.taken(found ?? { outcome: "in_progress", retryAfterMs: 1000 });
      }
      await pause(pollDelay(count));
    }
  }

  /** The state of the key; undefined if it is free or the store does not answer. */
  private async lookUp(request: KeyedRequest): Promise<Taken | undefined> {
    const found = await this.database
      .transaction((session) => claim(session, request, request.fingerprint, this.policy))
      .catch(() => undefined);
    return found?.outcome === "open" ? undefined : found;
  }
}

/**
 * Decides by the status. An error is never stored while the outcome of a call is unknown: a retry would
 * receive it although the provider may have executed the call.
 */
function verdictOf(status: number, progress: Progress, profile: Profile): Verdict {
  if (status >= 400 && progress.isUnknown) return "give-back";
  // After a phase a refusal is stored under every profile, because the phase stays.
  const isStored = disposition(status, "release", { ...profile, successesOnly: false });
  if (isStored === "effect-free" && profile.successesOnly && progress.isUntouched) return "release";
  if (isStored !== "release") return isStored;
  const isMistake = status < 500 && progress.isUntouched;
  return progress.cameToNothing || isMistake ? "release" : "give-back";
}

/** Lets a key go whose handler has not run. */
async function abandon<Client extends object>(entered: Owning<Client> | Taken): Promise<void> {
  if ("outcome" in entered) return;
  await letGo(entered.owner, entered.owner.isResumed ? "give-back" : "release");
}

/** Releases the key, or ends its lease. If this fails, the lease ends by itself. */
async function letGo<Client extends object>(owner: Owner<Client>, verdict: Verdict): Promise<void> {
  const end = verdict === "release" ? owner.release() : owner.giveBack();
  await until(performance.now() + RECOVERY_MS, end).catch(() => undefined);
}

/** Whether the store may accept the same response later. */
function isTransient(error: unknown): boolean {
  const state = sqlState(error);
  return state === undefined ? isConnectionError(error) : /^(?:08|40|53|57|58)/.test(state);
}

/** An error of the handler as a response that says what remains. */
function inPhases(handled: Handled, requestId: string): Handled {
  const problem = handled.problem && ofPhases(handled.problem);
  return problem ? { response: problem.response(requestId), problem } : handled;
}

/** A problem that says that nothing was changed, as one that says what remains. */
function ofPhases({ code, options }: Problem): Problem | undefined {
  if (code === "TRANSIENT.response_too_large") {
    const detail = `a stored response has at most ${RESPONSE_BYTES_MAX} bytes; ${KEPT}`;
    return new Problem(code, detail, options);
  }
  const end = options.cause === undefined ? undefined : ENDS[code];
  return end && new Problem(end[0], `${KEPT}; ${end[1]}`, { cause: options.cause });
}

const KEPT = "what this request has committed is kept";
/** Codes of errors that nobody has converted, with the code and the detail in phases. */
const ENDS: Record<string, [code: Code, what: string]> = {
  "INTERNAL.statement": ["TRANSIENT.internal", "a retry continues from there"],
  "TRANSIENT.internal": ["TRANSIENT.internal", "a retry continues from there"],
  INTERNAL: ["INTERNAL", "the same request would fail again"],
};

function outOfTime(): Problem {
  const detail = "the time ran out; a retry continues where this request stopped";
  return new Problem("DEPENDENCY.timeout", detail, { retryAfter: 1 });
}

function lostPhase(cause: unknown): Problem {
  const detail = "the result of a commit was lost; a retry continues after it";
  return unavailable(cause, detail);
}

/** The name of this process as the owner of keys. */
const PROCESS = `node ${hostname().slice(0, 200)} ${process.pid}`;
