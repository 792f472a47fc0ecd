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
import { PhasedEngine, phasedPolicyOf, type PhasedOptions } from "./core/phased.js";
import type { Phases } from "./core/phases.js";
import { codeOf, Problem } from "./core/problem.js";
import { atomic, isSafe, Protection, requestIdOf } from "./core/protection.js";
import { databaseOf, type PgPool, type PgTransaction } from "./pg.js";
import type { Client, Tx } from "./index.js";

declare global {
  // eslint-disable-next-line @typescript-eslint/no-namespace -- the types of express are a namespace
  namespace Express {
    interface Request {
      /** The transaction of the request, on a route with hapax. */
      tx: Tx;
      /** The phases of the request, on a route in phases. */
      phases: Phases<Client>;
      /** The body as it was sent, on a route with hapax. */
      rawBody?: Buffer;
    }
  }
}

const ADVICE =
  "install hapax before express.json(), which it replaces on its routes, or keep the bytes with " +
  "express.json({ verify: keepBody }) of hapax/express";

/** Protects a route. The database is a pool of `pg`, or what an adapter returns. */
export function hapax<Driver extends object = PgTransaction>(
  database: PgPool | Database<Driver>,
  options: Options<Request>,
): RequestHandler {
  return routed(atomic(databaseOf(database), options), (request, tx) => {
    request.tx = tx as unknown as Tx;
  });
}

/**
 * Protects a route whose handler calls another system, in phases: `req.phases`. A key is always required.
 *
 * ```ts
 * app.post("/payments", phased(pool, { tenant: (req) => req.user.id }), async (req, res) => {
 *   const { phases } = req;
 *   const charge = await phases.call("charge", (key) => provider.charge(req.body, { idempotencyKey: key }));
 *   await phases.transaction("charged", async (tx) => {
 *     await tx.query("INSERT INTO charge ...", [charge.id]);
 *   });
 *   res.status(201).json(charge);
 * });
 * ```
 */
export function phased<Driver extends object = PgTransaction>(
  database: PgPool | Database<Driver>,
  options: PhasedOptions<Request>,
): RequestHandler {
  const policy = phasedPolicyOf(options);
  const engine = new PhasedEngine(databaseOf(database), policy);
  const protection = new Protection(options, policy, engine);
  return routed(protection, (request, phases) => {
    request.phases = phases as unknown as Request["phases"];
  });
}

/** Passes what a handler receives to its request. */
function routed<Given>(
  protection: Protection<Request, Given>,
  give: (request: Request, given: Given) => void,
): RequestHandler {
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
      start: (given, body) => {
        give(request, given);
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

/** Types of errors of body-parser. */
const PARSER = /^(?:charset|encoding|entity|parameters|querystring|request)\./;

/**
 * An error whose status is that of the request: one of `http-errors`, which have `expose`, or one of
 * express and its parsers. express itself uses the status of every error. Here the response of a 404
 * is stored, and the status of another error, such as one of an HTTP client, is not that of the request.
 */
function ofExpress(error: unknown): Problem | undefined {
  if (error instanceof Problem) return error;
  const { status, expose, type } = (error ?? {}) as Record<string, unknown>;
  if (typeof status !== "number" || status < 400 || status > 499) return undefined;
  // express gives a path that cannot be decoded a status, and nothing else.
  const isOfRequest =
    expose === true ||
    (expose === undefined && typeof type === "string" && PARSER.test(type)) ||
    error instanceof URIError;
  if (!isOfRequest) return undefined;
  // expose says that the client may see the message.
  const detail =
    expose === true && error instanceof Error ? error.message : "the request cannot be read";
  return new Problem(codeOf(status), detail, { status, cause: error });
}

function routeOf(request: Request): string | undefined {
  const route = request.route as { path?: unknown } | undefined;
  return typeof route?.path === "string" ? routeTemplate(request.baseUrl + route.path) : undefined;
}
