/** The client: what it retries, its budget, and its journal after a crash. */
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import http from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { budgets, Client, FileJournal, SendError, type ClientOptions } from "hapax/client";

type Respond = (
  request: http.IncomingMessage,
  response: http.ServerResponse,
  count: number,
) => void;

const folder = mkdtempSync(join(tmpdir(), "hapax-client-"));
const servers: http.Server[] = [];
const SENDER = fileURLToPath(new URL("support/sender.js", import.meta.url));

afterEach(() => {
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    server.close();
  }
});
after(() => rmSync(folder, { recursive: true }));

interface Remote {
  url: string;
  requests: { headers: http.IncomingHttpHeaders; body: string }[];
}

async function remote(respond: Respond): Promise<Remote> {
  const requests: Remote["requests"] = [];
  const server = http.createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      requests.push({ headers: request.headers, body: Buffer.concat(chunks).toString() });
      respond(request, response, requests.length);
    });
  });
  servers.push(server);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/orders`, requests };
}

const fast: ClientOptions = { backoff: { baseMs: 1, capMs: 5 } };

test("all attempts have the same key and the same bytes", async () => {
  const { url, requests } = await remote((request, response, count) => {
    if (count === 1) return void request.socket.destroy();
    response.writeHead(count === 2 ? 503 : 201, { "content-type": "application/json" }).end("{}");
  });
  const answer = await new Client(fast).send({ url, json: { amount: 5 } });
  assert.deepEqual([answer.status, answer.stopped, answer.attempts.length], [201, "answered", 3]);
  assert.equal(new Set(requests.map(({ headers }) => headers["idempotency-key"])).size, 1);
  assert.deepEqual(new Set(requests.map(({ body }) => body)), new Set(['{"amount":5}']));
  assert.deepEqual(
    requests.map(({ headers }) => headers["idempotency-attempt"]),
    ["1", "2", "3"],
  );
  assert.ok(Number(requests[0]?.headers["x-request-timeout"]) <= 10_000);
});

test("a response that asks for a longer wait than is left ends the operation", async () => {
  const { url, requests } = await remote((_request, response) => {
    response.writeHead(429, { "retry-after": "60" }).end();
  });
  const answer = await new Client(fast).send({ url });
  assert.deepEqual(
    [answer.stopped, answer.retryAfterMs, requests.length],
    ["retry_after", 60_000, 1],
  );
});

test("Retry-After is a minimum", async () => {
  const { url } = await remote((_request, response, count) => {
    response.writeHead(count === 1 ? 409 : 200, { "retry-after": "1" }).end();
  });
  const answer = await new Client(fast).send({ url });
  assert.equal(answer.status, 200);
  assert.ok((answer.attempts[1]?.delayMs ?? 0) >= 1000);
});

test("a POST without a key is not sent again once it may have arrived", async () => {
  const { url, requests } = await remote((request) => void request.socket.destroy());
  const error = await new Client(fast).send({ url, key: null }).catch((reason: unknown) => reason);
  assert.ok(error instanceof SendError);
  assert.deepEqual([error.reason, requests.length], ["unrepeatable", 1]);
});

test("a request that could not be sent is retried, also without a key", async () => {
  const { url } = await remote(() => undefined);
  const [server] = servers;
  server?.close();
  const error = await new Client(fast).send({ url, key: null }).catch((reason: unknown) => reason);
  assert.ok(error instanceof SendError);
  assert.deepEqual([error.reason, error.attempts.length], ["exhausted", 5]);
});

test("an empty budget ends operations to its destination", async () => {
  const { url, requests } = await remote(
    (_request, response) => void response.writeHead(503).end(),
  );
  const client = new Client({ ...fast, budget: budgets.strict() });
  await client.send({ url });
  const second = await client.send({ url });
  assert.equal(second.stopped, "budget");
  assert.equal(requests.length, 3);
});

test("an attempt that takes too long is retried", async () => {
  const { url } = await remote((_request, response, count) => {
    if (count > 1) response.writeHead(200).end("late");
  });
  const answer = await new Client({ ...fast, attemptMs: 100 }).send({ url });
  assert.deepEqual([answer.body.toString(), answer.attempts.length], ["late", 2]);
});

test("a client that was killed continues under its key", async () => {
  const path = join(folder, "killed.journal");
  let isHeld = true;
  let arrived!: () => void;
  const arrival = new Promise<void>((resolve) => (arrived = resolve));
  const { url, requests } = await remote((_request, response) => {
    arrived();
    if (!isHeld) response.writeHead(201, { "idempotency-status": "replayed" }).end();
  });
  const child = spawn(process.execPath, [SENDER, url, path], { stdio: "inherit" });
  await arrival;
  child.kill("SIGKILL");
  await once(child, "exit");
  isHeld = false;
  const { stdout } = await promisify(execFile)(process.execPath, [SENDER, url, path]);
  const key = requests[0]?.headers["idempotency-key"];
  assert.deepEqual(JSON.parse(stdout), { status: 201, key, isResumed: true });
  assert.equal(requests.at(-1)?.headers["idempotency-key"], key);
  // The outcome is known, so the next operation is another one.
  const next = await new Client({ journal: new FileJournal(path) }).send({
    url,
    json: { amount: 5 },
  });
  assert.notEqual(next.key, key);
});

test("a key whose outcome is not known stays in the journal", async () => {
  const path = join(folder, "doubt.journal");
  const { url } = await remote((request, response, count) => {
    if (count === 1) request.socket.destroy();
    else response.writeHead(401).end();
  });
  const client = new Client({ ...fast, journal: new FileJournal(path) });
  const first = await client.send({ url, body: "x" });
  const second = await client.send({ url, body: "x" });
  assert.deepEqual([first.status, second.key, second.isResumed], [401, first.key, true]);
  const named = await client.send({ url, body: "x", name: "another" });
  assert.notEqual(named.key, first.key);
});

test("a key that the service may have deleted is not sent", async () => {
  const path = join(folder, "stale.journal");
  const { url, requests } = await remote(
    (_request, response) => void response.writeHead(524).end(),
  );
  const client = new Client({ ...fast, journal: new FileJournal(path) });
  await client.send({ url });
  writeFileSync(path, readFileSync(path, "utf8").replace(/"at_ms":\d+/g, '"at_ms":1000'));
  const error = await client.send({ url }).catch((reason: unknown) => reason);
  assert.ok(error instanceof SendError);
  assert.deepEqual([error.reason, requests.length], ["stale", 1]);
  assert.equal((await client.send({ url, again: true })).status, 524);
});

test("a torn last line is left out, and another bad line is an error", async () => {
  const path = join(folder, "torn.journal");
  const journal = new FileJournal(path);
  const intent = { name: undefined, method: "POST", url: "http://a/", body: "00" };
  const { key } = await journal.begin(intent, "k1");
  writeFileSync(path, `${readFileSync(path, "utf8")}{"state":"do`);
  assert.deepEqual([key, (await journal.begin(intent, "k2")).key], ["k1", "k1"]);
  writeFileSync(path, `nonsense\n${readFileSync(path, "utf8")}`);
  await assert.rejects(
    journal.begin(intent, "k3"),
    /line 1 of the journal .* is not a valid record/,
  );
});

test("twenty clients with one journal use one key", async () => {
  const path = join(folder, "shared.journal");
  const intent = { name: undefined, method: "POST", url: "http://a/", body: "00" };
  const begun = await Promise.all(
    Array.from({ length: 20 }, (_, at) => new FileJournal(path).begin(intent, `k${at}`)),
  );
  assert.equal(new Set(begun.map(({ key }) => key)).size, 1);
  assert.equal(begun.filter(({ isResumed }) => !isResumed).length, 1);
});
