/** Transactions of `pg`. A pool is passed to hapax; a client with an open transaction to `join`. */
import type { Database, Row, Session } from "./core/database.js";
import { UsageError } from "./core/errors.js";
import { Joined } from "./core/joined.js";

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

/** Presents a pool of `pg` as a database. */
export function pg(pool: PgPool): Database<PgTransaction> {
  if (!isPool(pool)) {
    throw new UsageError(
      "hapax needs a Pool of pg, because each request has its own transaction, and it was passed " +
        "something else: pass new pg.Pool({ connectionString })",
    );
  }
  return { driver: "pg", transaction: (work) => transaction(pool, work) };
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
): Promise<Result> {
  const client = await pool.connect();
  // Without a listener, a connection that breaks would end the process.
  client.on("error", ignore);
  let broken: Error | undefined;
  try {
    await client.query("BEGIN ISOLATION LEVEL READ COMMITTED");
    const result = await work(sessionOf(client));
    await client.query("COMMIT");
    return result;
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

function ignore(): void {
  // The statement that fails has the error.
}
