// Driver of attempts in a browser to reach the endpoints of another tenant. `cross_tenant.rs` starts it
// with one argument, a JSON object: addresses, alice's link, her ids, bob's ids, his seal, an expired
// token of his, and the words that no page may show.
import { createServer } from "node:http";
import { end, equal, given, look, ok, parent, shoot, test } from "../../../../crates/hapax-testkit/browser/browser.mjs";

const scene = JSON.parse(given[0]);
const portal = `${scene.shop}/portal`;
const secrets = scene.secrets.map((it) => it.toLowerCase());
let attempts = 0;

// Fails if a text has anything of bob's.
function hides(text, where) {
  const lower = text.toLowerCase();
  for (const secret of secrets) ok(!lower.includes(secret), `${where} shows ${secret}`);
}

// Opens the portal as alice, and hands the page to the attempt.
async function attempt(name, body) {
  attempts += 1;
  await test(name, async () => {
    const { page, close } = await look();
    await page.goto(scene.link);
    equal(new URL(page.url()).pathname, "/portal", "the link");
    await body(page, page.context());
    await close();
  });
}

// Goes to an address, and checks the status and the page.
async function refused(page, url, statuses = [404]) {
  const answer = await page.goto(url);
  ok(statuses.includes(answer.status()), `${url}: ${answer.status()}`);
  hides(await page.content(), url);
}

// Sends a form that the page has, after a change of it, and checks what comes back.
async function sent(page, selector, change, given, statuses) {
  const [answer] = await Promise.all([
    page.waitForResponse((it) => it.request().method() === "POST"),
    // The page of the response has replaced the one of the form.
    page.waitForEvent("domcontentloaded"),
    page.$eval(
      selector,
      (form, [change, given]) => {
        if (change === "action") form.action = given;
        else form.elements[change].value = given;
        form.submit();
      },
      [change, given],
    ),
  ]);
  ok(statuses.includes(answer.status()), `${selector}: ${answer.status()}`);
  hides(await page.content(), selector);
}

// A page of another origin with this body. The host is the same, so that its requests have the cookie.
async function elsewhere(body, use) {
  const server = createServer((_, answer) => {
    answer.setHeader("content-type", "text/html");
    answer.end(`<!doctype html><title>Elsewhere</title>${body}`);
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  try {
    await use(`http://127.0.0.1:${server.address().port}/`);
  } finally {
    server.close();
    server.closeAllConnections();
  }
}

const own = `${portal}/endpoints/${scene.own}`;
const his = `${portal}/endpoints/${scene.endpoint}`;

await attempt("his endpoint in the address bar", async (page) => {
  await refused(page, his);
  await shoot(page, "cross-tenant-404");
});

await attempt("his deliveries in the address bar", async (page) => {
  await refused(page, `${his}/deliveries`);
  await refused(page, `${portal}/deliveries/${scene.endpoint}/${scene.delivered}`);
  await refused(page, `${portal}/deliveries/${scene.endpoint}/${scene.failed}`);
});

await attempt("his event at her endpoint", (page) => refused(page, `${portal}/deliveries/${scene.own}/${scene.delivered}`));

await attempt("dot segments, which the browser resolves", (page) => refused(page, `${own}/../${scene.endpoint}`));

await attempt("an address that a script sets", async (page) => {
  await page.evaluate((url) => history.pushState(null, "", url), his);
  const answer = await page.reload();
  equal(answer.status(), 404, "the reloaded page");
  hides(await page.content(), "the reloaded page");
});

await attempt("requests of a script on her page", async (page) => {
  const paths = [his, `${his}/deliveries`, `${portal}/deliveries/${scene.endpoint}/${scene.failed}`];
  const answers = await page.evaluate(
    (paths) => Promise.all(paths.map(async (path) => {
      const answer = await fetch(path, { headers: { "x-hapax-tenant": "bob" } });
      return [answer.status, await answer.text()];
    })),
    paths,
  );
  for (const [status, text] of answers) {
    equal(status, 404, "the status");
    hides(text, "the response");
  }
});

await attempt("her form with the address of his endpoint", async (page) => {
  await page.goto(own);
  await sent(page, 'form[action$="/reveal"]', "action", `${his}/reveal`, [404]);
});

await attempt("her form with the address of his deletion", async (page) => {
  await page.goto(own);
  await sent(page, 'form[action$="/disable"]', "action", `${his}/disable`, [404]);
});

await attempt("her form with his event", async (page) => {
  await page.goto(`${portal}/deliveries/${scene.own}/${scene.event}`);
  await sent(page, 'form[action$="/replay"]', "event_id", scene.failed, [404]);
});

await attempt("her form with his seal", async (page) => {
  await page.goto(own);
  await sent(page, 'form[action$="/reveal"]', "seal", scene.seal, [403]);
});

await attempt("a cookie that a script reads or sets", async (page) => {
  const seen = await page.evaluate((token) => {
    const before = document.cookie;
    document.cookie = `hapax_portal=${token}; path=/portal`;
    return before;
  }, scene.expired);
  ok(!seen.includes("hapax_portal"), `a script reads ${seen}`);
  await refused(page, his, [401, 404]);
});

await attempt("his expired session in place of hers", async (page, context) => {
  await context.clearCookies();
  await context.addCookies([{ name: "hapax_portal", value: scene.expired, domain: "127.0.0.1", path: "/portal" }]);
  await refused(page, his, [401]);
});

await attempt("his expired session beside hers", async (page, context) => {
  const path = `/portal/endpoints/${scene.endpoint}`;
  await context.addCookies([{ name: "hapax_portal", value: scene.expired, domain: "127.0.0.1", path }]);
  await refused(page, his, [401, 404]);
});

await attempt("a form of another origin", async (page) => {
  const form = `<form method="post" action="${own}/reveal"></form><script>document.forms[0].submit()</script>`;
  await elsewhere(form, async (url) => {
    const [answer] = await Promise.all([
      page.waitForResponse((it) => it.request().method() === "POST"),
      page.goto(url).catch(() => {}),
    ]);
    equal(answer.status(), 403, "the status");
    await page.waitForURL((it) => it.pathname.endsWith("/reveal"));
    hides(await page.content(), "the response");
  });
});

await attempt("a request of a script of another origin", async (page) => {
  await elsewhere("", async (url) => {
    await page.goto(url);
    const read = await page.evaluate(async (url) => {
      const answer = await fetch(url, { credentials: "include" }).catch(() => null);
      return answer && answer.text();
    }, own);
    equal(read, null, "what the script reads");
  });
});

await attempt("a frame of another origin", async (page) => {
  await elsewhere(`<iframe src="${own}"></iframe>`, async (url) => {
    await page.goto(url);
    const frame = page.frames().find((it) => it !== page.mainFrame());
    const shown = await frame.content().catch(() => "");
    ok(!shown.includes("<form"), shown);
  });
  const headers = (await page.goto(own)).headers();
  ok(headers["content-security-policy"].includes("frame-ancestors 'none'"), "the policy");
});

await attempt("the console and its live figures", async (page) => {
  await page.goto(`${scene.shop}/console/events`);
  ok(page.url().includes("/console/login"), page.url());
  hides(await page.content(), "the console");
  const opened = await page.evaluate(
    () => new Promise((done) => {
      const source = new EventSource("/console/live");
      source.onmessage = (it) => done(it.data);
      source.onerror = () => done("");
    }),
  );
  equal(opened, "", "what the stream sends");
});

await parent(`attempts ${attempts}`);
await end();
