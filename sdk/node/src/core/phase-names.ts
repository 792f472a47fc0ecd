/** The names under which phases and calls are recorded. */
import { UsageError } from "./errors.js";
import { NAME_BYTES_MAX } from "./limits.js";

/** Ends the name of the phase that precedes a call which is never repeated. */
export const CALLED = " called";
/** Ends the name of the phase that undoes another one. */
export const UNDONE = " undone";

/** What the database does not store in a text, or not in JSON: NUL, and half of a surrogate pair. */
const UNSTORABLE = /\0|\p{Surrogate}/u;

/** Whether the database stores a text as it is. */
export function isStorable(text: string): boolean {
  return !UNSTORABLE.test(text);
}

/** Refuses a name of a handler that could not be recorded, or would be read as a mark of the package. */
export function checkOwn(name: string): void {
  if (!isStorable(name)) {
    throw new UsageError(
      `the name ${JSON.stringify(name)} contains NUL or half of a surrogate pair, which the database ` +
        "does not store",
    );
  }
  const mark = [CALLED, UNDONE].find((each) => name.endsWith(each));
  if (mark !== undefined) {
    throw new UsageError(
      `the name ${JSON.stringify(name)} ends in ${JSON.stringify(mark)}, as the records of the ` +
        "package do: use another name for the phase or the call",
    );
  }
}

/** Refuses a name that the database does not record. */
export function checkName(name: string): void {
  const bytes = Buffer.byteLength(name);
  if (bytes < 1 || bytes > NAME_BYTES_MAX) {
    throw new UsageError(`the name of a phase has 1 to ${NAME_BYTES_MAX} bytes, not ${bytes}`);
  }
}

/** Refuses a step whose call could be recorded, and the record not undone after the call. */
export function checkStep(step: string): void {
  const [bytes, most] = [Buffer.byteLength(step), NAME_BYTES_MAX - `${CALLED}${UNDONE}`.length];
  if (bytes > most) {
    throw new UsageError(
      `the name of a step whose call is never repeated has at most ${most} bytes, not ${bytes}`,
    );
  }
}
