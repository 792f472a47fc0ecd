/** A scratch database with Hapax's schema and the tables of the shop. */
import { randomBytes } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import pg from "pg";

const ADMIN_URL = process.env.DATABASE_URL ?? "postgres://postgres@127.0.0.1:5432/";
/** The folder of this package, from the compiled test. */
export const PACKAGE = fileURLToPath(new URL("../../../", import.meta.url));
const MIGRATIONS =
  process.env.HAPAX_MIGRATIONS ??
  fileURLToPath(new URL("../../crates/hapax-postgres/migrations/", `file://${PACKAGE}`));
const SHOP = `
  CREATE TABLE orders (id text PRIMARY KEY, tenant text NOT NULL, item text NOT NULL,
    amount integer NOT NULL CHECK (amount > 0));
  CREATE TABLE ledger (message_id text NOT NULL, amount integer NOT NULL);
`;

export interface Scratch {
  url: string;
  /** A pool for the assertions of a test. */
  pool: pg.Pool;
  count(table: string): Promise<number>;
  drop(): Promise<void>;
}

/** Creates a database, with the migrations whose names come before `end`. */
export async function scratch(end = "~"): Promise<Scratch> {
  const name = `hapax_node_${process.pid}_${randomBytes(4).toString("hex")}`;
  await administer(`CREATE DATABASE ${name}`);
  const url = new URL(ADMIN_URL);
  url.pathname = `/${name}`;
  const pool = new pg.Pool({ connectionString: url.href, max: 4 });
  pool.on("error", () => undefined);
  await migrate(pool, end);
  await pool.query(SHOP);
  return {
    url: url.href,
    pool,
    count: async (table) => {
      const { rows } = await pool.query<{ n: string }>(`SELECT count(*) AS n FROM ${table}`);
      return Number(rows[0]?.n);
    },
    drop: async () => {
      await pool.end();
      await administer(`DROP DATABASE ${name} WITH (FORCE)`);
    },
  };
}

async function migrate(pool: pg.Pool, end: string): Promise<void> {
  const files = readdirSync(MIGRATIONS).filter((file) => file.endsWith(".sql") && file < end);
  await pool.query("CREATE SCHEMA hapax");
  for (const file of files.sort()) {
    await pool.query(readFileSync(new URL(file, `file://${MIGRATIONS}/`), "utf8"));
  }
}

async function administer(statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: ADMIN_URL });
  await client.connect();
  try {
    await client.query(statement);
  } finally {
    await client.end();
  }
}
