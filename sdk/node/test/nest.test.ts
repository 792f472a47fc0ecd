/** What is particular to Nest: bodies that its parsers have read or refused, on both platforms. */
import "reflect-metadata";
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import type { AddressInfo } from "node:net";
import type { Server } from "node:http";
import { after, before, describe, test } from "node:test";
import {
  BadRequestException,
  Body,
  Controller,
  Module,
  Post,
  UseInterceptors,
  type INestApplication,
} from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { FastifyAdapter } from "@nestjs/platform-fastify";
import { hapax, Problems } from "hapax/nest";
import type { TestResponse } from "hapax/testing";
import pg from "pg";
import { scratch, type Scratch } from "./support/database.js";
import { problemIn, send } from "./support/http.js";

const TEXT = { "content-type": "text/plain; charset=utf-8" };
/** The limit of hapax, lower than those that the parsers of both platforms have by default. */
const BYTES_MAX = 50_000;
/** The fingerprints of one text on both platforms. */
const fingerprints: Buffer[] = [];

let db: Scratch;
let pool: pg.Pool;

before(async () => {
  db = await scratch();
  pool = new pg.Pool({ connectionString: db.url });
});
after(async () => {
  await pool.end();
  await db.drop();
});

function appModule(): new () => object {
  const protect = hapax(pool, {
    tenant: "demo",
    bodyBytesMax: BYTES_MAX,
    onError: () => undefined,
  });

  @Controller("shops")
  class Orders {
    @Post(":shop/orders")
    @UseInterceptors(protect)
    create(@Body() body: { id?: string } | string | undefined): object {
      if (typeof body !== "object") throw new BadRequestException("an order is JSON");
      return { id: body.id };
    }

    @Post(":shop/notes")
    @UseInterceptors(protect)
    note(): object {
      return { at: randomUUID() };
    }
  }

  @Module({ controllers: [Orders] })
  class App {}
  return App;
}

const options = { rawBody: true, logger: false } as const;
const platforms: Record<string, () => Promise<INestApplication>> = {
  express: () => NestFactory.create(appModule(), options),
  fastify: () => NestFactory.create(appModule(), new FastifyAdapter(), options),
};

for (const [name, create] of Object.entries(platforms)) {
  describe(`nest on ${name}`, () => {
    let app: INestApplication;
    let url: string;

    before(async () => {
      app = await create();
      app.useGlobalFilters(new Problems());
      await app.listen(0, "127.0.0.1");
      const { port } = (app.getHttpServer() as Server).address() as AddressInfo;
      url = `http://127.0.0.1:${port}`;
    });
    after(async () => {
      (app.getHttpServer() as Server).closeAllConnections();
      await app.close();
    });

    const note = async (key: string, body: string | Uint8Array): Promise<TestResponse> => {
      const headers = { ...TEXT, "idempotency-key": key };
      const response = await fetch(`${url}/shops/one/notes`, { method: "POST", headers, body });
      const { status, headers: lines } = response;
      return {
        status,
        headers: Object.fromEntries(lines),
        body: Buffer.from(await response.arrayBuffer()),
      };
    };

    test("the same body as a text is another request", async () => {
      const sent = { key: randomUUID(), body: { id: "a" } };
      assert.equal((await send(url, sent)).status, 201);
      const other = await send(url, { ...sent, headers: TEXT });
      assert.equal(other.status, 409, other.body.toString());
      assert.equal(problemIn(other).code, "CONFLICT.idempotency.payload_mismatch");
    });

    test("a text reaches the handler, whose refusal releases the key", async () => {
      const sent = { key: randomUUID(), body: { id: "a" } };
      const refused = await send(url, { ...sent, headers: TEXT });
      assert.equal(refused.status, 400, refused.body.toString());
      assert.equal(problemIn(refused).detail, "an order is JSON");
      assert.equal((await send(url, sent)).status, 201);
    });

    test("a text is compared byte for byte", async () => {
      const key = randomUUID();
      const first = await note(key, "caf\u00e9");
      assert.equal(first.headers["idempotency-status"], "stored", first.body.toString());
      const retry = await note(key, "caf\u00e9");
      assert.equal(retry.headers["idempotency-status"], "replayed");
      assert.deepEqual(retry.body, first.body);
      for (const other of ["cafe\u0301", "\ufeffcaf\u00e9", "caf\u00e9 "]) {
        assert.equal((await note(key, other)).status, 409);
      }
      const { rows } = await db.pool.query<{ fingerprint: Buffer }>(
        "SELECT fingerprint FROM hapax.idempotency_key WHERE key = $1",
        [key],
      );
      fingerprints.push(...rows.map(({ fingerprint }) => fingerprint));
    });

    test("two texts that are not UTF-8 are never taken for one", async () => {
      const key = randomUUID();
      const first = await note(key, Uint8Array.of(0xff));
      const other = await note(key, Uint8Array.of(0xfe));
      // Fastify has decoded them to the same text, so they are refused.
      const expected = name === "fastify" ? [400, 400] : [201, 409];
      assert.deepEqual([first.status, other.status], expected, first.body.toString());
      if (name === "fastify") assert.equal(problemIn(first).code, "VALIDATION.request");
    });

    test("a body over the limit of the parser, or over that of hapax, is too large", async () => {
      const bodies: [string, Record<string, string>][] = [
        [" ".repeat(1024 * 1024 + 1), {}],
        [" ".repeat(BYTES_MAX + 1), TEXT],
      ];
      for (const [body, headers] of bodies) {
        const key = randomUUID();
        const refused = await send(url, { key, body, headers });
        assert.equal(refused.status, 413, refused.body.toString());
        assert.equal(problemIn(refused).code, "VALIDATION.body.too_large");
        assert.equal(await db.count(`hapax.idempotency_key WHERE key = '${key}'`), 0);
      }
    });

    test("what the parser refuses otherwise is the client's mistake", async () => {
      const latin = { "content-type": "application/json; charset=latin1" };
      const charset = await send(url, { key: randomUUID(), body: { id: "a" }, headers: latin });
      // Fastify ignores the charset of JSON.
      assert.equal(charset.status, name === "express" ? 415 : 201, charset.body.toString());
      if (name === "express") assert.equal(problemIn(charset).code, "VALIDATION.content_type");
      const id = "req-1";
      const headers = { "x-request-id": id };
      const cut = await send(url, { key: randomUUID(), body: '{"id":', headers });
      assert.deepEqual([cut.status, problemIn(cut).request_id], [400, id]);
    });
  });
}

test("a text has the same fingerprint on both platforms", () => {
  const [onExpress, onFastify] = fingerprints;
  assert.equal(fingerprints.length, 2);
  assert.deepEqual(onExpress, onFastify);
});
