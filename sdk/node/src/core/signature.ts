/**
 * Standard Webhooks signatures: signing and verification. The signed text is `id.timestamp.body`.
 * Comparisons take constant time, and no error contains a secret.
 */
import {
  createHmac,
  createPrivateKey,
  createPublicKey,
  sign as signBytes,
  timingSafeEqual,
  verify as verifyBytes,
} from "node:crypto";
import type { KeyObject } from "node:crypto";
import { isPublicKey } from "./ed25519.js";

/** Maximum difference between the time of an attempt and the current time, in milliseconds. */
export const TOLERANCE_MS = 5 * 60 * 1000;
/** Maximum number of signatures on one message. */
const SIGNATURES_MAX = 16;
/** PKCS #8 before the 32 bytes of an ed25519 seed. */
const PKCS8 = Buffer.from("302e020100300506032b657004220420", "hex");

/** Why a text is not a key. */
export class KeyTextError extends Error {
  override name = "KeyTextError";

  constructor(
    readonly reason: "prefix" | "base64" | "length" | "not_a_key",
    message: string,
  ) {
    super(message);
  }
}

/** Why a message is not accepted. The response to its sender need not contain the reason. */
export class VerifyError extends Error {
  override name = "VerifyError";

  constructor(
    readonly reason: "malformed" | "stale" | "signature",
    message: string,
    /** The header that is malformed. */
    readonly header?: string,
  ) {
    super(message);
  }
}

/** A received message: the values of three headers, and the body. */
export interface Received {
  id: string;
  timestamp: string;
  signature: string;
  body: Uint8Array;
}

/** A key of a sender: `whsec_...` or `whsk_...`. */
export class Signer {
  private constructor(
    readonly scheme: "v1" | "v1a",
    private readonly signWith: (text: Buffer) => Buffer,
    /** The receiver's half of a key pair, `whpk_...`. */
    readonly publicKey: string | undefined,
  ) {}

  /** Parses a key. */
  static parse(text: string): Signer {
    if (!text.startsWith("whsk_")) {
      const secret = secretOf(text);
      return new Signer(
        "v1",
        (message) => createHmac("sha256", secret).update(message).digest(),
        undefined,
      );
    }
    const pair = decode(text, "whsk_");
    expectLength(pair, 64, 64, "64");
    const key = createPrivateKey({
      key: Buffer.concat([PKCS8, pair.subarray(0, 32)]),
      format: "der",
      type: "pkcs8",
    });
    const point = Buffer.from(createPublicKey(key).export({ format: "jwk" }).x ?? "", "base64url");
    if (!point.equals(pair.subarray(32))) throw notAKey();
    return new Signer(
      "v1a",
      (message) => signBytes(null, message, key),
      `whpk_${point.toString("base64")}`,
    );
  }

  /** Returns an entry of `webhook-signature`. */
  sign(text: Buffer): string {
    return `${this.scheme},${this.signWith(text).toString("base64")}`;
  }
}

/** A key of a receiver: `whsec_...` or `whpk_...`. */
export class Verifier {
  private constructor(
    readonly scheme: "v1" | "v1a",
    private readonly length: number,
    private readonly check: (text: Buffer, signature: Buffer) => boolean,
  ) {}

  /** Parses a key. */
  static parse(text: string): Verifier {
    if (!text.startsWith("whpk_")) {
      const secret = secretOf(text);
      const tag = (message: Buffer): Buffer =>
        createHmac("sha256", secret).update(message).digest();
      return new Verifier("v1", 32, (message, signature) =>
        timingSafeEqual(tag(message), signature),
      );
    }
    const key = publicKeyOf(decode(text, "whpk_"));
    return new Verifier("v1a", 64, (message, signature) =>
      verifyBytes(null, message, key, signature),
    );
  }

  /** Whether one of the listed signatures is of this key. Entries that do not parse are skipped. */
  matches(text: Buffer, signatures: string): boolean {
    return signatures.split(" ").some((entry) => {
      const comma = entry.indexOf(",");
      if (
        comma < 0 ||
        entry.slice(0, comma) !== this.scheme ||
        entry.length > this.length * 2 + comma + 1
      )
        return false;
      const signature = base64(entry.slice(comma + 1));
      return signature?.length === this.length && this.check(text, signature);
    });
  }
}

/** Signs a message with every key, and returns the value of `webhook-signature`. */
export function sign(
  id: string,
  timestamp: number,
  body: Uint8Array,
  keys: readonly Signer[],
): string {
  const text = signedText(id, String(timestamp), body);
  return keys.map((key) => key.sign(text)).join(" ");
}

/** Throws unless a message was signed with one of the keys, at a time close to `nowMs`. */
export function verify(
  { id, timestamp, signature, body }: Received,
  keys: readonly Verifier[],
  nowMs = Date.now(),
  toleranceMs = TOLERANCE_MS,
): void {
  if (id === "" || id.includes(".")) throw malformed("webhook-id");
  if (!/^[0-9]+$/.test(timestamp) || BigInt(timestamp) >= 2n ** 63n)
    throw malformed("webhook-timestamp");
  const apart = Math.abs(Number(timestamp) - Math.floor(nowMs / 1000));
  if (apart > Math.floor(toleranceMs / 1000)) {
    throw new VerifyError("stale", "time of the attempt is too far from the current time");
  }
  if (signature.split(" ").length > SIGNATURES_MAX) throw malformed("webhook-signature");
  const text = signedText(id, timestamp, body);
  if (!keys.some((key) => key.matches(text, signature))) {
    throw new VerifyError("signature", "no signature matches");
  }
}

function signedText(id: string, timestamp: string, body: Uint8Array): Buffer {
  return Buffer.concat([Buffer.from(`${id}.${timestamp}.`), body]);
}

function malformed(header: string): VerifyError {
  return new VerifyError("malformed", `${header} is malformed`, header);
}

function secretOf(text: string): Buffer {
  const secret = decode(text, "whsec_");
  expectLength(secret, 24, 64, "24 to 64");
  return secret;
}

function publicKeyOf(point: Buffer): KeyObject {
  expectLength(point, 32, 32, "32");
  if (!isPublicKey(point)) throw notAKey();
  const jwk = { kty: "OKP", crv: "Ed25519", x: point.toString("base64url") };
  return createPublicKey({ key: jwk, format: "jwk" });
}

function expectLength(bytes: Buffer, least: number, most: number, allowed: string): void {
  if (bytes.length < least || bytes.length > most) {
    throw new KeyTextError("length", `key has ${bytes.length} bytes, expected ${allowed}`);
  }
}

function notAKey(): KeyTextError {
  return new KeyTextError("not_a_key", "key is not a usable ed25519 key");
}

function decode(text: string, prefix: string): Buffer {
  if (!text.startsWith(prefix))
    throw new KeyTextError("prefix", `key does not begin with ${prefix}`);
  const bytes = base64(text.slice(prefix.length));
  if (!bytes) throw new KeyTextError("base64", "key is not base64 after its prefix");
  return bytes;
}

/** Standard base64, whose padding may be absent and whose unused bits are zero. */
function base64(text: string): Buffer | undefined {
  const digits = text.replace(/={1,2}$/, "");
  const isAligned =
    text.length === digits.length ||
    (text.length % 4 === 0 && digits.length % 4 > 1) ||
    text.length % 4 === 3;
  if (!/^[A-Za-z0-9+/]*$/.test(digits) || !isAligned) return undefined;
  const bytes = Buffer.from(digits, "base64");
  return bytes.toString("base64").replace(/=+$/, "") === digits ? bytes : undefined;
}
