import { knex } from "hapax/knex";
import knexOn from "knex";
import { CONNECTIONS } from "../shop.mjs";

export function open(url) {
  const db = knexOn({
    client: "pg",
    connection: url,
    pool: { min: 0, max: CONNECTIONS },
    acquireConnectionTimeout: 5_000,
  });
  return {
    database: knex(db),
    insert: (tx, row) => tx("shop_order").insert(row),
  };
}
