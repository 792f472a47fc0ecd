/** A protected operation of a framework on Node's `http`: express, Fastify and Nest. */
import { randomUUID } from "node:crypto";
import type { ServerResponse } from "node:http";
import { headerLines, parseBody, readBody, splitTarget, type BodyRequest } from "./body.js";
import { Capture } from "./capture.js";
import type { Database } from "./database.js";
import { Engine } from "./engine.js";
import { UsageError } from "./errors.js";
import { policyOf, type Options, type Policy } from "./options.js";
import type { IncomingRequest } from "./request.js";
import type { Transactional } from "./tx.js";

/** Methods that are never protected, because they have no effect. */
const SAFE = new Set(["GET", "HEAD", "OPTIONS", "TRACE", "QUERY"]);

/** Whether requests with this method pass unchanged. */
export function isSafe(method: string | undefined): boolean {
  return SAFE.has(method ?? "GET");
}

/** What an adapter knows of one request. */
export interface Exchange<Request, Client> {
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
  start: (tx: Transactional<Client>, body: unknown) => void | Promise<void>;
}

/** Protects the requests of an operation. */
export class Protection<Request, Client extends object> {
  readonly policy: Policy;
  private readonly engine: Engine<Client>;

  constructor(
    database: Database<Client>,
    private readonly options: Options<Request>,
  ) {
    this.policy = policyOf(options);
    this.engine = new Engine(database, this.policy);
  }

  /** Responds to a request. It never rejects. */
  async handle(exchange: Exchange<Request, Client>): Promise<void> {
    const sent =
      exchange.response.getHeader("x-request-id") ?? exchange.raw.headers["x-request-id"];
    const requestId = this.options.requestId?.(exchange.request) ?? requestIdOf(sent);
    const capture = new Capture(exchange.response, requestId);
    try {
      const incoming = await this.incoming(exchange, requestId);
      const response = await this.engine.respond(incoming, async (tx) => {
        const body = parseBody(incoming.body, incoming.contentType);
        await exchange.start(tx, body);
        return capture.done;
      });
      capture.send(response);
    } catch (error) {
      const operation = `${exchange.raw.method ?? ""} ${splitTarget(exchange.target).path}`;
      capture.send(this.engine.failed({ requestId, operation }, error));
    }
  }

  private async incoming(
    { request, raw, target, route, advice }: Exchange<Request, Client>,
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
