// The demo pages in a real browser, against a running edge: buying, chatting with the desk, finding everything again.
// Needs SLUICE_EDGE_URL (where the edge listens) and SLUICE_SCREENSHOTS (a folder for pictures); fails without them.
// Every wait is for something that can be seen, and ends with a failure after a deadline.

import assert from "node:assert/strict";
import { mkdir } from "node:fs/promises";
import path from "node:path";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";

const DEADLINE_MS = 20_000;
const CHROMIUM = process.env.SLUICE_CHROMIUM ?? "/usr/bin/chromium";
const FLAGS = [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];

const edge = process.env.SLUICE_EDGE_URL;
const pictures = process.env.SLUICE_SCREENSHOTS;
// A name of its own for each run, so that a second run on the same edge buys again.
const user = `browser-${Date.now().toString(36)}`;
const DESKTOP = { width: 1280, height: 860 };
const PHONE = { width: 375, height: 812 };

/** Whatever a page complained about; nothing is allowed to. */
const complaints = [];
let browser;
let shop;
let desk;

before(async () => {
  assert.ok(edge, "SLUICE_EDGE_URL is not set: say where the edge listens, for example http://127.0.0.1:8080");
  assert.ok(pictures, "SLUICE_SCREENSHOTS is not set: name a folder for the pictures");
  await mkdir(pictures, { recursive: true });
  // Playwright starts each browser on a profile folder of its own and removes it afterwards.
  browser = await chromium.launch({ executablePath: CHROMIUM, args: FLAGS });
});

after(() => browser?.close());

/** A page in a context of its own, watched for complaints. */
async function open(address, options = {}) {
  const context = await browser.newContext({ viewport: DESKTOP, locale: "en-GB", reducedMotion: "reduce", ...options });
  context.setDefaultTimeout(DEADLINE_MS);
  return tab(context, address);
}

async function tab(context, address) {
  const page = await context.newPage();
  await page.addInitScript(() => {
    window.sockets = [];
    window.WebSocket = class extends WebSocket {
      constructor(...options) {
        super(...options);
        window.sockets.push(this);
      }
    };
  });
  page.on("console", (message) => {
    // While a test has switched the network off, the browser says so for each request.
    if (message.text().includes("ERR_INTERNET_DISCONNECTED")) return;
    if (message.type() === "error" || message.type() === "warning") complaints.push(`${page.url()}: ${message.text()}`);
  });
  page.on("pageerror", (error) => complaints.push(`${page.url()}: ${error.stack}`));
  page.on("response", (response) => {
    if (response.status() >= 400) complaints.push(`${response.url()}: ${response.status()}`);
    if (!response.url().startsWith(edge)) complaints.push(`${page.url()} fetched ${response.url()}`);
  });
  await page.goto(new URL(address, edge).href);
  return page;
}

function picture(page, name) {
  return page.screenshot({ path: path.join(pictures, `${name}.png`), animations: "disabled" });
}

const online = (page) => page.locator("#link[data-state=online]").waitFor({ state: "attached" });

/** Takes the network from one page, its running sockets included; the other tabs keep theirs. */
async function cut(page) {
  const devtools = await page.context().newCDPSession(page);
  const offline = (on) => devtools.send("Network.emulateNetworkConditions", {
    offline: on, latency: 0, downloadThroughput: -1, uploadThroughput: -1,
  });
  await offline(true);
  await page.evaluate(() => window.sockets.forEach((socket) => socket.close()));
  await page.locator("#link:not([data-state=online])").waitFor();
  return { mend: () => offline(false) };
}

const messages = (page) => page.locator(".message .text");

/** Waits for a message with exactly this text. */
async function shows(page, text) {
  await messages(page).filter({ hasText: new RegExp(`^${text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}$`) }).first().waitFor();
}

async function write(page, text) {
  const field = page.locator("[data-part=field]");
  await field.fill(text);
  await field.press("Enter");
}

test("shows the sale in English to an English browser", async () => {
  shop = await open(`/?user=${user}`);
  await shop.locator("#buy[data-look=go]").waitFor();
  assert.equal(await shop.locator("#buy-text").textContent(), "Buy now");
  assert.match(await shop.locator("#stock-text").textContent(), /^\d+ of \d+ left$/);
  assert.match(await shop.locator("#price").textContent(), /^¥/);
  const seconds = shop.locator("#seconds");
  const first = await seconds.textContent();
  await shop.waitForFunction((text) => document.getElementById("seconds").textContent !== text, first);
  await picture(shop, "shop-en");
});

test("takes an order and tells when it is written", async () => {
  await shop.locator("#buy").click();
  await shop.locator("#buy[data-look=won]").waitFor();
  assert.match(await shop.locator("#order-no").textContent(), /^SK/);
  assert.equal(await shop.locator("#buy").getAttribute("aria-disabled"), "true");
  await picture(shop, "shop-bought-en");
});

test("brings a message to the desk and the answer back", async () => {
  desk = await tab(shop.context(), "/demo/desk.html");
  await online(desk);
  await online(shop);
  await shop.locator("#bubble").click();
  await write(shop, "你好");
  await shop.locator(".message.own:not(.unsent)").waitFor();

  const row = desk.locator("#sessions li", { hasText: user });
  await row.waitFor();
  await row.locator("button").click();
  await shows(desk, "你好");
  await write(desk, "您好，订单已经在路上了。");
  await shows(shop, "您好，订单已经在路上了。");
  await picture(shop, "chat-en");
  await picture(desk, "desk-en");
});

test("ticks a message that the desk has read", async () => {
  await write(shop, "谢谢 😊");
  await shows(desk, "谢谢 😊");
  await shop.locator(".message.own", { hasText: "谢谢" }).locator(".tick.read").waitFor();
});

test("counts what arrives while the chat is closed", async () => {
  await shop.locator("#chat-close").click();
  await write(desk, "还有什么可以帮您？");
  await shop.locator("#badge", { hasText: /^1$/ }).waitFor();
  await shop.locator("#bubble").click();
  await shows(shop, "还有什么可以帮您？");
  await shop.locator("#badge").waitFor({ state: "hidden" });
});

test("finds order and conversation again after a reload", async () => {
  const orderNo = await shop.locator("#order-no").textContent();
  await shop.reload();
  await shop.locator("#buy[data-look=won]").waitFor();
  assert.equal(await shop.locator("#order-no").textContent(), orderNo);
  await shop.locator("#bubble").click();
  for (const text of ["你好", "您好，订单已经在路上了。", "还有什么可以帮您？"]) await shows(shop, text);
  const seqs = await shop.locator(".message").evaluateAll((rows) => rows.map((row) => Number(row.dataset.seq)));
  assert.deepEqual(seqs, [...new Set(seqs)].sort((a, b) => a - b), "messages are in order and single");
});

test("keeps two tabs of one user in step", async () => {
  const second = await tab(shop.context(), `/?user=${user}`);
  await online(second);
  await second.locator("#bubble").click();
  await shows(second, "你好");
  await write(second, "from the other tab");
  await shows(shop, "from the other tab");
  await second.close();
});

test("sends what was written without a connection, in order and once, when it is back", async () => {
  const lines = ["written in a tunnel", "and one more", "and the last"];
  const network = await cut(shop);
  for (const line of lines) await write(shop, line);
  await shop.locator(".message.unsent").nth(lines.length - 1).waitFor();
  await network.mend();
  for (const line of lines) await shows(desk, line);
  await shop.locator(".message.unsent").first().waitFor({ state: "detached" });
  const arrived = (await messages(desk).allTextContents()).filter((text) => lines.includes(text));
  assert.deepEqual(arrived, lines);
});

test("catches up on what was said while the connection was down", async () => {
  const network = await cut(shop);
  await write(desk, "Are you still there?");
  await desk.locator(".message.own:not(.unsent)", { hasText: "Are you still there?" }).waitFor();
  await network.mend();
  await shows(shop, "Are you still there?");
  assert.equal(await messages(shop).filter({ hasText: "Are you still there?" }).count(), 1);
});

test("switches to Chinese and remembers it", async () => {
  await shop.locator("#chat-close").click();
  await shop.locator("#language").click();
  assert.equal(await shop.locator("#buy-text").textContent(), "抢购成功");
  await shop.reload();
  await shop.locator("#buy[data-look=won]").waitFor();
  assert.equal(await shop.locator("#buy-text").textContent(), "抢购成功");
  assert.equal(await shop.locator("html").getAttribute("lang"), "zh-CN");
  await picture(shop, "shop-zh");
});

test("speaks Chinese to a Chinese browser, on a phone, in the dark", async () => {
  const phone = await open(`/?user=${user}-phone`, { viewport: PHONE, locale: "zh-CN", colorScheme: "dark", hasTouch: true });
  await phone.locator("#buy[data-look=go]").waitFor();
  assert.equal(await phone.locator("#buy-text").textContent(), "立即抢购");
  const width = await phone.evaluate(() => document.documentElement.scrollWidth);
  assert.equal(width, PHONE.width, "nothing sticks out sideways");
  await picture(phone, "shop-phone-zh");
  await online(phone);
  await phone.locator("#bubble").click();
  await write(phone, "请问什么时候发货？");
  await phone.locator(".message.own:not(.unsent)").waitFor();
  await picture(phone, "chat-phone-zh");
  await phone.context().close();
});

test("fits the desk on a phone", async () => {
  const phone = await open("/demo/desk.html", { viewport: PHONE, locale: "zh-CN" });
  await online(phone);
  await phone.locator("#sessions li").first().waitFor();
  await picture(phone, "desk-phone-list-zh");
  await phone.locator("#sessions li", { hasText: `${user}-phone` }).locator("button").click();
  await shows(phone, "请问什么时候发货？");
  await picture(phone, "desk-phone-thread-zh");
  await phone.locator("#back").click();
  await phone.locator("#sessions").waitFor();
  await phone.context().close();
});

test("can be used with the keyboard alone", async () => {
  await shop.locator("#bubble").focus();
  await shop.keyboard.press("Enter");
  await shop.locator("#chat").waitFor();
  assert.equal(await shop.evaluate(() => document.activeElement.dataset.part), "field");
  await shop.keyboard.press("Escape");
  await shop.locator("#chat").waitFor({ state: "hidden" });
  assert.equal(await shop.evaluate(() => document.activeElement.id), "bubble");
});

test("leaves no complaint in the console", () => {
  assert.deepEqual(complaints, []);
});
