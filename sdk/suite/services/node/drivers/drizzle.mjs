import { drizzle as drizzleOn } from "drizzle-orm/node-postgres";
import { bigint, pgTable, text } from "drizzle-orm/pg-core";
import { drizzle } from "hapax/drizzle";
import { openPool } from "../shop.mjs";

const orders = pgTable("shop_order", {
  id: text().primaryKey(),
  tenant: text().notNull(),
  item: text().notNull(),
  amount: bigint({ mode: "number" }).notNull(),
});

export function open(url) {
  return {
    database: drizzle(drizzleOn(openPool(url))),
    insert: (tx, row) => tx.insert(orders).values(row),
  };
}
