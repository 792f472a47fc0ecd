/** A service that is killed between any two messages of a payment: the retry on another node charges once. */
import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import express from "express";
import { phased, problems } from "hapax/express";
import { FaultProxy, type Fault } from "hapax/testing";
import pg from "pg";
import { scratch, type Scratch } from "./support/database.js";
import { send, until } from "./support/http.js";
import { pay } from "./support/payments.js";
import { startProvider, type Provider } from "./support/provider.js";

let db: Scratch;
let provider: Provider;
let pool: pg.Pool;
let other: string;
let stop: () => void;

before(async () => {
  db = await scratch();
  provider = await startProvider();
  pool = new pg.Pool({ connectionString: db.url });
  const app = express();
  const options = { tenant: "demo", leaseMs: 500, waitMs: 10_000 };
  app.post("/shops/:shop/orders", phased(pool, options), async (req, res) => {
    const { id } = req.body as { id: string };
    const { id: chargeId } = await pay(req.phases, id, provider.url);
    res.status(201).json({ chargeId });
  });
  app.use(problems());
  const server = app.listen(0, "127.0.0.1");
  await once(server, "listening");
  other = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  stop = () => {
    server.closeAllConnections();
    server.close();
  };
});
after(async () => {
  stop();
  await pool.end();
  await provider.stop();
  await db.drop();
});

/** A message that is a COMMIT alone. */
const COMMIT = /^Q[^]{4}COMMIT/;
/** The messages of a payment, by their text and their number. */
const MESSAGES: [name: string, text: RegExp, skipped: number][] = [
  ["enter", /hapax\.enter/, 0],
  ["COMMIT of enter", COMMIT, 0],
  ["reserve", /INSERT INTO orders/, 0],
  ["the phase reserved", /hapax\.phase/, 0],
  ["the key of the provider", /hapax\.provider_key/, 0],
  ["record", /INSERT INTO orders/, 1],
  ["the phase charged", /hapax\.phase/, 1],
  ["finish", /hapax\.finish/, 0],
  ["COMMIT of finish", COMMIT, 2],
];

for (const [name, text, skipped] of MESSAGES) {
  for (const fault of ["hold", "hold-response"] as const) {
    test(`a payment is killed ${fault === "hold" ? "before" : "after"} ${name}`, () =>
      checkKilled((proxy) => holdAt(proxy, text, skipped, fault)));
  }
}

test("a payment is killed before the provider charges", () =>
  checkKilled(
    () =>
      new Promise((resolve) => {
        provider.decide = () => {
          provider.decide = () => "charge";
          resolve();
          return new Promise(() => undefined);
        };
      }),
  ));

/** Kills a service as soon as `reached`, and sends the same request to another one. */
async function checkKilled(reached: (proxy: FaultProxy) => Promise<void>): Promise<void> {
  const proxy = await FaultProxy.start(db.url);
  const service = await spawnService(proxy.url);
  try {
    const [key, id] = [randomUUID(), randomUUID()];
    // The contract is checked once, before the first request.
    await send(service.url, { key: randomUUID(), body: { id: randomUUID() } });
    const [charges, calls] = [provider.charges.size, provider.calls.length];
    const isReached = reached(proxy);
    const lost = send(service.url, { key, body: { id } }).catch((error: unknown) => error);
    await isReached;
    service.process.kill("SIGKILL");
    await once(service.process, "exit");
    assert.ok((await lost) instanceof Error, "the client received a response");
    const retry = await send(other, { key, body: { id } });
    assert.equal(retry.status, 201, retry.body.toString());
    assert.equal(provider.charges.size, charges + 1);
    assert.equal(new Set(provider.calls.slice(calls)).size, 1, "the calls have the same key");
    assert.equal(await db.count(`orders WHERE id LIKE '${id}%'`), 2);
    assert.equal(await db.count(`hapax.outbox_event WHERE aggregate_id = '${id}'`), 1);
    const again = await send(other, { key, body: { id } });
    assert.equal(again.headers["idempotency-status"], "replayed");
    assert.deepEqual(again.body, retry.body);
  } finally {
    service.process.kill("SIGKILL");
    await proxy.stop();
  }
}

/** Holds a message with this text. The promise resolves when it was held and, if so, executed. */
function holdAt(proxy: FaultProxy, text: RegExp, skipped: number, fault: Fault): Promise<void> {
  return new Promise((resolve) => {
    let seen = 0;
    proxy.decide = (message) => {
      if (!text.test(message)) return "pass";
      seen += 1;
      if (seen !== skipped + 1) return "pass";
      if (fault === "hold") resolve();
      // The server has the message, and needs a moment for it.
      else void until(isIdle, "the end of the message").then(resolve);
      return fault;
    };
  });
}

/** Whether no session of a service executes a statement. */
async function isIdle(): Promise<boolean> {
  const { rows } = await db.pool.query<{ n: string }>(
    `SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database()
       AND pid <> pg_backend_pid() AND state = 'active'`,
  );
  return rows[0]?.n === "0";
}

async function spawnService(url: string): Promise<{ url: string; process: ChildProcess }> {
  const path = fileURLToPath(new URL("support/payment-server.js", import.meta.url));
  const child = spawn(process.execPath, [path], {
    env: { ...process.env, DATABASE_URL: url, PROVIDER_URL: provider.url },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [line] = (await once(child.stdout, "data")) as [Buffer];
  return { url: line.toString().trim(), process: child };
}
