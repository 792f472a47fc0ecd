/**
 * Captures what a handler writes to a `ServerResponse` of Node, so that it can be sent after the
 * commit. Bodies of any kind are collected within a limit. A response that has to reach the client
 * before it is complete, such as server-sent events, is refused.
 */
import type { OutgoingHttpHeader, OutgoingHttpHeaders, ServerResponse } from "node:http";
import { UsageError } from "./errors.js";
import { RESPONSE_BYTES_MAX } from "./limits.js";
import { Problem } from "./problem.js";
import type { Handled } from "./responder.js";
import type { HeaderPairs, HttpResponse } from "./response.js";

type Callback = (error?: Error | null) => void;
type Chunk = string | Uint8Array;

const PATCHED = [
  "writeHead",
  "write",
  "end",
  "flushHeaders",
  "setHeader",
  "appendHeader",
  "removeHeader",
] as const;

/** Problems that were written to a response, so that a stored one does not ask for a retry. */
const problems = new WeakMap<ServerResponse, Problem>();

/** Records that a response shows a problem. */
export function markProblem(response: ServerResponse, problem: Problem): void {
  problems.set(response, problem);
}

/** The ids of requests whose responses are captured, which their problems show. */
const requestIds = new WeakMap<ServerResponse, string>();

/** The id of the request of a captured response. */
export function requestIdFor(response: ServerResponse): string | undefined {
  return requestIds.get(response);
}

/** The captured response of one request. */
export class Capture {
  /** The complete response of the handler. It rejects if the response cannot be stored. */
  readonly done: Promise<Handled>;
  private readonly chunks: Buffer[] = [];
  private bytes = 0;
  private isEnded = false;
  /** Methods that other middleware, such as compression, has replaced before. */
  private readonly ownBefore = new Map<string, unknown>();
  private readonly before: OutgoingHttpHeaders;
  private readonly own: Pick<ServerResponse, (typeof PATCHED)[number]>;
  private resolve!: (handled: Handled) => void;
  private reject!: (error: unknown) => void;

  constructor(
    private readonly response: ServerResponse,
    requestId: string,
  ) {
    requestIds.set(response, requestId);
    this.done = new Promise((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
    });
    // A response that fails after the deadline is of no interest.
    this.done.catch(() => undefined);
    this.before = { ...response.getHeaders() };
    this.own = Object.fromEntries(
      PATCHED.map((name) => [
        name,
        (response[name] as (...args: unknown[]) => unknown).bind(response),
      ]),
    ) as Capture["own"];
    for (const name of PATCHED) {
      if (Object.hasOwn(response, name)) this.ownBefore.set(name, Reflect.get(response, name));
    }
    this.patch();
  }

  /** Sends a response, with the headers that were set before the capture. */
  send({ status, headers, body }: HttpResponse): void {
    const { own, response } = this;
    this.restore();
    for (const name of response.getHeaderNames()) own.removeHeader(name);
    for (const [name, value] of Object.entries(this.before)) {
      if (value !== undefined) own.setHeader(name, value);
    }
    for (const [name, values] of grouped(headers)) {
      own.setHeader(name, values.length === 1 ? (values[0] ?? "") : values);
    }
    own.removeHeader("transfer-encoding");
    const isEmpty = status === 204 || status === 304;
    if (isEmpty) own.removeHeader("content-length");
    else own.setHeader("content-length", body.length);
    response.statusCode = status;
    (own.end as (body?: Buffer) => void)(isEmpty ? undefined : body);
    // Middleware such as a session may delay the end, and Node still needs its methods then.
    if (response.headersSent) this.ignoreTheRest();
    else response.once("finish", () => this.ignoreTheRest());
  }

  /** Gives the response its own methods back: Node calls them while it sends. */
  private restore(): void {
    for (const name of PATCHED) {
      const before = this.ownBefore.get(name);
      if (before) Object.assign(this.response, { [name]: before });
      else Reflect.deleteProperty(this.response, name);
    }
  }

  /** Ignores what a handler writes after its time: the response has been sent. */
  private ignoreTheRest(): void {
    const ignore = (): ServerResponse => this.response;
    Object.assign(this.response, Object.fromEntries(PATCHED.map((name) => [name, ignore])));
    this.response.write = () => true;
  }

  private patch(): void {
    const { response } = this;
    Object.assign(response, {
      writeHead: (status: number, ...rest: unknown[]) => {
        response.statusCode = status;
        const headers = typeof rest[0] === "string" ? rest[1] : rest[0];
        this.setHeaders(headers);
        return response;
      },
      write: (chunk: Chunk, ...rest: unknown[]) => {
        this.refuseEvents();
        this.push(chunk, rest);
        callbackOf(rest)?.();
        return true;
      },
      end: (...args: unknown[]) => {
        const callback = callbackOf(args);
        if (callback) response.once("finish", callback);
        if (isChunk(args[0])) this.push(args[0], args.slice(1));
        this.end();
        return response;
      },
      flushHeaders: () => {
        throw streaming();
      },
    });
  }

  private setHeaders(headers: unknown): void {
    const pairs = pairsOf(headers);
    for (const [name] of pairs) this.own.removeHeader(name);
    for (const [name, value] of pairs) {
      for (const line of Array.isArray(value) ? value : [value])
        this.own.appendHeader(name, String(line));
    }
  }

  private push(chunk: Chunk, rest: unknown[]): void {
    if (this.isEnded) return;
    const encoding = typeof rest[0] === "string" ? (rest[0] as BufferEncoding) : "utf8";
    const bytes = typeof chunk === "string" ? Buffer.from(chunk, encoding) : Buffer.from(chunk);
    this.bytes += bytes.length;
    if (this.bytes <= RESPONSE_BYTES_MAX) this.chunks.push(bytes);
    else this.chunks.length = 0;
  }

  private end(): void {
    if (this.isEnded) return;
    this.isEnded = true;
    if (this.bytes > RESPONSE_BYTES_MAX) {
      const detail = `a stored response has at most ${RESPONSE_BYTES_MAX} bytes; nothing was changed`;
      this.reject(new Problem("TRANSIENT.response_too_large", detail));
      return;
    }
    this.resolve({
      response: {
        status: this.response.statusCode,
        headers: this.headers(),
        body: Buffer.concat(this.chunks),
      },
      problem: problems.get(this.response),
    });
  }

  /** The headers that were set or changed since the capture began. */
  private headers(): HeaderPairs {
    return Object.entries(this.response.getHeaders()).flatMap(([name, value]) => {
      if (value === undefined || String(value) === String(this.before[name])) return [];
      const lines = Array.isArray(value) ? value : [value];
      return lines.map((line): [string, string] => [name, String(line)]);
    });
  }

  private refuseEvents(): void {
    const type = String(this.response.getHeader("content-type") ?? "");
    if (type.toLowerCase().startsWith("text/event-stream")) throw streaming();
  }
}

function streaming(): UsageError {
  return new UsageError(
    "a response under an Idempotency-Key is sent after the commit and cannot be streamed: respond " +
      "with the complete body, or stream from another route",
  );
}

function isChunk(value: unknown): value is Chunk {
  return typeof value === "string" || value instanceof Uint8Array;
}

function callbackOf(args: unknown[]): Callback | undefined {
  return args.find((arg): arg is Callback => typeof arg === "function");
}

/** The headers of `writeHead`: an object, a flat list, or a list of pairs. */
function pairsOf(headers: unknown): [string, OutgoingHttpHeader][] {
  if (!headers || typeof headers !== "object") return [];
  if (!Array.isArray(headers)) return Object.entries(headers as Record<string, OutgoingHttpHeader>);
  if (Array.isArray(headers[0])) return headers as [string, OutgoingHttpHeader][];
  const flat = headers as OutgoingHttpHeader[];
  return flat.flatMap((name, at) =>
    at % 2 === 0 ? [[String(name), flat[at + 1] ?? ""] as [string, OutgoingHttpHeader]] : [],
  );
}

function grouped(headers: HeaderPairs): Map<string, string[]> {
  const lines = new Map<string, string[]>();
  for (const [name, value] of headers) {
    const known = lines.get(name.toLowerCase());
    if (known) known.push(value);
    else lines.set(name.toLowerCase(), [value]);
  }
  return lines;
}
