// A conversation on screen: the list of messages, the ticks, and the field to write in. The same on both sides.
// Holds no messages of its own: it draws what the chat client has. Used by `shop.js` and `desk.js`.

import { sideOf } from "./chat-state.js";
import { clockTime, day, has, locale, t } from "./i18n.js";
import { icon, make } from "./page.js";

/** How long the server lets a message be taken back; the last moment is left to chance. */
const RECALL_MS = 118_000;
/** A message that is the address of a picture and nothing else is sent as one. */
const PICTURE = /^https?:\/\/\S+\.(?:avif|gif|jpe?g|png|webp)(?:[?#]\S*)?$/i;
/** Closer than this to the end, the list follows new messages. */
const FOLLOW_PX = 80;

export class Thread {
  #client;
  #list;
  #scroller;
  #field;
  #nodes = new Map();
  #drawn = null;

  /**
   * @param {object} options
   * @param {import("./chat-client.js").ChatClient} options.client
   * @param {HTMLElement} options.root holds `[data-part=scroller|list|form|field|send]`
   * @param {(text: string, type: string) => void} options.send
   * @param {(item: object) => void} options.retry sends a refused message again
   */
  constructor({ client, root, send, retry }) {
    this.#client = client;
    this.retry = retry;
    const part = (name) => root.querySelector(`[data-part=${name}]`);
    this.#list = part("list");
    this.#scroller = part("scroller");
    this.#field = part("field");
    const form = part("form");
    const submit = () => {
      const text = this.#field.value;
      if (text.trim() === "") return;
      this.#field.value = "";
      this.#fit();
      send(text, PICTURE.test(text.trim()) ? "image" : "text");
      this.toEnd();
    };
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      submit();
    });
    this.#field.addEventListener("input", () => {
      this.#fit();
      if (this.#drawn !== null) client.typing(this.#drawn);
    });
    this.#field.addEventListener("keydown", (event) => {
      // While an input method is composing, Enter picks a word.
      if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
      event.preventDefault();
      submit();
    });
  }

  focus() {
    this.#field.focus();
  }

  toEnd() {
    this.#scroller.scrollTop = this.#scroller.scrollHeight;
  }

  /** Draws `session` (null: none yet) and what waits to be sent in it. */
  draw(session, emptyText) {
    const sessionId = session?.id ?? null;
    const moved = this.#drawn !== sessionId;
    this.#drawn = sessionId;
    const follow = moved || this.#distanceFromEnd() < FOLLOW_PX;
    const fromEnd = this.#scroller.scrollHeight - this.#scroller.scrollTop;
    this.#place(this.#rows(session, emptyText));
    if (follow) this.toEnd();
    else if (this.#scroller.scrollTop < FOLLOW_PX) this.#scroller.scrollTop = this.#scroller.scrollHeight - fromEnd;
  }

  #distanceFromEnd() {
    return this.#scroller.scrollHeight - this.#scroller.scrollTop - this.#scroller.clientHeight;
  }

  /** Everything to show as {key, sign, build}: a row is rebuilt only when its sign changed. */
  #rows(session, emptyText) {
    const rows = [];
    const timeline = session?.timeline;
    const unsent = this.#client.outbox.of(session?.id ?? null);
    const waiting = unsent.filter((item) => item.type !== "recall");
    const takenBack = new Set(unsent.filter((item) => item.type === "recall").map((item) => item.content));
    const loading = session && (!timeline.loaded || session.paging !== null) && this.#client.state === "online";
    if (timeline?.hasOlder || loading) {
      rows.push({ key: "older", sign: `${locale()} ${loading}`, build: () => this.#older(session, loading) });
    }
    let lastDay = "";
    const shown = (timeline?.messages ?? []).filter((message) => message.type !== "recalled");
    for (const message of shown) {
      const thisDay = new Date(message.time).toDateString();
      if (thisDay !== lastDay) rows.push({ key: thisDay, sign: locale(), build: () => make("li", "day", day(message.time)) });
      lastDay = thisDay;
      const own = sideOf(message) === this.#client.me.kind;
      const bot = message.bot === true || message.sender?.kind === "bot";
      const tick = own && !bot ? tickOf(session, message) : "";
      const young = this.#client.now() - message.time < RECALL_MS;
      const recallable = own && !bot && young && !message.recalled && !session.closed && !takenBack.has(message.seq);
      const sign = `${locale()} ${tick} ${message.recalled === true} ${message.seq} ${recallable}`;
      // The node of an own message outlives the moment it is accepted, so nothing flickers.
      const key = own && message.clientMsgId ? message.clientMsgId : `${session.id}:${message.epoch}:${message.seq}`;
      rows.push({ key, sign, build: () => this.#message(message, { own, bot, tick, recallable }) });
    }
    for (const item of waiting) {
      const sign = `${locale()} ${item.state}`;
      rows.push({ key: item.clientMsgId, sign, build: () => this.#unsent(item) });
    }
    if (session && !session.closed && session.typingUntil > this.#client.now()) {
      rows.push({ key: "typing", sign: locale(), build: () => make("li", "typing", t("chat.typing")) });
    }
    if (rows.length === 0 && emptyText) rows.push({ key: "empty", sign: emptyText, build: () => make("li", "empty", emptyText) });
    return rows;
  }

  /** Makes the list match the rows, touching only what differs. */
  #place(rows) {
    const kept = new Set(rows.map((row) => row.key));
    for (const [key, { node }] of this.#nodes) {
      if (kept.has(key)) continue;
      node.remove();
      this.#nodes.delete(key);
    }
    let next = this.#list.firstChild;
    for (const { key, sign, build } of rows) {
      const old = this.#nodes.get(key);
      let node = old?.node;
      if (!old || old.sign !== sign) {
        node = build();
        if (old) {
          if (next === old.node) next = node;
          old.node.replaceWith(node);
        }
        this.#nodes.set(key, { node, sign });
      }
      if (node === next) next = node.nextSibling;
      else this.#list.insertBefore(node, next);
    }
  }

  #older(session, loading) {
    const row = make("li", "older");
    if (loading) {
      row.textContent = t("chat.loading");
      return row;
    }
    const button = make("button", "quiet", t("chat.older"));
    button.type = "button";
    button.addEventListener("click", () => this.#client.older(session.id));
    row.append(button);
    return row;
  }

  #message(message, { own, bot, tick, recallable }) {
    const row = make("li", own ? "message own" : "message");
    row.dataset.seq = message.seq;
    row.append(message.recalled ? bubble(t("chat.recalled"), true) : said(message));
    const foot = make("p", "foot");
    const name = nameOf(message, bot);
    if (name && (!own || bot)) foot.append(make("span", "who", name));
    foot.append(make("time", "", clockTime(message.time)));
    if (tick) foot.append(tickMark(tick));
    if (recallable) {
      const back = make("button", "quiet recall", t("chat.recall"));
      back.type = "button";
      back.addEventListener("click", () => this.#client.recall(message.sessionId, message.seq));
      foot.append(back);
    }
    row.append(foot);
    return row;
  }

  #unsent(item) {
    const row = make("li", "message own unsent");
    row.append(said(item));
    const foot = make("p", "foot");
    if (item.state === "failed") {
      row.classList.add("failed");
      const reason = has(`chat.reason.${item.code}`) ? t(`chat.reason.${item.code}`) : item.reason ?? item.code;
      foot.append(icon("alert"), make("span", "", `${t("chat.failed")} · ${reason}`));
      const again = make("button", "quiet", t("chat.retry"));
      again.addEventListener("click", () => this.retry(item));
      const away = make("button", "quiet", t("chat.discard"));
      away.addEventListener("click", () => this.#client.discard(item.clientMsgId));
      for (const button of [again, away]) button.type = "button";
      foot.append(again, away);
    } else {
      const time = make("time", "", clockTime(item.at));
      foot.append(time, tickMark("sending"));
    }
    row.append(foot);
    return row;
  }

  /** The field grows with its text, up to the height the style sheet allows. */
  #fit() {
    this.#field.style.height = "auto";
    this.#field.style.height = `${this.#field.scrollHeight + 2}px`;
  }
}

function bubble(text, faint = false) {
  const node = make("p", faint ? "text faint" : "text", text);
  node.dir = "auto";
  return node;
}

/** What somebody said. A picture is a link: nothing is fetched from elsewhere before somebody wants to see it. */
function said({ type, content }) {
  const address = type === "image" ? parsed(content) : null;
  if (!address || !/^https?:$/.test(address.protocol)) return bubble(contentOf({ type, content }));
  const node = bubble("");
  const link = make("a", "picture", `${t("chat.image")} · ${address.host}${address.pathname}`);
  Object.assign(link, { href: address.href, target: "_blank", rel: "noopener noreferrer nofollow" });
  node.append(link);
  return node;
}

function parsed(text) {
  try {
    return new URL(text);
  } catch {
    return null;
  }
}

/** One line that stands for a message in a list. */
export function preview(message) {
  if (!message) return "";
  if (typeof message === "string") return message;
  return message.recalled ? t("chat.recalled") : contentOf(message);
}

/** Whose words these are; a customer's name is at the top of the page already. */
function nameOf(message, bot) {
  if (bot) return t("chat.bot");
  return sideOf(message) === "agent" ? t("chat.agent") : "";
}

function contentOf({ type, content }) {
  return type === "image" ? `[${t("chat.image")}] ${content}` : String(content ?? "");
}

function tickOf(session, message) {
  if (message.seq <= session.peerRead) return "read";
  return message.seq <= session.peerReceived ? "delivered" : "sent";
}

function tickMark(state) {
  const icons = { sending: "clock", sent: "check", delivered: "checks", read: "checks" };
  const mark = make("span", `tick ${state}`);
  mark.append(icon(icons[state]), make("span", "unseen", t(`chat.${state}`)));
  mark.title = t(`chat.${state}`);
  return mark;
}
