/** Statements that share a message: what they contain, how many there are, and when they are not used. */
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { join as joinPath } from "node:path";
import { after, before, test } from "node:test";
import { inlined } from "#dist/core/batch";
import { APPLICATION_NAME } from "#dist/core/limits";
import { sql } from "drizzle-orm";
import express from "express";
import { hapax, problems } from "hapax/express";
import { join, pg as present } from "hapax/pg";
import { postgresJs } from "hapax/postgres-js";
import { assertReplay, FaultProxy } from "hapax/testing";
import { CompiledQuery } from "kysely";
import pg from "pg";
import postgres from "postgres";
import { PACKAGE, scratch, type Scratch } from "./support/database.js";
import * as drivers from "./support/drivers.js";
import { startExpress } from "./support/frameworks.js";
import { problemIn, send } from "./support/http.js";

// eslint-disable-next-line @typescript-eslint/no-explicit-any -- each driver has its own transaction
type Any = any;

let db: Scratch;

before(async () => {
  db = await scratch();
});
after(() => db.drop());

const HOSTILE = [
  "",
  "'",
  "''",
  "\\",
  "\\'",
  "\\'; DROP TABLE orders; --",
  "'; DROP TABLE orders; --",
  "') ; COMMIT; SELECT ('",
  "$1 $2 $$ $a$ $& $`",
  "? ?? \\? :name",
  "/* -- \n\r\t",
  "\u00bf\u0027 \ub27c \u2019",
  "caf\u00e9 \ud83d\ude00 \ufeff",
  "\ud800",
  "E'\\x27' U&'\\0027' x'27'",
];

test("a value in a text is the value of a parameter, whatever the settings are", async () => {
  const client = new pg.Client({ connectionString: db.url });
  await client.connect();
  try {
    for (const conforming of ["on", "off"]) {
      for (const encoding of ["UTF8", "SJIS", "BIG5", "LATIN1"]) {
        await client.query(`SET standard_conforming_strings = ${conforming}`);
        for (const value of HOSTILE) {
          const bytes = Buffer.from(value, "latin1");
          const text = "SELECT $1::text AS t, $2::bytea AS b, $3::integer AS n, $4::text AS z";
          const params = [value, bytes, -7, null];
          const written = inlined({ text, params });
          assert.match(written, /^[\x20-\x7e]*$/);
          assert.doesNotMatch(written, /\\|\?|;/);
          await client.query("SET client_encoding = 'UTF8'");
          const { rows: expected } = await client.query(text, params);
          // The driver reads UTF-8 only, so the server compares the text.
          await client.query(`SET client_encoding = '${encoding}'`);
          const whole = `SELECT b, n, z, encode(convert_to(t, 'UTF8'), 'hex') AS t FROM (${written}) AS r`;
          const { rows } = await client.query<Record<string, unknown>>(whole);
          assert.deepEqual(
            rows.map((row) => ({ ...row, t: Buffer.from(String(row.t), "hex").toString() })),
            expected.map((row: { t: string }) => ({ ...row, t: Buffer.from(row.t).toString() })),
          );
        }
      }
    }
    const nul = inlined({ text: "SELECT $1::text", params: ["a\0b"] });
    await assert.rejects(client.query(nul), { code: "22021" });
  } finally {
    await client.end();
  }
  assert.throws(() => inlined({ text: "SELECT $1", params: [1.5] }), TypeError);
  assert.throws(() => inlined({ text: "SELECT $1", params: [NaN] }), TypeError);
  assert.throws(() => inlined({ text: "SELECT $2", params: ["a", "b"] }), TypeError);
  assert.throws(() => inlined({ text: "SELECT $1", params: ["a", "b"] }), TypeError);
  assert.equal(await db.count("orders"), 0);
});

for (const [name, open] of Object.entries({
  pg: drivers.openPg,
  "postgres.js": drivers.openPostgresJs,
  "postgres.js without prepared statements": drivers.openPostgresJsUnprepared,
})) {
  test(`${name} sends BEGIN with the claim, and complete with COMMIT`, async () => {
    const proxy = await FaultProxy.start(db.url);
    const url = new URL(proxy.url);
    const driver = await open(url.href);
    const shop = await startExpress(driver.database, driver.insert, {});
    try {
      // The first request checks the contract, and opens the connections.
      const id = randomUUID();
      await send(shop.url, { key: randomUUID(), body: { id: `${id}-first` } });
      const sent: string[] = [];
      proxy.decide = (text) => {
        if (/BEGIN|hapax|COMMIT|ROLLBACK/.test(text)) sent.push(text);
        return "pass";
      };
      const key = "');COMMIT;--\\'$1?";
      const body = { id, item: "tea'); DROP TABLE orders; -- \\ \u00e9" };
      const first = await send(shop.url, { key, body });
      assert.equal(first.status, 201, first.body.toString());
      const [opening = "", closing = "", ...more] = sent;
      assert.deepEqual(more, []);
      assert.match(opening, /BEGIN .*; SELECT .* FROM hapax\.claim\(.*; SAVEPOINT hapax_effect/s);
      assert.match(closing, /SELECT hapax\.complete\(.*; COMMIT/s);
      assertReplay(first, await send(shop.url, { key, body }));
      assert.equal(await db.count(`orders WHERE id = '${id}'`), 1);
      await db.pool.query("DELETE FROM hapax.idempotency_key");
    } finally {
      await shop.stop();
      await driver.close();
      await proxy.stop();
    }
  });
}

test("the deadline ends the wait of an ordered event for another transaction", async () => {
  const pool = new pg.Pool({ connectionString: db.url, max: 2 });
  const app = express();
  const aggregate = { type: "order", id: randomUUID() };
  const silent = { onError: () => undefined };
  app.post("/shops/:shop/orders", hapax(pool, { tenant: "demo", ...silent }), async (req, res) => {
    await req.tx.emit("order.changed", {}, { aggregate, ordered: true });
    res.status(201).json({});
  });
  app.use(problems(silent));
  const server = app.listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const url = `http://127.0.0.1:${(server.address() as { port: number }).port}`;
  const other = await db.pool.connect();
  try {
    await other.query("BEGIN");
    await join(other).emit("order.changed", {}, { aggregate, ordered: true });
    const sent = { key: randomUUID(), body: {} };
    const late = await send(url, { ...sent, headers: { "x-request-timeout": "1500" } });
    assert.equal(late.status, 504, late.body.toString());
    await other.query("ROLLBACK");
    const retry = await send(url, sent);
    assert.deepEqual([retry.status, retry.headers["idempotency-status"]], [201, "stored"]);
  } finally {
    other.release(true);
    server.closeAllConnections();
    server.close();
    await pool.end();
  }
  assert.equal(await db.count(`hapax.outbox_event WHERE aggregate_id = '${aggregate.id}'`), 1);
});

test("a handler that ends its transaction is a final error that stores no key", async () => {
  const cases: [string, drivers.Driver, (tx: Any) => Promise<unknown>][] = [
    ["pg", drivers.openPg, (tx) => tx.query("COMMIT")],
    ["postgres.js", drivers.openPostgresJs, (tx) => tx.unsafe("COMMIT")],
    ["kysely", drivers.openKysely, (tx) => tx.executeQuery(CompiledQuery.raw("COMMIT"))],
    ["knex", drivers.openKnex, (tx) => tx.raw("COMMIT")],
    ["typeorm", drivers.openTypeorm, (tx) => tx.query("COMMIT")],
    ["drizzle", drivers.openDrizzlePg, (tx) => tx.execute(sql`COMMIT`)],
  ];
  for (const [name, open, commit] of cases) {
    const driver = await open(db.url);
    let isHonest = false;
    const insert: drivers.Opened["insert"] = async (tx, id, item, amount) => {
      await driver.insert(tx, id, item, amount);
      if (!isHonest) await commit(tx);
    };
    const shop = await startExpress(driver.database, insert, {});
    try {
      for (const act of [undefined, "refuse"] as const) {
        const [key, id] = [randomUUID(), randomUUID()];
        isHonest = false;
        const failed = await send(shop.url, { key, body: { id, ...(act && { act }) } });
        const { code, retryable } = problemIn(failed);
        assert.deepEqual([failed.status, code, retryable], [500, "INTERNAL", false], name);
        assert.equal(failed.headers["idempotency-status"], undefined);
        assert.equal(await db.count(`hapax.idempotency_key WHERE key = '${key}'`), 0);
        assert.equal(await db.count(`hapax.outbox_event WHERE aggregate_id = '${id}'`), 0);
        // Its committed effect cannot be undone, which is why the error is final.
        assert.equal(await db.count(`orders WHERE id = '${id}'`), 1);
        const open =
          "pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'";
        assert.equal(await db.count(open), 0, name);
        isHonest = true;
        const other = await send(shop.url, { key, body: { id: `${id}-2` } });
        assert.deepEqual(
          [other.status, other.headers["idempotency-status"]],
          [201, "stored"],
          name,
        );
      }
    } finally {
      await shop.stop();
      await driver.close();
    }
  }
});

test("connections have the name of the package, unless the service has named them", async () => {
  const { version } = JSON.parse(readFileSync(joinPath(PACKAGE, "package.json"), "utf8")) as {
    version: string;
  };
  assert.equal(APPLICATION_NAME, `hapax-node/${version} contract=2`);
  const own = new URL(db.url);
  own.searchParams.set("application_name", "shop");
  for (const [url, expected] of [
    [db.url, APPLICATION_NAME],
    [own.href, "shop"],
  ] as const) {
    const pool = new pg.Pool({ connectionString: url });
    present(pool);
    const { rows } = await pool.query<{ application_name: string }>("SHOW application_name");
    assert.equal(rows[0]?.application_name, expected);
    await pool.end();
    const name = url === own.href ? { connection: { application_name: "shop" } } : {};
    const client = postgres(db.url, { max: 1, ...name });
    postgresJs(client);
    const [row] = await client<{ application_name: string }[]>`SHOW application_name`;
    assert.equal(row?.application_name, expected);
    await client.end();
  }
});
