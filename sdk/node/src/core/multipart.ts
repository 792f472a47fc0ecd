/**
 * Hash of a multipart body, part by part. The boundary is not hashed, because every client library
 * generates a new one for every request. The name, file name, content type and content of each part
 * are hashed, in the order of arrival.
 */
import { MULTIPART_PARTS_MAX } from "./limits.js";
import { Parts, sha256 } from "./parts.js";

/** The version of this format. */
const VERSION = 1;

/** Why a body is not multipart. */
export class MultipartError extends Error {
  override name = "MultipartError";
}

/** Computes the hash of a `multipart/form-data` body. */
export function multipartHash(body: Buffer, contentType: string): Buffer {
  const boundary = boundaryOf(contentType);
  const hash = new Parts(VERSION);
  let count = 0;
  for (const part of readParts(body, boundary)) {
    count += 1;
    if (count > MULTIPART_PARTS_MAX) {
      throw new MultipartError(`it has more than ${MULTIPART_PARTS_MAX} parts`);
    }
    const disposition = part.headers.get("content-disposition");
    const name = attribute(disposition, "name");
    if (name === undefined) throw new MultipartError("a part has no name");
    optional(hash, name);
    optional(hash, attribute(disposition, "filename"));
    optional(hash, mediaTypeOf(part.headers.get("content-type")));
    hash.add(sha256(part.content));
  }
  return hash.digest();
}

function boundaryOf(contentType: string): string {
  const found = /;\s*boundary\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;]+))/i.exec(contentType);
  const boundary = found?.[1] ?? found?.[2];
  if (!boundary) throw new MultipartError("the content type has no boundary");
  return boundary;
}

interface Part {
  headers: Map<string, string>;
  content: Buffer;
}

function* readParts(body: Buffer, boundary: string): Generator<Part> {
  const first = body.indexOf(`--${boundary}`, 0, "latin1");
  if (first < 0) throw new MultipartError("the body has no boundary");
  let at = first + boundary.length + 2;
  while (body.toString("latin1", at, at + 2) !== "--") {
    while (body[at] === 0x20 || body[at] === 0x09) at += 1;
    if (body.toString("latin1", at, at + 2) !== "\r\n") {
      throw new MultipartError("a boundary is not followed by a line break");
    }
    const head = at + 2;
    const blank = body.indexOf("\r\n\r\n", head, "latin1");
    if (blank < 0) throw new MultipartError("the head of a part is incomplete");
    const end = body.indexOf(`\r\n--${boundary}`, blank + 4, "latin1");
    if (end < 0) throw new MultipartError("a part is incomplete");
    yield {
      headers: readHead(body.subarray(head, blank)),
      content: body.subarray(blank + 4, end),
    };
    at = end + boundary.length + 4;
  }
}

function readHead(head: Buffer): Map<string, string> {
  const headers = new Map<string, string>();
  for (const line of head.toString("utf8").split("\r\n")) {
    const found = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*$/.exec(line);
    if (!found) throw new MultipartError("the head of a part is not valid");
    const [, name = "", value = ""] = found;
    if (!headers.has(name.toLowerCase())) headers.set(name.toLowerCase(), value);
  }
  return headers;
}

/** An attribute of a content disposition, quoted or not. */
function attribute(disposition: string | undefined, name: string): string | undefined {
  const found = new RegExp(
    `(?:^|[\\s;])${name}\\s*=\\s*(?:"((?:[^"\\\\]|\\\\[\\s\\S])*)"|([^; ]*))`,
  ).exec(disposition ?? "");
  return found?.[1]?.replaceAll('\\"', '"') ?? found?.[2];
}

/** The content type of a part, with its type and its subtype in lower case. */
function mediaTypeOf(value: string | undefined): string | undefined {
  const found = /^([^\s;/]+\/[^\s;]+)(.*)$/.exec(value ?? "");
  return found ? (found[1] ?? "").toLowerCase() + (found[2] ?? "") : undefined;
}

/** An optional value. A missing value differs from an empty one. */
function optional(hash: Parts, text: string | undefined): void {
  if (text === undefined) hash.add("-");
  else hash.add("+").add(text);
}
