/** Transactions of `pg`. A pool is passed to hapax; a client with an open transaction to `join`. */
import { inTransaction, type Statement } from "./core/batch.js";
import type { Database, Row, Session } from "./core/database.js";
import { UsageError } from "./core/errors.js";
import { Joined } from "./core/joined.js";
import { APPLICATION_NAME } from "./core/limits.js";

/** The result of a statement. */
export interface PgResult<R> {
  rows: R[];
  rowCount: number | null;
}

/** A statement with its parameters. */
export interface PgQuery {
  text: string;
  values?: unknown[];
  name?: string;
}

/** The part of a client of `pg` that a handler uses. */
export interface PgTransaction {
  // eslint-disable-next-line @typescript-eslint/no-explicit-any -- as in the types of pg
  query<R extends object = any>(text: string, values?: unknown[]): Promise<PgResult<R>>;
  // eslint-disable-next-line @typescript-eslint/no-explicit-any -- as in the types of pg
  query<R extends object = any>(query: PgQuery): Promise<PgResult<R>>;
}

/** A client of a pool of `pg`. */
export interface PgClient extends PgTransaction {
  release(error?: Error | boolean): void;
  on(event: "error", listener: (error: Error) => void): unknown;
  off(event: "error", listener: (error: Error) => void): unknown;
}

/** A pool of `pg`. */
export interface PgPool {
  connect(): Promise<PgClient>;
  readonly totalCount: number;
}

/** The databases that pools were presented as: what is known of a pool is asked for once. */
const databases = new WeakMap<PgPool, Database<PgTransaction>>();

/** Presents a pool of `pg` as a database. */
export function pg(pool: PgPool): Database<PgTransaction> {
  if (!isPool(pool)) {
    throw new UsageError(
      "hapax needs a Pool of pg, because each request has its own transaction, and it was passed " +
        "something else: pass new pg.Pool({ connectionString })",
    );
  }
  const known = databases.get(pool);
  if (known) return known;
  nameConnections(pool);
  const database: Database<PgTransaction> = {
    driver: "pg",
    transaction: (work, first = []) => transaction(pool, work, first),
  };
  databases.set(pool, database);
  return database;
}

/** Names later connections whose name nobody has set. The pool passes its options to them. */
function nameConnections(pool: PgPool): void {
  const { options } = pool as { options?: { fallback_application_name?: string } };
  if (options) options.fallback_application_name ??= APPLICATION_NAME;
}

/** Joins a transaction that is open on a client. */
export function join(client: PgTransaction): Joined<PgTransaction> {
  if (isPool(client)) {
    throw new UsageError(
      "join needs the client of an open transaction, and it was passed a Pool, which runs each " +
        "statement in a separate transaction: pass the client of pool.connect() after BEGIN",
    );
  }
  return new Joined(sessionOf(client));
}

/** Whether a value is a pool of `pg`. */
export function isPool(value: unknown): value is PgPool {
  const { connect, totalCount } = (value ?? {}) as Partial<PgPool>;
  return typeof connect === "function" && typeof totalCount === "number";
}

/** A database, or the pool of `pg` that it is made of. */
export function databaseOf<Client extends object>(
  given: PgPool | Database<Client>,
): Database<Client> {
  const isDatabase =
    typeof (given as Partial<Database<Client>>).transaction === "function" && "driver" in given;
  return isDatabase ? given : (pg(given as PgPool) as unknown as Database<Client>);
}

async function transaction<Result>(
  pool: PgPool,
  work: (session: Session<PgTransaction>) => Promise<Result>,
  first: readonly Statement[],
): Promise<Result> {
  const client = await pool.connect();
  // Without a listener, a connection that breaks would end the process.
  client.on("error", ignore);
  let broken: Error | undefined;
  try {
    return await inTransaction(sessionOf(client), (message) => send(client, message), work, first);
  } catch (error) {
    await client.query("ROLLBACK").catch((failure: unknown) => {
      broken = failure instanceof Error ? failure : new Error(String(failure));
    });
    throw error;
  } finally {
    client.off("error", ignore);
    // A connection that could not roll back is closed.
    client.release(broken);
  }
}

function sessionOf(client: PgTransaction): Session<PgTransaction> {
  return {
    client,
    query: async (text, params) => (await client.query<Row>(text, [...params])).rows,
  };
}

/** Several statements have a list of results, and one has its result. */
async function send(client: PgTransaction, message: string): Promise<Row[]> {
  const results: PgResult<Row> | PgResult<Row>[] = await client.query<Row>(message);
  return [results].flat().flatMap(({ rows }) => rows);
}

function ignore(): void {
  // The statement that fails has the error.
}
