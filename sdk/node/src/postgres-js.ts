/**
 * Transactions of `postgres` (Postgres.js).
 *
 * A connection is reserved for each request. In a transaction of `sql.begin`, a statement that
 * fails rolls everything back, even if the handler has caught the error, so a refusal after a
 * failed statement could not be stored.
 *
 * The driver does not notice that a reserved connection is closed: it would write to a socket that
 * is gone, which ends the process, or to a connection that it has opened for another request.
 */
import type {
  ParameterOrJSON,
  ReservedSql,
  Sql,
  TransactionSql,
  UnsafeQueryOptions,
} from "postgres";
import { inTransaction, type Statement } from "./core/batch.js";
import type { Database, Param, Row, Session } from "./core/database.js";
import { isConnectionError, UsageError } from "./core/errors.js";
import { Joined } from "./core/joined.js";
import { APPLICATION_NAME } from "./core/limits.js";

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
  nameConnections(sql);
  return {
    driver: "postgres",
    transaction: (work, first = []) => transaction(sql, work, first),
  };
}

/** Names later connections that have the name of the driver, because nobody has set another. */
function nameConnections({ options }: Sql): void {
  const { connection } = options;
  if (connection.application_name === "postgres.js") connection.application_name = APPLICATION_NAME;
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
  first: readonly Statement[],
): Promise<Result> {
  const reserved = await sql.reserve();
  const line: Line = {};
  const guarded = guard(reserved, line);
  let isBroken = false;
  try {
    return await inTransaction(
      sessionOf(guarded),
      (message) => send(guarded, message, line),
      work,
      first,
    );
  } catch (error) {
    isBroken = isConnectionError(error) || isFatal(error);
    if (!isBroken && !line.closed) await reserved.unsafe("ROLLBACK").catch(() => (isBroken = true));
    throw error;
  } finally {
    // The driver takes a broken connection back by itself, and would write to it again.
    if (!isBroken && !line.closed) {
      if (line.connection) line.connection.onclose = null;
      reserved.release();
    }
  }
}

/** The connection of a transaction. */
interface Line {
  /** The driver's own object, which is known after the first message. */
  connection?: { onclose: ((error: Error) => void) | null };
  /** Why it is closed. */
  closed?: Error;
}

/** The `sql` of a reserved connection, which throws as soon as the connection is closed. */
function guard(sql: ReservedSql, line: Line): ReservedSql {
  const call = (method: Call, args: unknown[]): unknown => {
    if (line.closed) throw line.closed;
    return Reflect.apply(method, sql, args);
  };
  return new Proxy(sql, {
    get: (target, name) => {
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function"
        ? (...args: unknown[]) => call(value as Call, args)
        : value;
    },
    apply: (target, _self, args: unknown[]) => call(target, args),
  });
}

type Call = (...args: unknown[]) => unknown;

/** Whether the server has ended the session, and closes the connection. */
function isFatal(error: unknown): boolean {
  return (error as { severity?: unknown } | null)?.severity === "FATAL";
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

/** Several statements may have a list of results, and one has its rows. */
async function send(sql: ReservedSql, message: string, line: Line): Promise<Row[]> {
  // As in the driver's own `begin`: the connection is told to report that it is closed.
  const onexecute = (connection: NonNullable<Line["connection"]>): boolean => {
    line.connection = connection;
    connection.onclose = (error) => (line.closed = error);
    return true;
  };
  const options = { onexecute } as UnsafeQueryOptions;
  const results = await sql.unsafe<(Row | Row[])[]>(message, [], options);
  return [...results].flat();
}

function parameter(value: Param): ParameterOrJSON<never> {
  return value;
}
