/** Transactions of Kysely, on PostgreSQL. */
import { CompiledQuery, type Kysely, type Transaction } from "kysely";
import type { Database, Row, Session } from "./core/database.js";
import { UsageError } from "./core/errors.js";
import { Joined } from "./core/joined.js";

/** Presents an instance of Kysely as a database. */
export function kysely<Tables>(db: Kysely<Tables>): Database<Transaction<Tables>> {
  if (db.isTransaction) {
    throw new UsageError(
      "hapax needs an instance of Kysely, because each request has its own transaction, and it was " +
        "passed a Transaction: pass new Kysely({ dialect: new PostgresDialect({ pool }) })",
    );
  }
  return {
    driver: "kysely",
    transaction: (work) =>
      db
        .transaction()
        .setIsolationLevel("read committed")
        .execute((trx) => work(sessionOf(trx))),
  };
}

/** Joins a transaction of Kysely. */
export function join<Tables>(trx: Transaction<Tables>): Joined<Transaction<Tables>> {
  if (!(trx as Kysely<Tables>).isTransaction) {
    throw new UsageError(
      "join needs a Transaction, and it was passed an instance of Kysely, which runs each query in a " +
        "separate transaction: call it in db.transaction().execute(async (trx) => ...)",
    );
  }
  return new Joined(sessionOf(trx));
}

function sessionOf<Tables>(trx: Transaction<Tables>): Session<Transaction<Tables>> {
  return {
    client: trx,
    query: async (text, params) => {
      const { rows } = await trx.executeQuery(CompiledQuery.raw(text, [...params]));
      return rows as Row[];
    },
  };
}
