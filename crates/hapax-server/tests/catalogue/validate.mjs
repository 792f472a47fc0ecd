// Validates an AsyncAPI document with the parser of the AsyncAPI project. The first argument is the
// folder in which the parser is installed.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { join } from "node:path";

const installed = createRequire(join(process.argv[2], "package.json"));
const { Parser } = installed("@asyncapi/parser");

const { document, diagnostics } = await new Parser().parse(readFileSync(0, "utf8"));
const errors = diagnostics.filter((diagnostic) => diagnostic.severity === 0);
if (document === undefined || errors.length > 0) {
  console.error(JSON.stringify(errors, null, 2));
  process.exit(1);
}
console.log(`channels ${document.channels().all().length}`);
