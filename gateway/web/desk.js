// The agent's page: conversations on one side, the chosen one on the other. It draws what `ChatClient` knows; no rule
// of the chat is decided here.

import { ChatClient } from "./chat-client.js";
import { sideOf } from "./chat-state.js";
import { clockTime, onSwitch, t } from "./i18n.js";
import { Demo, byId, chance, chatUrl, make, remark, remembered, setUp, showLink, soon } from "./page.js";
import { Thread, preview } from "./thread.js";

/** Wait between attempts to get the starting data. */
const RETRY_MS = 2_000;
/** How often what depends on the time alone is drawn anew. */
const AGE_MS = 5_000;

const name = new URLSearchParams(location.search).get("agent") ?? "a1";
const device = remembered("sluice.desk.device", () => `desk-${chance()}${chance()}`);
const demo = new Demo("agent", name);

let client = null;
let thread = null;
let chosen = null;
/** Who waits, as it was last read; and the one this agent is taking. */
let line = [];
let taking = null;

setUp();
byId("back").addEventListener("click", () => choose(null));
byId("status").addEventListener("change", () => client?.status(byId("status").value));
byId("transfer").addEventListener("click", pick);
byId("close").addEventListener("click", () => {
  if (chosen && window.confirm(t("desk.closeAsk"))) client.close(chosen);
});
byId("link-retry").addEventListener("click", () => client.start());
window.addEventListener("online", () => client?.wake());
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState !== "visible") return;
  client?.wake();
  draw();
});
onSwitch(draw);
begin();

async function begin() {
  try {
    await demo.load();
  } catch {
    remark(t("app.noState"));
    setTimeout(begin, RETRY_MS);
    return;
  }
  byId("who").textContent = demo.state.agentId;
  client = new ChatClient({
    url: chatUrl(),
    token: async () => (await demo.load()).agentToken,
    me: { kind: "agent", id: demo.state.agentId },
    device,
  });
  thread = new Thread({
    client,
    root: byId("thread"),
    send: (text, type) => {
      if (client.send(chosen, text, type) === null) remark(t("chat.full"));
    },
    retry: (item) => client.retry(item.clientMsgId),
  });
  const changed = soon(draw);
  for (const event of ["state", "change", "sessions", "overdue"]) client.addEventListener(event, changed);
  const look = soon(lookAtLine);
  for (const event of ["waiting", "sessions"]) client.addEventListener(event, look);
  client.addEventListener("status", (event) => { byId("status").value = event.detail.state; });
  setInterval(changed, AGE_MS);
  client.addEventListener("problem", (event) => remark(event.detail.message ?? event.detail.code));
  client.start();
}

/** Reads who waits. Not knowing is no reason to stop: the next word of the line asks again. */
async function lookAtLine() {
  if (client.state !== "online") return;
  try {
    line = await client.line();
  } catch {
    return;
  }
  draw();
}

/** Asks whom to hand the chosen conversation to. */
async function pick() {
  const sessionId = chosen;
  let colleagues;
  try {
    colleagues = await client.colleagues();
  } catch {
    remark(t("desk.noList"));
    return;
  }
  const others = colleagues.filter((agent) => agent.agentId !== client.me.id && agent.state !== "offline");
  const choice = (text, more, to) => {
    const button = make("button");
    button.type = "button";
    button.append(make("span", "user", text), make("span", "said", more));
    button.addEventListener("click", () => {
      client.transfer(sessionId, to);
      byId("pick").close();
    });
    const item = make("li");
    item.append(button);
    return item;
  };
  const agents = others.map((agent) => choice(
    agent.agentId, `${t(`desk.${agent.state}`)} · ${t("desk.open", { count: agent.openSessions })}`, `agent:${agent.agentId}`,
  ));
  byId("pick-list").replaceChildren(...agents, choice(t("desk.toLine"), "", "waiting"));
  byId("pick").showModal();
}

function choose(sessionId) {
  const left = chosen;
  chosen = sessionId;
  byId("desk").dataset.view = sessionId ? "thread" : "list";
  if (sessionId) client.load(sessionId);
  draw();
  if (sessionId) {
    thread.toEnd();
    thread.focus();
  } else {
    rowOf(left)?.querySelector("button").focus();
  }
}

function draw() {
  if (!client) return;
  if (taking && client.sessions.get(taking)?.closed === false) {
    const taken = taking;
    taking = null;
    choose(taken);
    return;
  }
  const session = client.sessions.get(chosen) ?? null;
  if (session && document.visibilityState === "visible") client.markRead(session.id);
  showLink(byId("link"), client);
  byId("link-retry").hidden = client.state !== "ended";
  drawLine();
  drawList();
  byId("thread").dataset.empty = String(!session);
  if (session) {
    byId("thread-user").textContent = session.userId ?? session.no;
    byId("thread-subject").textContent = [session.no, session.subject].filter(Boolean).join(" · ");
    byId("thread-note").hidden = !session.closed;
    byId("thread-note").textContent = t(session.left ? "chat.handedOver" : "chat.closedAgent");
    byId("composer").hidden = session.closed;
    for (const id of ["transfer", "close"]) byId(id).hidden = session.closed;
    byId("thread-late").hidden = !session.overdue;
    byId("thread-late").textContent = session.overdue ? t(`desk.late.${session.overdue.clock}`) : "";
    thread.draw(session, "");
  }
  document.title = client.unread ? `(${client.unread}) ${t("desk.title")}` : t("desk.title");
}

/** Open before closed, then the one with the newest message first. */
function inOrder(a, b) {
  const time = (session) => session.lastMessage?.time ?? 0;
  return a.closed - b.closed || time(b) - time(a) || a.id.localeCompare(b.id);
}

function drawLine() {
  const others = line.filter((session) => client.sessions.get(session.sessionId)?.closed !== false);
  byId("line").hidden = others.length === 0;
  byId("line-count").textContent = String(Math.max(client.waiting, others.length));
  const minutes = (since) => Math.max(0, Math.floor((client.now() - since) / 60_000));
  const sign = JSON.stringify(others.map((one) => [one.sessionId, minutes(one.waitingSince)])) + document.documentElement.lang;
  const list = byId("line-list");
  if (list.dataset.sign === sign) return;
  list.dataset.sign = sign;
  list.replaceChildren(...others.map((session) => {
    const item = make("li");
    item.dataset.session = session.sessionId;
    const take = make("button", "quiet take", t("desk.take"));
    take.type = "button";
    take.setAttribute("aria-label", t("desk.takeWhom", { name: session.userId }));
    take.addEventListener("click", () => {
      taking = session.sessionId;
      client.transfer(session.sessionId, `agent:${client.me.id}`);
    });
    const waited = t("desk.since", { minutes: minutes(session.waitingSince) });
    item.append(make("span", "user", session.userId), make("span", "said", [session.subject, waited].filter(Boolean).join(" · ")), take);
    return item;
  }));
}

/** Rows by session. Each lives as long as its session is listed, so that a click is never lost to a redrawn list. */
const rows = new Map();

function drawList() {
  const list = byId("sessions");
  const focused = document.activeElement?.closest("[data-session]");
  const sessions = [...client.sessions.values()].filter((one) => !one.left || one.id === chosen).sort(inOrder);
  byId("none").hidden = sessions.length > 0;
  const listed = new Set(sessions.map((session) => session.id));
  for (const [id, row] of rows) {
    if (listed.has(id)) continue;
    row.remove();
    rows.delete(id);
  }
  sessions.forEach((session, index) => {
    if (!rows.has(session.id)) rows.set(session.id, makeRow(session.id));
    const row = rows.get(session.id);
    fillRow(row, session);
    if (list.children[index] !== row) list.insertBefore(row, list.children[index] ?? null);
  });
  // A row that moves loses the focus.
  if (focused?.isConnected && !focused.contains(document.activeElement)) focused.querySelector("button").focus();
}

function rowOf(sessionId) {
  return [...byId("sessions").children].find((item) => item.dataset.session === sessionId);
}

function makeRow(sessionId) {
  const item = make("li");
  item.dataset.session = sessionId;
  const button = make("button");
  button.type = "button";
  button.addEventListener("click", () => choose(sessionId));
  item.append(button);
  return item;
}

function fillRow(item, session) {
  const { lastMessage, overdue } = session;
  const said = preview(lastMessage) || session.subject;
  const sign = JSON.stringify([
    session.userId, session.subject, session.unread, session.closed, said, lastMessage?.time, session.id === chosen, overdue?.clock,
  ]) + document.documentElement.lang;
  if (item.dataset.sign === sign) return;
  item.dataset.sign = sign;
  item.className = session.closed ? "closed" : "";
  const button = item.querySelector("button");
  if (session.id === chosen) button.setAttribute("aria-current", "true");
  else button.removeAttribute("aria-current");
  const who = session.userId ?? session.no;
  const face = make("span", "face", who.replace(/^guest-/, "").slice(0, 1).toUpperCase());
  face.setAttribute("aria-hidden", "true");
  const mine = lastMessage?.sender && sideOf(lastMessage) === "agent";
  const text = make("span", "said", mine ? t("desk.youSaid", { text: said }) : said);
  const when = make("time", "", lastMessage?.time ? clockTime(lastMessage.time) : "");
  const marks = make("span", "marks");
  if (overdue) {
    const late = make("span", "tag late", t("desk.late"));
    late.title = t(`desk.late.${overdue.clock}`);
    marks.append(late);
  }
  if (session.unread > 0) {
    const badge = make("span", "badge", session.unread > 99 ? "99+" : String(session.unread));
    badge.setAttribute("aria-label", t("desk.unread", { count: session.unread }));
    marks.append(badge);
  } else if (session.closed) {
    marks.append(make("span", "tag", t("desk.closedTag")));
  }
  button.replaceChildren(face, make("span", "user", who), when, text, marks);
}
