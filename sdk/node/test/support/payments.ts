/** What a payment does in the tests: it reserves, charges at a provider, and records the charge. */
import { Problem, type Phases } from "hapax";
import type { CallOptions } from "hapax";
import type { PgTransaction } from "hapax/pg";

export interface Charge {
  id: string;
}

/** Calls the provider. A response without a meaning leaves the outcome unknown. */
export async function charge(url: string, key: string, signal?: AbortSignal): Promise<Charge> {
  const headers = { "idempotency-key": key };
  const answer = await fetch(url, { method: "POST", headers, signal: signal ?? null });
  if (answer.status === 402) {
    throw new Problem("PROVIDER.card.declined", "the card was declined", { status: 402 });
  }
  if (!answer.ok) throw new Error(`the provider responded with ${answer.status}`);
  return (await answer.json()) as Charge;
}

/** Asks the provider about a key. */
export async function find(url: string, key: string): Promise<Charge | undefined> {
  const answer = await fetch(url, { headers: { "idempotency-key": key } });
  return answer.ok ? ((await answer.json()) as Charge) : undefined;
}

/** Runs the phases of a payment, and returns its charge. */
export async function pay(
  phases: Phases<PgTransaction>,
  id: string,
  provider: string,
  options: CallOptions<Charge> = {},
): Promise<Charge> {
  await phases.transaction("reserved", (tx) => insert(tx, `${id}-reserved`));
  const charged = await phases.call("charge", (key, signal) => charge(provider, key, signal), {
    ...options,
  });
  await phases.transaction("charged", async (tx) => {
    await insert(tx, `${id}-charged`);
    await tx.emit("payment.succeeded", charged, { aggregate: { type: "payment", id } });
  });
  return charged;
}

/** Writes a row. */
export async function insert(tx: PgTransaction, id: string): Promise<void> {
  const text = "INSERT INTO orders (id, tenant, item, amount) VALUES ($1, 'demo', 'tea', 5)";
  await tx.query(text, [id]);
}

/** Deletes a row. */
export async function remove(tx: PgTransaction, id: string): Promise<void> {
  await tx.query("DELETE FROM orders WHERE id = $1", [id]);
}
