import { postgresJs } from "hapax/postgres-js";
import postgres from "postgres";
import { CONNECTIONS } from "../shop.mjs";

export function open(url) {
  // Without prepared statements, the service also works through a pooler in transaction mode.
  const sql = postgres(url, { max: CONNECTIONS, prepare: false, onnotice: () => undefined });
  return {
    database: postgresJs(sql),
    insert: (tx, row) => tx`INSERT INTO shop_order ${tx(row, "id", "tenant", "item", "amount")}`,
  };
}
