/**
 * Statements that share one message, so that they cost one round trip: a simple query of several
 * statements. The server runs them in order up to the first one that fails, so a COMMIT at the end
 * is not reached if a statement before it has failed.
 *
 * Such a message has no parameters. A value is written as hexadecimal digits, which the server
 * decodes: the text contains no byte of a value, whatever `standard_conforming_strings` and
 * `client_encoding` are, and a pooler or an ORM has nothing in it to interpret.
 */
import type { Database, Param, Row, Session } from "./database.js";
import { BATCH_BYTES_MAX } from "./limits.js";

/** A statement. Each parameter `$1`, `$2` is used once, in order. */
export interface Statement {
  text: string;
  params: readonly Param[];
}

/** The first and the last message of a transaction. */
export interface Batch {
  /** The rows of the statements that were sent with BEGIN. */
  readonly opened: Row[];
  /** Runs statements and commits, in one message. */
  commit(statements: readonly Statement[]): Promise<void>;
}

/** Sends statements in one message, and returns the rows of all of them. */
export type Send = (message: string) => Promise<Row[]>;

const BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED";
/** The savepoint before the effect of a handler. */
export const SAVEPOINT: Statement = { text: "SAVEPOINT hapax_effect", params: [] };
/** Rolls back the effect of a handler. */
export const ROLLBACK_TO: Statement = { text: "ROLLBACK TO SAVEPOINT hapax_effect", params: [] };

/**
 * Runs `work` between BEGIN and COMMIT. The statements in `first` are sent with BEGIN. If this
 * rejects, the caller has to roll back.
 */
export async function inTransaction<Client, Result>(
  session: Session<Client>,
  send: Send,
  work: (session: Session<Client>) => Promise<Result>,
  first: readonly Statement[],
): Promise<Result> {
  const opened = await send([BEGIN, ...first.map(inlined)].join("; "));
  const state = { isCommitted: false };
  const batch: Batch = {
    opened,
    commit: async (statements) => {
      await send([...statements.map(inlined), "COMMIT"].join("; "));
      state.isCommitted = true;
    },
  };
  const result = await work({ ...session, batch });
  if (!state.isCommitted) await send("COMMIT");
  return result;
}

/** Whether values of this length are written into a message. Hexadecimal digits double them. */
export function isShort(...values: readonly (string | Buffer)[]): boolean {
  return values.reduce((sum, { length }) => sum + length, 0) <= BATCH_BYTES_MAX;
}

/** Whether the values of a statement are written into a message. */
export function isShortStatement({ params }: Statement): boolean {
  return isShort(...params.map((value) => (value instanceof Buffer ? value : String(value))));
}

/** Runs a statement in a transaction of its own, and returns its rows. */
export function runAlone(database: Database, statement: Statement): Promise<Row[]> {
  const { text, params } = statement;
  return database.transaction(
    async (session) => {
      const opened = session.batch?.opened ?? [];
      return opened.length > 0 ? opened : session.query(text, params);
    },
    isShortStatement(statement) ? [statement] : [],
  );
}

/** Writes a statement with its values instead of its parameters. */
export function inlined({ text, params }: Statement): string {
  let used = 0;
  const written = text.replace(/\$(\d+)/g, (_, digits: string) => {
    used += 1;
    const value = params[used - 1];
    if (Number(digits) !== used || value === undefined) throw new TypeError(`parameter $${digits}`);
    return literal(value);
  });
  if (used !== params.length) throw new TypeError(`${params.length} parameters, ${used} used`);
  return written;
}

function literal(value: Param): string {
  if (value === null) return "NULL";
  if (typeof value === "number") {
    if (!Number.isSafeInteger(value)) throw new TypeError("a number is not an integer");
    return `(${value})`;
  }
  if (typeof value === "string") {
    const digits = Buffer.from(value, "utf8").toString("hex");
    return `pg_catalog.convert_from(pg_catalog.decode('${digits}', 'hex'), 'UTF8')`;
  }
  return `pg_catalog.decode('${value.toString("hex")}', 'hex')`;
}
