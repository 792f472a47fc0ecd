/**
 * Route options for Fastify 5.
 *
 * ```ts
 * app.post("/orders", hapax(pool, { tenant: (request) => request.user.id }), async (request, reply) => {
 *   await request.tx.query("INSERT INTO orders ...", [...]);
 *   await request.tx.emit("order.created", order);
 *   return reply.code(201).send(order); // sent after the commit
 * });
 * app.setErrorHandler(problems);
 * ```
 */
import { Readable } from "node:stream";
import type {
  FastifyReply,
  FastifyRequest,
  preHandlerHookHandler,
  preParsingAsyncHookHandler,
} from "fastify";
import { readBody, routeTemplate, type BodyRequest } from "./core/body.js";
import { markProblem, requestIdFor } from "./core/capture.js";
import type { Database } from "./core/database.js";
import { problemOf } from "./core/errors.js";
import { logFailure, type Options } from "./core/options.js";
import { codeOf, Problem } from "./core/problem.js";
import { atomic, isSafe, requestIdOf } from "./core/protection.js";
import { databaseOf, type PgPool, type PgTransaction } from "./pg.js";
import type { Tx } from "./index.js";

declare module "fastify" {
  interface FastifyRequest {
    /** The transaction of the request, on a route with hapax. */
    tx: Tx;
  }
}

/** Options of a route. Spread them to add others: `{ ...hapax(pool, options), schema }`. */
export interface HapaxRoute {
  preParsing: preParsingAsyncHookHandler;
  preHandler: preHandlerHookHandler;
}

const ADVICE = "pass all options of hapax to the route, including preParsing";

/** Protects a route. The database is a pool of `pg`, or what an adapter returns. */
export function hapax<Client extends object = PgTransaction>(
  database: PgPool | Database<Client>,
  options: Options<FastifyRequest>,
): HapaxRoute {
  const protection = atomic(databaseOf(database), options);
  const { bodyBytesMax } = protection.policy;
  return {
    preParsing: async (request, reply, payload) => {
      const raw: BodyRequest = request.raw;
      if (isSafe(raw.method)) return payload;
      try {
        raw.rawBody = await readBody(raw, bodyBytesMax, ADVICE);
      } catch (error) {
        await sendProblem(reply, problemOf(error));
        return payload;
      }
      return replayed(raw.rawBody as Buffer);
    },
    preHandler: (request, reply, done) => {
      if (isSafe(request.raw.method)) {
        done();
        return;
      }
      let isStarted = false;
      const handled = protection.handle({
        request,
        raw: request.raw,
        response: reply.raw,
        target: request.originalUrl,
        route: () => routeOf(request),
        advice: ADVICE,
        start: (tx) => {
          isStarted = true;
          request.tx = tx as unknown as Tx;
          done();
        },
      });
      // A replay or a refusal is written without the handler.
      void handled.then(() => isStarted || reply.hijack());
    },
  };
}

/** Converts errors into `application/problem+json`: `app.setErrorHandler(problems)`. */
export async function problems(
  error: unknown,
  _request: FastifyRequest,
  reply: FastifyReply,
): Promise<void> {
  const problem = ofFastify(error) ?? problemOf(error);
  logFailure(problem);
  markProblem(reply.raw, problem);
  await sendProblem(reply, problem);
}

async function sendProblem(reply: FastifyReply, problem: Problem): Promise<void> {
  const { status, headers, body } = problem.response(
    requestIdFor(reply.raw) ?? requestIdOf(reply.request.headers["x-request-id"]),
  );
  for (const [name, value] of headers) reply.header(name, value);
  await reply.code(status).send(body);
}

/** An error of Fastify itself, such as a failed validation, has a status. */
function ofFastify(error: unknown): Problem | undefined {
  if (error instanceof Problem) return error;
  const { statusCode, message } = (error ?? {}) as { statusCode?: unknown; message?: unknown };
  if (typeof statusCode !== "number" || statusCode < 400 || statusCode > 499) return undefined;
  return new Problem(codeOf(statusCode), String(message), { status: statusCode, cause: error });
}

function routeOf(request: FastifyRequest): string | undefined {
  const { url } = request.routeOptions;
  return url === undefined ? undefined : routeTemplate(url);
}

/** The body once more, for the parser of the content type. */
function replayed(body: Buffer): Readable & { receivedEncodedLength: number } {
  const stream = new Readable({ read: () => undefined });
  if (body.length > 0) stream.push(body);
  stream.push(null);
  return Object.assign(stream, { receivedEncodedLength: body.length });
}
