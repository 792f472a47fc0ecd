import { kysely } from "hapax/kysely";
import { Kysely, PostgresDialect } from "kysely";
import { openPool } from "../shop.mjs";

export function open(url) {
  const db = new Kysely({ dialect: new PostgresDialect({ pool: openPool(url) }) });
  return {
    database: kysely(db),
    insert: (tx, row) => tx.insertInto("shop_order").values(row).execute(),
  };
}
