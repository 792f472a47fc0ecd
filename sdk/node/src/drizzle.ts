/** Transactions of Drizzle, on `pg` or `postgres`. */
import { sql, type SQL } from "drizzle-orm";
import type { Database, Param, Row, Session } from "./core/database.js";
import { UsageError } from "./core/errors.js";
import { Joined } from "./core/joined.js";

/** The part of a transaction of Drizzle that the package uses. */
export interface DrizzleTransaction {
  execute(query: SQL): PromiseLike<unknown>;
  rollback(): never;
  transaction<Result>(work: (nested: never) => Promise<Result>): Promise<Result>;
}

/** A database of Drizzle, whose transactions have the type `Client`. */
export interface DrizzleDatabase<Client extends DrizzleTransaction> {
  transaction<Result>(
    work: (tx: Client) => Promise<Result>,
    config?: { isolationLevel?: "read committed" },
  ): Promise<Result>;
}

/** Presents a database of Drizzle. */
export function drizzle<Client extends DrizzleTransaction>(
  db: DrizzleDatabase<Client>,
): Database<Client> {
  if (isTransaction(db)) {
    throw new UsageError(
      "hapax needs a database of Drizzle, because each request has its own transaction, and it was " +
        "passed a transaction: pass drizzle(pool)",
    );
  }
  return {
    driver: "drizzle",
    transaction: (work) =>
      db.transaction((tx) => work(isPostgresJs(db) ? nesting(tx) : sessionOf(tx)), {
        isolationLevel: "read committed",
      }),
  };
}

/** Joins a transaction of Drizzle. */
export function join<Client extends DrizzleTransaction>(tx: Client): Joined<Client> {
  if (!isTransaction(tx)) {
    throw new UsageError(
      "join needs a transaction, and it was passed a database of Drizzle, which runs each query in a " +
        "separate transaction: call it in db.transaction(async (tx) => ...)",
    );
  }
  return new Joined(sessionOf(tx));
}

function isTransaction(value: unknown): boolean {
  return typeof (value as { rollback?: unknown } | null)?.rollback === "function";
}

/**
 * With `postgres`, a statement that fails rolls its transaction or savepoint back, even if the
 * handler has caught the error. So the handler gets a savepoint of Drizzle.
 */
function nesting<Client extends DrizzleTransaction>(tx: Client): Session<Client> {
  return {
    ...sessionOf(tx),
    savepoint: (work) => tx.transaction(work),
  };
}

function isPostgresJs(db: unknown): boolean {
  return typeof (db as { $client?: { begin?: unknown } }).$client?.begin === "function";
}

function sessionOf<Client extends DrizzleTransaction>(tx: Client): Session<Client> {
  return {
    client: tx,
    query: async (text, params) => {
      const result = await tx.execute(statement(text, params));
      // An array with `postgres`, and an object with rows with `pg`.
      return (Array.isArray(result) ? result : (result as { rows: Row[] }).rows) as Row[];
    },
  };
}

/** Splits a statement at its parameters. */
function statement(text: string, params: readonly Param[]): SQL {
  const parts = text.split(/\$\d+/);
  return sql(Object.assign(parts, { raw: parts }) as TemplateStringsArray, ...params);
}
