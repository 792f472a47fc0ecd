// A real browser for the drivers of tests. `src/browser.rs` starts a driver with the path of the
// browser, a folder for screenshots, and arguments of the driver: `given`. Each line on standard
// output is a command to the test, which responds with a line. Findings are written to standard
// error, and the exit code says whether there were any.
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const [executablePath, shots, ...rest] = process.argv.slice(2);
export const given = rest;
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
mkdirSync(shots, { recursive: true });

const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
export async function parent(request) {
  process.stdout.write(`${request}\n`);
  return (await answers.next()).value;
}

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
let failures = 0;

// Opens a page that records all errors and warnings of the browser.
export async function look(settings = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, reducedMotion: "reduce", ...settings });
  const page = await context.newPage();
  const complaints = [];
  page.on("console", (message) => message.type() === "error" && complaints.push(message.text()));
  page.on("pageerror", (error) => complaints.push(String(error)));
  await page.addInitScript(() => {
    addEventListener("securitypolicyviolation", (it) =>
      console.error(`policy: ${it.violatedDirective} ${it.blockedURI}`),
    );
  });
  return { page, complaints, close: () => context.close() };
}

export async function test(name, body) {
  const began = performance.now();
  try {
    await body();
    console.error(`  ok    ${name} (${Math.round(performance.now() - began)} ms)`);
  } catch (error) {
    failures += 1;
    console.error(`  FAIL  ${name}\n${error.stack ?? error}`);
  }
}

export function equal(found, expected, what) {
  const [one, two] = [JSON.stringify(found), JSON.stringify(expected)];
  if (one !== two) throw new Error(`${what}: ${one} instead of ${two}`);
}

export function ok(is, what) {
  if (!is) throw new Error(what);
}

export const path = (page) => new URL(page.url()).pathname + new URL(page.url()).search;
export const at = (page, expected) => page.waitForURL((url) => url.pathname + url.search === expected, { timeout: 8000 });

// The accessibility rules that check colours.
export const OF_COLOUR = ["color-contrast", "link-in-text-block"];

export async function axeHasNothingToSay(page, where, which = {}) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(
    (which) => window.axe.run({ resultTypes: ["violations"], ...which }),
    which,
  );
  const serious = violations.filter((found) => ["serious", "critical"].includes(found.impact));
  const said = serious.map((found) => `${found.id}: ${found.help}\n${found.nodes.map((node) => node.html).slice(0, 4).join("\n")}`);
  equal(said, [], where);
}

// The longest word that a cell keeps in one piece: see `WHOLE` in format.rs of the console.
const WHOLE = 20;

// What is wrong with the places of labels and words: a word that is broken although it is short, a
// label that runs into its value.
export async function misplaced(page) {
  return page.evaluate((whole) => {
    const wrong = [];
    const lines = (range) => new Set([...range.getClientRects()].filter((it) => it.width > 0).map((it) => Math.round(it.top))).size;
    const words = (element, check) => {
      const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
      for (let node = walker.nextNode(); node; node = walker.nextNode()) {
        for (const found of node.data.matchAll(/[^\s-]+/g)) {
          const range = document.createRange();
          range.setStart(node, found.index);
          range.setEnd(node, found.index + found[0].length);
          check(found[0], range);
        }
      }
    };
    for (const cell of document.querySelectorAll("main td, main th, main .badge, main .why span")) {
      words(cell, (word, range) => {
        const parent = range.startContainer.parentElement;
        if (word.length <= whole && !parent.closest("pre, .break") && lines(range) > 1) wrong.push(`broken: ${word}`);
      });
    }
    for (const dt of document.querySelectorAll("main .facts dt")) {
      const value = dt.nextElementSibling.getBoundingClientRect();
      words(dt, (word, range) => {
        const right = Math.max(...[...range.getClientRects()].map((it) => it.right));
        if (right > value.left + 1) wrong.push(`over its value: ${dt.textContent}`);
      });
    }
    return wrong;
  }, WHOLE);
}

export async function shoot(page, name) {
  await page.screenshot({ path: `${shots}/${name}.png` });
}

export async function isNotTooWide(page, where) {
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  ok(wide <= 0, `${where}: ${wide} px too wide`);
}

// Ends the driver. No test may follow.
export async function end() {
  await browser.close();
  await parent(failures === 0 ? "passed" : "failed");
  process.exit(failures === 0 ? 0 : 1);
}
