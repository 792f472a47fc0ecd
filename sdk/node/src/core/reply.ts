/** Responses of a key: replays, refusals by the outcome of a claim, and the echo of the key. */
import type { ClaimOutcome } from "./contract.js";
import { formatKey } from "./key.js";
import { Problem } from "./problem.js";
import type { Profile } from "./profile.js";
import type { HttpResponse } from "./response.js";

/** The stored response, marked as a replay. */
export function replayOf(response: HttpResponse, profile: Profile): HttpResponse {
  const headers = [...response.headers];
  headers.push(["idempotency-status", "replayed"]);
  if (profile.marksReplays) headers.push(["idempotent-replayed", "true"]);
  return { ...response, headers };
}

/** The refusal for a claim that is neither open nor a replay. */
export function outcomeProblem(outcome: ClaimOutcome, profile: Profile): Problem {
  switch (outcome.outcome) {
    case "mismatch":
      return new Problem(
        "CONFLICT.idempotency.payload_mismatch",
        "the first request with this key had a different path, query, content type, body or condition " +
          "(If-Match, If-None-Match, If-Unmodified-Since); use a new key for a different request",
        { status: profile.mismatchStatus, shownAs: profile.codes.mismatch },
      );
    case "in_progress":
      return new Problem(
        "CONFLICT.idempotency.in_progress",
        "send the same request again after the time in Retry-After",
        {
          retryAfter: Math.max(1, Math.ceil(outcome.retryAfterMs / 1000)),
          shownAs: profile.codes.inProgress,
          saysRetryAfter: profile.saysRetryAfter,
        },
      );
    default:
      return new Problem(
        "CONFLICT.idempotency.expired",
        "its response is no longer kept; use a new key",
        { shownAs: profile.codes.expired },
      );
  }
}

/** Adds the key and the id of the request to a response. */
export function withRequest(
  response: HttpResponse,
  key: string | undefined,
  requestId: string,
): HttpResponse {
  const own = new Set(["x-request-id"]);
  if (key !== undefined) own.add("idempotency-key");
  const headers = response.headers.filter(([name]) => !own.has(name.toLowerCase()));
  if (key !== undefined) headers.push(["idempotency-key", formatKey(key)]);
  headers.push(["x-request-id", requestId]);
  return { ...response, headers };
}
