/** Transactions of TypeORM, on PostgreSQL. */
import type { DataSource, EntityManager } from "typeorm";
import type { Database, Row, Session } from "./core/database.js";
import { UsageError } from "./core/errors.js";
import { Joined } from "./core/joined.js";

/** Presents a data source of TypeORM as a database. */
export function typeorm(source: DataSource): Database<EntityManager> {
  if (typeof (source as Partial<DataSource>).createQueryRunner !== "function") {
    throw new UsageError(
      "hapax needs a DataSource, because each request has its own transaction, and it was passed " +
        "something else: pass the initialized DataSource, not an EntityManager",
    );
  }
  return {
    driver: "typeorm",
    transaction: (work) =>
      source.transaction("READ COMMITTED", (manager) => work(sessionOf(manager))),
  };
}

/** Joins a transaction of TypeORM. */
export function join(manager: EntityManager): Joined<EntityManager> {
  if (!manager.queryRunner?.isTransactionActive) {
    throw new UsageError(
      "join needs the EntityManager of an open transaction, and it was passed one that runs each " +
        "query in a separate transaction: call it in dataSource.transaction(async (manager) => ...)",
    );
  }
  return new Joined(sessionOf(manager));
}

function sessionOf(manager: EntityManager): Session<EntityManager> {
  return {
    client: manager,
    query: async (text, params) =>
      (await manager.query<Row[] | undefined>(text, [...params])) ?? [],
  };
}
