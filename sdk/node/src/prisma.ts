/** Transactions of Prisma, on PostgreSQL. */
import type { Database, Row, Session } from "./core/database.js";
import { UsageError } from "./core/errors.js";
import { Joined } from "./core/joined.js";

/** The part of an interactive transaction that the package uses. */
export interface PrismaTransaction {
  // eslint-disable-next-line @typescript-eslint/no-explicit-any -- as in the types of Prisma
  $queryRawUnsafe<Result = unknown>(query: string, ...values: any[]): PromiseLike<Result>;
}

/** A client of Prisma, whose interactive transactions have the type `Client`. */
export interface PrismaClientLike<Client extends PrismaTransaction> {
  $transaction<Result>(
    work: (tx: Client) => Promise<Result>,
    options?: { maxWait?: number; timeout?: number; isolationLevel?: "ReadCommitted" },
  ): Promise<Result>;
}

/** Options of Prisma's interactive transactions. */
export interface PrismaOptions {
  /** How long to wait for a connection, in milliseconds. */
  maxWaitMs?: number;
  /** The time limit of a transaction in milliseconds. It must be longer than that of a handler. */
  timeoutMs?: number;
}

/** Presents a client of Prisma as a database. */
export function prisma<Client extends PrismaTransaction>(
  client: PrismaClientLike<Client>,
  { maxWaitMs = 5_000, timeoutMs = 60_000 }: PrismaOptions = {},
): Database<Client> {
  if (!isClient(client)) {
    throw new UsageError(
      "hapax needs a PrismaClient, because each request has its own transaction, and it was passed " +
        "something else: pass new PrismaClient(...), not the tx of $transaction",
    );
  }
  const options = {
    maxWait: maxWaitMs,
    timeout: timeoutMs,
    isolationLevel: "ReadCommitted",
  } as const;
  return {
    driver: "prisma",
    transaction: (work) => client.$transaction((tx) => work(sessionOf(tx)), options),
  };
}

/** Joins an interactive transaction. */
export function join<Client extends PrismaTransaction>(tx: Client): Joined<Client> {
  if (isClient(tx)) {
    throw new UsageError(
      "join needs the tx of an interactive transaction, and it was passed a PrismaClient, which runs " +
        "each query in a separate transaction: call it in $transaction(async (tx) => ...)",
    );
  }
  return new Joined(sessionOf(tx));
}

function isClient(value: unknown): boolean {
  return typeof (value as { $connect?: unknown } | null)?.$connect === "function";
}

function sessionOf<Client extends PrismaTransaction>(tx: Client): Session<Client> {
  return {
    client: tx,
    query: async (text, params) => tx.$queryRawUnsafe<Row[]>(text, ...params),
  };
}
