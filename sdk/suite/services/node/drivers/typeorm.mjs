import { typeorm } from "hapax/typeorm";
import { DataSource, EntitySchema } from "typeorm";
import { CONNECTIONS } from "../shop.mjs";

const ShopOrder = new EntitySchema({
  name: "shop_order",
  columns: {
    id: { type: "text", primary: true },
    tenant: { type: "text" },
    item: { type: "text" },
    amount: { type: "bigint" },
  },
});

export async function open(url) {
  const source = new DataSource({
    type: "postgres",
    url,
    entities: [ShopOrder],
    extra: { max: CONNECTIONS, connectionTimeoutMillis: 5_000 },
    poolErrorHandler: () => undefined,
  });
  await source.initialize();
  return {
    database: typeorm(source),
    insert: (tx, row) => tx.insert(ShopOrder, row),
  };
}
