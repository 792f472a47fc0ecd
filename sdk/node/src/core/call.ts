/** Calls of a provider: how it behaves, and what a failed call means. */
import { Problem } from "./problem.js";

/**
 * What a failed call to a provider means: a {@link Problem} is a refusal, after which the call has no
 * effect; `nothing_happened` is a failure without effect, such as a connection that was never
 * established; the outcome of any other failure is `unknown`.
 */
export type CallFailure = Problem | "nothing_happened" | "unknown";

/** How a provider behaves. */
export interface CallOptions<Value> {
  /**
   * What an error of the call means. By default a {@link Problem} with a status below 500 is a
   * refusal, and the outcome after any other error is unknown.
   */
  outcome?: (error: unknown) => CallFailure;
  /**
   * Asks the provider what has become of the key, if the outcome is unknown. Returns `undefined` if
   * the provider does not know the key; throws a {@link Problem} if it has refused the call.
   */
  lookUp?: (key: string, signal: AbortSignal) => Promise<Value | undefined>;
  /**
   * Whether the provider recognizes a repeated call by its key; by default true. Otherwise the call is
   * recorded before it is made, and never repeated: only `lookUp` finds its outcome. The name of its
   * step has at most 241 bytes; a longer one is refused before the call.
   */
  recognizesKeys?: boolean;
  /**
   * Whether the provider stores its refusals under the key, so that the refusal of a repeated call is
   * the outcome of the first one; by default false.
   */
  remembersRefusals?: boolean;
}

/** What an error means by default. */
export function usualOutcome(error: unknown): CallFailure {
  return error instanceof Problem && error.status < 500 ? error : "unknown";
}

/** The problem of a call that has had no effect. */
export function nothingDone(step: string, cause: unknown): Problem {
  return new Problem(
    "DEPENDENCY.unavailable",
    `the provider of the step "${step}" failed and has done nothing; try again`,
    { retryAfter: 1, cause },
  );
}

/** The problem of a call whose outcome is unknown. */
export function outcomeUnknown<Value>(
  step: string,
  { recognizesKeys = true, lookUp }: CallOptions<Value>,
  cause: unknown,
): Problem {
  const what = `the outcome of the step "${step}" is unknown`;
  if (!recognizesKeys && !lookUp) {
    const detail = `${what}, and the call is not repeated`;
    return new Problem("CONFLICT.idempotency.outcome_unknown", detail, { cause });
  }
  const detail = `${what}; send the same request again, which finds it out`;
  return new Problem("DEPENDENCY.timeout", detail, { retryAfter: 1, cause });
}
