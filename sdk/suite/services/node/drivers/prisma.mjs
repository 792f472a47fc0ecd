// The client is generated from ../schema.prisma when the packages are installed.
import { PrismaPg } from "@prisma/adapter-pg";
import { prisma } from "hapax/prisma";
import generated from "../prisma/index.js";
import { CONNECTIONS } from "../shop.mjs";

export function open(url) {
  const adapter = new PrismaPg(
    { connectionString: url, max: CONNECTIONS, connectionTimeoutMillis: 5_000 },
    { onConnectionError: () => undefined },
  );
  const client = new generated.PrismaClient({ adapter });
  return {
    database: prisma(client),
    insert: (tx, row) => tx.shopOrder.create({ data: { ...row, amount: BigInt(row.amount) } }),
  };
}
