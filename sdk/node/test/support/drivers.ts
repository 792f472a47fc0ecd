/** Each driver and ORM, as a service would use it. */
import { createRequire } from "node:module";
import { PrismaPg } from "@prisma/adapter-pg";
import { integer, pgTable, text } from "drizzle-orm/pg-core";
import { drizzle as drizzleOn } from "drizzle-orm/node-postgres";
import { drizzle as drizzleOnPostgresJs } from "drizzle-orm/postgres-js";
import type { Database, Joined } from "hapax";
import { drizzle, join as joinDrizzle } from "hapax/drizzle";
import { join as joinKnex, knex } from "hapax/knex";
import { join as joinKysely, kysely } from "hapax/kysely";
import { join as joinPg, pg as presentPg, type PgPool, type PgTransaction } from "hapax/pg";
import { join as joinPostgresJs, postgresJs, type PostgresTransaction } from "hapax/postgres-js";
import { join as joinPrisma, prisma } from "hapax/prisma";
import { join as joinTypeorm, typeorm } from "hapax/typeorm";
import knexOn, { type Knex } from "knex";
import { Kysely, PostgresDialect, type Transaction } from "kysely";
import pg from "pg";
import postgres from "postgres";
import { DataSource, EntitySchema, type EntityManager } from "typeorm";
import type { Insert } from "./shop.js";

// eslint-disable-next-line @typescript-eslint/no-explicit-any -- each driver has its own transaction
type Any = any;

export interface Opened {
  database: PgPool | Database<Any>;
  insert: Insert<Any>;
  /** Passes the pool where a transaction is needed. */
  joinPool(): unknown;
  /** Runs work in a transaction of the service's own. */
  joined(work: (tx: Joined<Any>) => Promise<void>): Promise<unknown>;
  /** Passes a transaction where the pool is needed. */
  databaseOfTransaction(): Promise<unknown>;
  close(): Promise<void>;
}

export type Driver = (url: string) => Promise<Opened>;

const INSERT = "INSERT INTO orders (id, tenant, item, amount) VALUES ($1, 'demo', $2, $3)";
const MAX = 10;

function openPool(url: string): pg.Pool {
  const pool = new pg.Pool({ connectionString: url, max: MAX });
  // As in every service with a pool of pg: a connection that breaks must not end the process.
  pool.on("error", () => undefined);
  pool.on("connect", (client) => client.on("error", () => undefined));
  return pool;
}

export const openPg: Driver = async (url) => {
  const pool = openPool(url);
  return {
    database: pool,
    insert: (tx: PgTransaction, id, item, amount) => tx.query(INSERT, [id, item, amount]),
    joinPool: () => joinPg(pool),
    joined: async (work) => {
      const client = await pool.connect();
      try {
        await client.query("BEGIN");
        await work(joinPg(client));
        await client.query("COMMIT");
      } catch (error) {
        await client.query("ROLLBACK");
        throw error;
      } finally {
        client.release();
      }
    },
    databaseOfTransaction: async () => presentPg(new pg.Client(url) as Any),
    close: () => pool.end(),
  };
};

const openPostgresJsWith = async (url: string, prepare: boolean): Promise<Opened> => {
  const sql = postgres(url, { max: MAX, prepare, onnotice: () => undefined });
  return {
    database: postgresJs(sql),
    insert: (tx: PostgresTransaction, id, item, amount) =>
      tx`INSERT INTO orders ${tx({ id, tenant: "demo", item, amount })}`,
    joinPool: () => joinPostgresJs(sql as Any),
    joined: (work) => sql.begin((tx) => work(joinPostgresJs(tx))),
    databaseOfTransaction: () => sql.begin((tx) => postgresJs(tx as Any)),
    close: () => sql.end({ timeout: 1 }),
  };
};

export const openPostgresJs: Driver = (url) => openPostgresJsWith(url, true);
/** Without prepared statements, as with a pooler in transaction mode. */
export const openPostgresJsUnprepared: Driver = (url) => openPostgresJsWith(url, false);

interface Tables {
  orders: { id: string; tenant: string; item: string; amount: number };
}

export const openKysely: Driver = async (url) => {
  const db = new Kysely<Tables>({ dialect: new PostgresDialect({ pool: openPool(url) }) });
  return {
    database: kysely(db),
    insert: (tx: Transaction<Tables>, id, item, amount) =>
      tx.insertInto("orders").values({ id, tenant: "demo", item, amount }).execute(),
    joinPool: () => joinKysely(db as Any),
    joined: (work) => db.transaction().execute((tx) => work(joinKysely(tx))),
    databaseOfTransaction: () => db.transaction().execute(async (tx) => kysely(tx as Any)),
    close: () => db.destroy(),
  };
};

const orders = pgTable("orders", {
  id: text().primaryKey(),
  tenant: text().notNull(),
  item: text().notNull(),
  amount: integer().notNull(),
});

function openDrizzle(db: Any, close: () => Promise<void>): Opened {
  return {
    database: drizzle(db),
    insert: (tx, id, item, amount) =>
      tx.insert(orders).values({ id, tenant: "demo", item, amount }),
    joinPool: () => joinDrizzle(db),
    joined: (work) => db.transaction((tx: Any) => work(joinDrizzle(tx))),
    databaseOfTransaction: () => db.transaction(async (tx: Any) => drizzle(tx)),
    close,
  };
}

export const openDrizzlePg: Driver = async (url) => {
  const pool = openPool(url);
  return openDrizzle(drizzleOn(pool), () => pool.end());
};

export const openDrizzlePostgresJs: Driver = async (url) => {
  // Without prepared statements, as with a pooler in transaction mode.
  const sql = postgres(url, { max: MAX, prepare: false, onnotice: () => undefined });
  return openDrizzle(drizzleOnPostgresJs(sql), () => sql.end({ timeout: 1 }));
};

export const openPrisma: Driver = async (url) => {
  const generated = createRequire(import.meta.url)("../../prisma/index.js");
  const adapter = new PrismaPg(
    { connectionString: url, max: MAX },
    { onConnectionError: () => undefined },
  );
  const client = new generated.PrismaClient({ adapter });
  return {
    database: prisma<Any>(client),
    insert: (tx, id, item, amount) =>
      tx.orders.create({ data: { id, tenant: "demo", item, amount } }),
    joinPool: () => joinPrisma(client),
    joined: (work) => client.$transaction((tx: Any) => work(joinPrisma(tx))),
    databaseOfTransaction: () => client.$transaction(async (tx: Any) => prisma(tx)),
    close: () => client.$disconnect(),
  };
};

const Order = new EntitySchema<Tables["orders"]>({
  name: "orders",
  columns: {
    id: { type: "text", primary: true },
    tenant: { type: "text" },
    item: { type: "text" },
    amount: { type: "integer" },
  },
});

export const openTypeorm: Driver = async (url) => {
  const source = new DataSource({
    type: "postgres",
    url,
    entities: [Order],
    extra: { max: MAX },
    poolErrorHandler: () => undefined,
  });
  await source.initialize();
  return {
    database: typeorm(source),
    insert: (tx: EntityManager, id, item, amount) =>
      tx.insert(Order, { id, tenant: "demo", item, amount }),
    joinPool: () => joinTypeorm(source.manager),
    joined: (work) => source.transaction((manager) => work(joinTypeorm(manager))),
    databaseOfTransaction: () => source.transaction(async (manager) => typeorm(manager as Any)),
    close: () => source.destroy(),
  };
};

export const openKnex: Driver = async (url) => {
  const db = knexOn({ client: "pg", connection: url, pool: { min: 0, max: MAX } });
  return {
    database: knex(db),
    insert: (tx: Knex.Transaction, id, item, amount) =>
      tx("orders").insert({ id, tenant: "demo", item, amount }),
    joinPool: () => joinKnex(db as Any),
    joined: (work) => db.transaction((tx) => work(joinKnex(tx))),
    databaseOfTransaction: () => db.transaction(async (tx) => knex(tx)),
    close: () => db.destroy(),
  };
};
