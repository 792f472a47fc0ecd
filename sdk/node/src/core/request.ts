/** Parsing of a request: its key, its deadline and its fingerprint. */
import type { Scope } from "./contract.js";
import { fingerprint, type Fingerprinted } from "./fingerprint.js";
import { DERIVED_PREFIX, isUuidV7, KeyError, parseKey } from "./key.js";
import { NAME_BYTES_MAX, TIMEOUT_DIGITS_MAX } from "./limits.js";
import type { Policy } from "./options.js";
import { Problem } from "./problem.js";

/** A request, as an adapter presents it. */
export interface IncomingRequest extends Fingerprinted {
  method: string;
  tenant: string;
  /** The id of the request in the log. */
  requestId: string;
}

/** A parsed request. Without a key it runs unprotected. */
export interface ParsedRequest extends Omit<Scope, "key"> {
  key: string | undefined;
  requestId: string;
  fingerprint: Buffer;
  /** The end of the handler's time by `performance.now()`. */
  endsAt: number;
}

/** Parses a request. `found` receives the key as soon as it is known, for the echo. */
export function parseRequest(
  request: IncomingRequest,
  policy: Policy,
  found: (key: string) => void,
): ParsedRequest {
  const key = readKey(request, policy);
  if (key !== undefined) found(key);
  const budget = readBudget(request);
  checkTenant(request.tenant);
  return {
    key,
    tenant: request.tenant,
    operation: request.operation,
    requestId: request.requestId,
    endsAt: performance.now() + Math.min(policy.handlerMs, budget),
    fingerprint: fingerprint(policy.fingerprint, request),
  };
}

function readKey(request: IncomingRequest, { profile, keyOptional }: Policy): string | undefined {
  const lines = request.header("idempotency-key");
  const [line] = lines;
  if (line === undefined) {
    if (keyOptional && !(profile.postNeedsKey && request.method === "POST")) return undefined;
    const detail = "generate a key for each intent, and send the same key with every retry";
    throw new Problem("VALIDATION.idempotency_key.missing", detail, {
      shownAs: profile.codes.missing,
    });
  }
  if (lines.length > 1) throw invalid("the header occurs more than once");
  const key = parsed(line);
  if (key.startsWith(DERIVED_PREFIX)) {
    throw invalid(
      'keys that begin with "derived:" are reserved for the service; send no key, or a key that ' +
        "you have generated",
    );
  }
  if (profile.uuidV7 && !isUuidV7(key)) {
    throw invalid("the key must be a UUID of version 7, with hyphens and without braces");
  }
  return key;
}

function parsed(line: string): string {
  try {
    return parseKey(line);
  } catch (error) {
    throw error instanceof KeyError ? invalid(error.message) : error;
  }
}

/** The milliseconds that the client is still willing to wait. */
function readBudget(request: IncomingRequest): number {
  const lines = request.header("x-request-timeout");
  if (lines.length === 0) return Infinity;
  const [line = ""] = lines;
  if (lines.length > 1 || !/^[0-9]+$/.test(line) || line.length > TIMEOUT_DIGITS_MAX) {
    throw new Problem("VALIDATION.request_timeout", "expected one whole number of milliseconds");
  }
  return Number(line);
}

function checkTenant(tenant: unknown): void {
  const length = typeof tenant === "string" ? Buffer.byteLength(tenant) : 0;
  if (length < 1 || length > NAME_BYTES_MAX) {
    const cause = new TypeError("the option `tenant` has returned no text of 1 to 255 bytes");
    const detail = "the service has not set the tenant of this request";
    throw new Problem("TRANSIENT.internal", detail, { cause });
  }
}

function invalid(detail: string): Problem {
  return new Problem("VALIDATION.idempotency_key.invalid", detail);
}
