/**
 * Transactions of `postgres` (Postgres.js).
 *
 * A connection is reserved for each request. In a transaction of `sql.begin`, a statement that
 * fails rolls everything back, even if the handler has caught the error, so a refusal after a
 * failed statement could not be stored.
 */
import type { ParameterOrJSON, ReservedSql, Sql, TransactionSql } from "postgres";
import type { Database, Param, Row, Session } from "./core/database.js";
import { isConnectionError, UsageError } from "./core/errors.js";
import { Joined } from "./core/joined.js";

/** The transaction of a request: `sql` on its connection. */
export type PostgresTransaction = ReservedSql;

type AnySql = Sql | ReservedSql | TransactionSql;

/** Presents `sql` of Postgres.js as a database. */
export function postgresJs(sql: Sql): Database<PostgresTransaction> {
  if (typeof (sql as Partial<Sql>).reserve !== "function") {
    throw new UsageError(
      "hapax needs the sql of postgres(...), because each request has its own transaction, and it " +
        "was passed something else: pass sql itself, not the sql of begin or of reserve",
    );
  }
  return { driver: "postgres", transaction: (work) => transaction(sql, work) };
}

/** Joins a transaction: the `sql` of `sql.begin`, or of `sql.reserve` after BEGIN. */
export function join<Client extends ReservedSql | TransactionSql>(sql: Client): Joined<Client> {
  if (typeof (sql as { reserve?: unknown }).reserve === "function") {
    throw new UsageError(
      "join needs the sql of a transaction, and it was passed that of the pool, which runs each " +
        "query in a separate transaction: call it in sql.begin(async (sql) => ...)",
    );
  }
  return new Joined(sessionOf(sql));
}

async function transaction<Result>(
  sql: Sql,
  work: (session: Session<PostgresTransaction>) => Promise<Result>,
): Promise<Result> {
  const reserved = await sql.reserve();
  let isBroken = false;
  try {
    await reserved.unsafe("BEGIN ISOLATION LEVEL READ COMMITTED");
    const result = await work(sessionOf(reserved));
    await reserved.unsafe("COMMIT");
    return result;
  } catch (error) {
    isBroken = isConnectionError(error);
    if (!isBroken) await reserved.unsafe("ROLLBACK").catch(() => (isBroken = true));
    throw error;
  } finally {
    // The driver has taken a broken connection back already, and would write to it again.
    if (!isBroken) reserved.release();
  }
}

function sessionOf<Client extends AnySql>(sql: Client): Session<Client> {
  return {
    client: sql,
    query: async (text, params) => {
      const rows = await sql.unsafe<Row[]>(text, params.map(parameter));
      return [...rows];
    },
  };
}

function parameter(value: Param): ParameterOrJSON<never> {
  return value;
}
