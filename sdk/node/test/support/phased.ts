/** What the tests of phases share: payments, whose key is also their id, and processes that die. */
import { Problem, type CallOptions, type Phases } from "hapax";
import { phased, type PhasedResponse, type PhasedResult } from "hapax/phased";
import type { PgTransaction } from "hapax/pg";
import pg from "pg";
import { scratch, type Scratch } from "./database.js";
import { pay, type Charge } from "./payments.js";
import { startProvider, type Provider } from "./provider.js";

export type Work = (phases: Phases<PgTransaction>) => Promise<PhasedResponse>;

/** A database, a provider, and requests of one service. */
export class Bench {
  private readonly dead: { wake: () => void; end: Promise<unknown> }[] = [];

  private constructor(
    readonly db: Scratch,
    readonly provider: Provider,
    readonly pool: pg.Pool,
  ) {}

  static async open(): Promise<Bench> {
    const db = await scratch();
    const pool = new pg.Pool({ connectionString: db.url, max: 5 });
    return new Bench(db, await startProvider(), pool);
  }

  async close(): Promise<void> {
    for (const { wake, end } of this.dead) {
      wake();
      await end;
    }
    await this.pool.end();
    await this.provider.stop();
    await this.db.drop();
  }

  /** Runs a payment. */
  payment(key: string, options: CallOptions<Charge> = {}): Promise<PhasedResult> {
    return phased(this.pool, request(key), async (phases) => ({
      status: 201,
      body: (await pay(phases, key, this.provider.url, options)).id,
    }));
  }

  /** Runs a handler with the key. */
  run(key: string, work: Work, options = {}): Promise<PhasedResult> {
    return phased(this.pool, request(key), work, { waitMs: 0, ...options });
  }

  /** Runs a handler in a process that dies after it, and whose lease is over. */
  async crash(
    key: string,
    work: (phases: Phases<PgTransaction>) => Promise<unknown>,
  ): Promise<void> {
    let died!: () => void;
    let wake!: () => void;
    const isDead = new Promise<void>((resolve) => (died = resolve));
    const isAwake = new Promise<void>((resolve) => (wake = resolve));
    const dead = this.run(
      key,
      async (phases) => {
        await work(phases);
        died();
        // Until the end of the tests it neither responds nor renews its lease.
        await isAwake;
        return { status: 500 };
      },
      { leaseMs: 3_600_000, handlerMs: Infinity },
    );
    this.dead.push({ wake, end: dead.catch(() => undefined) });
    await Promise.race([isDead, dead]);
    await this.db.pool.query(
      "UPDATE hapax.idempotency_key SET lease_until = date_trunc('milliseconds', clock_timestamp()) WHERE key = $1",
      [key],
    );
  }

  /** The row of a key. */
  async row(key: string): Promise<KeyRow | undefined> {
    const { rows } = await this.db.pool.query<KeyRow>(
      `SELECT state, epoch::integer, recovery_point, recovery_data,
              coalesce(lease_until <= clock_timestamp(), true) AS is_free
       FROM hapax.idempotency_key WHERE key = $1`,
      [key],
    );
    return rows[0];
  }

  /** The number of rows of a payment. */
  rows(id: string): Promise<number> {
    return this.db.count(`orders WHERE id LIKE '${id}%'`);
  }
}

export interface KeyRow {
  state: string;
  epoch: number;
  recovery_point: string | null;
  recovery_data: unknown;
  /** Whether another owner can take the key over. */
  is_free: boolean;
}

export function request(key: string, payload = "{}") {
  return { tenant: "demo", operation: "charge", key, payload };
}

/** Whether an error is a problem with this status and code. */
export function problemWith(status: number, code: string): (error: unknown) => boolean {
  return (error) => error instanceof Problem && error.status === status && error.code === code;
}

export const isUnknown = problemWith(504, "DEPENDENCY.timeout");
