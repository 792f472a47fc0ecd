/** The results of phases and calls, which are stored with the key as one JSON object. */
import { UsageError } from "./errors.js";
import { PHASE_DATA_BYTES_MAX } from "./limits.js";
import { isStorable } from "./phase-names.js";

/** A value as a later owner of the key reads it. */
export function jsonOf<Value>(name: string, value: Value): Value {
  if (!isPlain(value)) {
    throw new UsageError(
      `the result of ${JSON.stringify(name)} is stored as JSON, and it is not a plain value: return ` +
        "only what the handler needs, such as an id, and not the result of a statement or a response",
    );
  }
  const read = JSON.parse(JSON.stringify(value ?? null)) as Value;
  if (!isStored(read)) {
    throw new UsageError(
      `the result of ${JSON.stringify(name)} contains NUL or half of a surrogate pair, which the ` +
        "database does not store: return only what the handler needs, such as an id",
    );
  }
  return read;
}

/** Whether JSON has a value, or its class says what JSON has instead. */
function isPlain(value: unknown): boolean {
  if (value === null || value === undefined) return true;
  if (typeof value === "number") return Number.isFinite(value);
  if (typeof value !== "object") return typeof value === "string" || typeof value === "boolean";
  if (Array.isArray(value)) return value.every(isPlain);
  if (typeof (value as { toJSON?: unknown }).toJSON === "function") return true;
  const prototype: unknown = Object.getPrototypeOf(value);
  const isObject = prototype === Object.prototype || prototype === null;
  return isObject && Object.values(value).every(isPlain);
}

/** Whether the database stores the texts of a JSON value. */
function isStored(value: unknown): boolean {
  if (typeof value === "string") return isStorable(value);
  if (typeof value !== "object" || value === null) return true;
  return Object.entries(value).every(([name, member]) => isStorable(name) && isStored(member));
}

/** The results as they are recorded with the phase or the call `name`. */
export function dataOf(name: string, results: Map<string, unknown>): string {
  const data = Object.fromEntries(results);
  if (jsonbBytes(data) > PHASE_DATA_BYTES_MAX) {
    throw new UsageError(
      `with the result of ${JSON.stringify(name)}, the results have more than ` +
        `${PHASE_DATA_BYTES_MAX} bytes: return only what the handler needs, such as an id`,
    );
  }
  return JSON.stringify(data);
}

/** The length of a JSON value as the database writes it: with spaces, and numbers without exponent. */
function jsonbBytes(value: unknown): number {
  if (typeof value === "number") return numberBytes(value);
  if (typeof value !== "object" || value === null) return Buffer.byteLength(JSON.stringify(value));
  const members = Array.isArray(value)
    ? value.map(jsonbBytes)
    : Object.entries(value).map(([name, each]) => jsonbBytes(name) + 2 + jsonbBytes(each));
  const separators = 2 * Math.max(members.length - 1, 0);
  return members.reduce((sum, bytes) => sum + bytes, 2 + separators);
}

function numberBytes(value: number): number {
  const text = String(value);
  const [digits = "", exponent] = text.split("e");
  // At most: the zeros between the digits and the point, and "0.".
  return exponent === undefined ? text.length : digits.length + Math.abs(Number(exponent)) + 2;
}
