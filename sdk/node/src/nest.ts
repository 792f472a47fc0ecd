/**
 * Interceptor for Nest 11, on express and on Fastify.
 *
 * ```ts
 * @Post()
 * @UseInterceptors(hapax(pool, { tenant: (request) => request.user.id }))
 * async create(@Body() body: NewOrder, @HapaxTx() tx: Tx) {
 *   await tx.query("INSERT INTO orders ...", [...]);
 *   await tx.emit("order.created", order);
 *   return order; // sent after the commit
 * }
 * ```
 *
 * The bytes of bodies are part of the fingerprint: `NestFactory.create(App, { rawBody: true })`.
 */
import type { ServerResponse } from "node:http";
import {
  Catch,
  createParamDecorator,
  HttpException,
  type ArgumentsHost,
  type CallHandler,
  type ExceptionFilter,
  type ExecutionContext,
  type NestInterceptor,
} from "@nestjs/common";
import { NEVER, type Observable } from "rxjs";
import { routeTemplate, type BodyRequest } from "./core/body.js";
import { markProblem, requestIdFor } from "./core/capture.js";
import type { Database } from "./core/database.js";
import { problemOf } from "./core/errors.js";
import { mediaType } from "./core/fingerprint.js";
import { logFailure, type Options } from "./core/options.js";
import { codeOf, Problem } from "./core/problem.js";
import { atomic, isSafe, requestIdOf, type Protection } from "./core/protection.js";
import { databaseOf, type PgPool, type PgTransaction } from "./pg.js";

/** A request of express or Fastify, as Nest passes it. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any -- guards add members of any type
export type NestRequest = BodyRequest & Record<string, any>;

const ADVICE = "create the application with NestFactory.create(App, { rawBody: true })";
const transactions = new WeakMap<object, object>();

/** Protects a handler. The database is a pool of `pg`, or what an adapter returns. */
export function hapax<Client extends object = PgTransaction>(
  database: PgPool | Database<Client>,
  options: Options<NestRequest>,
): NestInterceptor {
  const protection = atomic(databaseOf(database), options);
  return {
    intercept(context, next) {
      const request = context.switchToHttp().getRequest<NestRequest>();
      const response = context.switchToHttp().getResponse<NestResponse>();
      return isSafe(request.method)
        ? next.handle()
        : intercept(protection, request, response, next);
    },
  };
}

/** The transaction of the request, as a parameter of a handler with {@link hapax}. */
export const HapaxTx = createParamDecorator((_: unknown, context: ExecutionContext): unknown => {
  const tx = transactions.get(context.switchToHttp().getRequest<NestRequest>());
  // The parameters of a handler are resolved when the handler starts, after the claim.
  if (!tx) throw new TypeError("HapaxTx is for handlers with @UseInterceptors(hapax(...))");
  return tx;
});

/** Converts errors into `application/problem+json`: `app.useGlobalFilters(new Problems())`. */
@Catch()
export class Problems implements ExceptionFilter {
  catch(error: unknown, host: ArgumentsHost): void {
    const response = host.switchToHttp().getResponse<NestResponse>();
    const problem = ofNest(error) ?? problemOf(error);
    logFailure(problem);
    const raw = rawOf(response);
    markProblem(raw, problem);
    const { headers: sent } = host.switchToHttp().getRequest<NestRequest>();
    const requestId = requestIdFor(raw) ?? requestIdOf(sent["x-request-id"]);
    const { status, headers, body } = problem.response(requestId);
    raw.writeHead(status, Object.fromEntries(headers)).end(body);
  }
}

/** The response of express is that of Node; the one of Fastify has it. */
type NestResponse = ServerResponse | { raw: ServerResponse; hijack(): void };

function intercept(
  protection: Protection<NestRequest, object>,
  request: NestRequest,
  response: NestResponse,
  next: CallHandler,
): Promise<Observable<unknown>> {
  const raw = (request.raw ?? request) as BodyRequest;
  if (raw !== request) passBody(request, raw);
  return new Promise((resolve) => {
    const handled = protection.handle({
      request,
      raw,
      response: rawOf(response),
      target: String(request.originalUrl ?? raw.url),
      route: () => routeOf(request),
      advice: ADVICE,
      start: (tx) => {
        transactions.set(request, tx);
        resolve(next.handle());
      },
    });
    // A replay or a refusal is written without the handler, and Nest must not write another one.
    void handled.then(() => {
      if (!transactions.has(request) && "hijack" in response) response.hijack();
      resolve(NEVER);
    });
  });
}

/** Passes what Fastify has kept of the body to the request of Node. */
function passBody({ rawBody, body, headers }: NestRequest, raw: BodyRequest): void {
  raw.rawBody ??= rawBody ?? (body instanceof Uint8Array ? body : undefined);
  // Nest keeps the bytes of its own parsers. The one for text is Fastify's, which keeps none.
  const isText = mediaType(headers["content-type"] ?? "") === "text/plain";
  if (isText && typeof body === "string") raw.decodedBody = body;
}

function rawOf(response: NestResponse): ServerResponse {
  return "raw" in response ? response.raw : response;
}

function routeOf(request: NestRequest): string | undefined {
  const express = (request.route as { path?: unknown } | undefined)?.path;
  const fastify = (request.routeOptions as { url?: unknown } | undefined)?.url;
  const path = express ?? fastify;
  return typeof path === "string" ? routeTemplate(path) : undefined;
}

/** The exceptions of Nest, and the errors of express and its parsers, have a status. */
function ofNest(error: unknown): Problem | undefined {
  if (error instanceof HttpException) return refusal(error, error.getStatus());
  // The errors of HTTP clients have a status too, but not this member.
  const { status, expose } = (error ?? {}) as { status?: unknown; expose?: unknown };
  return error instanceof Error && typeof status === "number" && expose === true
    ? refusal(error, status)
    : undefined;
}

function refusal(error: Error, status: number): Problem {
  return new Problem(codeOf(status), error.message, { status, cause: error });
}
