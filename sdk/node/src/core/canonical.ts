/**
 * Canonical JSON, so that equal requests have equal hashes.
 *
 * Members are sorted by the UTF-16 code units of their names, strings are written as RFC 8785
 * requires, and white space is removed. Number tokens are kept as sent, or written by their decimal
 * value, but never as doubles. A duplicate name in an object is refused, because parsers differ on
 * which one counts.
 */
import { decimalValue } from "./decimal.js";
import { JSON_DEPTH_MAX, JSON_MEMBERS_MAX } from "./limits.js";

/** How the canonical form writes numbers: as they were sent, or by their decimal value. */
export type Numbers = "as-sent" | "by-value";

/** Why a text has no canonical form. */
export class JsonError extends Error {
  override name = "JsonError";
}

/** Writes JSON in canonical form. */
export function canonicalJson(json: Uint8Array, numbers: Numbers): string {
  const bytes = Buffer.from(json.buffer, json.byteOffset, json.byteLength);
  const text = bytes.toString("utf8");
  const invalid = firstDifference(bytes, text);
  if (invalid !== undefined) throw syntax(invalid);
  return new Writer(text, numbers).whole();
}

/** The offset of the first byte that is not UTF-8. */
function firstDifference(bytes: Buffer, text: string): number | undefined {
  const again = Buffer.from(text, "utf8");
  if (again.equals(bytes)) return undefined;
  let at = 0;
  while (at < bytes.length && bytes[at] === again[at]) at += 1;
  // The replacement character begins before the byte in which the two differ.
  while (at > 0 && ((again[at] ?? 0) & 0xc0) === 0x80) at -= 1;
  return at;
}

function syntax(at: number): JsonError {
  return new JsonError(`the body is not valid JSON at byte ${at}`);
}

const ESCAPES: Record<string, string> = {
  '"': '"',
  "\\": "\\",
  "/": "/",
  b: "\b",
  f: "\f",
  n: "\n",
  r: "\r",
  t: "\t",
};

interface Member {
  name: string;
  text: string;
}

class Writer {
  private at = 0;
  /** The number of members of all open objects. */
  private members = 0;

  constructor(
    private readonly text: string,
    private readonly numbers: Numbers,
  ) {}

  whole(): string {
    const value = this.value(0);
    this.space();
    if (this.at !== this.text.length) throw this.error();
    return value;
  }

  private value(depth: number): string {
    this.space();
    const char = this.text.charAt(this.at);
    if (char === "{") return this.object(depth);
    if (char === "[") return this.array(depth);
    if (char === '"') return JSON.stringify(this.string());
    if (char === "t") return this.literal("true");
    if (char === "f") return this.literal("false");
    if (char === "n") return this.literal("null");
    if (char === "-" || isDigit(char)) return this.number();
    throw this.error();
  }

  private array(depth: number): string {
    this.open(depth);
    if (this.eat("]")) return "[]";
    const items: string[] = [];
    do items.push(this.value(depth + 1));
    while (this.more("]"));
    return `[${items.join(",")}]`;
  }

  private object(depth: number): string {
    this.open(depth);
    if (this.eat("}")) return "{}";
    const members: Member[] = [];
    do members.push(this.member(depth));
    while (this.more("}"));
    this.members -= members.length;
    return `{${sorted(members)}}`;
  }

  private member(depth: number): Member {
    this.space();
    if (this.text.charAt(this.at) !== '"') throw this.error();
    if (this.members >= JSON_MEMBERS_MAX) {
      throw new JsonError(`an object of the body has more than ${JSON_MEMBERS_MAX} members`);
    }
    const name = this.string();
    if (!this.eat(":")) throw this.error();
    const value = this.value(depth + 1);
    this.members += 1;
    return { name, text: `${JSON.stringify(name)}:${value}` };
  }

  private string(): string {
    this.at += 1;
    let value = "";
    for (;;) {
      const start = this.at;
      while (isPlain(this.text.charCodeAt(this.at))) this.at += 1;
      value += this.text.slice(start, this.at);
      const stop = this.text.charAt(this.at);
      if (stop !== '"' && stop !== "\\") throw this.error();
      this.at += 1;
      if (stop === '"') return value;
      value += this.escape();
    }
  }

  private escape(): string {
    const escaped = this.text.charAt(this.at);
    if (escaped === "") throw this.error();
    this.at += 1;
    if (escaped === "u") return this.codePoint();
    const char = ESCAPES[escaped];
    if (char === undefined) throw this.error();
    return char;
  }

  /** Reads the digits after `\u`, and the second half of a surrogate pair. */
  private codePoint(): string {
    const first = this.unit();
    if (first < 0xd800 || first >= 0xe000) return String.fromCharCode(first);
    if (first >= 0xdc00 || !this.eatNow("\\") || !this.eatNow("u")) throw this.error();
    const second = this.unit();
    if (second < 0xdc00 || second >= 0xe000) throw this.error();
    return String.fromCharCode(first, second);
  }

  private unit(): number {
    for (let digit = 0; digit < 4; digit += 1) {
      if (!/^[0-9a-fA-F]$/.test(this.text.charAt(this.at))) throw this.error();
      this.at += 1;
    }
    return Number.parseInt(this.text.slice(this.at - 4, this.at), 16);
  }

  private number(): string {
    const start = this.at;
    this.eatNow("-");
    if (!this.eatNow("0")) this.digits();
    if (this.eatNow(".")) this.digits();
    if (this.eatNow("e") || this.eatNow("E")) {
      if (!this.eatNow("+")) this.eatNow("-");
      this.digits();
    }
    const token = this.text.slice(start, this.at);
    return this.numbers === "as-sent" ? token : decimalValue(token);
  }

  private digits(): void {
    const start = this.at;
    while (isDigit(this.text.charAt(this.at))) this.at += 1;
    if (this.at === start) throw this.error();
  }

  private literal(word: string): string {
    if (!this.text.startsWith(word, this.at)) throw this.error();
    this.at += word.length;
    return word;
  }

  private open(depth: number): void {
    if (depth >= JSON_DEPTH_MAX) {
      throw new JsonError(`the body is nested deeper than ${JSON_DEPTH_MAX} levels`);
    }
    this.at += 1;
  }

  /** Reads what follows an element: true for a comma, false for the closing bracket. */
  private more(close: string): boolean {
    if (this.eat(",")) return true;
    if (!this.eatNow(close)) throw this.error();
    return false;
  }

  private space(): void {
    for (;;) {
      const code = this.text.charCodeAt(this.at);
      if (code !== 0x20 && code !== 0x09 && code !== 0x0a && code !== 0x0d) return;
      this.at += 1;
    }
  }

  private eat(char: string): boolean {
    this.space();
    return this.eatNow(char);
  }

  private eatNow(char: string): boolean {
    if (this.text.charAt(this.at) !== char) return false;
    this.at += 1;
    return true;
  }

  private error(): JsonError {
    return syntax(Buffer.byteLength(this.text.slice(0, this.at)));
  }
}

/** Joins members in the order of their names. */
function sorted(members: Member[]): string {
  members.sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
  members.forEach((member, index) => {
    if (index > 0 && member.name === members[index - 1]?.name) {
      const name = JSON.stringify(member.name);
      throw new JsonError(`an object of the body has the member ${name} more than once`);
    }
  });
  return members.map((member) => member.text).join(",");
}

function isDigit(char: string): boolean {
  return char >= "0" && char <= "9";
}

/** Whether a code unit needs no escape in a string. At the end of the text it is NaN. */
function isPlain(code: number): boolean {
  return code >= 0x20 && code !== 0x22 && code !== 0x5c;
}
