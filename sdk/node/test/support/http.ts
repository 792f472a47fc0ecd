/** Sends requests, and returns responses as tests compare them. */
import { readResponse, type TestResponse } from "hapax/testing";

export interface Sent {
  key?: string | undefined;
  body: unknown;
  shop?: string;
  headers?: Record<string, string>;
}

/** Sends an order. A body that is a text is sent as it is. */
export async function send(
  url: string,
  { key, body, shop = "one", headers = {} }: Sent,
): Promise<TestResponse> {
  const response = await fetch(`${url}/shops/${shop}/orders`, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      ...(key === undefined ? {} : { "idempotency-key": key }),
      ...headers,
    },
    body: typeof body === "string" ? body : JSON.stringify(body),
  });
  return readResponse(response);
}

/** The problem that a response shows. */
export function problemIn({ headers, body }: TestResponse): Record<string, unknown> {
  if (headers["content-type"] !== "application/problem+json") {
    throw new Error(
      `expected a problem, got ${String(headers["content-type"])}: ${body.toString().slice(0, 300)}`,
    );
  }
  return JSON.parse(body.toString()) as Record<string, unknown>;
}

/** Waits until a condition holds. */
export async function until(
  holds: () => Promise<boolean> | boolean,
  what: string,
  patienceMs = 10_000,
): Promise<void> {
  const deadline = Date.now() + patienceMs;
  while (!(await holds())) {
    if (Date.now() > deadline) throw new Error(`not reached within ${patienceMs} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
