/** The results of phases and calls, which are stored with the key as one JSON object. */
import { UsageError } from "./errors.js";
import { PHASE_DATA_BYTES_MAX } from "./limits.js";

/** A value as a later owner of the key reads it. */
export function jsonOf<Value>(name: string, value: Value): Value {
  if (!isPlain(value)) {
    throw new UsageError(
      `the result of ${JSON.stringify(name)} is stored as JSON, and it is not a plain value: return ` +
        "only what the handler needs, such as an id, and not the result of a statement or a response",
    );
  }
  return JSON.parse(JSON.stringify(value ?? null)) as Value;
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

/** The results as they are recorded with the phase `name`. */
export function dataOf(name: string, results: Map<string, unknown>): string {
  const data = JSON.stringify(Object.fromEntries(results));
  if (Buffer.byteLength(data) > PHASE_DATA_BYTES_MAX) {
    throw new UsageError(
      `with the phase ${JSON.stringify(name)}, the results have more than ${PHASE_DATA_BYTES_MAX} ` +
        "bytes: return only what the handler needs, such as an id",
    );
  }
  return data;
}
