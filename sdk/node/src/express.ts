/**
 * Middleware for express 5.
 *
 * ```ts
 * app.post("/orders", hapax(pool, { tenant: (req) => req.user.id }), async (req, res) => {
 *   await req.tx.query("INSERT INTO orders ...", [...]);
 *   await req.tx.emit("order.created", order);
 *   res.status(201).json(order); // sent after the commit
 * });
 * app.use(problems());
 * ```
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { ErrorRequestHandler, Request, RequestHandler } from "express";
import { routeTemplate } from "./core/body.js";
import { markProblem, requestIdFor } from "./core/capture.js";
import type { Database } from "./core/database.js";
import { problemOf } from "./core/errors.js";
import { logFailure, type Options } from "./core/options.js";
import { codeOf, Problem } from "./core/problem.js";
import { isSafe, Protection, requestIdOf } from "./core/protection.js";
import { databaseOf, type PgPool, type PgTransaction } from "./pg.js";
import type { Tx } from "./index.js";

declare global {
  // eslint-disable-next-line @typescript-eslint/no-namespace -- the types of express are a namespace
  namespace Express {
    interface Request {
      /** The transaction of the request, on a route with hapax. */
      tx: Tx;
      /** The body as it was sent, on a route with hapax. */
      rawBody?: Buffer;
    }
  }
}

const ADVICE =
  "install hapax before express.json(), which it replaces on its routes, or keep the bytes with " +
  "express.json({ verify: keepBody }) of hapax/express";

/** Protects a route. The database is a pool of `pg`, or what an adapter returns. */
export function hapax<Client extends object = PgTransaction>(
  database: PgPool | Database<Client>,
  options: Options<Request>,
): RequestHandler {
  const protection = new Protection<Request, Client>(databaseOf(database), options);
  return (request, response, next) => {
    if (isSafe(request.method)) {
      next();
      return;
    }
    void protection.handle({
      request,
      raw: request,
      response,
      target: request.originalUrl,
      route: () => routeOf(request),
      advice: ADVICE,
      start: (tx, body) => {
        request.tx = tx as unknown as Tx;
        request.body ??= body;
        next();
      },
    });
  };
}

/** Options of {@link problems}. */
export interface ProblemsOptions {
  /** The id of the request in the log. By default its `X-Request-Id`, or a random UUID. */
  requestId?: (request: Request) => string;
  /** Receives each problem, whose `cause` is the error. By default failures are logged. */
  onError?: (problem: Problem) => void;
}

/** Keeps the bytes of a body: `express.json({ verify: keepBody })`. */
export function keepBody(request: IncomingMessage, _response: ServerResponse, bytes: Buffer): void {
  (request as IncomingMessage & { rawBody?: Buffer }).rawBody = bytes;
}

/**
 * Converts errors into `application/problem+json`: a {@link Problem}, an error of the database, and
 * everything else. Install it after the routes.
 */
export function problems(options: ProblemsOptions = {}): ErrorRequestHandler {
  return (error: unknown, request: Request, response, next) => {
    if (response.headersSent) {
      next(error);
      return;
    }
    const problem = ofExpress(error) ?? problemOf(error);
    const requestId =
      requestIdFor(response) ??
      options.requestId?.(request) ??
      requestIdOf(request.headers["x-request-id"]);
    (options.onError ?? logFailure)(problem);
    const { status, headers, body } = problem.response(requestId);
    markProblem(response, problem);
    response.status(status);
    for (const [name, value] of headers) response.setHeader(name, value);
    response.end(body);
  };
}

/** An error of express itself or of its parsers has a status. */
function ofExpress(error: unknown): Problem | undefined {
  if (error instanceof Problem) return error;
  const { status, expose } = (error ?? {}) as { status?: unknown; expose?: unknown };
  if (typeof status !== "number" || status < 400 || status > 499 || expose === false)
    return undefined;
  return new Problem(codeOf(status), "the request cannot be read", { status, cause: error });
}

function routeOf(request: Request): string | undefined {
  const route = request.route as { path?: unknown } | undefined;
  return typeof route?.path === "string" ? routeTemplate(request.baseUrl + route.path) : undefined;
}
