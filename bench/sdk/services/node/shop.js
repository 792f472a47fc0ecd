// What the services have in common: their settings, the pool and the statement of an order.
import pg from "pg";

export const variant = process.env.VARIANT;
export const port = Number(process.env.PORT);
export const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL, max: 8 });

const INSERT = "INSERT INTO orders (item, amount) VALUES ($1, $2) RETURNING id, item, amount";

/** Inserts an order. Outside of a transaction, the statement is its own commit. */
export async function insert(client, { item, amount }) {
  const { rows } = await client.query(INSERT, [item, amount]);
  return rows[0];
}

/** Emits the event of an order, in the variant that has one. */
export async function emit(tx, order) {
  if (variant === "event") {
    await tx.emit("order.created", order, { aggregate: { type: "order", id: String(order.id) } });
  }
}
