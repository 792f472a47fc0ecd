/**
 * Errors of drivers and ORMs, converted into problems. Each library wraps the error of the server
 * in its own way; its SQLSTATE decides.
 */
import { Problem, unavailable } from "./problem.js";

/** A class of SQLSTATE and three characters. Codes of Prisma (`P2010`) and of Node do not match. */
const SQLSTATE = /^(?:[0-9][0-9A-Z]|F0|HV|HX|P0|XX)[0-9A-Z]{3}$/;
/** Where libraries keep the error of the server. */
const INNER = ["cause", "driverError", "original", "originalError", "meta", "driverAdapterError"];
/** The server cannot be used now, or has rolled back a transaction that may be run again. */
const PASSING = /^(?:08|40|53|57|58|55P03|25006)/;
/** The session ended, or its end is likely: the outcome of a commit is unknown. */
const LOST = /^(?:08|57P|58|XX)/;
/** One of Hapax's functions or tables is missing or may not be used. */
const SCHEMA = /^(?:42883|42P01|42501|3F000)$/;

/** No claim is open, there is no transaction, or it has no such savepoint. */
const OUTSIDE = /^(?:HX002|25P01|3B001)$/;

/** A mistake in the use of the package, with what to pass instead. */
export class UsageError extends TypeError {
  override name = "UsageError";
  /** What the response says. */
  readonly detail: string = "nothing was changed; the same request would fail again";
}

/** A handler has ended the transaction of its request, so it is not known what it has changed. */
export class EndedByHandler extends UsageError {
  override readonly detail = "the response was not stored; the same request would fail again";

  constructor(override readonly cause: unknown) {
    super(
      "the handler has ended the transaction of its request, which claims the key: do not commit " +
        "or roll back in a handler, and throw a Problem to refuse a request",
    );
  }
}

/** The SQLSTATE of an error, wherever a library keeps it. */
export function sqlState(error: unknown, depth = 0): string | undefined {
  if (typeof error !== "object" || error === null || depth > 5) return undefined;
  const record = error as Record<string, unknown>;
  for (const name of ["code", "originalCode", "sqlState"]) {
    const code = record[name];
    if (typeof code === "string" && SQLSTATE.test(code)) return code;
  }
  for (const name of INNER) {
    const code = sqlState(record[name], depth + 1);
    if (code !== undefined) return code;
  }
  return undefined;
}

/** Whether the server has said that the commit did not happen. */
export function isRolledBack(error: unknown): boolean {
  const state = sqlState(error);
  return state !== undefined && !LOST.test(state);
}

/** Whether a statement that needs the transaction of a claim ran outside of it. */
export function isOutsideTransaction(error: unknown): boolean {
  return OUTSIDE.test(sqlState(error) ?? "");
}

/** Whether the error says that one of Hapax's own functions cannot be called. */
export function isSchemaError(error: unknown): boolean {
  const state = sqlState(error);
  return state !== undefined && SCHEMA.test(state);
}

/** The problem for an error of a handler or of a statement. Nothing is committed. */
export function problemOf(error: unknown): Problem {
  if (error instanceof Problem) return error;
  if (error instanceof UsageError) {
    const detail = error.detail;
    return new Problem("INTERNAL", detail, { cause: error });
  }
  const state = sqlState(error);
  if (state !== undefined && PASSING.test(state)) return unavailable(error);
  if (state !== undefined) {
    const detail = "nothing was changed; the same request would be refused again";
    return new Problem("INTERNAL.statement", detail, { cause: error });
  }
  if (isConnectionError(error)) return unavailable(error);
  return new Problem("TRANSIENT.internal", "nothing was changed; try again", { cause: error });
}

/** Whether a driver says that it has no connection, or has lost it. */
export function isConnectionError(error: unknown, depth = 0): boolean {
  if (typeof error !== "object" || error === null || depth > 5) return false;
  const { code, message, errors } = error as {
    code?: unknown;
    message?: unknown;
    errors?: unknown;
  };
  if (typeof code === "string" && CONNECTION_CODES.test(code)) return true;
  if (typeof message === "string" && CONNECTION_MESSAGES.test(message)) return true;
  if (Array.isArray(errors) && errors.some((each) => isConnectionError(each, depth + 1)))
    return true;
  return INNER.some((name) =>
    isConnectionError((error as Record<string, unknown>)[name], depth + 1),
  );
}

const CONNECTION_CODES =
  /^(?:E(?:CONNREFUSED|CONNRESET|PIPE|TIMEDOUT|NOTFOUND|AI_AGAIN|HOSTUNREACH)|CONNECTION_|CONNECT_TIMEOUT|P1001|P1008|P1017|P2024|P2028)/;
const CONNECTION_MESSAGES =
  /(?:^| - )(?:Connection terminated|Client has encountered a connection error|timeout exce+ded when trying to connect|Knex: Timeout acquiring|Client was closed|Cannot use a pool after)/i;
