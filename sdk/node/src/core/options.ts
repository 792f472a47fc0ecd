/** Options of a protected operation, with their defaults. */
import type { Code, Problem } from "./problem.js";
import { UsageError } from "./errors.js";
import type { FingerprintMode } from "./fingerprint.js";
import { BODY_BYTES_MAX, HANDLER_MS, RETENTION_MS, WAIT_MS } from "./limits.js";
import { PROFILES, type Profile, type ProfileName } from "./profile.js";
import type { OnFailure } from "./response.js";

/** Options of a protected operation. `Request` is the request of the framework. */
export interface Options<Request> {
  /** The stable id of the authenticated principal: a key is unique within its tenant. */
  tenant: string | ((request: Request) => string | Promise<string>);
  /**
   * The operation, such as `POST /orders/{id}/notes`. By default the method and the template of the
   * route.
   */
  operation?: string | ((request: Request) => string);
  /** The name of the service, for services that share a database and have equal routes. */
  service?: string;
  /** What happens to a request without a key: it is refused, or runs unprotected. */
  key?: "required" | "optional";
  /** How bodies are compared. By default the profile decides. */
  fingerprint?: FingerprintMode;
  /** The protocol that the clients speak. */
  profile?: ProfileName;
  /** How long a response is kept, in milliseconds. */
  retentionMs?: number;
  /** What happens to a request whose key has expired: it runs again, or is 410. */
  onExpired?: "new" | "gone";
  /** What happens to the key of a failure (5xx): it is released, or the failure is stored. */
  onFailure?: OnFailure;
  /** How long a duplicate waits for the first request, in milliseconds. */
  waitMs?: number;
  /** The time limit of the handler in milliseconds. Its transaction is then rolled back. */
  handlerMs?: number;
  /** Maximum length of a request body in bytes. */
  bodyBytesMax?: number;
  /** Names of further response headers that belong to one exchange and are not stored. */
  perRequestHeaders?: readonly string[];
  /** The id of the request in the log. By default its `X-Request-Id`, or a random UUID. */
  requestId?: (request: Request) => string;
  /** Receives the cause of each failure. By default it is written to the console. */
  onError?: (failure: Failure) => void;
}

/** A failure, for the log. */
export interface Failure {
  /** The code of the problem. */
  code: Code | (string & {});
  /** The id of the request, which the problem shows. */
  requestId: string;
  /** The operation. */
  operation: string;
  /** The problem, whose `cause` is the error. */
  problem: Problem;
}

/** Options with their defaults. */
export interface Policy {
  readonly profile: Profile;
  readonly fingerprint: FingerprintMode;
  readonly keyOptional: boolean;
  readonly retentionMs: number;
  readonly onExpired: "new" | "gone";
  readonly onFailure: OnFailure;
  readonly waitMs: number;
  readonly handlerMs: number;
  readonly bodyBytesMax: number;
  readonly perRequestHeaders: ReadonlySet<string>;
  readonly onError: (failure: Failure) => void;
}

/** Applies the defaults and the profile. */
export function policyOf<Request>(options: Options<Request>): Policy {
  check(options);
  const profile = PROFILES[options.profile ?? "hapax"];
  return {
    profile,
    fingerprint: options.fingerprint ?? profile.fingerprint,
    keyOptional: options.key === undefined ? profile.keyOptional : options.key === "optional",
    retentionMs: Math.max(options.retentionMs ?? RETENTION_MS, profile.retentionMinMs),
    onExpired: profile.refusesExpired ? "gone" : (options.onExpired ?? "new"),
    onFailure: options.onFailure ?? "release",
    waitMs: options.waitMs ?? WAIT_MS,
    handlerMs: options.handlerMs ?? HANDLER_MS,
    bodyBytesMax: options.bodyBytesMax ?? BODY_BYTES_MAX,
    perRequestHeaders: new Set(options.perRequestHeaders?.map((name) => name.toLowerCase())),
    onError: options.onError ?? logError,
  };
}

function check<Request>({ tenant, profile, service }: Options<Request>): void {
  if (typeof tenant !== "function" && (typeof tenant !== "string" || tenant === "")) {
    throw new UsageError(
      "hapax needs a tenant: pass { tenant: (request) => the id of the authenticated principal }, " +
        'or { tenant: "demo" } in a service that has only one',
    );
  }
  if (profile !== undefined && !(profile in PROFILES)) {
    throw new UsageError(`there is no profile ${profile}: ${Object.keys(PROFILES).join(", ")}`);
  }
  if (service !== undefined && !/^[A-Za-z0-9._-]{1,64}$/.test(service)) {
    throw new UsageError(
      `a service's name is 1 to 64 letters, digits, '-', '.' and '_', not ${service}`,
    );
  }
}

/** Logs the cause of a problem that is an error of the service. */
export function logFailure(problem: Problem): void {
  if (problem.status < 500) return;
  logError({ code: problem.code, requestId: "unknown", operation: "a request", problem });
}

/** The message of a database error may repeat values of a row, so a statement's is not logged. */
function logError({ code, requestId, operation, problem }: Failure): void {
  const { cause } = problem.options;
  const shown =
    code === "INTERNAL.statement" ? stateAndConstraint(cause) : (cause ?? problem.detail);
  console.error(`hapax: ${operation} failed with ${code} (request ${requestId}):`, shown);
}

function stateAndConstraint(error: unknown): string {
  const { code, constraint } = (error ?? {}) as { code?: string; constraint?: string };
  return `SQLSTATE ${code ?? "unknown"}, constraint ${constraint ?? "none"}`;
}
