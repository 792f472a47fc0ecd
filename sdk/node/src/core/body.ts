/**
 * Request bodies of Node: read once, as they were sent, because the bytes are part of the
 * fingerprint. A body that another parser has consumed without keeping its bytes is refused.
 */
import type { IncomingMessage } from "node:http";
import { UsageError } from "./errors.js";
import { isJson, mediaType } from "./fingerprint.js";
import { ROUTES_MAX } from "./limits.js";
import { Problem } from "./problem.js";

/** A request whose bytes may have been kept by a parser before. */
export type BodyRequest = IncomingMessage & {
  rawBody?: unknown;
  body?: unknown;
  /** The body, which a parser has decoded as UTF-8 without keeping its bytes. */
  decodedBody?: string;
};

/** Returns the bytes of the body. `advice` says how to keep them in this framework. */
export async function readBody(
  request: BodyRequest,
  bytesMax: number,
  advice: string,
): Promise<Buffer> {
  const kept = [request.rawBody, request.body].find((each) => each instanceof Uint8Array);
  if (kept) return bounded(Buffer.from(kept), bytesMax);
  if (typeof request.rawBody === "string") return bounded(Buffer.from(request.rawBody), bytesMax);
  if (request.decodedBody !== undefined) return bounded(encoded(request.decodedBody), bytesMax);
  if (!hasBody(request)) return Buffer.alloc(0);
  if (request.readableDidRead || request.readableEnded) {
    throw new UsageError(
      `the bytes of the body are part of the fingerprint, and a parser has dropped them: ${advice}`,
    );
  }
  const encoding = request.headers["content-encoding"];
  if (encoding !== undefined && encoding.toLowerCase() !== "identity") {
    throw new Problem("VALIDATION.content_type", "this operation accepts no compressed body");
  }
  return collect(request, bytesMax);
}

/** The body as a handler expects it: parsed JSON, a form, a text, or the bytes. */
export function parseBody(body: Buffer, contentType: string): unknown {
  if (body.length === 0) return undefined;
  if (isJson(contentType)) {
    try {
      return JSON.parse(body.toString("utf8"));
    } catch {
      throw new Problem("VALIDATION.json", "the body is not valid JSON");
    }
  }
  const type = mediaType(contentType);
  if (type === "application/x-www-form-urlencoded") {
    return Object.fromEntries(new URLSearchParams(body.toString("utf8")));
  }
  return type.startsWith("text/") ? body.toString("utf8") : body;
}

/** Returns the lines of a header of Node. */
export function headerLines(request: IncomingMessage): (name: string) => readonly string[] {
  return (name) => request.headersDistinct[name] ?? [];
}

/** Splits a request target into its path and its query. */
export function splitTarget(target: string): { path: string; query: string } {
  const rest = target.replace(/^[a-z][a-z0-9+.-]*:\/\/[^/?#]*/i, "").replace(/#.*$/s, "");
  const at = rest.indexOf("?");
  const path = at < 0 ? rest : rest.slice(0, at);
  return { path: path === "" ? "/" : path, query: at < 0 ? "" : rest.slice(at + 1) };
}

/** The templates of routes. A service has few routes, unless it puts data into them. */
const templates = new Map<string, string>();

/** Converts a route with parameters `:id` into a template with `{id}`, as other languages write it. */
export function routeTemplate(route: string): string {
  const known = templates.get(route);
  if (known !== undefined) return known;
  const template = written(route);
  if (templates.size < ROUTES_MAX) templates.set(route, template);
  return template;
}

function written(route: string): string {
  const template = route
    .replace(/:([A-Za-z0-9_]+)(?:\([^)]*\))?/g, "{$1}")
    .replace(/\*([A-Za-z0-9_]+)/g, "{*$1}");
  return template.length > 1 ? template.replace(/\/+$/, "") : template;
}

function hasBody({ headers }: IncomingMessage): boolean {
  const length = headers["content-length"];
  return headers["transfer-encoding"] !== undefined || (length !== undefined && Number(length) > 0);
}

/** The bytes of a text. Different bytes that are not UTF-8 are all decoded as U+FFFD. */
function encoded(text: string): Buffer {
  if (text.includes("\ufffd")) {
    throw new Problem("VALIDATION.request", "a text has to be UTF-8 without U+FFFD");
  }
  return Buffer.from(text);
}

function bounded(body: Buffer, bytesMax: number): Buffer {
  if (body.length > bytesMax) throw tooLarge(bytesMax);
  return body;
}

async function collect(request: IncomingMessage, bytesMax: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const chunk of request.iterator({
      destroyOnReturn: false,
    }) as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      if (bytes > bytesMax) break;
      chunks.push(chunk);
    }
  } catch (cause) {
    throw new Problem("VALIDATION.body.incomplete", "the body ended before it was complete", {
      cause,
    });
  }
  if (bytes > bytesMax) {
    // The rest is read and dropped, so that the client receives the response.
    request.resume();
    throw tooLarge(bytesMax);
  }
  return Buffer.concat(chunks);
}

function tooLarge(bytesMax: number): Problem {
  return new Problem("VALIDATION.body.too_large", `this operation takes at most ${bytesMax} bytes`);
}
