/** Transactions that a handler or the server has broken, and mistakes in the use of the package. */
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";
import express, { type RequestHandler } from "express";
import type { Database } from "hapax";
import { hapax, problems } from "hapax/express";
import type { PgPool } from "hapax/pg";
import { postgresJs, type PostgresTransaction } from "hapax/postgres-js";
import type { TestResponse } from "hapax/testing";
import postgres from "postgres";
import { scratch, type Scratch } from "./support/database.js";
import * as drivers from "./support/drivers.js";
import { problemIn, send } from "./support/http.js";

// eslint-disable-next-line @typescript-eslint/no-explicit-any -- each driver has its own transaction
type Any = any;
type Handler = (tx: Any, id: string) => Promise<void>;

let db: Scratch;

before(async () => {
  db = await scratch();
});
after(() => db.drop());

/** Sends orders to a handler, which responds with 201 if it does not throw. */
async function serving(
  database: PgPool | Database<Any>,
  settings: { handlerMs?: number; isTwice?: boolean },
  handler: Handler,
  work: (
    post: (id: string, key?: string, headers?: Record<string, string>) => Promise<TestResponse>,
  ) => Promise<void>,
): Promise<void> {
  const { handlerMs, isTwice } = settings;
  const options = { tenant: "demo", key: "optional", onError: () => undefined } as const;
  const protect = (): RequestHandler =>
    hapax(database, handlerMs === undefined ? options : { ...options, handlerMs });
  const app = express();
  const route = isTwice ? [protect(), protect()] : [protect()];
  app.post("/shops/one/orders", ...route, async (req, res) => {
    const { id } = req.body as { id: string };
    await handler(req.tx, id);
    res.status(201).json({ id });
  });
  app.use(problems({ onError: () => undefined }));
  const server = app.listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  try {
    await work((id, key, headers = {}) => send(url, { key, body: { id }, headers }));
  } finally {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
}

for (const [name, open] of Object.entries({
  pg: drivers.openPg,
  "postgres.js": drivers.openPostgresJs,
  kysely: drivers.openKysely,
  drizzle: drivers.openDrizzlePg,
  knex: drivers.openKnex,
  typeorm: drivers.openTypeorm,
})) {
  test(`${name} does not confirm a transaction that the server rolls back`, async () => {
    const driver = await open(db.url);
    const swallow: Handler = async (tx, id) => {
      await driver.insert(tx, id, "tea", 1);
      await driver.insert(tx, `${id}-2`, "tea", -1).catch(() => undefined);
    };
    try {
      await serving(driver.database, {}, swallow, async (post) => {
        for (const key of [undefined, randomUUID()]) {
          const id = randomUUID();
          const response = await post(id, key);
          assert.equal(response.status, 500, response.body.toString());
          assert.equal(problemIn(response).code, "INTERNAL.statement");
          assert.equal(await db.count(`orders WHERE id = '${id}'`), 0);
        }
      });
    } finally {
      await driver.close();
    }
  });
}

test("a connection of postgres.js that is closed during a handler is not written to", async () => {
  let close!: () => void;
  const isClosed = new Promise<void>((resolve) => (close = resolve));
  const sql = postgres(db.url, { max: 2, onclose: () => close() });
  const ids = [randomUUID(), randomUUID()] as const;
  const handler = async (tx: PostgresTransaction, id: string): Promise<void> => {
    if (id === ids[0]) {
      const [row] = await tx<{ pid: number }[]>`SELECT pg_backend_pid() AS pid`;
      await db.pool.query("SELECT pg_terminate_backend($1)", [row?.pid]);
      await isClosed;
    }
    await tx`INSERT INTO orders (id, tenant, item, amount) VALUES (${id}, 'demo', 'tea', 1)`;
  };
  try {
    await serving(postgresJs(sql), {}, handler, async (post) => {
      assert.equal((await post(ids[0], randomUUID())).status, 503);
      assert.equal((await post(ids[1], randomUUID())).status, 201);
      assert.equal(await db.count(`orders WHERE id IN ('${ids.join("', '")}')`), 1);
    });
  } finally {
    await sql.end();
  }
});

test("a handler without a time limit is not late at once", async () => {
  const driver = await drivers.openPg(db.url);
  const insert: Handler = async (tx, id) => {
    await driver.insert(tx, id, "tea", 1);
  };
  try {
    await serving(driver.database, { handlerMs: Infinity }, insert, async (post) => {
      assert.equal((await post(randomUUID(), randomUUID())).status, 201);
    });
  } finally {
    await driver.close();
  }
});

test("hapax on a route twice is a mistake that is not stored", async () => {
  const driver = await drivers.openPg(db.url);
  const insert: Handler = async (tx, id) => {
    await driver.insert(tx, id, "tea", 1);
  };
  try {
    await serving(driver.database, { isTwice: true }, insert, async (post) => {
      const key = randomUUID();
      const bytes = { "content-type": "application/octet-stream" };
      const response = await post(randomUUID(), key, bytes);
      assert.equal(response.status, 500);
      assert.equal(problemIn(response).code, "INTERNAL");
      const stored = `hapax.idempotency_key WHERE key = '${key}'`;
      assert.equal(await db.count(stored), 0);
    });
  } finally {
    await driver.close();
  }
});
