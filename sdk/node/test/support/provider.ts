/** A payment provider that recognizes repeated calls by their key. */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

export interface Provider {
  url: string;
  /** The keys of all calls, in order. */
  calls: string[];
  /** The charges by key. */
  charges: Map<string, string>;
  /** What becomes of the next calls. A promise holds the call. */
  decide: (key: string) => Decision | Promise<Decision>;
  stop(): Promise<void>;
}

/**
 * `lost` charges and sends no response, `lost-before` neither charges nor responds, and `fail` is 500
 * without a charge.
 */
export type Decision = "charge" | "decline" | "lost" | "lost-before" | "fail";

export async function startProvider(): Promise<Provider> {
  const server = createServer((request, response) => void answer(request, response));
  const calls: string[] = [];
  const charges = new Map<string, string>();
  const provider: Provider = {
    url: "",
    calls,
    charges,
    decide: () => "charge",
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const key = String(request.headers["idempotency-key"]);
    if (request.method === "GET") {
      const found = charges.get(key);
      response.writeHead(found === undefined ? 404 : 200).end(JSON.stringify({ id: found }));
      return;
    }
    calls.push(key);
    const decision = charges.has(key) ? "charge" : await provider.decide(key);
    if (decision === "charge" || decision === "lost") {
      charges.set(key, charges.get(key) ?? `ch_${charges.size + 1}`);
    }
    if (decision === "charge") response.end(JSON.stringify({ id: charges.get(key) }));
    else if (decision === "decline") response.writeHead(402).end();
    else if (decision === "fail") response.writeHead(500).end();
    else request.socket.destroy();
  }
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  provider.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return provider;
}
