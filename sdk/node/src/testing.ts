/**
 * Helpers for the tests of a service: duplicates of a request, and a proxy before PostgreSQL that
 * loses the result of a commit.
 */
import net from "node:net";
import type { AddressInfo } from "node:net";

/** What the proxy does with a message of a client. */
export type Fault =
  | "pass"
  /** The message is not sent to the server, and the connection stays open. */
  | "hold"
  /** The message is not sent to the server, and the connection ends. */
  | "lose-request"
  /** The server executes the message, and the connection ends before its answer. */
  | "lose-response"
  /** The server executes the message, and its answer is kept. */
  | "hold-response";

/**
 * Decides about each message of a client, whose SQL is part of `text`. A promise delays the message.
 */
export type Decision = (text: string) => Fault | Promise<Fault>;

/** A TCP proxy before PostgreSQL. Connections must not use TLS. */
export class FaultProxy {
  private readonly sockets = new Set<net.Socket>();
  private readonly server: net.Server;
  /** Decides about the next messages; by default all pass. */
  decide: Decision = () => "pass";

  private constructor(private readonly target: URL) {
    this.server = net.createServer((client) => this.join(client));
  }

  /** Starts a proxy before the database of `url`. */
  static async start(url: string): Promise<FaultProxy> {
    const proxy = new FaultProxy(new URL(url));
    await new Promise<void>((resolve) => proxy.server.listen(0, "127.0.0.1", resolve));
    return proxy;
  }

  /** The URL of the database through the proxy. */
  get url(): string {
    const url = new URL(this.target);
    url.hostname = "127.0.0.1";
    url.port = String((this.server.address() as AddressInfo).port);
    return url.href;
  }

  /** Ends all connections and the proxy. */
  async stop(): Promise<void> {
    for (const socket of this.sockets) socket.destroy();
    await new Promise<void>((resolve) => this.server.close(() => resolve()));
  }

  private join(client: net.Socket): void {
    const server = net.connect(Number(this.target.port || 5432), this.target.hostname);
    let answers: "pass" | "lose" | "hold" = "pass";
    for (const socket of [client, server]) {
      this.sockets.add(socket);
      socket.on("error", () => undefined);
      socket.on("close", () => this.sockets.delete(socket));
    }
    client.on("close", () => server.destroy());
    server.on("close", () => client.destroy());
    const handle = async (chunk: Buffer): Promise<void> => {
      const fault = await this.decide(chunk.toString("latin1"));
      if (fault === "lose-request") client.destroy();
      if (fault === "lose-response") answers = "lose";
      if (fault === "hold-response") answers = "hold";
      if (fault !== "hold" && fault !== "lose-request") server.write(chunk);
    };
    // One after the other, because a decision may take time.
    let last = Promise.resolve();
    client.on("data", (chunk) => {
      last = last.then(() => handle(chunk));
    });
    server.on("data", (chunk) => {
      if (answers === "pass") client.write(chunk);
      else if (answers === "lose") client.destroy();
    });
  }
}

/** A response of a service, as a test compares it. */
export interface TestResponse {
  status: number;
  headers: Record<string, string>;
  body: Buffer;
}

/** Sends the same request `count` times at once, and returns all responses. */
export async function duplicates(
  count: number,
  send: () => Promise<Response>,
): Promise<TestResponse[]> {
  return Promise.all(Array.from({ length: count }, async () => readResponse(await send())));
}

/** Reads a response to its end. Lines of one header are joined by a comma. */
export async function readResponse(response: Response): Promise<TestResponse> {
  const headers: Record<string, string> = {};
  for (const [name, value] of response.headers) {
    headers[name] = headers[name] === undefined ? value : `${headers[name]}, ${value}`;
  }
  return { status: response.status, headers, body: Buffer.from(await response.arrayBuffer()) };
}

/** Headers that a replay need not repeat. */
const OF_ONE_EXCHANGE = new Set([
  "date",
  "connection",
  "keep-alive",
  "set-cookie",
  "x-request-id",
  "idempotency-status",
  "idempotent-replayed",
]);

/** Throws unless `second` is the replay of `first`: status, stored headers and body, byte for byte. */
export function assertReplay(first: TestResponse, second: TestResponse): void {
  const [one, two] = [comparable(first), comparable(second)];
  if (one !== two) throw new Error(`the replay differs:\n${one}\n${two}`);
  const status = second.headers["idempotency-status"];
  if (status !== "replayed")
    throw new Error(`expected a replay, got Idempotency-Status: ${String(status)}`);
}

function comparable({ status, headers, body }: TestResponse): string {
  const lines = Object.entries(headers).filter(([name]) => !OF_ONE_EXCHANGE.has(name));
  return JSON.stringify([status, lines.sort(), body.toString("base64")]);
}
