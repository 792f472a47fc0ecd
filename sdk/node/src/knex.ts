/** Transactions of Knex, on PostgreSQL. */
import type { Knex } from "knex";
import type { Database, Row, Session } from "./core/database.js";
import { UsageError } from "./core/errors.js";
import { Joined } from "./core/joined.js";

/** Presents an instance of Knex as a database. */
export function knex(instance: Knex): Database<Knex.Transaction> {
  if (instance.isTransaction) {
    throw new UsageError(
      "hapax needs an instance of Knex, because each request has its own transaction, and it was " +
        'passed a Transaction: pass knex({ client: "pg", connection })',
    );
  }
  return {
    driver: "knex",
    transaction: (work) =>
      instance.transaction((trx) => work(sessionOf(trx)), {
        isolationLevel: "read committed",
      }),
  };
}

/** Joins a transaction of Knex. */
export function join(trx: Knex.Transaction): Joined<Knex.Transaction> {
  if (!trx.isTransaction) {
    throw new UsageError(
      "join needs a Transaction, and it was passed an instance of Knex, which runs each query in a " +
        "separate transaction: call it in knex.transaction(async (trx) => ...)",
    );
  }
  return new Joined(sessionOf(trx));
}

function sessionOf(trx: Knex.Transaction): Session<Knex.Transaction> {
  return {
    client: trx,
    query: async (text, params) => {
      const statement = text.replace(/\$\d+/g, "?");
      const result = await trx.raw<{ rows: Row[] }>(statement, [...params]);
      return result.rows;
    },
  };
}
