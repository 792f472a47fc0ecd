/**
 * Idempotency keys in headers: a structured-field string (RFC 8941) whose parameters are ignored,
 * or the same text without quotes. A value that does not parse is refused and never guessed: two
 * interpretations of one key would be two effects.
 */
import { KEY_BYTES_MAX } from "./limits.js";

/** Prefix of the keys that services derive from requests. Clients must not send them. */
export const DERIVED_PREFIX = "derived:";

/** Why the value of a header is not a key. */
export class KeyError extends Error {
  override name = "KeyError";
}

const MALFORMED = "the text after the quoted key is not a valid parameter";
const UNTERMINATED = "the quoted key is not terminated";
const NOT_PRINTABLE = "a quoted key may contain only visible ASCII and spaces";
const BARE = "a key without quotes may contain only visible ASCII, no space and no quote";
const ESCAPE = "only a quote or a backslash can follow a backslash";

/** Parses the value of an `Idempotency-Key` header. */
export function parseKey(value: string): string {
  const text = trimAscii(value);
  let key = text;
  if (text.startsWith('"')) {
    const [quoted, rest] = readQuoted(text);
    skipParameters(rest);
    key = quoted;
  } else if (!/^[!#-~]*$/.test(text)) {
    throw new KeyError(BARE);
  }
  if (key.length === 0) throw new KeyError("the key is empty");
  if (key.length > KEY_BYTES_MAX) throw new KeyError("the key is longer than 255 bytes");
  return key;
}

/** Formats a key as a header value: without quotes if possible, quoted if necessary. */
export function formatKey(key: string): string {
  if (!/[ "]/.test(key)) return key;
  return `"${key.replace(/["\\]/g, "\\$&")}"`;
}

/** Whether the text is a UUID of version 7 (RFC 9562). */
export function isUuidV7(text: string): boolean {
  return /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/i.test(text);
}

/** Removes ASCII white space at both ends, and nothing else. */
export function trimAscii(text: string): string {
  return text.replace(/^[ \t\n\f\r]+|[ \t\n\f\r]+$/g, "");
}

/** Reads a quoted string, and returns it with the text after it. */
function readQuoted(value: string): [string, string] {
  let text = "";
  for (let at = 1; at < value.length; at += 1) {
    const char = value.charAt(at);
    if (char === '"') return [text, value.slice(at + 1)];
    if (char === "\\") {
      at += 1;
      const escaped = value.charAt(at);
      if (escaped !== '"' && escaped !== "\\") throw new KeyError(ESCAPE);
      text += escaped;
    } else if (char >= " " && char <= "~") {
      text += char;
    } else {
      throw new KeyError(value.includes('"', at) ? NOT_PRINTABLE : UNTERMINATED);
    }
  }
  throw new KeyError(UNTERMINATED);
}

/** Checks that the rest consists of structured-field parameters. */
function skipParameters(text: string): void {
  let rest = text;
  while (rest !== "") {
    if (!rest.startsWith(";")) throw new KeyError(MALFORMED);
    rest = rest.slice(1).replace(/^[ \t\n\f\r]+/, "");
    const name = /^[a-z*][a-z0-9_.*-]*/.exec(rest);
    if (!name) throw new KeyError(MALFORMED);
    rest = rest.slice(name[0].length);
    if (rest.startsWith("=")) rest = skipValue(rest.slice(1));
  }
}

function skipValue(rest: string): string {
  if (rest.startsWith('"')) {
    try {
      return readQuoted(rest)[1];
    } catch {
      throw new KeyError(MALFORMED);
    }
  }
  const token = /^:[A-Za-z0-9+/=]*:|^[A-Za-z0-9!#$%&'*+.^_`|~:/?-]+/.exec(rest);
  if (!token) throw new KeyError(MALFORMED);
  return rest.slice(token[0].length);
}
