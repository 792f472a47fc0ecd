// Driver of the console in a real browser. `main.rs` starts it with these arguments: the address of
// a console without tokens, the address of a console with tokens, an operator's token, a viewer's
// token.
import {
  at, axeHasNothingToSay, end, equal, given, isNotTooWide, look, misplaced, OF_COLOUR, ok, parent, path, shoot, test,
} from "../../../hapax-testkit/browser/browser.mjs";

const [local, guarded, operator, viewer] = given;

// The endpoint that fails, and the one that is disabled.
const FAILING = "ep_c4ca4238a0b923820dcc509a6f75849b";
const DISABLED = "ep_c81e728d9d4c2f636f067f89cc14862c";

const PAGES = [
  "",
  "/events",
  "/events/1",
  "/events/2",
  "/timeline?key=order-8e03-1",
  "/deliveries",
  "/dead-letters?q=dest:mail",
  "/keys",
  "/inbox",
  "/sagas",
  "/sagas/checkout-1",
  "/unknown",
  "/unknown/request?operation=gateway:POST%20%2Forders&key=order-4711&tenant=acme",
  "/destinations",
  "/destinations/mail",
  "/endpoints",
  "/endpoints?q=state:disabled",
  `/endpoints/${FAILING}`,
  `/endpoints/${FAILING}?failed=1`,
  `/endpoints/${FAILING}/try`,
  `/endpoints/${DISABLED}`,
  "/polling",
  "/polling/warehouse",
  "/catalogue",
  "/catalogue/order.created",
  "/advanced",
  "/configuration",
  "/reference",
  "/reference/cli",
  "/reference?q=lease",
  "/reference/http",
  "/reference/commands-by-purpose",
  "/reference/hapax-configuration",
  "/reference/tune-pollers-and-consumers",
  "/reference/errors",
  "/reference/metrics",
  "/reference/limits",
  "/reference/sql-contract",
  "/act?act=replay&partition=mail&position=1",
  "/act?act=edit&partition=search&position=2",
  "/act?act=decide&saga=checkout-1&decision=done&step=charge",
  "/act?act=settle&decision=happened&operation=gateway:POST%20%2Forders&key=order-4711&tenant=acme",
  "/act?act=replay-selected&one=search+2&one=mail+1",
  "/act?act=retry&partition=hooks&position=8",
  `/act?act=disable-endpoint&tenant=shop&endpoint=${FAILING}`,
  `/act?act=replay-endpoint&tenant=shop&endpoint=${FAILING}`,
  "/act?act=seek&polling=warehouse",
];
const PLACES = {
  o: "/console",
  e: "/console/events",
  d: "/console/deliveries",
  l: "/console/dead-letters",
  k: "/console/keys",
  i: "/console/inbox",
  s: "/console/sagas",
  u: "/console/unknown",
  t: "/console/destinations",
  w: "/console/endpoints",
  p: "/console/polling",
  y: "/console/catalogue",
  c: "/console/reference/cli",
  f: "/console/configuration",
  a: "/console/advanced",
  r: "/console/reference",
};

const ready = (page) => page.waitForSelector("#theme:not([hidden])");
const isLive = (page) => page.waitForSelector('#live[data-state="live"]', { timeout: 15000 });

await test("every page opens without a complaint", async () => {
  const { page, complaints, close } = await look();
  for (const it of PAGES) {
    const answer = await page.goto(`${local}/console${it}`);
    equal(answer.status(), 200, it);
    await ready(page);
    await isLive(page);
    equal(complaints, [], it);
  }
  await close();
});

await test("every key works", async () => {
  const { page, complaints, close } = await look();
  for (const [key, place] of Object.entries(PLACES)) {
    await page.goto(`${local}/console/${key === "o" ? "keys" : ""}`);
    await ready(page);
    await page.keyboard.press("g");
    await page.keyboard.press(key);
    await at(page, place);
  }
  await page.goto(`${local}/console/events`);
  await ready(page);
  const focused = () => page.evaluate(() => document.activeElement.id || document.activeElement.getAttribute("href"));
  await page.keyboard.press("/");
  equal(await focused(), "filter", "/");
  await page.keyboard.type("g e");
  equal(await page.inputValue("#filter"), "g e", "a key that is typed is typed");
  await page.keyboard.press("Escape");
  equal(await page.inputValue("#filter"), "", "Esc");
  await page.waitForSelector("#results table");
  await page.keyboard.press("j");
  const first = await focused();
  await page.keyboard.press("j");
  ok((await focused()) !== first, "j moves");
  await page.keyboard.press("k");
  equal(await focused(), first, "k moves back");
  await page.keyboard.press("Enter");
  await at(page, first);
  await page.keyboard.press("?");
  ok(await page.isVisible("#help"), "? shows the keys");
  await page.keyboard.press("Escape");
  ok(!(await page.isVisible("#help")), "Esc closes them");
  equal(complaints, [], "complaints");
  await close();
});

await test("from a stuck event to its cause in at most three keystrokes", async () => {
  const { page, close } = await look();
  await page.goto(`${local}/console`);
  await ready(page);
  const reasons = await page.$$eval(".why a", (all) => all.map((it) => it.textContent));
  const dead = reasons.findIndex((it) => it.includes("dead letter"));
  ok(dead >= 0 && dead < 2, `the dead letter is among the first lines: ${reasons.join(" | ")}`);
  let strokes = 0;
  const press = async (key) => {
    strokes += 1;
    await page.keyboard.press(key);
  };
  for (let line = 0; line <= dead; line += 1) await press("j");
  await press("Enter");
  await page.waitForURL(/\/console\/events\/\d+$/);
  ok(strokes <= 3, `${strokes} keystrokes`);
  const text = await page.textContent("main");
  ok(text.includes("550 no such mailbox"), "the page says the cause");
  console.error(`        ${strokes} keystrokes`);
  // The first row of the overview leads to the cause as well.
  await page.goto(`${local}/console`);
  await ready(page);
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.waitForURL((url) => url.pathname !== "/console");
  ok((await page.textContent("main")).length > 100, "the first line leads somewhere");
  await close();
});

await test("labels and words are in their places on every page", async () => {
  const { page, close } = await look();
  for (const it of PAGES) {
    await page.goto(`${local}/console${it}`);
    await isLive(page);
    equal(await misplaced(page), [], it);
  }
  await page.keyboard.press("?");
  const heights = await page.$$eval("#help dt kbd", (all) => all.map((it) => Math.round(it.getBoundingClientRect().height)));
  equal(new Set(heights).size, 1, `the keys of the help are equally high: ${heights}`);
  await close();
});

await test("on a phone the cells of a row begin at one edge, empty ones take no space, and the current page is in view", async () => {
  const { page, close } = await look({ viewport: { width: 360, height: 720 } });
  for (const it of PAGES) {
    await page.goto(`${local}/console${it}`);
    await ready(page);
    // Per table, because a table in a section is indented as a whole.
    const edges = await page.$$eval("main table", (tables) =>
      tables.map((table) => {
        const cells = [...table.querySelectorAll("tbody td")].filter((td) => td.offsetParent);
        const left = (it) => Math.round(it.getBoundingClientRect().left);
        const labels = cells.map((td) => left(td) + Math.round(parseFloat(getComputedStyle(td).paddingLeft)));
        const values = cells.map((td) => td.querySelector(".v")).filter(Boolean).map(left);
        return [[...new Set(labels)], [...new Set(values)]];
      }));
    for (const [labels, values] of edges) {
      ok(labels.length <= 1, `${it}: labels at ${labels}`);
      ok(values.length <= 1, `${it}: values at ${values}`);
    }
    const empty = await page.$$eval("main tbody td", (cells) =>
      cells.filter((td) => td.offsetParent && !td.innerText.trim() && !td.querySelector("input, svg")).map((td) => td.dataset.head));
    equal(empty, [], `${it}: empty cells`);
    const isInView = await page.evaluate(() => {
      const here = document.querySelector("body > nav [aria-current]");
      if (!here) return true;
      const [place, nav] = [here.getBoundingClientRect(), here.closest("nav").getBoundingClientRect()];
      return place.left >= nav.left - 1 && place.right <= nav.right + 1;
    });
    ok(isInView, `${it}: the current page is out of view`);
  }
  await close();
});

await test("the pictures of the guide can be taken", async () => {
  for (const [it, name, settings] of [
    ["", "overview", {}],
    ["/events/1", "event", {}],
    ["/timeline?key=order-8e03-1", "request", {}],
    ["", "phone", { colorScheme: "dark", viewport: { width: 360, height: 720 } }],
  ]) {
    const { page, close } = await look({ colorScheme: "light", viewport: { width: 1280, height: 760 }, ...settings });
    await page.goto(`${local}/console${it}`);
    await isLive(page);
    await shoot(page, `console-${name}`);
    await close();
  }
});

await test("the filter answers while one types, and the URL is its state", async () => {
  const { page, complaints, close } = await look();
  await page.goto(`${local}/console/events`);
  await ready(page);
  await page.keyboard.press("/");
  await page.keyboard.type("type:refund.*", { delay: 15 });
  await page.waitForFunction(() => {
    const rows = [...document.querySelectorAll("#results tbody tr")];
    return rows.length > 0 && rows.every((row) => row.textContent.includes("refund."));
  });
  equal(path(page), "/console/events?q=type%3Arefund.*", "the URL");
  equal(await page.evaluate(() => document.activeElement.id), "filter", "the cursor stays");
  await page.reload();
  equal(await page.inputValue("#filter"), "type:refund.*", "after a reload");
  await page.fill("#filter", "typ:refund");
  await page.waitForSelector("#filter-note.wrong");
  ok((await page.textContent("#filter-note")).includes("did you mean type:"), "what was meant");
  await page.fill("#filter", "");
  await page.waitForSelector("#results table");
  for (const it of ["/reference", "/reference/cli", "/configuration", "/deliveries", "/destinations"]) {
    await page.goto(`${local}/console${it}`);
    await ready(page);
    const before = await page.textContent("#results");
    await page.fill("#filter", it === "/deliveries" ? "state:dead" : "mail");
    await page.waitForFunction((before) => document.getElementById("results").textContent !== before, before);
  }
  equal(complaints, [], "complaints");
  await close();
});

await test("without a script pages, filter and acts work", async () => {
  const { page, close } = await look({ javaScriptEnabled: false });
  await page.goto(`${local}/console/events`);
  await page.fill("#filter", "type:refund.*");
  await page.press("#filter", "Enter");
  await at(page, "/console/events?q=type%3Arefund.*");
  ok((await page.textContent("#results")).includes("refund."), "the list");
  await page.goto(`${local}/console/destinations/search`);
  await page.click("text=Pause");
  await page.fill("#reason", "the index is being rebuilt");
  await page.click("text=Pause it");
  await at(page, "/console/destinations/search?said=paused");
  ok((await page.textContent(".told")).includes("paused"), "what came of it");
  await close();
});

await test("the attempts at one event are found from its page and from its endpoint", async () => {
  const { page, complaints, close } = await look();
  await page.goto(`${local}/console/endpoints/${FAILING}`);
  await ready(page);
  await page.click("main table a:has-text('order.created') >> nth=0");
  await page.waitForURL(/\/console\/endpoints\/ep_[0-9a-f]+\?event=/);
  const text = await page.textContent("main");
  ok(text.includes("the service is being updated") && !text.includes("4111"), "the response is shown, the card is not");
  equal(await misplaced(page), [], "one event");
  await axeHasNothingToSay(page, "one event");
  await page.click("main a:has-text('The event')");
  await page.waitForURL(/\/console\/events\//);
  ok((await page.textContent("main")).includes(FAILING), "the event names the endpoint");
  equal(complaints, [], "complaints");
  await close();
});

await test("a filter and a mapping are tried on the events of an endpoint", async () => {
  const { page, complaints, close } = await look();
  await page.goto(`${local}/console/endpoints/${FAILING}`);
  await page.click("main a:has-text('Try filter and mapping')");
  await page.waitForURL(/\/try$/);
  await page.fill("[name=types]", "order.created");
  await page.fill("[name=filter]", '{"/amount": {"$gte": 560}}');
  await page.fill("[name=mapping]", '{"to": "$.data.customer.email", "text": "<b>an order</b>"}');
  await page.click("main button.main");
  await page.waitForSelector("#trial");
  const text = await page.textContent("section[aria-labelledby=trial]");
  ok(text.includes("1 of the newest 50 events would be sent."), text);
  ok(text.includes("<b>an order</b>") && text.includes('"***"'), text);
  ok(!text.includes("ann@example.com"), "the address is masked under its new name");
  equal(await page.$$eval("section[aria-labelledby=trial] b", (it) => it.length), 0, "markup");
  equal(await page.inputValue("[name=types]"), "order.created", "the form keeps the types");
  equal(await misplaced(page), [], "the trial");
  await axeHasNothingToSay(page, "the trial");
  equal(complaints, [], "complaints");
  await close();
});

await test("a dead letter is edited, and offered again with what was written", async () => {
  const { page, complaints, close } = await look();
  await page.goto(`${local}/console/events/2`);
  await page.click("main a:has-text('Edit and replay')");
  await page.waitForURL(/\/console\/act\?act=edit/);
  const before = await page.textContent("main");
  ok(before.includes("ord-2") && before.includes("***"), "what it says is shown, masked");
  ok(!before.includes("4111"), "and no card");
  await page.fill("#patch", '{"customer": {"email": "ann@example.org"}, "note": "sent by hand"}');
  await page.fill("#reason", "the address was misspelt");
  await axeHasNothingToSay(page, "the form");
  await page.click("main button.main");
  await at(page, "/console/events/2?said=edited");
  ok((await page.textContent(".told")).includes("due again"), "what came of it");
  const after = await page.textContent("main");
  ok(after.includes("The payload for this destination was edited"), "it is shown as edited");
  ok(after.includes("sent by hand") && !after.includes("ann@example.org"), "with what was written, masked");
  ok(after.includes("ord-2"), "what the patch does not name stays");
  equal(await page.$$eval("main a.button", (all) => all.filter((it) => it.textContent.includes("Edit")).length), 0, "it is dead no more");
  // After an action the page reads its deliveries again a few times.
  await page.goto(`${local}/console/events/2`);
  await axeHasNothingToSay(page, "the event");
  equal(complaints, [], "complaints");
  await close();
});

await test("the form to edit a dead letter begins with its heading", async () => {
  for (const viewport of [{ width: 1280, height: 700 }, { width: 360, height: 640 }]) {
    const { page, close } = await look({ viewport });
    await page.goto(`${local}/console/act?act=edit&partition=search&position=2`);
    await ready(page);
    const top = await page.$eval("h1", (it) => it.getBoundingClientRect().top);
    ok(top >= 0 && (await page.evaluate(() => scrollY)) === 0, `the heading is at ${top}`);
    await close();
  }
});

await test("rows are selected by keyboard and by their boxes, and replayed together", async () => {
  const { page, complaints, close } = await look();
  await page.goto(`${local}/console/dead-letters?q=dest%3Asearch`);
  await ready(page);
  ok(await page.isDisabled("button[value=replay-selected]"), "nothing is selected");
  const before = await page.textContent('[data-live="nav-dead"]');
  await page.keyboard.press("j");
  await page.keyboard.press("x");
  equal(await page.textContent("#selected"), "1 selected", "x selects the row");
  await page.click("th.pick input");
  const all = await page.$$eval("td.pick input", (all) => all.length);
  ok(all >= 3, `${all} rows`);
  equal(await page.textContent("#selected"), `${all} selected`, "the box in the head selects all");
  await page.uncheck("td.pick input >> nth=0");
  equal(await page.textContent("#selected"), `${all - 1} selected`, "a box is cleared");
  equal(await page.isChecked("th.pick input"), false, "not all are selected");
  await axeHasNothingToSay(page, "the list with selected rows");
  await shoot(page, "selected-1280");
  // The filter replaces the list and forgets the selection.
  await page.fill("#filter", "dest:search attempt>3");
  await page.waitForFunction(() => document.getElementById("selected").textContent === "");
  await page.click("th.pick input");
  await page.click("text=Replay selected");
  await page.waitForURL(/act=replay-selected/);
  ok((await page.textContent(".says")).startsWith(`${all} dead letters`), "how many");
  await page.fill("#reason", "the index was mended");
  await page.click("main button.main");
  await page.waitForURL(/said=selected-replayed/);
  ok((await page.textContent(".told")).includes(`${all} of ${all} are due again`), "what came of it");
  await page.waitForFunction((before) => document.querySelector('[data-live="nav-dead"]').textContent !== before, before);
  equal(complaints, [], "complaints");
  await close();
});

await test("a delivery that waits is retried now", async () => {
  const { page, close } = await look();
  await page.goto(`${local}/console/deliveries?q=state%3Aretrying+dest%3Ahooks`);
  await ready(page);
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/console\/events\/\d+$/);
  await page.click("text=Retry now");
  await page.fill("#reason", "the receiver is back");
  await page.click("main button.main");
  await page.waitForURL(/said=retried/);
  ok((await page.textContent("main")).includes("has been due for"), "it is due");
  await close();
});

await test("charts of a day stay when figures arrive", async () => {
  const { page, close } = await look();
  await page.goto(`${local}/console`);
  await ready(page);
  await page.click(".ranges a:has-text('24 h')");
  await at(page, "/console?range=24h");
  await isLive(page);
  equal(await page.$eval(".ranges [aria-current]", (it) => it.textContent), "24 h", "the range");
  await close();
});

await test("figures move, and come back after the server does", async () => {
  const { page, close } = await look();
  await page.goto(`${local}/console`);
  await isLive(page);
  const why = await page.textContent('[data-live="why"]');
  equal(await parent("pause hooks"), "done", "the parent");
  await page.waitForFunction(
    (why) => document.querySelector('[data-live="why"]').textContent !== why,
    why,
    { timeout: 15000 },
  );
  await page.keyboard.press("j");
  const focused = await page.evaluate(() => document.activeElement.getAttribute("href"));
  equal(await parent("stop"), "done", "the parent");
  // The console may send one more update while it stops. The page then shows "not live for now",
  // and "lost" a second later.
  await page.waitForFunction(() => document.getElementById("live").textContent.includes("lost"), null, {
    timeout: 15000,
  });
  equal(await page.getAttribute("#live", "data-state"), "lost", "the state");
  await shoot(page, "lost-1280");
  equal(await parent("start"), "done", "the parent");
  await page.waitForFunction(() => document.getElementById("live").textContent === "live again", null, {
    timeout: 20000,
  });
  equal(await page.evaluate(() => document.activeElement.getAttribute("href")), focused, "whoever stands on a line");
  await close();
});

await test("one signs in, a viewer has no buttons, and one signs out", async () => {
  const { page, complaints, close } = await look();
  await page.goto(`${guarded}/console/events/1`);
  await page.waitForURL(/\/console\/login\?next=/);
  await shoot(page, "login-1280");
  await page.fill("#token", viewer);
  await page.press("#token", "Enter");
  await at(page, "/console/events/1");
  equal(await page.$$eval("main .button, main button", (all) => all.length), 0, "a viewer's buttons");
  await page.click("text=Sign out");
  await at(page, "/console/login");
  await page.fill("#token", operator);
  await page.press("#token", "Enter");
  await at(page, "/console");
  await page.goto(`${guarded}/console/events/1`);
  await page.click("text=Discard");
  await page.fill("#reason", "the customer is gone");
  await page.click("text=Discard it");
  await at(page, "/console/events/1?said=discarded");
  ok((await page.textContent("main")).includes("the customer is gone"), "the reason is shown");
  equal(complaints, [], "complaints");
  await close();
});

await test("the theme is chosen and kept", async () => {
  const { page, close } = await look({ colorScheme: "light" });
  await page.goto(`${local}/console`);
  await ready(page);
  const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await paper();
  await page.click("#theme");
  const dark = await paper();
  ok(light !== dark, "it changes");
  await page.goto(`${local}/console/keys`);
  await ready(page);
  equal(await paper(), dark, "on the next page");
  await close();
});

for (const width of [1280, 360]) {
  await test(`axe has nothing serious to say: ${width} px, light and dark`, async () => {
    const { page, close } = await look({ viewport: { width, height: 800 } });
    for (const it of PAGES) {
      await page.emulateMedia({ colorScheme: "light" });
      await page.goto(`${local}/console${it}`);
      await isLive(page);
      await axeHasNothingToSay(page, it || "/");
      await isNotTooWide(page, it);
      const name = it.split("?")[0].replaceAll("/", "-") || "-overview";
      await shoot(page, `light${name}-${width}`);
      // Only the colours of the page have changed, so only the rules about colours are checked.
      await page.emulateMedia({ colorScheme: "dark" });
      await axeHasNothingToSay(page, `${it || "/"}, dark`, { runOnly: OF_COLOUR });
      await shoot(page, `dark${name}-${width}`);
    }
    await close();
  });
}

await end();
