// The rules of the chat client as plain data: what is shown, what waits to be sent, when to try again.
// No socket, no timer, no clock and no page here; `chat-client.js` brings those and is the only caller.

/** Messages asked for with one history frame; the server allows 200. */
export const PAGE = 50;
/** Messages kept in memory per session; older ones can be paged in again. */
export const KEPT_MAX = 2000;
/** Messages held back per session while the gap before them is being filled. */
export const HELD_MAX = 200;
/** Unsent messages kept at once; beyond it `Outbox.add` refuses. */
export const OUTBOX_MAX = 100;

/** WebSockets in a row that must fail unopened before events take their place. */
export const SOCKET_TRIES = 3;
/** First and longest wait before a WebSocket is tried again beside events. */
export const PROBE_MS = 60_000;
export const PROBE_MAX_MS = 600_000;
/** Sessions that an event stream is resumed with; the server takes 100 positions, notices included. */
export const POSITIONS_MAX = 99;

/** One session's messages in order, without gaps and without doubles. */
export class Timeline {
  /** @param {string|number|undefined} epoch names the stream that sequence numbers belong to */
  constructor(epoch) {
    this.reset(epoch);
  }

  /** Forgets everything: numbers of another epoch do not compare with ours. */
  reset(epoch) {
    this.epoch = epoch;
    this.messages = [];
    /** Highest number shown; null until the first page came. */
    this.last = null;
    this.hasOlder = false;
    this.held = new Map();
    this.recalled = new Set();
  }

  get loaded() {
    return this.last !== null;
  }

  /**
   * Takes a message of the live stream or of a replay.
   * @returns {"shown"|"duplicate"|"gap"|"unloaded"} `gap`: kept back until the numbers before it came
   */
  apply(message) {
    if (!this.loaded) return "unloaded";
    if (message.seq <= this.last) return "duplicate";
    if (message.seq > this.last + 1) {
      if (this.held.has(message.seq)) return "duplicate";
      this.held.set(message.seq, message);
      // The highest one goes: it is the last to be needed, and a replay brings it back.
      if (this.held.size > HELD_MAX) this.held.delete(Math.max(...this.held.keys()));
      return "gap";
    }
    this.#show(message);
    this.#showHeld();
    return "shown";
  }

  /** Takes a page of history: the first one, or one that ends just before the oldest message shown. */
  prepend(page, hasMore) {
    const oldest = this.messages[0]?.seq ?? Infinity;
    const fresh = page.filter((message) => message.seq < oldest);
    for (const message of fresh) this.#noteRecall(message);
    this.messages = [...fresh, ...this.messages];
    this.hasOlder = hasMore;
    if (!this.loaded) {
      this.last = fresh.at(-1)?.seq ?? 0;
      this.#showHeld();
    }
    this.#markRecalled();
  }

  /** The server says that nothing is missing up to `seq`: numbers that did not come carry nothing to show. */
  settle(seq) {
    if (!this.loaded) return;
    for (const held of [...this.held.keys()].sort((a, b) => a - b)) {
      if (held > seq) break;
      if (held > this.last) this.#show(this.held.get(held));
      this.held.delete(held);
    }
    this.last = Math.max(this.last, seq);
    this.#showHeld();
  }

  #showHeld() {
    for (const seq of [...this.held.keys()].sort((a, b) => a - b)) {
      if (seq > this.last + 1) return;
      const message = this.held.get(seq);
      this.held.delete(seq);
      if (seq > this.last) this.#show(message);
    }
  }

  #show(message) {
    this.messages.push(message);
    this.last = message.seq;
    this.#noteRecall(message);
    this.#markRecalled();
    if (this.messages.length > KEPT_MAX) {
      this.messages.splice(0, this.messages.length - KEPT_MAX);
      this.hasOlder = true;
    }
  }

  #noteRecall(message) {
    if (message.type === "recalled") this.recalled.add(message.refSeq);
  }

  #markRecalled() {
    for (const seq of this.recalled) {
      const message = this.messages.find((one) => one.seq === seq);
      if (!message) continue;
      message.recalled = true;
      this.recalled.delete(seq);
    }
  }
}

/**
 * Messages that no server has accepted yet, in the order they were written.
 * One message per session is in flight at a time, so a retry can never overtake what was written before it.
 * Items without a session wait for one to be opened.
 */
export class Outbox {
  #items = [];

  /** @returns {boolean} false when the outbox is full and nothing was added */
  add({ clientMsgId, sessionId, type, content, at }) {
    if (this.#items.length >= OUTBOX_MAX) return false;
    this.#items.push({
      clientMsgId, sessionId, type, content, at,
      state: "queued", sentAt: 0, notBefore: 0, tries: 0, code: undefined, reason: undefined,
    });
    return true;
  }

  get(clientMsgId) {
    return this.#items.find((item) => item.clientMsgId === clientMsgId);
  }

  of(sessionId) {
    return this.#items.filter((item) => item.sessionId === sessionId);
  }

  /** What may be sent at `now`: the first live item of each session, unless it is in flight or put off. */
  due(now) {
    return this.#heads().filter((item) => item.sessionId !== null && item.state === "queued" && item.notBefore <= now);
  }

  /** When `due` will have more without anything else happening, or null. */
  nextAt() {
    const times = this.#heads().filter((item) => item.state === "queued").map((item) => item.notBefore);
    return times.length ? Math.min(...times) : null;
  }

  /** Whether a message waits for a session to be opened. */
  get wantsSession() {
    return this.#items.some((item) => item.sessionId === null && item.state === "queued");
  }

  sent(clientMsgId, now) {
    const item = this.get(clientMsgId);
    item.state = "sent";
    item.sentAt = now;
  }

  /** @returns the item that was accepted, or undefined when it was accepted before */
  accept(clientMsgId) {
    const item = this.get(clientMsgId);
    if (item) this.#items.splice(this.#items.indexOf(item), 1);
    return item;
  }

  /** A temporary refusal: same id again at `notBefore`, everything behind it waits. */
  putOff(clientMsgId, notBefore) {
    const item = this.get(clientMsgId);
    if (!item) return;
    item.state = "queued";
    item.notBefore = notBefore;
    item.tries += 1;
  }

  /** A final refusal: stays visible, blocks nobody, until `retry` or `discard`. */
  fail(clientMsgId, code, reason) {
    const item = this.get(clientMsgId);
    if (item) Object.assign(item, { state: "failed", code, reason });
  }

  /** The same message again, in its old place, under its old id: if it was stored after all, it is stored once. */
  retry(clientMsgId) {
    const item = this.get(clientMsgId);
    if (item?.state === "failed") Object.assign(item, { state: "queued", notBefore: 0, tries: 0, code: undefined });
  }

  discard(clientMsgId) {
    this.accept(clientMsgId);
  }

  /** The connection is gone: what was in flight may or may not have arrived, so it is sent again. */
  rewind() {
    for (const item of this.#items) if (item.state === "sent") item.state = "queued";
  }

  /** Puts off what was sent before `sentBefore` and never answered. */
  expire(sentBefore, notBefore) {
    for (const item of this.#items) {
      if (item.state === "sent" && item.sentAt < sentBefore) this.putOff(item.clientMsgId, notBefore);
    }
  }

  /** Gives the items that had no session the one that was opened for them. */
  bind(sessionId) {
    for (const item of this.#items) if (item.sessionId === null) item.sessionId = sessionId;
  }

  #heads() {
    const seen = new Set();
    return this.#items.filter((item) => {
      if (item.state === "failed" || seen.has(item.sessionId)) return false;
      seen.add(item.sessionId);
      return true;
    });
  }
}

/** Whether to go by WebSocket or by events: some networks let no WebSocket through, and others nothing for a while. */
export class Fallback {
  #missed = 0;
  #probes = 0;

  get byEvents() {
    return this.#missed >= SOCKET_TRIES;
  }

  /** An attempt ended before it was greeted. A close code of the chat's own means that the way is open. */
  failed(transport, code) {
    if (transport === "events") this.#missed = SOCKET_TRIES - 1; // perhaps nothing gets through: one of each, in turn
    else if (code === 1006 || code === 1015 || code === 4009) this.#missed += 1;
  }

  worked(transport) {
    if (transport !== "socket") return;
    this.#missed = 0;
    this.#probes = 0;
  }

  /** How long to stay with events before a WebSocket is tried again: longer each time. */
  probeIn() {
    const ms = Math.min(PROBE_MAX_MS, PROBE_MS * 2 ** this.#probes);
    this.#probes = Math.min(this.#probes + 1, 10);
    return ms;
  }
}

/** The party's notices: each shown once, those that were missed asked for. */
export class Notices {
  #resuming = false;

  /** @param {number|null} last highest number shown; null: count from the next one */
  constructor(last) {
    this.last = last;
  }

  /** @returns {"new"|"duplicate"|"gap"} `gap`: it comes again, behind the ones before it */
  apply(nseq) {
    if (nseq === undefined) return "new";
    if (this.last !== null && nseq <= this.last) return "duplicate";
    if (this.last !== null && nseq > this.last + 1) return "gap";
    this.last = nseq;
    return "new";
  }

  /** @returns {boolean} whether to ask; not while that is under way */
  resume() {
    if (this.#resuming) return false;
    this.#resuming = true;
    return true;
  }

  settle(lastSeq) {
    this.#resuming = false;
    this.last = Math.max(this.last ?? 0, lastSeq);
  }

  /** What is older is gone, or the count began anew. */
  reset(maxSeq) {
    this.last = maxSeq;
  }

  /** The answer will not come. */
  interrupted() {
    this.#resuming = false;
  }
}

/** What a client has, as the id of a stream's event: `9001.1.42,9002.1.7,@me.3`. */
export function positions(sessions, nseq) {
  const open = [...sessions].filter((session) => session.timeline.loaded && !session.closed);
  const latest = open.sort((a, b) => (b.lastMessage?.time ?? 0) - (a.lastMessage?.time ?? 0)).slice(0, POSITIONS_MAX);
  const parts = latest.map(({ id, timeline }) => `${id}.${timeline.epoch}.${timeline.last}`);
  return [...parts, ...(nseq === null ? [] : [`@me.${nseq}`])].join(",");
}

/** @returns {"user"|"agent"} whose side wrote it; a bot speaks for the shop */
export function sideOf(message) {
  return message.sender?.kind === "user" ? "user" : "agent";
}

/**
 * How long to wait before the next attempt: doubles from half a second up to 20 s, and the upper half of it is
 * drawn at random so that clients that fell together do not come back together.
 * @param {number} attempt 0 for the first retry
 * @param {number} random in [0, 1)
 * @returns {number} milliseconds
 */
export function backoff(attempt, random) {
  const full = Math.min(20_000, 500 * 2 ** Math.min(attempt, 10));
  return Math.round(full / 2 + (full / 2) * random);
}

/**
 * What a close code asks of the client.
 * @returns {"retry"|"later"|"token"|"stop"} `later`: retry, but not at once; `token`: only with another token
 */
export function verdict(code) {
  switch (code) {
    case 4401: // token invalid or expired
      return "token";
    case 4400: // protocol misuse
    case 4403: // forbidden or revoked
    case 4408: // no valid hello
    case 4409: // replaced by another device of ours
    case 4426: // version unsupported
      return "stop";
    case 1013: // try again later
    case 4029: // too many frames
      return "later";
    default:
      return "retry";
  }
}

const CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/**
 * A ULID: 48 bits of time, 80 bits of chance, 26 characters that sort by time.
 * @param {number} now Unix milliseconds
 * @param {() => number} random draws from [0, 1)
 */
export function newId(now, random) {
  let time = "";
  for (let i = 0, rest = now; i < 10; i += 1, rest = Math.floor(rest / 32)) time = CROCKFORD[rest % 32] + time;
  let chance = "";
  for (let i = 0; i < 16; i += 1) chance += CROCKFORD[Math.floor(random() * 32)];
  return time + chance;
}
