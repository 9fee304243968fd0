// The agent's page: conversations on one side, the chosen one on the other. It draws what `ChatClient` knows; no rule
// of the chat is decided here.

import { ChatClient } from "./chat-client.js";
import { sideOf } from "./chat-state.js";
import { clockTime, onSwitch, t } from "./i18n.js";
import { Demo, byId, chance, chatUrl, make, remark, remembered, setUp, showLink, soon } from "./page.js";
import { Thread, preview } from "./thread.js";

/** Wait between attempts to get the starting data. */
const RETRY_MS = 2_000;

const name = new URLSearchParams(location.search).get("agent") ?? "a1";
const device = remembered("sluice.desk.device", () => `desk-${chance()}${chance()}`);
const demo = new Demo("agent", name);

let client = null;
let thread = null;
let chosen = null;

setUp();
byId("back").addEventListener("click", () => choose(null));
byId("status").addEventListener("change", () => client?.status(byId("status").value));
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
    url: chatUrl(device),
    token: async () => (await demo.load()).agentToken,
    me: { kind: "agent", id: demo.state.agentId },
  });
  thread = new Thread({
    client,
    root: byId("thread"),
    send: (text) => {
      if (client.send(chosen, text) === null) remark(t("chat.full"));
    },
    retry: (item) => client.retry(item.clientMsgId),
  });
  const changed = soon(draw);
  for (const event of ["state", "change", "sessions"]) client.addEventListener(event, changed);
  client.addEventListener("state", (event) => {
    // The server keeps an agent's state per connection no longer than the connection lives.
    if (event.detail.state === "online" && byId("status").value !== "online") client.status(byId("status").value);
  });
  client.addEventListener("token", async () => client.refresh((await demo.load()).agentToken));
  client.addEventListener("problem", (event) => remark(event.detail.message ?? event.detail.code));
  client.start();
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
  const session = client.sessions.get(chosen) ?? null;
  if (session && document.visibilityState === "visible") client.markRead(session.id);
  showLink(byId("link"), client.state);
  byId("link-retry").hidden = client.state !== "ended";
  drawList();
  byId("thread").dataset.empty = String(!session);
  if (session) {
    byId("thread-user").textContent = session.userId ?? session.no;
    byId("thread-subject").textContent = [session.no, session.subject].filter(Boolean).join(" · ");
    byId("thread-note").hidden = !session.closed;
    byId("composer").hidden = session.closed;
    thread.draw(session, "");
  }
  document.title = client.unread ? `(${client.unread}) ${t("desk.title")}` : t("desk.title");
}

/** Open before closed, then the one with the newest message first. */
function inOrder(a, b) {
  const time = (session) => session.lastMessage?.time ?? 0;
  return a.closed - b.closed || time(b) - time(a) || a.id.localeCompare(b.id);
}

function drawList() {
  const list = byId("sessions");
  const focused = document.activeElement?.closest("[data-session]")?.dataset.session;
  const sessions = [...client.sessions.values()].sort(inOrder);
  byId("none").hidden = sessions.length > 0;
  const sign = JSON.stringify(sessions.map((one) => [
    one.id, one.userId, one.subject, one.unread, one.closed, preview(one.lastMessage), one.lastMessage?.time, one.id === chosen,
  ]));
  if (list.dataset.sign === sign + document.documentElement.lang) return;
  list.dataset.sign = sign + document.documentElement.lang;
  list.replaceChildren(...sessions.map(row));
  if (focused) rowOf(focused)?.querySelector("button").focus();
}

function rowOf(sessionId) {
  return [...byId("sessions").children].find((item) => item.dataset.session === sessionId);
}

function row(session) {
  const item = make("li", session.closed ? "closed" : "");
  item.dataset.session = session.id;
  const button = make("button");
  button.type = "button";
  if (session.id === chosen) button.setAttribute("aria-current", "true");
  button.addEventListener("click", () => choose(session.id));
  const { lastMessage } = session;
  const who = session.userId ?? session.no;
  const face = make("span", "face", who.replace(/^guest-/, "").slice(0, 1).toUpperCase());
  face.setAttribute("aria-hidden", "true");
  const said = preview(lastMessage) || session.subject;
  const mine = lastMessage?.sender && sideOf(lastMessage) === "agent";
  const text = make("span", "said", mine ? t("desk.youSaid", { text: said }) : said);
  const when = make("time", "", lastMessage?.time ? clockTime(lastMessage.time) : "");
  button.append(face, make("span", "user", who), when, text);
  if (session.unread > 0) {
    const badge = make("span", "badge", session.unread > 99 ? "99+" : String(session.unread));
    badge.setAttribute("aria-label", t("desk.unread", { count: session.unread }));
    button.append(badge);
  } else if (session.closed) {
    button.append(make("span", "tag", t("desk.closedTag")));
  }
  item.append(button);
  return item;
}
