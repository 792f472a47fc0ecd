/** The complete problems of the vectors, from a service with express. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { AddressInfo } from "node:net";
import express from "express";
import { hapax, problems } from "hapax/express";
import type { ProfileName } from "hapax";
import pg from "pg";
import { readResponse, type TestResponse } from "hapax/testing";
import { scratch, type Scratch } from "./support/database.js";
import { casesOf } from "./support/vectors.js";

const KEY = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f";
const COMPARED = ["content-type", "retry-after", "idempotency-key", "idempotency-status"];

interface Input {
  situation: string;
  profile: ProfileName;
}
interface Expect {
  status: number;
  headers: Record<string, string>;
  body: string;
}

let db: Scratch;
let pool: pg.Pool;
/** A database that does not exist. */
let absent: pg.Pool;

before(async () => {
  db = await scratch();
  pool = new pg.Pool({ connectionString: db.url });
  absent = new pg.Pool({ connectionString: `${db.url}_absent` });
});
after(async () => {
  await pool.end();
  await absent.end();
  await db.drop();
});

for (const { name, input, expect } of casesOf<Input, Expect>("problems")) {
  test(name, async () => {
    await db.pool.query("DELETE FROM hapax.idempotency_key");
    const { status, headers, body } = await respond(input);
    const compared = COMPARED.filter((each) => headers[each] !== undefined);
    const shown = Object.fromEntries(compared.map((each) => [each, headers[each]]));
    assert.deepEqual({ status, headers: shown, body: body.toString() }, expect);
  });
}

interface Sent {
  keys?: string[];
  body?: string;
  contentType?: string;
}

const SENT: Record<string, Sent> = {
  "key missing": { keys: [] },
  "key twice": { keys: ["k", "k"] },
  "key with a space": { keys: ["a b"] },
  "key reserved": { keys: ["derived:a"] },
  "key not a UUID v7": { keys: ["k"] },
  "JSON cut off": { body: '{"a":' },
  "JSON with a duplicate member": { body: '{"a":1,"a":2}' },
  "JSON nested too deep": { body: "[".repeat(129) },
  "JSON with too many members": {
    body: `{${Array.from({ length: 10_001 }, (_, at) => `"m${at}":0`).join(",")}}`,
  },
  "multipart without a boundary": { contentType: "multipart/form-data", body: "--a--" },
};

async function respond({ situation, profile }: Input): Promise<TestResponse> {
  const sent = { keys: [KEY], body: "{}", contentType: "application/json", ...SENT[situation] };
  const isUnavailable = situation === "store unavailable";
  const service = await start(isUnavailable ? absent : pool, { situation, profile });
  try {
    if (situation === "mismatch") await post(service.url, { ...sent, body: '{"other":1}' });
    if (situation === "expired") await post(service.url, sent);
    if (situation === "expired") {
      await db.pool.query(
        "UPDATE hapax.idempotency_key SET expires_at = now() - interval '1 second'",
      );
    }
    if (situation !== "in progress") return await post(service.url, sent);
    const first = post(service.url, sent);
    await service.started;
    const second = await post(service.url, sent);
    service.finish();
    await first;
    return second;
  } finally {
    service.finish();
    await service.stop();
  }
}

async function start(database: pg.Pool, { situation, profile }: Input) {
  let finish!: () => void;
  let begin!: () => void;
  const finished = new Promise<void>((resolve) => (finish = resolve));
  const started = new Promise<void>((resolve) => (begin = resolve));
  const app = express();
  const options = {
    tenant: "demo",
    profile,
    waitMs: 0,
    key: "required" as const,
    onExpired: "gone" as const,
    onError: () => undefined,
    handlerMs: situation === "handler takes too long" ? 50 : 30_000,
    onFailure: situation.endsWith("stored") ? ("store" as const) : ("release" as const),
  };
  app.post("/orders", hapax(database, options), async (_req, res) => {
    begin();
    if (situation.startsWith("handler fails")) throw new Error("it fails");
    if (situation === "handler takes too long" || situation === "in progress") await finished;
    res.status(201).json({});
  });
  app.use(problems({ onError: () => undefined }));
  const server = app.listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}/orders`,
    started,
    finish,
    stop: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

async function post(
  url: string,
  { keys = [], body = "", contentType = "" }: Sent,
): Promise<TestResponse> {
  const lines = keys.map((key): [string, string] => ["idempotency-key", key]);
  const { request } = await import("node:http");
  return new Promise((resolve, reject) => {
    const headers = ["content-type", contentType, "x-request-id", "req-1", ...lines.flat()];
    headers.push("content-length", String(Buffer.byteLength(body)), "host", "127.0.0.1");
    const sent = request(url, { method: "POST", headers: headers }, (response) => {
      const chunks: Buffer[] = [];
      response.on("data", (chunk: Buffer) => chunks.push(chunk));
      response.on("end", () => {
        const web = new Response(null, {
          status: 200,
          headers: response.headers as Record<string, string>,
        });
        void readResponse(web).then(({ headers: read }) =>
          resolve({
            status: response.statusCode ?? 0,
            headers: read,
            body: Buffer.concat(chunks),
          }),
        );
      });
    });
    sent.on("error", reject);
    sent.end(body);
  });
}
