/**
 * Fingerprints of requests. The same key with another fingerprint is a mismatch, never a replay.
 * Each mode has another version byte, so requests are never equal across modes. The hashes are
 * those of `hapax-http` and of the Python package, so services can share operations.
 */
import { canonicalJson, JsonError } from "./canonical.js";
import { trimAscii } from "./key.js";
import { multipartHash, MultipartError } from "./multipart.js";
import { Parts, sha256 } from "./parts.js";
import { Problem } from "./problem.js";

/** How two bodies under one key are compared. */
export type FingerprintMode = "raw" | "json" | "json-semantic";

/** The version byte of each mode. */
export const VERSIONS: Record<FingerprintMode, number> = { json: 1, raw: 2, "json-semantic": 3 };

/** Conditional headers, which are part of the fingerprint if they are sent. */
const CONDITIONS = ["if-match", "if-none-match", "if-unmodified-since"] as const;

/** The parts of a request that are hashed. */
export interface Fingerprinted {
  /** The operation, such as `POST /orders/{id}/notes`. */
  operation: string;
  /** The actual path, as sent. */
  path: string;
  /** The query without `?`. */
  query: string;
  /** The content type, as sent. */
  contentType: string;
  /** The body, as sent. */
  body: Buffer;
  /** Returns the lines of a header. */
  header(name: string): readonly string[];
}

/** Computes the fingerprint. Throws a problem with status 400 if the body has no canonical form. */
export function fingerprint(mode: FingerprintMode, request: Fingerprinted): Buffer {
  const parts = new Parts(VERSIONS[mode])
    .add(request.operation)
    .add(latin1(request.path))
    .add(latin1(request.query))
    .add(latin1(mediaType(request.contentType)))
    .add(bodyHash(mode, request.contentType, request.body));
  for (const name of CONDITIONS) {
    const lines = request.header(name);
    if (lines.length > 0) parts.add(name).add(latin1(lines.map(trimAscii).join(", ")));
  }
  return parts.digest();
}

/** The content type in lower case, without parameters. */
export function mediaType(contentType: string): string {
  const [type = ""] = contentType.split(";", 1);
  return trimAscii(type).toLowerCase();
}

/** Whether the media type is JSON: `application/json` or any `+json`. */
export function isJson(contentType: string): boolean {
  const type = mediaType(contentType);
  return type === "application/json" || (type.endsWith("+json") && type !== "+json");
}

/** Node passes the bytes of a header and of a target as Latin-1. */
function latin1(text: string): Buffer {
  return Buffer.from(text, "latin1");
}

function bodyHash(mode: FingerprintMode, contentType: string, body: Buffer): Buffer {
  if (mode === "raw") return sha256(body);
  try {
    if (isJson(contentType) && body.length > 0) {
      return sha256(canonicalJson(body, mode === "json" ? "as-sent" : "by-value"));
    }
    if (mediaType(contentType) === "multipart/form-data") return multipartHash(body, contentType);
  } catch (error) {
    if (error instanceof JsonError) throw new Problem("VALIDATION.json", error.message);
    if (error instanceof MultipartError) throw new Problem("VALIDATION.multipart", error.message);
    throw error;
  }
  return sha256(body);
}
