// Widget and desk in a real browser on a cluster of two nodes: the user's pages reach the first, the agents' the second, each
// the other one when its own is gone. Needs SLUICE_NODES (two addresses), SLUICE_SECRET (signs tokens), SLUICE_CONTROL (where
// `kill 0` takes the first node away) and SLUICE_SCREENSHOTS; is skipped without SLUICE_NODES, for `demo.test.mjs` runs without.
// Every wait is for something that can be seen, and ends with a failure after a deadline.

import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { once } from "node:events";
import { mkdir, readFile } from "node:fs/promises";
import { connect } from "node:net";
import path from "node:path";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";
import { balancer } from "./balancer.mjs";

const DEADLINE_MS = 15_000;
const CHROMIUM = process.env.SLUICE_CHROMIUM ?? "/usr/bin/chromium";
const FLAGS = [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
  // Pages that a test hands to the browser count as coming from far away, and those may open no WebSocket to this machine.
  "--disable-features=LocalNetworkAccessChecks,LocalNetworkAccessChecksWebSockets,PrivateNetworkAccessForWorkers",
];
const WEB = new URL("../../gateway/web/", import.meta.url);
const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };
const DESKTOP = { width: 1180, height: 800 };
const PHONE = { width: 390, height: 844 };

const nodes = process.env.SLUICE_NODES?.split(",");
const pictures = process.env.SLUICE_SCREENSHOTS;
const complaints = [];
let browser;
let near;
let far;
let walled;
let shop;
let desks;

before(async () => {
  if (!nodes) return;
  await mkdir(pictures, { recursive: true });
  near = await balancer(nodes);
  far = await balancer(nodes.toReversed());
  walled = await balancer(nodes.toReversed());
  walled.webSockets = false;
  browser = await chromium.launch({ executablePath: CHROMIUM, args: FLAGS });
});

after(async () => {
  await browser?.close();
  for (const one of [near, far, walled]) one?.close();
});

const on = { skip: nodes ? false : "SLUICE_NODES is not set: the tests of a cluster are started by cargo" };

function token(sub, role, more = {}) {
  const part = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const exp = Math.floor(Date.now() / 1_000) + 3_600;
  const said = `${part({ alg: "HS256", typ: "JWT" })}.${part({ sub, role, iss: "sluice", aud: "sluice", exp, ...more })}`;
  return `${said}.${createHmac("sha256", process.env.SLUICE_SECRET).update(said).digest("base64url")}`;
}

/** The demo's pages, which a node of a cluster does not serve, on the address of `edge`; everything else goes there. */
async function open(edge, address, options = {}) {
  const context = await browser.newContext({ viewport: DESKTOP, locale: "en-GB", reducedMotion: "reduce", ...options });
  context.setDefaultTimeout(DEADLINE_MS);
  await context.route((url) => url.pathname === "/" || url.pathname === "/desk" || url.pathname.startsWith("/demo/"), async (route) => {
    const url = new URL(route.request().url());
    if (url.pathname === "/demo/state") {
      const [userId, agentId] = [url.searchParams.get("user") ?? "alice", url.searchParams.get("agent") ?? "a1"];
      const [userToken, agentToken] = [token(userId, "user"), token(agentId, "agent", { shop_id: "1" })];
      return route.fulfill({ json: { serverTime: Date.now(), userId, userToken, agentId, agentToken, shopId: "1" } });
    }
    const file = { "/": "index.html", "/desk": "desk.html" }[url.pathname] ?? path.basename(url.pathname);
    return route.fulfill({ body: await readFile(new URL(file, WEB)), contentType: TYPES[path.extname(file)] });
  });
  const page = await context.newPage();
  page.on("pageerror", (error) => complaints.push(`${page.url()}: ${error.stack}`));
  page.on("console", (message) => {
    // What a browser says of a connection that a test took away.
    if (message.type() === "error" && !/ERR_|WebSocket|Failed to load resource/.test(message.text())) complaints.push(message.text());
  });
  await page.goto(edge.url + address);
  return page;
}

const online = (page, transport = "socket") => page.locator(`#link[data-state=online][data-transport=${transport}]`).waitFor({ state: "attached" });
const picture = (page, name) => page.screenshot({ path: path.join(pictures, `${name}.png`), animations: "disabled" });
const row = (desk, user) => desk.locator("#sessions li", { hasText: user });
const exactly = (text) => new RegExp(`^${text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}$`);
const bubble = (page, text) => page.locator(".message .text").filter({ hasText: exactly(text) });
const shows = (page, text) => bubble(page, text).first().waitFor();

async function write(page, text) {
  const field = page.locator("[data-part=field]");
  await field.fill(text);
  await field.press("Enter");
}

async function stored(page, text) {
  await page.locator(".message.own:not(.unsent) .text").filter({ hasText: exactly(text) }).first().waitFor();
}

/** Takes something of the cluster away. */
async function take(what) {
  const [host, port] = process.env.SLUICE_CONTROL.split(":");
  const socket = connect({ host, port: Number(port) });
  socket.end(`${what}\n`);
  const [answer] = await once(socket, "data");
  assert.equal(String(answer).trim(), "done");
}

/** A customer whose widget is open. */
async function customer(edge, name, transport) {
  const page = await open(edge, `/?user=${name}`);
  await online(page, transport);
  await page.locator("#bubble").click();
  return page;
}

test("a conversation between two nodes: opened, assigned, answered", on, async () => {
  desks = { a1: await open(far, "/desk?agent=a1") };
  await online(desks.a1);
  shop = await customer(near, "carol");
  await write(shop, "你好");
  await stored(shop, "你好");
  await row(desks.a1, "carol").locator(".badge", { hasText: /^1$/ }).waitFor();
  await row(desks.a1, "carol").locator("button").click();
  await shows(desks.a1, "你好");
  await row(desks.a1, "carol").locator(".badge").waitFor({ state: "detached" });
  await shop.locator(".message.own .tick.read").waitFor();
  await shop.locator("#chat-who", { hasText: "a1" }).waitFor();
  await write(desks.a1, "您好");
  await shows(shop, "您好");
  await desks.a1.locator(".message.own .tick.read").waitFor();
  desks.a2 = await open(far, "/desk?agent=a2");
  await online(desks.a2);
});

test("each sees the other write", on, async () => {
  await shop.locator("[data-part=field]").pressSequentially("wait");
  await desks.a1.locator(".messages .typing").waitFor();
  await shop.locator("[data-part=field]").fill("");
});

test("a picture is a link that fetches nothing by itself", on, async () => {
  await write(desks.a1, "https://cdn.example.com/a.png?size=2");
  const link = shop.locator(".message a.picture");
  await link.waitFor();
  assert.equal(await link.getAttribute("href"), "https://cdn.example.com/a.png?size=2");
  assert.match(await link.getAttribute("rel"), /noopener/);
});

test("a message can be taken back, on both sides", on, async () => {
  await write(shop, "my card is 1234");
  await shows(desks.a1, "my card is 1234");
  await shop.locator(".message.own", { hasText: "1234" }).locator(".recall").click();
  for (const page of [shop, desks.a1]) {
    await bubble(page, "This message was withdrawn").waitFor();
    assert.equal(await bubble(page, "my card is 1234").count(), 0);
  }
});

test("an agent who leaves its desk hands its customers over", on, async () => {
  await desks.a1.locator("#status").selectOption("away");
  await row(desks.a2, "carol").waitFor();
  await shop.locator("#chat-who", { hasText: "a2" }).waitFor();
  await desks.a1.locator("#thread-note").waitFor();
  await row(desks.a2, "carol").locator("button").click();
  await shows(desks.a2, "你好");
  await picture(desks.a2, "desk-handed-over");
});

test("nobody is free: the customer waits, and is taken out of the line", on, async () => {
  await desks.a2.locator("#status").selectOption("busy");
  await desks.a1.locator("#status").selectOption("busy");
  const waiting = await customer(near, "dave");
  await write(waiting, "anybody there?");
  await waiting.locator("#chat-note").waitFor();
  const entry = desks.a1.locator("#line-list li", { hasText: "dave" });
  await entry.waitFor();
  await picture(desks.a1, "desk-line");
  await entry.locator("button").click();
  await shows(desks.a1, "anybody there?");
  await waiting.locator("#chat-note").waitFor({ state: "hidden" });
  await desks.a1.locator("#line").waitFor({ state: "hidden" });
  await write(desks.a1, "here I am");
  await shows(waiting, "here I am");
  await waiting.context().close();
});

test("an agent hands a customer to a colleague, and ends a conversation", on, async () => {
  await desks.a1.locator("#transfer").click();
  await desks.a1.locator("#pick-list button", { hasText: "a2" }).click();
  await row(desks.a2, "dave").waitFor();
  await row(desks.a2, "dave").locator("button").click();
  desks.a2.once("dialog", (dialog) => dialog.accept());
  await desks.a2.locator("#close").click();
  await desks.a2.locator("#thread-note").waitFor();
  await row(desks.a2, "carol").locator("button").click();
});

test("goes by events where no WebSocket gets through", on, async () => {
  const page = await customer(walled, "erin", "events");
  await desks.a2.locator("#status").selectOption("online");
  await write(page, "through the wall");
  await stored(page, "through the wall");
  const desk = row(desks.a2, "erin");
  await desk.locator("button").click();
  await shows(desks.a2, "through the wall");
  await write(desks.a2, "and back");
  await shows(page, "and back");
  await page.locator(".message.own .tick.read").waitFor();
  await desks.a2.locator(".message.own", { hasText: "and back" }).locator(".tick.read").waitFor();
  await picture(page, "chat-by-events");
  await page.context().close();
});

test("everything fits a phone, and can be hit with a thumb", on, async () => {
  const phone = await open(far, "/desk?agent=a2", { viewport: PHONE, hasTouch: true, isMobile: true });
  await online(phone);
  await row(phone, "carol").waitFor();
  const small = () => phone.locator("button:visible, select:visible, textarea:visible").evaluateAll((all) => all
    .filter((one) => one.getBoundingClientRect().height < 44 || one.getBoundingClientRect().width < 44)
    .map((one) => one.outerHTML.slice(0, 120)));
  const width = () => phone.evaluate(() => document.documentElement.scrollWidth);
  assert.deepEqual([await width(), await small()], [PHONE.width, []]);
  await picture(phone, "desk-phone-list");
  await row(phone, "carol").locator("button").click();
  await shows(phone, "你好");
  assert.deepEqual([await width(), await small()], [PHONE.width, []]);
  await picture(phone, "desk-phone-thread");
  const unnamed = await phone.locator("button:visible").evaluateAll((all) => all
    .filter((one) => !(one.getAttribute("aria-label") ?? one.textContent).trim()).map((one) => one.outerHTML));
  assert.deepEqual(unnamed, []);
  await phone.context().close();
});

test("a node dies: the widget goes on with the other one, and nothing is lost or doubled", on, async () => {
  await row(desks.a2, "carol").locator("button").click();
  const lines = ["before the fall", "while it falls", "and after it"];
  await write(shop, lines[0]);
  await shows(desks.a2, lines[0]);
  await take("kill 0");
  await write(shop, lines[1]);
  await write(desks.a2, "said meanwhile");
  await write(shop, lines[2]);
  for (const line of lines) await stored(shop, line);
  await shows(shop, "said meanwhile");
  for (const line of lines) await shows(desks.a2, line);
  for (const page of [shop, desks.a2]) {
    const texts = await page.locator(".message .text").allTextContents();
    assert.deepEqual(texts.filter((text) => lines.includes(text)), lines);
    const seqs = await page.locator(".message").evaluateAll((all) => all.map((one) => Number(one.dataset.seq)));
    assert.deepEqual(seqs, [...new Set(seqs)].sort((a, b) => a - b));
  }
});

test("nothing was complained about", on, () => {
  assert.deepEqual(complaints, []);
});
