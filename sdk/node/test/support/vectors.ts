/** The vectors of the contract, which Rust, TypeScript and Python run alike. */
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { PACKAGE } from "./database.js";

const FOLDER =
  process.env.HAPAX_VECTORS ?? fileURLToPath(new URL("../vectors/", `file://${PACKAGE}`));

export interface Case<Input, Expect> {
  name: string;
  input: Input;
  expect: Expect;
}

/** Bytes: a text in UTF-8, or an object that describes them. */
export type Data = string | { hex: string } | { members: number };

/** The names of all files, without `.json`. Throws if there are none. */
export function vectorFiles(): string[] {
  const files = readdirSync(FOLDER).filter((file) => file.endsWith(".json"));
  if (files.length === 0) throw new Error(`there are no vectors in ${FOLDER}`);
  return files.map((file) => file.slice(0, -".json".length)).sort();
}

/** Reads the cases of a file. Throws if there are none, or if their shape is not known. */
export function casesOf<Input, Expect>(name: string): Case<Input, Expect>[] {
  const text = readFileSync(`${FOLDER}/${name}.json`, "utf8");
  const file = JSON.parse(text) as { version: number; cases: Case<Input, Expect>[] };
  if (file.version !== 1)
    throw new Error(`${name}.json has the version ${file.version}, expected 1`);
  if (file.cases.length === 0) throw new Error(`${name}.json has no cases`);
  return file.cases;
}

export function bytesOf(data: Data): Buffer {
  if (typeof data === "string") return Buffer.from(data, "utf8");
  if ("hex" in data) return Buffer.from(data.hex, "hex");
  const members = Array.from({ length: data.members }, (_, at) => `"m${at}":0`);
  return Buffer.from(`{${members.join(",")}}`);
}

/** Bytes of a header as Node passes them. */
export function latin1Of(data: Data): string {
  return bytesOf(data).toString("latin1");
}
