/**
 * What the package needs of a driver or ORM: a transaction, and statements in it. An adapter
 * implements {@link Database}; everything else is written once, on top of it.
 */
import type { Batch, Statement } from "./batch.js";
import { isSchemaError, UsageError } from "./errors.js";

/** The version of the SQL contract that this package needs. */
export const CONTRACT = 2;

/** A value that is passed to a statement. */
export type Param = string | number | Buffer | null;

/** A row by column name. */
export type Row = Record<string, unknown>;

/** An open transaction. */
export interface Session<Client = unknown> {
  /** The driver's own transaction, which a handler uses. */
  readonly client: Client;
  /** Runs one statement in the transaction. Each parameter `$1`, `$2` is used once, in order. */
  query(text: string, params: readonly Param[]): Promise<Row[]>;
  /**
   * Runs `work` in a savepoint, and rolls back to it if `work` rejects; for a driver whose
   * savepoints are not plain statements.
   */
  savepoint?<Result>(work: (client: Client) => Promise<Result>): Promise<Result>;
  /** The messages of BEGIN and COMMIT, for a driver that sends several statements in one. */
  readonly batch?: Batch;
}

/** A database, as an adapter presents it. */
export interface Database<Client = unknown> {
  /** The name of the driver or ORM, for messages. */
  readonly driver: string;
  /**
   * Runs `work` in a READ COMMITTED transaction: commits when the promise resolves, and
   * rolls back when it rejects. If the commit fails, the promise rejects. A driver that sends
   * several statements in one message sends `first` with BEGIN, and its session has `batch`;
   * another one ignores `first`.
   */
  transaction<Result>(
    work: (session: Session<Client>) => Promise<Result>,
    first?: readonly Statement[],
  ): Promise<Result>;
}

const checked = new WeakMap<Database<never>, Promise<void>>();

/** Checks once per database that its schema has the contract of this package. */
export async function checkContract(database: Database<never>): Promise<void> {
  const known = checked.get(database);
  if (known) return known;
  const check = readContract(database);
  checked.set(database, check);
  // After a failure the next request checks again: the migration may have been applied since.
  check.catch(() => checked.delete(database));
  return check;
}

async function readContract(database: Database<never>): Promise<void> {
  const version = await database
    .transaction((session) => session.query("SELECT hapax.contract_version() AS version", []))
    .then((rows) => Number(rows[0]?.version))
    .catch((error: unknown) => {
      if (isSchemaError(error)) return 1;
      throw error;
    });
  if (version < CONTRACT) {
    throw new UsageError(
      `this package needs version ${CONTRACT} of Hapax's SQL contract, and the database has no ` +
        `function hapax.contract_version() that returns it: apply the migrations of Hapax`,
    );
  }
}
