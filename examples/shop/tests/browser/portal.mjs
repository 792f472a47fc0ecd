// Driver of the customer portal in a browser. `portal_browser.rs` starts it with one argument, a JSON
// object: the address of the shop, a link of alice with all rights and one to read, and the address of
// her receiver. It asks the test for orders, and for what the receiver got.
import {
  axeHasNothingToSay, end, equal, given, isNotTooWide, look, misplaced, OF_COLOUR, ok, parent, path, shoot, test,
} from "../../../../crates/hapax-testkit/browser/browser.mjs";

const scene = JSON.parse(given[0]);
const portal = `${scene.shop}/portal`;
const FILTER = '{"/amount": {"$gte": 1000}}';
const MAPPING = '{"text": {"$concat": ["<b>Order</b> of ", "$.data.customer_id"]}, "token": "$.data.amount"}';
const DESK = { width: 1280, height: 900 };
const PHONE = { width: 360, height: 720 };

const headed = (page, text) =>
  page.waitForFunction((text) => document.querySelector("h1")?.textContent.trim() === text, text, { timeout: 10000 });
const words = (page) => page.textContent("main");
const secretOn = (page) => page.$eval("#secret", (it) => (it.value ?? it.textContent).trim());
const told = async (request, expected = "done") => equal(await parent(request), expected, request);

// Checks the colours, the labels and the width of a page as it is, and takes pictures of it.
async function inspect(page, name) {
  for (const viewport of [DESK, PHONE]) {
    await page.setViewportSize(viewport);
    await page.emulateMedia({ colorScheme: "light" });
    await axeHasNothingToSay(page, `${name}, ${viewport.width} px`);
    await isNotTooWide(page, name);
    if (viewport === DESK) equal(await misplaced(page), [], name);
    await shoot(page, `light-${name}-${viewport.width}`);
    await page.emulateMedia({ colorScheme: "dark" });
    await axeHasNothingToSay(page, `${name}, ${viewport.width} px, dark`, { runOnly: OF_COLOUR });
    await shoot(page, `dark-${name}-${viewport.width}`);
  }
  await page.setViewportSize(DESK);
  await page.emulateMedia({ colorScheme: "light" });
}

// Presses Tab until an element has the focus, and checks that it is shown to have it.
async function tabTo(page, selector, text) {
  const isThere = ([selector, text]) => {
    const it = document.activeElement;
    return it !== null && it.matches(selector) && (text === null || it.textContent.trim() === text);
  };
  for (let steps = 0; steps < 250; steps += 1) {
    if (await page.evaluate(isThere, [selector, text ?? null])) {
      const isShown = await page.evaluate(() => {
        const style = getComputedStyle(document.activeElement);
        return (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0) || style.boxShadow !== "none";
      });
      return ok(isShown, `the focus on ${selector} ${text ?? ""} is not visible`);
    }
    await page.keyboard.press("Tab");
  }
  throw new Error(`Tab does not reach ${selector} ${text ?? ""}`);
}

async function press(page, selector, text, key = "Enter") {
  await tabTo(page, selector, text);
  await page.keyboard.press(key);
}

async function write(page, selector, text) {
  await tabTo(page, selector);
  await page.keyboard.type(text);
}

// Loads a page again until a cell or a heading has a text.
async function until(page, text) {
  const isShown = (text) =>
    [...document.querySelectorAll("main td, main dd, main h2")].some((it) => it.textContent.trim() === text);
  for (let loads = 0; loads < 100; loads += 1) {
    if (await page.evaluate(isShown, text)) return;
    await page.waitForTimeout(100);
    await page.reload();
  }
  throw new Error(`${path(page)} does not come to show ${text}: ${await words(page)}`);
}

const { page, complaints } = await look({ viewport: DESK });
let created;
let endpoint;
let secret;
let rotated;
let failure;

await test("a link opens the portal of its tenant", async () => {
  await page.goto(scene.link);
  equal(path(page), "/portal", "the address has no token");
  await headed(page, "Endpoints");
  ok((await page.title()).includes("Tea shop"), await page.title());
  await inspect(page, "portal-empty");
});

await test("she adds an endpoint with the keyboard: URL, types and a filter that she tries before", async () => {
  await told("order small 500");
  await told("order large 5000");
  await press(page, "a", "Add endpoint");
  await headed(page, "Add endpoint");
  await inspect(page, "portal-add");
  await write(page, "[name=url]", scene.hook);
  await write(page, "[name=description]", "Stock of the tea shop");
  await press(page, '[name=type][value="order.created"]', undefined, "Space");
  await write(page, "[name=filter]", FILTER);
  await press(page, "button", "Try filter and mapping");
  await page.waitForSelector("#trial");
  const trial = await page.$eval("section[aria-labelledby=trial]", (it) => it.textContent);
  ok(trial.includes("Trial") && trial.includes("1 of the newest 2 events would be sent."), trial);
  await inspect(page, "portal-trial");
  equal(await page.inputValue("[name=url]"), scene.hook, "the form keeps the URL");
  ok(await page.isChecked('[name=type][value="order.created"]'), "the form keeps the type");
  await press(page, "button", "Create endpoint");
  await headed(page, "Endpoint created");
  secret = await secretOn(page);
  ok(secret.startsWith("whsec_"), "the secret");
  created = await page.getAttribute("a:has-text('Open endpoint')", "href");
  await inspect(page, "portal-created");
});

await test("a mapping is tried with the filter, and its result is masked text", async () => {
  const { page, complaints, close } = await look({ viewport: DESK });
  await page.goto(scene.link);
  await page.goto(`${scene.shop}${created}`);
  await headed(page, "Endpoint");
  await page.fill("[name=mapping]", MAPPING);
  await press(page, "button", "Try filter and mapping");
  await page.waitForSelector("#trial");
  const section = "section[aria-labelledby=trial]";
  const trial = await page.textContent(section);
  ok(trial.includes("1 of the newest 2 events would be sent."), trial);
  ok(trial.includes("<b>Order</b> of large") && !trial.includes("of small"), trial);
  ok(trial.includes('"token": "***"'), trial);
  equal(await page.$$eval(`${section} b`, (it) => it.length), 0, "markup");
  equal(await page.inputValue("[name=mapping]"), MAPPING, "the form keeps the mapping");
  await inspect(page, "portal-mapping-trial");
  // Nothing was saved.
  await page.goto(`${scene.shop}${created}`);
  equal(await page.inputValue("[name=mapping]"), "", "the mapping of the endpoint");
  equal(complaints, [], "complaints");
  await close();
});

await test("a URL of no use is refused beside its field", async () => {
  const { page, close } = await look();
  await page.goto(scene.link);
  await page.goto(`${portal}/endpoints/new`);
  await page.fill("[name=url]", "ftp://example.com");
  const [answer] = await Promise.all([
    page.waitForResponse((it) => it.request().method() === "POST"),
    page.click("button:has-text('Create endpoint')"),
  ]);
  equal(answer.status(), 400, "the status");
  await page.waitForLoadState();
  equal(await page.inputValue("[name=url]"), "ftp://example.com", "the form keeps the URL");
  await inspect(page, "portal-refused");
  await close();
});

await test("a test event reaches the endpoint, signed with its secret", async () => {
  await page.goto(portal);
  await inspect(page, "portal-list");
  await press(page, 'a[href^="/portal/endpoints/ep_"]');
  await headed(page, "Endpoint");
  endpoint = path(page);
  await inspect(page, "portal-endpoint");
  await press(page, "button", "Send test event");
  await headed(page, "Test event");
  ok((await words(page)).includes("accepted the test event"), await words(page));
  await told(`signed hapax.test ${secret}`);
  await inspect(page, "portal-test");
});

await test("a failed delivery is shown with its request and its response", async () => {
  await told("refuse");
  await told("order first 2000");
  await told("refused first");
  await page.goto(`${scene.shop}${endpoint}/deliveries`);
  await until(page, "500");
  await headed(page, "Deliveries");
  await inspect(page, "portal-deliveries");
  await press(page, 'main a[href^="/portal/deliveries/"]');
  await headed(page, "Delivery");
  failure = path(page);
  const text = await words(page);
  for (const part of ["Attempt 1", "Request body", "Response", "order.created", "first", "500", "kettle is broken"]) {
    ok(text.includes(part), `${part}: ${text}`);
  }
  await inspect(page, "portal-delivery");
});

await test("the secret is rotated, and both sign for the overlap", async () => {
  await page.goto(`${scene.shop}${endpoint}`);
  await page.selectOption("[name=overlap]", "1h");
  await press(page, "button", "Rotate secret");
  await headed(page, "Secret rotated");
  rotated = await secretOn(page);
  ok(rotated.startsWith("whsec_") && rotated !== secret, "another secret");
  await inspect(page, "portal-rotated");
  await told("accept");
  await told("order second 2000");
  await told(`signed second ${secret} ${rotated}`);
  await page.goto(`${scene.shop}${endpoint}`);
  await press(page, "button", "Show secret");
  await headed(page, "Signing secret");
  equal(await secretOn(page), rotated, "the secret that is shown");
  await inspect(page, "portal-secret");
});

await test("the failed delivery is replayed, signed with both secrets", async () => {
  await page.goto(`${scene.shop}${failure}`);
  await press(page, "button", "Replay");
  await told("accepted first");
  await told(`signed first ${secret} ${rotated}`);
  await page.goto(`${scene.shop}${failure}`);
  await until(page, "Attempt 3");
  await until(page, "200");
  await inspect(page, "portal-replayed");
});

await test("all failed deliveries are replayed together", async () => {
  await told("refuse");
  await told("order third 2000");
  await told("refused third");
  await page.goto(`${scene.shop}${endpoint}/deliveries?state=failed`);
  await until(page, "500");
  await told("accept");
  await page.goto(`${scene.shop}${endpoint}`);
  await press(page, "button", "Replay failed deliveries");
  await told("accepted third");
});

await test("what the filter excludes was never sent", async () => {
  await told("sent small", "0");
  await told("sent large", "0");
  await told("sent second", "1");
});

await test("the event types are those of the catalogue", async () => {
  await page.goto(portal);
  await page.waitForSelector("#theme:not([hidden])");
  await page.keyboard.press("g");
  await page.keyboard.press("t");
  await headed(page, "Event types");
  ok((await words(page)).includes("order.created"), "a type");
  await inspect(page, "portal-types");
});

await test("an endpoint is disabled and enabled", async () => {
  await page.goto(`${scene.shop}${endpoint}`);
  await press(page, "button", "Disable endpoint");
  await page.waitForSelector("button:has-text('Enable endpoint')");
  await inspect(page, "portal-disabled");
  await press(page, "button", "Enable endpoint");
  await page.waitForSelector("button:has-text('Disable endpoint')");
  equal(complaints, [], "complaints");
});

await test("on a phone an endpoint is added and deleted", async () => {
  const { page, complaints, close } = await look({ viewport: PHONE, hasTouch: true, isMobile: true });
  await page.goto(scene.link);
  await page.tap("main a:has-text('Add endpoint')");
  await headed(page, "Add endpoint");
  await page.fill("[name=url]", `${scene.hook}-phone`);
  await page.tap("button:has-text('Create endpoint')");
  await headed(page, "Endpoint created");
  await page.goto(portal);
  const rows = () => page.$$eval('main a[href^="/portal/endpoints/ep_"]', (all) => new Set(all.map((it) => it.pathname)).size);
  equal(await rows(), 2, "endpoints");
  const second = await page.$$eval(
    'main a[href^="/portal/endpoints/ep_"]',
    (all, first) => all.map((it) => it.pathname).find((it) => !it.startsWith(first)),
    endpoint,
  );
  await page.goto(`${scene.shop}${second}`);
  await page.check("[name=confirm]");
  await page.tap("button:has-text('Delete endpoint')");
  await page.waitForURL((url) => url.pathname === "/portal");
  equal(await rows(), 1, "endpoints");
  equal(complaints, [], "complaints");
  await close();
});

await test("without a script an endpoint is changed", async () => {
  const { page, close } = await look({ javaScriptEnabled: false });
  await page.goto(scene.link);
  await page.goto(`${scene.shop}${endpoint}`);
  await page.fill("[name=description]", "Stock and accounts");
  await page.click("button:has-text('Save changes')");
  await page.goto(`${scene.shop}${endpoint}`);
  equal(await page.inputValue("[name=description]"), "Stock and accounts", "the description");
  await close();
});

await test("a link to read has no forms and no secret", async () => {
  const { page, complaints, close } = await look();
  await page.goto(scene.reader);
  await headed(page, "Endpoints");
  for (const place of ["/portal", endpoint, `${endpoint}/deliveries`, failure]) {
    await page.goto(`${scene.shop}${place}`);
    equal(await page.$$eval("main form[method=post]", (all) => all.length), 0, `forms of ${place}`);
    ok(!(await page.content()).includes("whsec_"), place);
  }
  await inspect(page, "portal-reader");
  const answer = await page.request.post(`${scene.shop}${endpoint}/reveal`, { headers: { origin: scene.shop } });
  equal(answer.status(), 403, "a form");
  equal(complaints, [], "complaints");
  await close();
});

await test("pages that say no are as readable", async () => {
  const { page, close } = await look();
  equal((await page.goto(portal)).status(), 401, "without a session");
  await inspect(page, "portal-401");
  equal((await page.goto(`${portal}/open?token=${"a.b.c"}`)).status(), 401, "a link that is not valid");
  await headed(page, "This link is not valid");
  await page.goto(scene.link);
  equal((await page.goto(`${portal}/endpoints/ep_0`)).status(), 404, "no such endpoint");
  await inspect(page, "portal-404");
  await close();
});

await end();
