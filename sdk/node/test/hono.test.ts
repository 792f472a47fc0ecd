/** What is particular to Hono: bodies that middleware reads before. */
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, test } from "node:test";
import { Hono } from "hono";
import { hapax, problems } from "hapax/hono";
import type { Failure } from "hapax";
import pg from "pg";
import { scratch, type Scratch } from "./support/database.js";

let db: Scratch;
let pool: pg.Pool;
const failures: Failure[] = [];

before(async () => {
  db = await scratch();
  pool = new pg.Pool({ connectionString: db.url });
});
after(async () => {
  await pool.end();
  await db.drop();
});

/** An application that reads the body before hapax, or does not. */
function application(reads: "nothing" | "json" | "text" | "form"): Hono {
  const app = new Hono();
  app.onError(problems);
  app.use(async (c, next) => {
    c.header("x-trace", randomUUID());
    if (reads === "json") await c.req.json();
    if (reads === "text") await c.req.text();
    if (reads === "form") await c.req.formData();
    await next();
  });
  const options = {
    tenant: "demo",
    bodyBytesMax: 100,
    onError: (failure: Failure) => failures.push(failure),
  };
  app.post("/orders", hapax(pool, options), async (c) =>
    c.json({ body: await c.req.json<unknown>() }, 201),
  );
  return app;
}

function post(app: Hono, key: string, body: string): Response | Promise<Response> {
  const headers = { "content-type": "application/json", "idempotency-key": key };
  return app.request("/orders", { method: "POST", headers, body });
}

test("the handler reads the body that hapax has read", async () => {
  for (const reads of ["nothing", "text", "json"] as const) {
    const app = application(reads);
    const key = randomUUID();
    const first = await post(app, key, '{"a":1.0}');
    assert.equal(first.status, 201);
    assert.equal(await first.text(), '{"body":{"a":1}}');
    const replay = await post(app, key, '{ "a":1.0 }');
    assert.equal(replay.headers.get("idempotency-status"), "replayed");
    assert.notEqual(replay.headers.get("x-trace"), first.headers.get("x-trace"));
    assert.equal((await post(app, key, '{"a":1}')).status, 409);
  }
});

test("a body whose bytes were dropped is refused, with what to do", async () => {
  const headers = {
    "content-type": "application/x-www-form-urlencoded",
    "idempotency-key": randomUUID(),
  };
  const request = { method: "POST", headers, body: "a=1" };
  const refused = await application("form").request("/orders", request);
  assert.equal(refused.status, 500);
  assert.match(String(failures.at(-1)?.problem.options.cause), /install hapax before it/);
});

test("a body that is too long is refused, also without a Content-Length", async () => {
  const refused = await post(application("nothing"), randomUUID(), JSON.stringify("x".repeat(200)));
  assert.equal(refused.status, 413);
});
