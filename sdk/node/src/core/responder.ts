/** What atomic and phased operations share: the start of a request, and errors as responses. */
import { checkContract, type Database } from "./database.js";
import { until } from "./deadline.js";
import { problemOf, UsageError } from "./errors.js";
import type { Policy } from "./options.js";
import { unavailable, type Problem } from "./problem.js";
import { withRequest } from "./reply.js";
import { parseRequest, type IncomingRequest, type ParsedRequest } from "./request.js";
import type { HttpResponse } from "./response.js";

/** What a handler has produced. */
export interface Handled {
  /** The complete response. */
  response: HttpResponse;
  /** The problem that the response shows, if it is one. */
  problem?: Problem | undefined;
}

/** Runs the handler of a request with its transaction or its phases. */
export type Handler<Given> = (given: Given) => Promise<Handled>;

/** Responds to the requests of one operation. */
export abstract class Responder<Client extends object, Given> {
  constructor(
    protected readonly database: Database<Client>,
    protected readonly policy: Policy,
  ) {}

  /** Runs a request, and returns its response. */
  protected abstract execute(parsed: ParsedRequest, handler: Handler<Given>): Promise<HttpResponse>;

  /** Returns the response for a request. It never rejects. */
  async respond(request: IncomingRequest, handler: Handler<Given>): Promise<HttpResponse> {
    let key: string | undefined;
    try {
      const parsed = parseRequest(request, this.policy, (found) => (key = found));
      await until(parsed.endsAt, this.check());
      const response = await this.execute(parsed, handler);
      return withRequest(response, key, request.requestId);
    } catch (error) {
      return withRequest(this.failed(request, error), key, request.requestId);
    }
  }

  /** The response for an error, which is logged if it is the service's. */
  failed(request: { requestId: string; operation: string }, error: unknown): HttpResponse {
    const problem = problemOf(error);
    if (problem.status >= 500) {
      const { requestId, operation } = request;
      this.policy.onError({ code: problem.code, requestId, operation, problem });
    }
    return problem.response(request.requestId);
  }

  /** Checks the version of the SQL contract. */
  protected async check(): Promise<void> {
    try {
      await checkContract(this.database as Database<never>);
    } catch (error) {
      throw error instanceof UsageError ? error : unclaimed(error);
    }
  }

  /** A problem that the handler has thrown is its response. */
  protected refused(request: ParsedRequest, error: unknown): Handled {
    if (error instanceof UsageError) throw error;
    const problem = problemOf(error);
    return { response: this.failed(request, problem), problem };
  }
}

/** The store is unavailable, also if one of Hapax's own functions cannot be called. */
export function unclaimed(error: unknown): Problem {
  return unavailable(error, "the key cannot be claimed now; nothing was changed, try again");
}
