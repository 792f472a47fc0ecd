/** SHA-256 over length-prefixed parts, so that different lists of parts have different hashes. */
import { createHash } from "node:crypto";

/** A hash that is built part by part. */
export class Parts {
  private readonly hash = createHash("sha256");

  /** Starts a hash of the format version `version`, which is its first byte. */
  constructor(version: number) {
    this.hash.update(Uint8Array.of(version));
  }

  /** Adds one part; a text in UTF-8. */
  add(part: string | Uint8Array): this {
    const bytes = typeof part === "string" ? Buffer.from(part, "utf8") : part;
    const length = Buffer.alloc(8);
    length.writeBigUInt64BE(BigInt(bytes.length));
    this.hash.update(length).update(bytes);
    return this;
  }

  /** Finishes the hash. */
  digest(): Buffer {
    return this.hash.digest();
  }
}

/** The SHA-256 of bytes. */
export function sha256(bytes: Uint8Array | string): Buffer {
  return createHash("sha256").update(bytes).digest();
}
