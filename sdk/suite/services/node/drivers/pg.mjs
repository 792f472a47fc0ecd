import { openPool } from "../shop.mjs";

const INSERT = "INSERT INTO shop_order (id, tenant, item, amount) VALUES ($1, $2, $3, $4)";

export function open(url) {
  return {
    database: openPool(url),
    insert: (tx, { id, tenant, item, amount }) => tx.query(INSERT, [id, tenant, item, amount]),
  };
}
