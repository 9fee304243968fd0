// The shop page: the sale card, the buy button and the chat window. It draws what `Purchase` and `ChatClient` know
// and passes clicks on to them; no rule of the sale or of the chat is decided here.

import { ChatClient } from "./chat-client.js";
import { has, money, onSwitch, t } from "./i18n.js";
import { Demo, byId, chance, chatUrl, icon, make, remark, remembered, setUp, showLink, soon } from "./page.js";
import { Purchase } from "./purchase.js";
import { Thread } from "./thread.js";

/** How often stock and prices are looked up while the page is visible. */
const LOOK_EVERY_MS = 2_000;

const name = new URLSearchParams(location.search).get("user") ?? remembered("sluice.user", () => `guest-${chance()}`);
const device = remembered("sluice.device", () => `web-${chance()}${chance()}`);
const demo = new Demo("user", name);

const purchase = new Purchase({
  token: async () => (demo.state ?? (await demo.load())).userToken,
  device,
  fetch: window.fetch.bind(window),
  clock: {
    now: () => demo.now(),
    random: Math.random,
    sleep: (ms) => new Promise((resolve) => { setTimeout(resolve, ms); }),
  },
});

/** Made once the server said who we are. */
let client = null;
let thread = null;
/** Looks at the sale in a row that brought nothing. */
let failures = 0;
/** The result that was drawn last, so that screen readers hear of changes only. */
let drawn = null;

setUp();
byId("buy").addEventListener("click", () => {
  if (byId("buy").getAttribute("aria-disabled") === "true") return;
  purchase.buy(demo.state.activity);
});
purchase.addEventListener("view", () => {
  rememberOrder();
  drawSale();
});
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState !== "visible") return;
  client?.wake();
  drawChat();
});
window.addEventListener("online", () => client?.wake());
onSwitch(() => {
  drawn = null;
  drawSale();
  drawChat();
});
setUpPanel();
look();
tick();

// ---- starting data

/** Looks the sale up again and again; the first answer also brings the chat to life. */
async function look() {
  if (document.visibilityState === "visible" || !client) {
    try {
      await demo.load();
      failures = 0;
      if (!client) begin();
      const { activity } = demo.state;
      const soldOut = purchase.view.kind === "refused" && purchase.view.code === "SOLD_OUT";
      if (soldOut && activity?.left > 0) purchase.clear();
      drawSale();
    } catch {
      // One lost answer is nothing to talk about.
      failures += 1;
      if (failures > 1) remark(t("app.noState"));
    }
  }
  setTimeout(look, LOOK_EVERY_MS);
}

function begin() {
  const { userId, activity } = demo.state;
  client = new ChatClient({
    url: chatUrl(),
    token: async () => (await demo.load()).userToken,
    me: { kind: "user", id: userId },
    device,
    notices: Number(localStorage.getItem(noticesKey())) || null,
  });
  client.subject = activity?.title ?? "";
  thread = new Thread({ client, root: byId("chat"), send: say, retry: sayAgain });
  const changed = soon(drawChat);
  client.addEventListener("state", changed);
  client.addEventListener("change", changed);
  client.addEventListener("sessions", () => {
    if (client.current) client.load(client.current.id);
    changed();
  });
  client.addEventListener("seckill", (event) => {
    purchase.pushed(event.detail);
    if (client.nseq !== null) localStorage.setItem(noticesKey(), String(client.nseq));
  });
  client.addEventListener("presence", changed);
  client.addEventListener("problem", (event) => remark(event.detail.message ?? event.detail.code));
  client.start();
  const orderNo = activity && localStorage.getItem(orderKey());
  if (orderNo) purchase.restore(orderNo);
}

// ---- the sale

function tick() {
  const { view } = purchase;
  if (view.kind === "held" && view.untilMs <= demo.now()) purchase.clear();
  drawSale();
  // Messages grow too old to be taken back, and whoever was writing stops.
  if (!byId("chat").hidden) drawChat();
  setTimeout(tick, 1_000 - (demo.now() % 1_000) + 5);
}

function drawSale() {
  if (!demo.state) return;
  const { activity, userId } = demo.state;
  byId("who").textContent = userId;
  byId("who").title = t("app.you", { name: userId });
  byId("sale").setAttribute("aria-busy", "false");
  byId("sale").dataset.empty = String(!activity);
  if (!activity) {
    byId("name").textContent = t("sale.none");
    return;
  }
  byId("title").textContent = activity.title;
  byId("name").textContent = activity.name;
  drawPrice(activity);
  drawClock(activity);
  drawStock(activity);
  drawButton(activity);
  drawResult(activity);
}

function drawPrice({ priceCents, originalPriceCents }) {
  byId("price").textContent = money(priceCents);
  const before = Number(originalPriceCents) || 0;
  const percent = Math.round((1 - Number(priceCents) / before) * 100);
  const cheaper = before > Number(priceCents);
  byId("before").hidden = !cheaper;
  byId("save").hidden = !cheaper || percent < 1;
  byId("before").textContent = money(before);
  byId("before").setAttribute("aria-label", t("sale.was", { price: money(before) }));
  byId("save").textContent = t("sale.save", { percent });
}

function phaseOf({ startAt, endAt }) {
  const now = demo.now();
  if (now < startAt) return "before";
  return now < endAt ? "during" : "after";
}

function drawClock(activity) {
  const phase = phaseOf(activity);
  byId("clock").dataset.phase = phase;
  byId("clock-label").textContent = t({ before: "sale.startsIn", during: "sale.endsIn", after: "sale.over" }[phase]);
  const until = phase === "before" ? activity.startAt : activity.endAt;
  let seconds = Math.max(0, Math.ceil((until - demo.now()) / 1_000));
  for (const [unit, size] of [["days", 86_400], ["hours", 3_600], ["minutes", 60], ["seconds", 1]]) {
    const count = Math.floor(seconds / size);
    seconds -= count * size;
    byId(unit).textContent = String(count).padStart(2, "0");
    if (unit === "days") byId("days-box").hidden = count === 0;
  }
}

function drawStock({ left, stock }) {
  const share = stock > 0 ? Math.max(0, Math.min(1, left / stock)) : 0;
  byId("stock-text").textContent = t("sale.left", { left, stock });
  byId("stock-bar").style.transform = `scaleX(${share})`;
  byId("stock").dataset.low = String(share <= 0.2);
}

/** The button's words, whether it can be pressed, and how it looks. */
function faceOf(activity) {
  const { view } = purchase;
  const phase = phaseOf(activity);
  const [text, enabled, look] = (() => {
    switch (view.kind) {
      case "sending": return [t("buy.sending"), false, "busy"];
      case "queued": return [t("buy.queued"), false, "busy"];
      case "won": return [t("buy.won"), false, "won"];
      case "held": {
        const seconds = Math.max(1, Math.ceil((view.untilMs - demo.now()) / 1_000));
        return [t("buy.wait", { seconds }), false, "wait"];
      }
      case "refused":
        if (view.code === "SOLD_OUT") return [t("buy.soldOut"), false, "over"];
        if (view.code === "LIMIT_EXCEEDED") return [t("sale.onePer"), false, "over"];
        return [t("buy.after"), false, "over"];
      case "lost": case "broken": case "closed":
        return phase === "during" ? [t("buy.again"), true, "go"] : [t("buy.after"), false, "over"];
      default:
        if (phase === "before") return [t("buy.before"), false, "wait"];
        if (phase === "after") return [t("buy.after"), false, "over"];
        return activity.left > 0 ? [t("buy.ready"), true, "go"] : [t("buy.soldOut"), false, "over"];
    }
  })();
  return { text, enabled, look };
}

function drawButton(activity) {
  const { text, enabled, look } = faceOf(activity);
  const button = byId("buy");
  button.dataset.look = look;
  // Not `disabled`: the button keeps the focus of a keyboard user while it waits.
  button.setAttribute("aria-disabled", String(!enabled));
  byId("buy-text").textContent = text;
}

function drawResult(activity) {
  const { view } = purchase;
  const hint = activity.left > 0 ? `hint.${phaseOf(activity)}` : "hint.soldOut";
  const sign = JSON.stringify(view.kind === "idle" ? hint : view);
  if (drawn === sign) return;
  drawn = sign;
  const box = byId("result");
  box.dataset.kind = view.kind;
  box.replaceChildren(...(view.kind === "idle" ? [make("p", "", t(hint))] : resultOf(view)));
}

function resultOf(view) {
  switch (view.kind) {
    case "queued": return [make("p", "", t(view.slow ? "result.slow" : "result.queued")), orderLine(view.orderNo)];
    case "won": return [make("p", "", t(has(`won.${view.code}`) ? `won.${view.code}` : "result.won")), orderLine(view.orderNo), cancelButton(view)];
    case "closed": return [make("p", "", t("result.closed")), orderLine(view.orderNo)];
    case "lost": return [make("p", "", t("result.lost")), orderLine(view.orderNo)];
    case "held": case "refused": return [make("p", "", wordsFor(view))];
    case "broken": {
      const lines = [make("p", "", wordsFor(view))];
      if (view.traceId) {
        const line = make("p", "number");
        line.append(make("span", "", t("result.trace")), make("code", "", view.traceId));
        lines.push(line);
      }
      return lines;
    }
    default: return [];
  }
}

function cancelButton({ code }) {
  const button = make("button", "quiet", t("result.cancel"));
  button.type = "button";
  button.id = "cancel";
  button.hidden = code === "ALREADY_PAID";
  button.disabled = code === "CANCELLING";
  button.addEventListener("click", () => purchase.cancel());
  return button;
}

/** Our own words for a refusal, else the server's. */
function wordsFor({ code, message, unsure }) {
  if (has(`result.${code}`)) return t(`result.${code}`);
  return unsure || !message ? t("result.broken") : message;
}

function orderLine(orderNo) {
  const line = make("p", "number");
  const number = make("code", "", orderNo);
  number.id = "order-no";
  const copy = make("button", "quiet");
  copy.type = "button";
  copy.title = t("result.copy");
  copy.setAttribute("aria-label", t("result.copy"));
  copy.append(icon("copy"));
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(orderNo);
    copy.replaceChildren(icon("check"), make("span", "", t("result.copied")));
  });
  line.append(make("span", "", t("result.order")), number);
  // Only pages from a trustworthy origin may write to the clipboard.
  if (navigator.clipboard) line.append(copy);
  return line;
}

/** How far this browser has heard this user's notices. */
function noticesKey() {
  return `sluice.notices.${demo.state.userId}`;
}

function orderKey() {
  return `sluice.order.${demo.state.userId}.${demo.state.activity.activityId}`;
}

/** A reload finds the order again. */
function rememberOrder() {
  const { kind, orderNo } = purchase.view;
  if (kind === "queued" || kind === "won") localStorage.setItem(orderKey(), orderNo);
  else if (kind === "lost" || kind === "closed" || kind === "idle") localStorage.removeItem(orderKey());
}

// ---- the chat

function setUpPanel() {
  const panel = byId("chat");
  const bubble = byId("bubble");
  const show = (open) => {
    panel.hidden = !open;
    bubble.setAttribute("aria-expanded", String(open));
    document.body.dataset.chat = open ? "open" : "";
    // On a phone the panel covers the page.
    for (const behind of [byId("bar"), byId("main")]) behind.inert = open && matchMedia("(max-width: 40rem)").matches;
    drawChat();
    if (open) {
      thread?.toEnd();
      thread?.focus();
    } else {
      bubble.focus();
    }
  };
  bubble.addEventListener("click", () => show(panel.hidden));
  byId("chat-close").addEventListener("click", () => show(false));
  byId("link-retry").addEventListener("click", () => client.start());
  panel.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !event.isComposing) show(false);
  });
}

function say(text, type = "text") {
  if (client.send(client.current?.id ?? null, text, type) === null) remark(t("chat.full"));
}

/** A message refused because its conversation ended goes into the next one. */
function sayAgain(item) {
  const session = client.sessions.get(item.sessionId);
  if (item.sessionId === null || (session && !session.closed)) {
    client.retry(item.clientMsgId);
    return;
  }
  client.discard(item.clientMsgId);
  say(item.content, item.type);
}

/** The conversation to show: the open one, else the last one, to read. */
function shownSession() {
  if (client.current || client.outbox.of(null).length > 0) return client.current;
  return [...client.sessions.values()].at(-1) ?? null;
}

function drawChat() {
  if (!client) return;
  const session = shownSession();
  const open = !byId("chat").hidden;
  if (session && open && document.visibilityState === "visible") client.markRead(session.id);
  showLink(byId("link"), client);
  byId("link-retry").hidden = client.state !== "ended";
  const note = session?.closed ? "chat.closed" : "chat.waiting";
  const waits = session && !session.closed && !session.agentId && session.top > 0;
  byId("chat-note").hidden = !session?.closed && !waits;
  byId("chat-note").textContent = t(note);
  drawAgent(session);
  thread.draw(session, t("chat.empty"));
  drawUnread();
}

/** Who answers, and whether that one is there. */
function drawAgent(session) {
  const id = session && !session.closed ? session.agentId : undefined;
  const state = client.presence.get(`agent:${id}`);
  byId("chat-who").hidden = !id;
  byId("chat-who").textContent = [id, state && t(`desk.${state}`)].filter(Boolean).join(" · ");
}

function drawUnread() {
  const { unread } = client;
  const badge = byId("badge");
  badge.hidden = unread === 0;
  badge.textContent = unread > 99 ? "99+" : String(unread);
  byId("bubble").setAttribute("aria-label", unread ? t("chat.openUnread", { count: unread }) : t("chat.open"));
  document.title = unread ? `(${unread}) Sluice` : "Sluice";
}
