/**
 * A client that sends a request until it has a final response. Every attempt has the same key and
 * the same bytes, so a service that implements the HTTP contract executes the request once.
 *
 * ```ts
 * const client = new Client();
 * const answer = await client.send({ url: "https://shop.example/orders", json: { amount: 500 } });
 * ```
 */
import { randomUUID } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import { Balance, budgets, type Budget } from "./client/budget.js";
import {
  BACKOFF,
  decide,
  isPassing,
  isRepeatable,
  readResponse,
  saysStored,
} from "./client/decision.js";
import type { Backoff, Seen, Step, Stopped } from "./client/decision.js";
import { fateOf, intentOf, type Begun, type Intent, type Journal } from "./client/journal.js";
import { formatKey } from "./core/key.js";

export { budgets, type Budget } from "./client/budget.js";
export type { Backoff, Stopped } from "./client/decision.js";
export { FileJournal, type Begun, type Intent, type Journal } from "./client/journal.js";

/** Maximum length of a response in bytes. */
const RECEIVED_BYTES_MAX = 16 * 1024 * 1024;
/** How long a key of the journal may be sent again, in milliseconds: services forget keys. */
const RESUME_MS = 24 * 3600 * 1000;
/** Maximum number of balances, one for each destination. */
const BUDGETS_MAX = 1_000;
/** Errors before any byte of a request was sent: no connection, or no TLS handshake. */
const NOT_SENT =
  /^(?:ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|UND_ERR_CONNECT_TIMEOUT|ERR_TLS_.*|.*CERT.*|.*SELF_SIGNED.*)$/;

/** Options of a client. */
export interface ClientOptions {
  /** How often and how fast one operation is attempted. */
  backoff?: Partial<Backoff>;
  /** The limit of the load that all retries to one destination add. */
  budget?: Budget;
  /** Time limit of one attempt in milliseconds. */
  attemptMs?: number;
  /** Where keys are recorded before anything is sent under them. */
  journal?: Journal;
  /** How long a key of the journal may be sent again, in milliseconds. By default a day. */
  resumeWithinMs?: number;
  /** Sends one attempt. By default the `fetch` of Node. */
  fetch?: typeof fetch;
  /** Returns uniform random numbers from 0 to 1. */
  random?: () => number;
  /** Called after each attempt. */
  onAttempt?: (attempt: Attempt) => void;
}

/** A request, which is sent with the same bytes in every attempt. */
export interface ClientRequest {
  url: string | URL;
  /** By default POST. */
  method?: string;
  headers?: Record<string, string>;
  /** A body of bytes or of text. */
  body?: string | Uint8Array;
  /** A value that is sent as JSON. */
  json?: unknown;
  /** The key. Without it the client generates one for a POST and a PATCH; `null` sends none. */
  key?: string | null;
  /** The name of the operation in the journal, which distinguishes equal requests. */
  name?: string;
  /** Discards an unfinished run of the operation from the journal. It may be executed once more. */
  again?: boolean;
  /** Ends the operation. */
  signal?: AbortSignal;
}

/** One attempt, for logs. */
export interface Attempt {
  attempt: number;
  delayMs: number;
  tookMs: number;
  status?: number;
  code?: string;
  notes: string;
}

/** The last response to an operation. */
export interface Answer {
  status: number;
  headers: Headers;
  body: Buffer;
  /** The `code` of a problem. */
  code: string | undefined;
  /** The key of the operation. */
  key: string | undefined;
  /** Whether, according to the journal, an earlier run had started the operation. */
  isResumed: boolean;
  stopped: Stopped;
  /** The wait that the response asks for, in milliseconds. */
  retryAfterMs: number | undefined;
  attempts: Attempt[];
}

/** An operation that ended without a response. Its key stays in the journal. */
export class SendError extends Error {
  override name = "SendError";

  constructor(
    message: string,
    readonly reason: Stopped | "stale" | "other_key" | "journal" | "too_large",
    readonly key: string | undefined,
    readonly attempts: Attempt[],
    cause?: unknown,
  ) {
    super(message, { cause });
  }
}

/** Sends requests with retries. Create one per program: its budgets are shared. */
export class Client {
  private readonly backoff: Backoff;
  private readonly balances = new Map<string, Balance>();

  constructor(private readonly options: ClientOptions = {}) {
    this.backoff = { ...BACKOFF, ...options.backoff };
  }

  /** Sends a request until it has a final response. */
  async send(request: ClientRequest): Promise<Answer> {
    const prepared = prepare(request);
    const [begun, intent] = await this.begin(prepared, request);
    const operation = new Operation(
      this,
      this.options,
      this.limited(begun),
      prepared,
      begun,
      request.signal,
    );
    const answer = await operation.run();
    if (answer.stopped === "answered" && begun && intent)
      await this.settle(operation, answer, begun, intent);
    return answer;
  }

  /** The balance of a destination. Beyond a bound, destinations share one. */
  balance(destination: string): Balance {
    const now = Date.now();
    if (!this.balances.has(destination) && this.balances.size >= BUDGETS_MAX) {
      for (const [name, balance] of this.balances)
        if (balance.isFresh(now)) this.balances.delete(name);
    }
    const isKnown = this.balances.has(destination) || this.balances.size < BUDGETS_MAX;
    const name = isKnown ? destination : "others";
    const balance =
      this.balances.get(name) ?? new Balance(this.options.budget ?? budgets.standard(), now);
    this.balances.set(name, balance);
    return balance;
  }

  /** No attempt is sent at a time at which the service may have deleted the key. */
  private limited(begun: Begun | undefined): Backoff {
    const left = (this.options.resumeWithinMs ?? RESUME_MS) - (begun?.ageMs ?? 0);
    return { ...this.backoff, totalMs: Math.min(this.backoff.totalMs, left) };
  }

  private async begin(prepared: Prepared, request: ClientRequest): Promise<[Begun?, Intent?]> {
    if (!prepared.hasKey) return [];
    const fresh = request.key ?? randomUUID();
    const { journal } = this.options;
    if (!journal) return [{ key: fresh, isResumed: false, ageMs: 0 }];
    const intent = intentOf(prepared.method, prepared.url.href, prepared.body, request.name);
    let begun = await journal.begin(intent, fresh).catch(journalError);
    if (begun.isResumed && request.again) {
      await journal.finish(intent, begun.key).catch(journalError);
      begun = await journal.begin(intent, fresh).catch(journalError);
    }
    if (typeof request.key === "string" && request.key !== begun.key) {
      const message = "according to the journal, the operation is unfinished under another key";
      throw new SendError(message, "other_key", begun.key, []);
    }
    if (begun.ageMs === undefined || begun.ageMs >= (this.options.resumeWithinMs ?? RESUME_MS)) {
      const message = `the operation is unfinished under key ${formatKey(begun.key)}, which the service may have deleted by now`;
      throw new SendError(message, "stale", begun.key, []);
    }
    return [begun, intent];
  }

  /** Removes a key whose outcome is known. The answer is valid even if this fails. */
  private async settle(
    operation: Operation,
    answer: Answer,
    begun: Begun,
    intent: Intent,
  ): Promise<void> {
    const { journal } = this.options;
    const isStored = saysStored(answer.headers.get("idempotency-status"));
    const fate = fateOf(
      answer.status,
      isStored,
      answer.code,
      operation.isInDoubt || begun.isResumed,
    );
    try {
      if (fate === "known") await journal?.finish(intent, begun.key);
      if (fate === "nothing") await journal?.withdraw(intent, begun.key);
    } catch (error) {
      console.warn("hapax: a finished key stays in the journal", error);
    }
  }
}

interface Prepared {
  method: string;
  url: URL;
  headers: Headers;
  body: Uint8Array;
  hasKey: boolean;
}

/** One operation, from its first attempt to its end. */
class Operation {
  isInDoubt = false;
  private readonly attempts: Attempt[] = [];
  private readonly startedAt = performance.now();
  private readonly balance: Balance;

  constructor(
    client: Client,
    private readonly options: ClientOptions,
    private readonly backoff: Backoff,
    private readonly prepared: Prepared,
    private readonly begun: Begun | undefined,
    private readonly signal: AbortSignal | undefined,
  ) {
    this.balance = client.balance(prepared.url.origin);
  }

  async run(): Promise<Answer> {
    this.balance.first(Date.now());
    for (let delayMs = 0; ;) {
      const sentAt = performance.now();
      const came = await this.attempt();
      this.signal?.throwIfAborted();
      this.record(came, delayMs, performance.now() - sentAt);
      const step = this.decide(came.seen);
      if ("stop" in step) return this.end(came, step);
      this.isInDoubt ||= came.seen !== "not_sent";
      delayMs = step.waitMs;
      await pause(delayMs, undefined, this.signal ? { signal: this.signal } : {});
      // A retry is taken out of the budget when it is sent, not when it is decided.
      if (this.elapsed >= this.backoff.totalMs) return this.end(came, { stop: "late" });
      if (!this.balance.take(Date.now())) return this.end(came, { stop: "budget" });
    }
  }

  private get elapsed(): number {
    return performance.now() - this.startedAt;
  }

  private decide(seen: Seen): Step {
    const now = Date.now();
    if (isPassing(seen)) this.balance.failed(now);
    else this.balance.succeeded(now);
    return decide(seen, {
      backoff: this.backoff,
      isRepeatable: isRepeatable(this.prepared.method, this.prepared.hasKey),
      attempt: this.attempts.length,
      elapsedMs: this.elapsed,
      random: (this.options.random ?? Math.random)(),
      allows: () => this.balance.allows(now),
    });
  }

  private async attempt(): Promise<Came> {
    const leftMs = Math.max(1, Math.floor(this.backoff.totalMs - this.elapsed));
    const { method, url, body } = this.prepared;
    const headers = new Headers(this.prepared.headers);
    headers.set("x-request-timeout", String(leftMs));
    headers.set("idempotency-attempt", String(this.attempts.length + 1));
    if (this.begun) headers.set("idempotency-key", formatKey(this.begun.key));
    const deadline = AbortSignal.timeout(Math.min(leftMs, this.options.attemptMs ?? leftMs));
    const signal = this.signal ? AbortSignal.any([deadline, this.signal]) : deadline;
    try {
      const init: RequestInit = { method, headers, signal, redirect: "manual" };
      if (body.length > 0) init.body = new Uint8Array(body);
      const response = await (this.options.fetch ?? fetch)(url, init);
      const received = await this.receive(response);
      const header = (name: string): string | null => response.headers.get(name);
      return {
        seen: readResponse(response.status, header, received, Date.now()),
        response,
        body: received,
      };
    } catch (error) {
      if (error instanceof SendError) throw error;
      const isLate = deadline.aborted;
      return { seen: isLate ? "timed_out" : isUnsent(error) ? "not_sent" : "lost", error };
    }
  }

  private async receive(response: Response): Promise<Buffer> {
    const chunks: Uint8Array[] = [];
    let bytes = 0;
    for await (const chunk of (response.body ?? []) as AsyncIterable<Uint8Array>) {
      bytes += chunk.length;
      if (bytes > RECEIVED_BYTES_MAX) {
        const message = `the response is longer than ${RECEIVED_BYTES_MAX} bytes`;
        throw new SendError(message, "too_large", this.begun?.key, this.attempts);
      }
      chunks.push(chunk);
    }
    return Buffer.concat(chunks);
  }

  private record({ seen, error }: Came, delayMs: number, tookMs: number): void {
    const answered = typeof seen === "object" ? seen : undefined;
    const attempt: Attempt = {
      attempt: this.attempts.length + 1,
      delayMs,
      tookMs,
      ...(answered && { status: answered.status }),
      ...(answered?.code !== undefined && { code: answered.code }),
      notes: error === undefined ? "" : messageOf(error),
    };
    this.attempts.push(attempt);
    this.options.onAttempt?.(attempt);
  }

  private end(
    { seen, response, body, error }: Came,
    step: Exclude<Step, { waitMs: number }>,
  ): Answer {
    const key = this.begun?.key;
    if (!response || !body || typeof seen === "string") {
      throw new SendError("no response was received", step.stop, key, this.attempts, error);
    }
    return {
      status: response.status,
      headers: response.headers,
      body,
      code: seen.code,
      key,
      isResumed: this.begun?.isResumed ?? false,
      stopped: step.stop,
      retryAfterMs: seen.retryAfterMs,
      attempts: this.attempts,
    };
  }
}

/** The outcome of an attempt, with its response or its error. */
interface Came {
  seen: Seen;
  response?: Response;
  body?: Buffer;
  error?: unknown;
}

function prepare({ url, method = "POST", headers, body, json, key }: ClientRequest): Prepared {
  const lines = new Headers(headers);
  for (const own of ["idempotency-key", "idempotency-attempt", "x-request-timeout"]) {
    if (lines.has(own))
      throw new TypeError(`the client sets ${own} itself; use the member key for a key`);
  }
  if (json !== undefined && !lines.has("content-type"))
    lines.set("content-type", "application/json");
  const content = json === undefined ? (body ?? "") : JSON.stringify(json);
  const name = method.toUpperCase();
  return {
    method: name,
    url: new URL(url),
    headers: lines,
    body: typeof content === "string" ? Buffer.from(content) : content,
    hasKey: key !== null && (key !== undefined || name === "POST" || name === "PATCH"),
  };
}

function isUnsent(error: unknown): boolean {
  const { code, cause } = (error ?? {}) as { code?: unknown; cause?: unknown };
  if (typeof code === "string") return NOT_SENT.test(code);
  const { errors } = (error ?? {}) as { errors?: unknown };
  if (Array.isArray(errors)) return errors.every(isUnsent);
  return cause !== undefined && isUnsent(cause);
}

function messageOf(error: unknown): string {
  const { message, cause } = error as { message?: unknown; cause?: unknown };
  return cause === undefined ? String(message) : `${String(message)}: ${messageOf(cause)}`;
}

function journalError(cause: unknown): never {
  throw new SendError(
    "the journal cannot be written, and nothing was sent",
    "journal",
    undefined,
    [],
    cause,
  );
}
