/**
 * Middleware for Hono 4.
 *
 * ```ts
 * app.post("/orders", hapax(pool, { tenant: (c) => c.get("user").id }), async (c) => {
 *   const tx = c.get("tx");
 *   await tx.query("INSERT INTO orders ...", [...]);
 *   await tx.emit("order.created", order);
 *   return c.json(order, 201); // sent after the commit
 * });
 * app.onError(problems);
 * ```
 */
import type { Context, MiddlewareHandler } from "hono";
import { matchedRoutes } from "hono/route";
import { routeTemplate, splitTarget } from "./core/body.js";
import type { Database } from "./core/database.js";
import { Engine } from "./core/engine.js";
import type { Handled } from "./core/responder.js";
import { problemOf, UsageError } from "./core/errors.js";
import { RESPONSE_BYTES_MAX } from "./core/limits.js";
import { logFailure, policyOf, type Options } from "./core/options.js";
import { Problem } from "./core/problem.js";
import { isSafe, operationOf, requestIdOf } from "./core/protection.js";
import type { IncomingRequest } from "./core/request.js";
import type { HeaderPairs, HttpResponse } from "./core/response.js";
import type { Transactional } from "./core/tx.js";
import { databaseOf, type PgPool, type PgTransaction } from "./pg.js";

/** What the middleware adds to the context. */
export interface HapaxEnv<Client> {
  Variables: {
    /** The transaction of the request. */
    tx: Transactional<Client>;
  };
}

/** Protects a route. The database is a pool of `pg`, or what an adapter returns. */
export function hapax<Client extends object = PgTransaction>(
  database: PgPool | Database<Client>,
  options: Options<Context>,
): MiddlewareHandler<HapaxEnv<Client>> {
  const policy = policyOf(options);
  const engine = new Engine(databaseOf(database), policy);
  return async (c, next) => {
    if (isSafe(c.req.method)) return next();
    const before = new Headers(c.res.headers);
    const requestId = options.requestId?.(c) ?? requestIdOf(c.req.header("x-request-id"));
    let response: HttpResponse;
    try {
      const incoming = await incomingOf(c, options, requestId, policy.bodyBytesMax);
      response = await engine.respond(incoming, async (tx) => {
        c.set("tx", tx);
        (c as Context).set("hapaxRequestId", requestId);
        await next();
        return handledOf(c, before);
      });
    } catch (error) {
      response = engine.failed({ requestId, operation: `${c.req.method} ${c.req.path}` }, error);
    }
    // Without this, Hono would merge the headers of both responses.
    c.res = undefined;
    c.res = toWeb(response, before);
  };
}

/** Converts errors into `application/problem+json`: `app.onError(problems)`. */
export function problems(error: Error, c: Context): Response {
  if (
    "getResponse" in error &&
    typeof error.getResponse === "function" &&
    !(error instanceof Problem)
  ) {
    return (error.getResponse as () => Response)();
  }
  const problem = problemOf(error);
  logFailure(problem);
  c.set("hapaxProblem", problem);
  return toWeb(problem.response(c.get("hapaxRequestId") as string | undefined), new Headers());
}

async function incomingOf(
  c: Context,
  options: Options<Context>,
  requestId: string,
  bodyBytesMax: number,
): Promise<IncomingRequest> {
  const { tenant } = options;
  return {
    method: c.req.method,
    requestId,
    operation: operationOf(options, c, c.req.method, routeOf(c)),
    ...splitTarget(c.req.url),
    tenant: typeof tenant === "function" ? await tenant(c) : tenant,
    contentType: c.req.header("content-type") ?? "",
    header: (name) => {
      const value = c.req.header(name);
      return value === undefined ? [] : [value];
    },
    body: await bodyOf(c, bodyBytesMax),
  };
}

/** Reads the bytes of the body within the limit, and leaves them for the handler. */
async function bodyOf(c: Context, bodyBytesMax: number): Promise<Buffer> {
  const tooLarge = (): Problem =>
    new Problem("VALIDATION.body.too_large", `this operation takes at most ${bodyBytesMax} bytes`);
  const { bodyCache, raw } = c.req;
  if (!raw.bodyUsed) {
    const body = await collect(raw.body, bodyBytesMax, tooLarge);
    // Hono keeps promises there, although its type says otherwise.
    bodyCache.arrayBuffer = Promise.resolve(new Uint8Array(body).buffer) as never;
    return body;
  }
  if (bodyCache.arrayBuffer === undefined && bodyCache.text === undefined) {
    throw new UsageError(
      "the bytes of the body are part of the fingerprint, and middleware has dropped them: install " +
        "hapax before it, or read the body with c.req.text() there",
    );
  }
  const body = Buffer.from(await c.req.arrayBuffer());
  if (body.length > bodyBytesMax) throw tooLarge();
  return body;
}

/** The template of the last matched route, which is that of the handler. */
function routeOf(c: Context): string | undefined {
  const matched = matchedRoutes(c).filter(({ path }) => path !== "*" && path !== "/*");
  const path = matched.at(-1)?.path;
  return path === undefined ? undefined : routeTemplate(path);
}

async function handledOf(c: Context, before: Headers): Promise<Handled> {
  const { res } = c;
  if (res.headers.get("content-type")?.startsWith("text/event-stream")) {
    throw new UsageError(
      "a response under an Idempotency-Key is sent after the commit and cannot be streamed: respond " +
        "with the complete body, or stream from another route",
    );
  }
  const headers: HeaderPairs = [...res.headers].filter(
    ([name, value]) => name === "set-cookie" || before.get(name) !== value,
  );
  return {
    response: {
      status: res.status,
      headers,
      body: await collect(res.body, RESPONSE_BYTES_MAX, responseTooLarge),
    },
    problem: c.get("hapaxProblem") as Problem | undefined,
  };
}

async function collect(
  stream: unknown,
  bytesMax: number,
  tooLarge: () => Problem,
): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  if (!stream) return Buffer.alloc(0);
  for await (const chunk of stream as AsyncIterable<Uint8Array>) {
    bytes += chunk.byteLength;
    if (bytes > bytesMax) throw tooLarge();
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

function responseTooLarge(): Problem {
  const detail = `a stored response has at most ${RESPONSE_BYTES_MAX} bytes; nothing was changed`;
  return new Problem("TRANSIENT.response_too_large", detail);
}

function toWeb({ status, headers, body }: HttpResponse, before: Headers): Response {
  const lines = new Headers(before);
  for (const name of new Set(headers.map(([name]) => name.toLowerCase()))) lines.delete(name);
  for (const [name, value] of headers) lines.append(name, value);
  const isEmpty = status === 204 || status === 304;
  return new Response(isEmpty ? null : new Uint8Array(body), { status, headers: lines });
}
