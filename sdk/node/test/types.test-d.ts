/** The types that a service sees. This file is compiled and never run. */
import type { Request } from "express";
import { expectTypeOf } from "expect-type";
import { Hono } from "hono";
import type { Kysely, Transaction } from "kysely";
import type { EntityManager } from "typeorm";
import type { Knex } from "knex";
import type { Database, Emitter, Joined, Options, Phases, Tx } from "hapax";
import { hapax, phased } from "hapax/express";
import { hapax as onHono } from "hapax/hono";
import { kysely, join as joinKysely } from "hapax/kysely";
import type { knex } from "hapax/knex";
import type { typeorm } from "hapax/typeorm";
import { Inbox } from "hapax/inbox";
import { phased as runPhased } from "hapax/phased";
import { pg, type PgTransaction } from "hapax/pg";
import pgDriver, { type Pool, type PoolClient } from "pg";

interface Tables {
  orders: { id: string };
}
declare const db: Kysely<Tables>;
declare const pool: Pool;
declare const client: PoolClient;

// A pool of pg is a database, also without its adapter.
hapax(pool, { tenant: (request) => String(request.headers.authorization) });
expectTypeOf(pg(pool)).toEqualTypeOf<Database<PgTransaction>>();
expectTypeOf(client).toExtend<PgTransaction>();
expectTypeOf<Request["tx"]>().toEqualTypeOf<Tx>();
expectTypeOf<Tx>().toEqualTypeOf<PgTransaction & Emitter>();
expectTypeOf<Parameters<typeof hapax>[1]>().toEqualTypeOf<Options<Request>>();

// @ts-expect-error -- a tenant is required
hapax(pool, {});
// @ts-expect-error -- a client is not a pool
pg(new pgDriver.Client());
// @ts-expect-error -- the profile is not known
hapax(pool, { tenant: "demo", profile: "other" });

// Each adapter has the transaction of its library.
expectTypeOf(kysely(db)).toEqualTypeOf<Database<Transaction<Tables>>>();
expectTypeOf<ReturnType<typeof typeorm>>().toEqualTypeOf<Database<EntityManager>>();
expectTypeOf<ReturnType<typeof knex>>().toEqualTypeOf<Database<Knex.Transaction>>();
// @ts-expect-error -- an instance of Kysely is not a transaction
joinKysely(db);
expectTypeOf(joinKysely<Tables>).returns.toEqualTypeOf<Joined<Transaction<Tables>>>();

// Hono knows the transaction of the middleware before the handler.
new Hono().post("/orders", onHono(kysely(db), { tenant: "demo" }), async (c) => {
  const tx = c.get("tx");
  expectTypeOf(tx).toEqualTypeOf<Transaction<Tables> & Emitter>();
  await tx.insertInto("orders").values({ id: "1" }).execute();
  await tx.emit("order.created", { id: "1" });
  return c.json({});
});

// The inbox passes the transaction of its database.
void new Inbox(kysely(db), { consumer: "ledger", sources: {} }).receive(
  { source: "bank", headers: {}, body: Buffer.alloc(0) },
  async (tx, message) => {
    expectTypeOf(tx).toEqualTypeOf<Transaction<Tables> & Emitter>();
    expectTypeOf(message.id).toEqualTypeOf<string>();
    await tx.selectFrom("orders").selectAll().execute();
  },
);

// Phases have the transaction of the database, and the results of the handler.
phased(pool, { tenant: "demo", leaseMs: 5_000 });
expectTypeOf<Request["phases"]>().toEqualTypeOf<Phases<PgTransaction>>();
// @ts-expect-error -- a key is always required
phased(pool, { tenant: "demo", key: "optional" });
const job = { tenant: "demo", operation: "charge", key: "k", payload: "{}" };
void runPhased(kysely(db), job, async (phases) => {
  const reserved = await phases.transaction("reserved", async (tx) => {
    expectTypeOf(tx).toEqualTypeOf<Transaction<Tables> & Emitter>();
    return tx.selectFrom("orders").selectAll().execute();
  });
  expectTypeOf(reserved).toEqualTypeOf<{ id: string }[]>();
  const charge = await phases.call("charge", async (key, signal) => {
    expectTypeOf(key).toEqualTypeOf<string>();
    expectTypeOf(signal).toEqualTypeOf<AbortSignal>();
    return { id: 1 };
  });
  expectTypeOf(charge).toEqualTypeOf<{ id: number }>();
  return { status: 201 };
});
