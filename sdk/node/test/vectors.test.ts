/** The vectors of the contract, as far as they are functions; `problems.test.ts` has the problems. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { canonicalJson, JsonError, type Numbers } from "#dist/core/canonical";
import { fingerprint, type FingerprintMode } from "#dist/core/fingerprint";
import { formatKey } from "#dist/core/key";
import { policyOf } from "#dist/core/options";
import { sha256 } from "#dist/core/parts";
import { CODES, Problem } from "#dist/core/problem";
import { PROFILES, type ProfileName } from "#dist/core/profile";
import { parseRequest, type IncomingRequest } from "#dist/core/request";
import { disposition, splitHeaders, type HeaderPairs, type OnFailure } from "#dist/core/response";
import { KeyTextError, Signer, sign, Verifier, verify, VerifyError } from "#dist/core/signature";
import { operationOf } from "#dist/core/protection";
import { splitTarget } from "#dist/core/body";
import { Balance } from "#dist/client/budget";
import {
  decide,
  isRepeatable,
  readResponse,
  retryAfterMs,
  saysStored,
  type Seen,
} from "#dist/client/decision";
import { fateOf } from "#dist/client/journal";
import { bytesOf, casesOf, latin1Of, vectorFiles, type Data } from "./support/vectors.js";

type Pairs = [string, Data][];
interface ProblemOf {
  problem?: { status: number; code: string };
}

/** Runs every case of a file. */
function run<Input, Expect>(file: string, act: (input: Input, expect: Expect) => unknown): void {
  test(file, () => {
    for (const { name, input, expect } of casesOf<Input, Expect>(file)) {
      assert.deepEqual(act(input, expect), expect, `${file}: ${name}`);
    }
  });
}

/** The result, or the problem that was thrown. */
function orProblem<Result>(act: () => Result): Result | ProblemOf {
  try {
    return act();
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    return { problem: { status: error.status, code: error.options.shownAs ?? error.code } };
  }
}

function requestOf(headers: Pairs, rest: Partial<IncomingRequest>): IncomingRequest {
  const lines = (name: string): string[] =>
    headers.flatMap(([each, value]) => (each.toLowerCase() === name ? [latin1Of(value)] : []));
  return {
    method: "POST",
    operation: "POST /orders",
    path: "/orders",
    query: "",
    tenant: "demo",
    requestId: "req-1",
    body: Buffer.alloc(0),
    contentType: lines("content-type")[0] ?? "",
    header: lines,
    ...rest,
  };
}

test("there is a test for every file", () => {
  const tested = [
    "canonical-json",
    "fingerprint",
    "fingerprint-pairs",
    "idempotency-key",
    "journal",
    "problem-codes",
    "problems",
    "retry-after",
    "retry-budget",
    "retry-decisions",
    "stored-by-status",
    "stored-headers",
    "webhook-keys",
    "webhook-sign",
    "webhook-verify",
  ];
  assert.deepEqual(vectorFiles(), tested);
});

run<{ profile: ProfileName; values: Data[] }, unknown>("idempotency-key", ({ profile, values }) =>
  orProblem(() => {
    const headers = values.map((value): [string, Data] => ["idempotency-key", value]);
    const policy = policyOf({ tenant: "demo", profile });
    const { key } = parseRequest(requestOf(headers, {}), policy, () => undefined);
    return key === undefined ? {} : { key, echo: formatKey(key) };
  }),
);

run<{ body: Data }, { sha256?: string }>("canonical-json", ({ body }, expect) => {
  const canonical = (numbers: Numbers): string => canonicalJson(bytesOf(body), numbers);
  try {
    const [json, semantic] = [canonical("as-sent"), canonical("by-value")];
    if (expect.sha256 === undefined) return { json, json_semantic: semantic };
    assert.equal(json, semantic);
    return { sha256: sha256(json).toString("hex") };
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    return { error: kindOf(error) };
  }
});

function kindOf({ message }: JsonError): string {
  if (message.includes("more than once")) return "duplicate";
  if (message.includes("nested deeper")) return "depth";
  return message.includes("more than 10000 members") ? "members" : "syntax";
}

interface FingerprintInput {
  mode: FingerprintMode;
  service: string | null;
  method: string;
  template: string;
  target: string;
  headers: Pairs;
  body: Data;
}

run<FingerprintInput, unknown>(
  "fingerprint",
  ({ mode, service, method, template, target, headers, body }) =>
    orProblem(() => {
      const options = { tenant: "demo", ...(service !== null && { service }) };
      const operation = operationOf(options, undefined, method, template);
      const request = requestOf(headers, {
        method,
        operation,
        ...splitTarget(target),
        body: bytesOf(body),
      });
      return { fingerprint: fingerprint(mode, request).toString("hex") };
    }),
);

run<{ mode: FingerprintMode; first: string; second: string }, unknown>(
  "fingerprint-pairs",
  ({ mode, first, second }) => {
    const hash = (text: string): string => {
      const request = requestOf([["content-type", "application/json"]], {
        body: Buffer.from(text),
      });
      return fingerprint(mode, request).toString("hex");
    };
    return { equal: hash(first) === hash(second) };
  },
);

run<{ status: number; headers: Pairs; per_request: string[] }, unknown>(
  "stored-headers",
  ({ status, headers, per_request: perRequest }) => {
    const sent = headers.map(([name, value]): [string, string] => [name, latin1Of(value)]);
    // A stored error does not ask for a retry.
    const kept =
      status < 400 ? sent : sent.filter(([name]) => name.toLowerCase() !== "retry-after");
    const { stored, exchange } = splitHeaders(
      kept,
      new Set(perRequest.map((name) => name.toLowerCase())),
    );
    const byName = (pairs: HeaderPairs): [string, Data][] =>
      pairs
        .toSorted(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0))
        .map(([name, value]) => [name, dataOf(value)]);
    return { stored: byName(stored), first_only: byName(exchange) };
  },
);

/** A value as the vectors write it: as text if its bytes are UTF-8. */
function dataOf(value: string): Data {
  const bytes = Buffer.from(value, "latin1");
  const text = bytes.toString("utf8");
  return Buffer.from(text, "utf8").equals(bytes) ? text : { hex: bytes.toString("hex") };
}

run<{ profile: ProfileName; on_failure: OnFailure; statuses: number[] }, unknown>(
  "stored-by-status",
  ({ profile, on_failure: onFailure, statuses }) => {
    const of = (kept: string): number[] =>
      statuses.filter((status) => disposition(status, onFailure, PROFILES[profile]) === kept);
    return {
      with_effect: of("with-effect"),
      effect_free: of("effect-free"),
      released: of("release"),
    };
  },
);

run<{ code: string }, unknown>("problem-codes", ({ code }) => {
  assert.ok(code in CODES, `${code} is not known`);
  const { type, title, status, retryable } = JSON.parse(
    new Problem(code, "").response().body.toString(),
  ) as Record<string, unknown>;
  return { type, title, status, retryable };
});

run<{ role: "signer" | "verifier"; text: string }, unknown>("webhook-keys", ({ role, text }) => {
  try {
    if (role === "verifier") return { scheme: Verifier.parse(text).scheme };
    const { scheme, publicKey } = Signer.parse(text);
    return publicKey === undefined ? { scheme } : { scheme, public: publicKey };
  } catch (error) {
    if (!(error instanceof KeyTextError)) throw error;
    return { error: error.reason };
  }
});

run<{ id: string; timestamp: number; body: Data; keys: string[] }, unknown>(
  "webhook-sign",
  ({ id, timestamp, body, keys }) => ({
    signature: sign(
      id,
      timestamp,
      bytesOf(body),
      keys.map((key) => Signer.parse(key)),
    ),
  }),
);

interface VerifyInput {
  id: string;
  timestamp: string;
  signature: string;
  body: Data;
  keys: string[];
  now: number;
  tolerance: number;
}

run<VerifyInput, unknown>(
  "webhook-verify",
  ({ id, timestamp, signature, body, keys, now, tolerance }) => {
    try {
      const received = { id, timestamp, signature, body: bytesOf(body) };
      verify(
        received,
        keys.map((key) => Verifier.parse(key)),
        now * 1000,
        tolerance * 1000,
      );
      return { ok: true };
    } catch (error) {
      if (!(error instanceof VerifyError)) throw error;
      return error.header === undefined
        ? { error: error.reason }
        : { error: error.reason, header: error.header };
    }
  },
);

run<{ retry_after: string | null; date: string | null; now: number }, unknown>(
  "retry-after",
  ({ retry_after: asked, date, now }) => {
    const wait = retryAfterMs(asked, date, now * 1000);
    return { seconds: wait === undefined ? null : wait / 1000 };
  },
);

interface DecisionInput {
  policy: { base_ms: number; cap_ms: number; attempts_max: number; total_ms: number };
  method: string;
  has_key: boolean;
  attempt: number;
  elapsed_ms: number;
  random: number;
  budget_exhausted: boolean;
  now: number;
  outcome: Exclude<Seen, object> | { status: number; headers: [string, string][]; body: string };
}

run<DecisionInput, unknown>("retry-decisions", (input) => {
  const { policy, outcome } = input;
  const seen =
    typeof outcome === "string"
      ? outcome
      : readResponse(
          outcome.status,
          (name) => outcome.headers.find(([each]) => each.toLowerCase() === name)?.[1] ?? null,
          Buffer.from(outcome.body),
          input.now * 1000,
        );
  const step = decide(seen, {
    backoff: {
      baseMs: policy.base_ms,
      capMs: policy.cap_ms,
      attemptsMax: policy.attempts_max,
      totalMs: policy.total_ms,
    },
    isRepeatable: isRepeatable(input.method, input.has_key),
    attempt: input.attempt,
    elapsedMs: input.elapsed_ms,
    random: input.random,
    allows: () => !input.budget_exhausted,
  });
  if ("waitMs" in step) return { wait_ms: Math.round(step.waitMs) };
  return step.retryAfterMs === undefined
    ? { stop: step.stop }
    : { stop: step.stop, retry_after_ms: step.retryAfterMs };
});

type BudgetStep = "first" | "succeeded" | "failed" | "allows" | "take";

run<{ budget: Record<string, number>; steps: [number, BudgetStep][] }, unknown>(
  "retry-budget",
  ({ budget, steps }) => {
    const amount = (name: string): number => budget[name] ?? assert.fail(name);
    const balance = new Balance(
      {
        max: amount("max"),
        initial: amount("initial"),
        reserve: amount("reserve"),
        perRequest: amount("per_request"),
        perSecond: amount("per_second"),
        perSuccess: amount("per_success"),
        perRetry: amount("per_retry"),
        perFailure: amount("per_failure"),
      },
      0,
    );
    const after = ([now, step]: [number, BudgetStep]): [number, boolean | null] => {
      const permits = balance[step](now) ?? null;
      return [balance.amount, permits];
    };
    return { steps: steps.map(after) };
  },
);

interface JournalInput {
  status: number;
  idempotency_status: string | null;
  code: string | null;
  in_doubt: boolean;
}

run<JournalInput, unknown>(
  "journal",
  ({ status, idempotency_status: said, code, in_doubt: inDoubt }) => ({
    key: fateOf(status, saysStored(said), code ?? undefined, inDoubt),
  }),
);
