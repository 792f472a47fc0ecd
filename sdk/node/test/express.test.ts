/** What is particular to express, and what a mistake in the set-up says. */
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { createRequire } from "node:module";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";
import express from "express";
import { hapax, keepBody, problems } from "hapax/express";
import { Problem, type Failure, type Options } from "hapax";
import { assertReplay, duplicates } from "hapax/testing";
import pg from "pg";
import { PROFILES } from "#dist/core/profile";
import { scratch, type Scratch } from "./support/database.js";
import { problemIn, send } from "./support/http.js";

let db: Scratch;
let pool: pg.Pool;
const stops: (() => Promise<void>)[] = [];
const failures: Failure[] = [];
const options: Options<express.Request> = {
  tenant: "demo",
  onError: (failure) => failures.push(failure),
};

before(async () => {
  db = await scratch();
  pool = new pg.Pool({ connectionString: db.url });
});
after(async () => {
  for (const stop of stops) await stop();
  await pool.end();
  await db.drop();
});

async function listen(app: express.Express): Promise<string> {
  app.use(problems({ onError: () => undefined }));
  const server = app.listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  stops.push(
    () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  );
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const PATH = "/shops/:shop/orders";
const echo: express.RequestHandler = (req, res) =>
  void res.status(201).json({ body: req.body as unknown });

test("a parser that has dropped the bytes of a body is refused, with what to do", async () => {
  const app = express();
  app.use(express.json());
  app.post(PATH, hapax(pool, options), echo);
  const refused = await send(await listen(app), { key: randomUUID(), body: {} });
  assert.equal(refused.status, 500);
  assert.equal(problemIn(refused).code, "INTERNAL");
  const cause = failures.at(-1)?.problem.options.cause;
  assert.match(
    String(cause),
    /install hapax before express\.json\(\).*express\.json\(\{ verify: keepBody \}\)/,
  );
});

test("a parser that keeps the bytes of a body is welcome", async () => {
  const app = express();
  app.use(express.json({ verify: keepBody }));
  app.post(PATH, hapax(pool, options), echo);
  const url = await listen(app);
  const sent = { key: randomUUID(), body: '{"b":1.0,"a":2}' };
  const first = await send(url, sent);
  assert.equal(first.body.toString(), '{"body":{"b":1,"a":2}}');
  assertReplay(first, await send(url, { ...sent, body: '{ "a": 2, "b": 1.0 }' }));
  assert.equal((await send(url, { ...sent, body: '{"b":1,"a":2}' })).status, 409);
});

test("forms, texts and bytes are parsed as a handler expects them", async () => {
  const app = express();
  app.post(PATH, hapax(pool, options), echo);
  const url = await listen(app);
  const post = async (type: string, body: string): Promise<unknown> => {
    const response = await send(url, {
      key: randomUUID(),
      body,
      headers: { "content-type": type },
    });
    return (JSON.parse(response.body.toString()) as { body: unknown }).body;
  };
  assert.deepEqual(await post("application/x-www-form-urlencoded", "a=1&b=%20"), {
    a: "1",
    b: " ",
  });
  assert.equal(await post("text/plain", "tea"), "tea");
  assert.deepEqual(await post("application/octet-stream", "tea"), {
    type: "Buffer",
    data: [116, 101, 97],
  });
});

test("headers of middleware before hapax are not stored", async () => {
  const app = express();
  app.use((_req, res, next) => {
    res.setHeader("x-trace", randomUUID());
    res.setHeader("vary", "origin");
    next();
  });
  app.post(PATH, hapax(pool, options), (_req, res) => {
    res.vary("accept");
    res.status(201).json({});
  });
  const url = await listen(app);
  const sent = { key: randomUUID(), body: {} };
  const [first, second] = [await send(url, sent), await send(url, sent)];
  assert.equal(second.headers["idempotency-status"], "replayed");
  assert.notEqual(first.headers["x-trace"], second.headers["x-trace"]);
  assert.equal(second.headers.vary, "origin, accept");
  assert.equal(second.headers["x-powered-by"], "Express");
});

test("middleware that delays the end of a response still works", async () => {
  const app = express();
  app.use((_req, res, next) => {
    const end = res.end.bind(res) as (...args: unknown[]) => express.Response;
    res.end = (...args: unknown[]) => {
      setImmediate(() => end(...args));
      return res;
    };
    next();
  });
  app.post(PATH, hapax(pool, options), (_req, res) => void res.status(204).end());
  const url = await listen(app);
  const sent = { key: randomUUID(), body: {} };
  const [first, second] = [await send(url, sent), await send(url, sent)];
  assert.equal(first.status, 204);
  assertReplay(first, second);
});

test("a body that is too long is refused before it is claimed", async () => {
  const app = express();
  app.post(PATH, hapax(pool, { ...options, bodyBytesMax: 10 }), echo);
  const refused = await send(await listen(app), {
    key: randomUUID(),
    body: { text: "too long" },
  });
  assert.equal(refused.status, 413);
  assert.equal(problemIn(refused).code, "VALIDATION.body.too_large");
});

test("a failure is stored if the service says so, and then asks for no retry", async () => {
  const app = express();
  let runs = 0;
  app.post(PATH, hapax(pool, { ...options, onFailure: "store" }), () => {
    runs += 1;
    throw new Problem("TRANSIENT.provider", "the provider failed", {
      status: 502,
      retryAfter: 5,
    });
  });
  const url = await listen(app);
  const sent = { key: randomUUID(), body: {} };
  const first = await send(url, sent);
  assert.equal(first.status, 502);
  assert.equal(problemIn(first).retryable, false);
  assert.equal(first.headers["retry-after"], undefined);
  assertReplay(first, await send(url, sent));
  assert.equal(runs, 1);
});

test("a handler that writes in pieces and uses writeHead is replayed", async () => {
  const app = express();
  app.post(PATH, hapax(pool, options), (_req, res) => {
    res.writeHead(202, "Taken", ["x-a", "1", "x-a", "2", "content-type", "text/plain"]);
    res.write("t");
    res.write("6561", "hex");
    res.end(Buffer.from("!"));
  });
  const url = await listen(app);
  const key = randomUUID();
  const [first, second] = await duplicates(2, () =>
    fetch(`${url}/shops/one/orders`, {
      method: "POST",
      headers: { "idempotency-key": key },
      body: "x",
    }),
  );
  assert.ok(first && second);
  assert.equal(first.body.toString(), "tea!");
  assert.equal(first.headers["x-a"], "1, 2");
  assert.deepEqual([first.status, second.status], [202, 202]);
  assert.ok(first.body.equals(second.body));
});

test("an older contract is refused by its name", async () => {
  const old = await scratch("0015");
  const oldPool = new pg.Pool({ connectionString: old.url });
  const app = express();
  app.post(PATH, hapax(oldPool, options), echo);
  const refused = await send(await listen(app), { key: randomUUID(), body: {} });
  assert.equal(refused.status, 500);
  assert.match(
    String(failures.at(-1)?.problem.options.cause),
    /needs version 2 of Hapax's SQL contract.*contract_version/,
  );
  await oldPool.end();
  await old.drop();
});

test("the status of an error counts if it is that of the request", async () => {
  const app = express();
  const thrown = { own: new Error("from elsewhere") };
  app.post(PATH, hapax(pool, options), () => {
    throw thrown.own;
  });
  const url = await listen(app);
  const post = async (members: object): Promise<[number, unknown]> => {
    thrown.own = Object.assign(new Error("from elsewhere"), members);
    const response = await send(url, { key: randomUUID(), body: {} });
    return [response.status, problemIn(response).code];
  };
  const own = [500, "TRANSIENT.internal"];
  assert.deepEqual(await post({ status: 404 }), own);
  assert.deepEqual(await post({ status: 404, expose: false }), own);
  assert.deepEqual(await post({ status: 402, type: "StripeCardError" }), own);
  assert.deepEqual(await post({ status: 503, expose: true }), own);
  assert.deepEqual(await post({ status: 404, expose: true }), [404, "NOT_FOUND"]);
  assert.deepEqual(await post({ status: 400, type: "entity.parse.failed" }), [
    400,
    "VALIDATION.request",
  ]);
});

test("an error of http-errors is a refusal, and one of an HTTP client frees the key", async () => {
  const require = createRequire(createRequire(import.meta.url).resolve("express"));
  const createError = require("http-errors") as (status: number, message: string) => Error;
  const ofClient = Object.assign(new Error("Request failed with status code 404"), { status: 404 });
  const app = express();
  const thrown: Error[] = [];
  app.post(PATH, hapax(pool, options), (_req, res) => {
    const error = thrown.shift();
    if (error) throw error;
    res.status(201).json({});
  });
  const url = await listen(app);
  const refused = { key: randomUUID(), body: {} };
  thrown.push(createError(404, "there is no such shop"));
  const first = await send(url, refused);
  assert.equal(first.status, 404);
  assert.equal(problemIn(first).detail, "there is no such shop");
  assertReplay(first, await send(url, refused));
  const failed = { key: randomUUID(), body: {} };
  thrown.push(ofClient);
  assert.equal((await send(url, failed)).status, 500);
  assert.equal((await send(url, failed)).status, 201);
});

test("what express and its parser refuse keeps its status", async () => {
  const app = express();
  app.post("/parsed", express.json(), echo);
  app.post(PATH, echo);
  const url = await listen(app);
  const post = async (path: string): Promise<number> => {
    const headers = { "content-type": "application/json" };
    return (await fetch(url + path, { method: "POST", headers, body: "{" })).status;
  };
  assert.deepEqual([await post("/parsed"), await post("/shops/%ff/orders")], [400, 400]);
});

test("a route whose template is not known needs an operation", async () => {
  const app = express();
  app.use(hapax(pool, options), echo);
  const refused = await send(await listen(app), { key: randomUUID(), body: {} });
  assert.equal(refused.status, 500);
  assert.match(
    String(failures.at(-1)?.problem.options.cause),
    /install hapax on the route itself, or pass/,
  );
});

test("a missing tenant and an unknown profile are refused at the start", () => {
  assert.throws(() => hapax(pool, {} as never), /hapax needs a tenant: pass \{ tenant/);
  assert.throws(
    () => hapax(pool, { tenant: "demo", profile: "other" as never }),
    /there is no profile other/,
  );
  assert.throws(() => hapax({} as never, options), /hapax needs a Pool of pg/);
});

test("the profiles are those of the SQL contract", async () => {
  for (const profile of Object.values(PROFILES)) {
    const { rows } = await pool.query<Record<string, unknown>>(
      "SELECT *, extract(epoch FROM min_retention)::integer * 1000 AS min_ms FROM hapax.profile($1)",
      [profile.name],
    );
    const row = rows[0] ?? assert.fail(profile.name);
    const { codes } = profile;
    assert.deepEqual(
      [
        row.fingerprint_mode,
        row.mismatch_status,
        row.marks_replay,
        row.requires_key_for_post,
        row.needs_uuid_v7,
      ],
      [
        profile.fingerprint,
        profile.mismatchStatus,
        profile.marksReplays,
        profile.postNeedsKey,
        profile.uuidV7,
      ],
    );
    assert.deepEqual(
      [
        row.releases_failures,
        row.refuses_expired,
        row.says_retry_after,
        !row.key_required,
        row.min_ms,
      ],
      [
        profile.releasesFailures,
        profile.refusesExpired,
        profile.saysRetryAfter,
        profile.keyOptional,
        profile.retentionMinMs,
      ],
    );
    assert.deepEqual(
      [row.missing_code, row.mismatch_code, row.in_progress_code, row.expired_code].map(
        (code) => code ?? undefined,
      ),
      [codes.missing, codes.mismatch, codes.inProgress, codes.expired],
    );
    assert.equal(row.stores === "successes", profile.successesOnly);
  }
});
