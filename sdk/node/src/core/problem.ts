/**
 * Problems: error responses in `application/problem+json` (RFC 9457), with the codes of the HTTP
 * contract. A handler throws a {@link Problem} to refuse a request.
 */
import { randomUUID } from "node:crypto";
import type { HeaderPairs, HttpResponse } from "./response.js";

/** The status and the title of each code. */
export const CODES = {
  "VALIDATION.idempotency_key.invalid": [400, "The Idempotency-Key header is invalid"],
  "VALIDATION.idempotency_key.missing": [400, "This operation needs an Idempotency-Key header"],
  "VALIDATION.request_timeout": [400, "The X-Request-Timeout header is invalid"],
  "VALIDATION.json": [400, "The body is not valid JSON"],
  "VALIDATION.multipart": [400, "The body is not valid multipart"],
  "VALIDATION.body.incomplete": [400, "The body ended before it was complete"],
  "VALIDATION.member": [400, "A member of the request is invalid"],
  "VALIDATION.body.too_large": [413, "The body is too large"],
  "VALIDATION.content_type": [415, "The content type is not supported"],
  "VALIDATION.request": [400, "The request is invalid"],
  "VALIDATION.method": [405, "The method is not allowed for this route"],
  NOT_FOUND: [404, "There is nothing here"],
  "AUTH.missing": [401, "Authentication is needed"],
  "AUTH.invalid": [401, "The credential is not valid"],
  "AUTH.forbidden": [403, "This is not allowed"],
  "AUTH.signature": [401, "The signature is not valid"],
  "CONFLICT.idempotency.payload_mismatch": [409, "The key was used for another request"],
  "CONFLICT.idempotency.in_progress": [409, "A request with this Idempotency-Key is still running"],
  "CONFLICT.idempotency.outcome_unknown": [
    409,
    "The outcome of the first request with this Idempotency-Key is unknown",
  ],
  "CONFLICT.idempotency.expired": [410, "The Idempotency-Key has expired"],
  "CONFLICT.inbox.payload_mismatch": [409, "The webhook-id was used for another payload"],
  "CONFLICT.precondition": [412, "A condition of the request does not hold"],
  "CONFLICT.state": [409, "The current state does not allow it"],
  "RATE_LIMIT.exceeded": [429, "Too many requests"],
  "RATE_LIMIT.quota": [429, "The quota is used up"],
  "DEPENDENCY.timeout": [504, "The request ran out of time"],
  "DEPENDENCY.unavailable": [503, "The service cannot do this now"],
  "TRANSIENT.internal": [500, "The service failed"],
  "INTERNAL.statement": [500, "The database refused what the service wrote"],
  INTERNAL: [500, "The service failed"],
  "TRANSIENT.response_too_large": [500, "The response is too large to be stored"],
} as const satisfies Record<string, readonly [number, string]>;

/** A code of the HTTP contract. */
export type Code = keyof typeof CODES;

/** The code for a refusal of a framework or of its parser, which has only a status. */
export function codeOf(status: number): Code {
  if (status === 404) return "NOT_FOUND";
  if (status === 413) return "VALIDATION.body.too_large";
  if (status === 415) return "VALIDATION.content_type";
  return status < 500 ? "VALIDATION.request" : "TRANSIENT.internal";
}

const TYPE_BASE = "https://hapax.dev/problems/";
const RETRYABLE = new Set(["TRANSIENT", "DEPENDENCY", "RATE_LIMIT"]);
const STORED_DETAIL =
  "this response is stored, and every request with this key receives it until the key expires; " +
  "to have the request executed again, send it with another Idempotency-Key";

/** What a problem has beside its code and its detail. */
export interface ProblemOptions {
  /** The status; by default that of the code. A code of a service has 400 by default. */
  status?: number;
  /** The title of a code of the service. */
  title?: string;
  /** The member of the request that is not valid. */
  member?: string;
  /** Seconds for the header `Retry-After`. */
  retryAfter?: number;
  /** Further response headers. */
  headers?: HeaderPairs;
  /** The cause, which is logged and not shown. */
  cause?: unknown;
  /** The code of another protocol, which the document shows instead of the own one. */
  shownAs?: string | undefined;
  /** Whether the document has the member `retry_after`. */
  saysRetryAfter?: boolean;
}

/**
 * An error response. A service adds its own codes in the same classes:
 *
 * ```ts
 * throw new Problem("CONFLICT.stock.out", "there is not enough in stock", { status: 409 });
 * ```
 */
export class Problem extends Error {
  override name = "Problem";
  readonly status: number;
  readonly title: string;

  constructor(
    readonly code: Code | (string & {}),
    readonly detail: string,
    readonly options: ProblemOptions = {},
  ) {
    super(detail, { cause: options.cause });
    const own = CODES[code as Code] as readonly [number, string] | undefined;
    this.status = options.status ?? own?.[0] ?? 400;
    this.title = options.title ?? own?.[1] ?? "The request cannot be served";
  }

  /** Whether sending the same request again can help. */
  get retryable(): boolean {
    const [kind = ""] = this.code.split(".", 1);
    return RETRYABLE.has(kind) || this.code === "CONFLICT.idempotency.in_progress";
  }

  /** The status, by the name that Fastify and Nest read. */
  get statusCode(): number {
    return this.status;
  }

  /** The response as a web `Response`, which Hono reads. */
  getResponse(): Response {
    const { status, headers, body } = this.response();
    return new Response(new Uint8Array(body), { status, headers });
  }

  /** The response, with the id of the request in the log. */
  response(requestId: string = randomUUID()): HttpResponse {
    const { headers = [], retryAfter } = this.options;
    const lines: HeaderPairs = [["content-type", "application/problem+json"]];
    if (retryAfter !== undefined) lines.push(["retry-after", String(retryAfter)]);
    const body = this.document(requestId, this.retryable, this.detail, retryAfter);
    return { status: this.status, headers: [...lines, ...headers], body };
  }

  /** The body if it is stored: a retry with the same key would only receive it again. */
  storedBody(requestId: string): Buffer | undefined {
    return this.retryable ? this.document(requestId, false, STORED_DETAIL, undefined) : undefined;
  }

  private document(
    requestId: string,
    retryable: boolean,
    detail: string,
    retryAfter: number | undefined,
  ): Buffer {
    const { member, shownAs, saysRetryAfter } = this.options;
    const document = {
      type: TYPE_BASE + this.code.toLowerCase(),
      title: this.title,
      status: this.status,
      detail,
      code: shownAs ?? this.code,
      retryable,
      retry_after: saysRetryAfter ? retryAfter : undefined,
      member,
      request_id: requestId,
    };
    return Buffer.from(JSON.stringify(document));
  }
}

/** 503: the store is not available. */
export function unavailable(
  cause: unknown,
  detail = "the store is not available now; try again",
): Problem {
  return new Problem("DEPENDENCY.unavailable", detail, { retryAfter: 1, cause });
}
