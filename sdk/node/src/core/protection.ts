/** A protected operation of a framework on Node's `http`: express, Fastify and Nest. */
import { randomUUID } from "node:crypto";
import type { ServerResponse } from "node:http";
import { headerLines, parseBody, readBody, splitTarget, type BodyRequest } from "./body.js";
import { Capture, requestIdFor } from "./capture.js";
import type { Database } from "./database.js";
import { Engine } from "./engine.js";
import { UsageError } from "./errors.js";
import { policyOf, type Options, type Policy } from "./options.js";
import type { IncomingRequest } from "./request.js";
import type { Responder } from "./responder.js";
import type { Transactional } from "./tx.js";

/** Methods that are never protected, because they have no effect. */
const SAFE = new Set(["GET", "HEAD", "OPTIONS", "TRACE", "QUERY"]);

/** Whether requests with this method pass unchanged. */
export function isSafe(method: string | undefined): boolean {
  return SAFE.has(method ?? "GET");
}

/** What an adapter knows of one request. */
export interface Exchange<Request, Given> {
  /** The request of the framework, for the functions of the options. */
  request: Request;
  /** The request of Node. */
  raw: BodyRequest;
  response: ServerResponse;
  /** The target as the client sent it. */
  target: string;
  /** The template of the route, if the framework knows it. */
  route: () => string | undefined;
  /** How to keep the bytes of the body in this framework. */
  advice: string;
  /** Runs the handler, which responds through the captured response. */
  start: (given: Given, body: unknown) => void | Promise<void>;
}

/** Protects the requests of an operation in the transaction that claims their key. */
export function atomic<Request, Client extends object>(
  database: Database<Client>,
  options: Options<Request>,
): Protection<Request, Transactional<Client>> {
  const policy = policyOf(options);
  return new Protection(options, policy, new Engine(database, policy));
}

/** Responds to a request, with what its handler receives. */
type Responds<Given> = Pick<Responder<never, Given>, "respond" | "failed">;

/** Protects the requests of an operation. */
export class Protection<Request, Given> {
  constructor(
    private readonly options: Options<Request>,
    readonly policy: Policy,
    private readonly engine: Responds<Given>,
  ) {}

  /** Responds to a request. It never rejects. */
  async handle(exchange: Exchange<Request, Given>): Promise<void> {
    const sent =
      exchange.response.getHeader("x-request-id") ?? exchange.raw.headers["x-request-id"];
    const requestId = this.options.requestId?.(exchange.request) ?? requestIdOf(sent);
    const isNested = requestIdFor(exchange.response) !== undefined;
    const capture = new Capture(exchange.response, requestId);
    try {
      if (isNested) throw new UsageError("hapax is installed twice on this route: remove one");
      const incoming = await this.incoming(exchange, requestId);
      const response = await this.engine.respond(incoming, async (given) => {
        const body = parseBody(incoming.body, incoming.contentType);
        await exchange.start(given, body);
        return capture.done;
      });
      capture.send(response);
    } catch (error) {
      const operation = `${exchange.raw.method ?? ""} ${splitTarget(exchange.target).path}`;
      capture.send(this.engine.failed({ requestId, operation }, error));
    }
  }

  private async incoming(
    { request, raw, target, route, advice }: Exchange<Request, Given>,
    requestId: string,
  ): Promise<IncomingRequest> {
    const { tenant } = this.options;
    const method = raw.method ?? "";
    return {
      method,
      requestId,
      operation: this.operation(request, method, route),
      ...splitTarget(target),
      tenant: typeof tenant === "function" ? await tenant(request) : tenant,
      contentType: raw.headers["content-type"] ?? "",
      header: headerLines(raw),
      body: await readBody(raw, this.policy.bodyBytesMax, advice),
    };
  }

  private operation(request: Request, method: string, route: () => string | undefined): string {
    return operationOf(this.options, request, method, route());
  }
}

/** The id that the client has sent, if it is valid, and otherwise a new one. */
export function requestIdOf(sent: unknown): string {
  return typeof sent === "string" && /^[A-Za-z0-9_.:/+=-]{1,128}$/.test(sent) ? sent : randomUUID();
}

/** The name of an operation, with the name of the service. */
export function operationOf<Request>(
  { operation, service }: Options<Request>,
  request: Request,
  method: string,
  route: string | undefined,
): string {
  const given = typeof operation === "function" ? operation(request) : operation;
  if (given === undefined && route === undefined) {
    throw new UsageError(
      "the template of this route is not known: install hapax on the route itself, or pass " +
        '{ operation: "POST /orders" }',
    );
  }
  const name = given ?? `${method} ${route ?? ""}`;
  return service === undefined ? name : `${service}:${name}`;
}
