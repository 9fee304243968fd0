// A `chat.v1` client for browsers: one socket, kept alive, that never shows a message twice, out of order or not at
// all, and never loses one it was given to send. Depends on nothing but `WebSocket`; draws nothing.
// The pages listen to its events and read `sessions` and `outbox`. The rules are in `chat-state.js`.
//
// Events (CustomEvent, data in `detail`):
//   state     {state, code?, retryInMs?}  the connection: idle, connecting, online, waiting, ended
//   change    {sessionId}                 messages, cursors or unsent messages of a session; null: those without one
//   sessions  {}                          sessions came, went or changed owner
//   message   {sessionId, message}        the other side wrote something new
//   seckill   {orderNo, status}           the result of a flash-sale order
//   token     {inMs}                      the token expires soon: call `refresh`
//   problem   {code, message}             the server refused something that belongs to no message

import { Outbox, PAGE, Timeline, backoff, newId, sideOf, verdict } from "./chat-state.js";

/** `WebSocket.OPEN`. */
const OPEN = 1;
/** Until `hello` says otherwise. */
const HEARTBEAT_MS = 10_000;
/** A connection that has not said hello by then is given up. */
const HELLO_DEADLINE_MS = 10_000;
/** A message that was neither accepted nor refused by then is sent again under the same id. */
const ACCEPT_DEADLINE_MS = 10_000;
/** Cursors are sent at most this often. */
const CURSOR_EVERY_MS = 200;
/** Wait when a temporary refusal names no time. */
const RETRY_MS = 1_000;
/** First wait after the server asked to come back later. */
const LATER_MS = 3_000;
/** Replays that bring nothing before a gap is taken for one that nothing can fill. */
const STALLS_MAX = 5;

const random = () => crypto.getRandomValues(new Uint32Array(1))[0] / 2 ** 32;

const browserClock = {
  now: () => Date.now(),
  random,
  id: () => newId(Date.now(), random),
  after: (ms, run) => setTimeout(run, ms),
  cancel: (timer) => clearTimeout(timer),
};

/** A conversation as this side sees it. */
class Session {
  constructor(id) {
    this.id = id;
    this.no = "";
    this.userId = undefined;
    this.agentId = undefined;
    this.subject = "";
    this.closed = false;
    /** Messages of the other side that this side has not read. */
    this.unread = 0;
    /** Highest number heard of, shown or not. */
    this.top = 0;
    /** Up to here the server counted `unread`; later ones are counted here. */
    this.counted = 0;
    /** How far this side has read, as the server knows and as it shall know. */
    this.acked = 0;
    this.wantAcked = 0;
    /** How far this device has received, as the server knows. */
    this.received = 0;
    /** How far the other side has received and read. */
    this.peerReceived = 0;
    this.peerRead = 0;
    /** Newest message, for lists; may be known before the timeline is loaded. */
    this.lastMessage = undefined;
    this.timeline = new Timeline(undefined);
    /** Whether the page wants the messages, and the requests under way for them. */
    this.wanted = false;
    this.paging = null;
    this.resuming = null;
    /** Where the running replay started, and how many in a row brought nothing. */
    this.resumedFrom = 0;
    this.stalls = 0;
  }
}

export class ChatClient extends EventTarget {
  #url;
  #token;
  #clock;
  #WebSocket;
  #socket = null;
  #attempt = 0;
  #refusedTokens = 0;
  #heartbeat = HEARTBEAT_MS;
  #quiet = false;
  #timers = new Map();
  #requests = new Map();
  #requestNo = 0;
  #opening = null;
  #dirty = new Set();

  /**
   * @param {object} options
   * @param {string} options.url address of `/ws/chat`
   * @param {() => string|Promise<string>} options.token called before each connection; must settle in bounded time
   * @param {{kind: "user"|"agent", id: string}} options.me whose side this is
   */
  constructor({ url, token, me, clock = browserClock, WebSocket = globalThis.WebSocket }) {
    super();
    this.#url = url;
    this.#token = token;
    this.#clock = clock;
    this.#WebSocket = WebSocket;
    this.me = me;
    this.state = "idle";
    /** What a session is opened with when the first message has none. */
    this.subject = "";
    this.sessions = new Map();
    this.outbox = new Outbox();
  }

  start() {
    if (this.state === "idle" || this.state === "ended") this.#connect();
  }

  stop() {
    this.#leave(1000);
    this.#set("idle");
  }

  /** The device is awake or has a network again: do not sit out the wait. */
  wake() {
    if (this.state === "waiting") this.#connect();
  }

  /** @returns {string|null} the message's id, or null when too many are waiting already */
  send(sessionId, content, type = "text") {
    const now = this.#clock.now();
    const clientMsgId = this.#clock.id();
    if (!this.outbox.add({ clientMsgId, sessionId, type, content, at: now })) return null;
    this.#changed(sessionId);
    this.#pump();
    return clientMsgId;
  }

  retry(clientMsgId) {
    const item = this.outbox.get(clientMsgId);
    if (!item) return;
    this.outbox.retry(clientMsgId);
    this.#changed(item.sessionId);
    this.#pump();
  }

  discard(clientMsgId) {
    const item = this.outbox.get(clientMsgId);
    this.outbox.discard(clientMsgId);
    if (item) this.#changed(item.sessionId);
  }

  /** Loads the newest page, once; live messages follow by themselves from then on. */
  load(sessionId) {
    const session = this.sessions.get(sessionId);
    if (!session) return;
    session.wanted = true;
    if (!session.timeline.loaded) this.#page(session);
  }

  /** Loads the page before the oldest message shown. */
  older(sessionId) {
    const session = this.sessions.get(sessionId);
    if (session?.timeline.loaded && session.timeline.hasOlder) this.#page(session);
  }

  /** This side has seen everything that is shown. */
  markRead(sessionId) {
    const session = this.sessions.get(sessionId);
    if (!session?.timeline.loaded) return;
    if (session.timeline.last <= session.wantAcked && session.unread === 0) return;
    session.wantAcked = Math.max(session.wantAcked, session.timeline.last);
    session.unread = 0;
    this.#cursor(session);
    this.#changed(sessionId);
  }

  /** Carries a new token into the running connection. */
  refresh(token) {
    this.#write({ type: "refresh", token });
  }

  /** An agent's state: `online`, `busy` or `away`. */
  status(state) {
    this.#write({ type: "status", state });
  }

  /** Sum over all sessions. */
  get unread() {
    let sum = 0;
    for (const session of this.sessions.values()) sum += session.unread;
    return sum;
  }

  /** The session a new message goes to: the latest that is open, or null. */
  get current() {
    const open = [...this.sessions.values()].filter((session) => !session.closed);
    return open.reduce((latest, session) => (latest && isLater(latest.id, session.id) ? latest : session), null);
  }

  // ---- connection

  async #connect() {
    this.#leave(1000);
    this.#set("connecting");
    // Each attempt has its own marker; an attempt that was overtaken finds another one in its place.
    const attempt = {};
    this.#socket = attempt;
    this.#timer("hello", HELLO_DEADLINE_MS, () => this.#lost(4009));
    let token;
    try {
      token = await this.#token();
    } catch {
      if (this.#socket === attempt) this.#lost(1006);
      return;
    }
    if (this.#socket !== attempt) return;
    const socket = new this.#WebSocket(this.#url, ["chat.v1.json", `bearer.${token}`]);
    this.#socket = socket;
    socket.onmessage = (event) => {
      if (this.#socket === socket) this.#hear(event.data);
    };
    socket.onclose = (event) => {
      if (this.#socket === socket) this.#lost(event.code);
    };
  }

  /** Lets go of the socket without waiting for the other end, which may be gone. */
  #leave(code) {
    const socket = this.#socket;
    this.#socket = null;
    for (const timer of this.#timers.values()) this.#clock.cancel(timer);
    this.#timers.clear();
    this.#requests.clear();
    this.#opening = null;
    this.outbox.rewind();
    for (const session of this.sessions.values()) {
      session.paging = null;
      session.resuming = null;
    }
    if (socket?.close) socket.close(code);
  }

  #lost(code) {
    this.#leave(4009);
    let ruling = verdict(code);
    if (ruling === "token") ruling = ++this.#refusedTokens > 1 ? "stop" : "retry";
    if (ruling === "stop") {
      this.#set("ended", { code });
      return;
    }
    const floor = ruling === "later" ? LATER_MS : 0;
    const retryInMs = floor + backoff(this.#attempt, this.#clock.random());
    this.#attempt += 1;
    this.#set("waiting", { code, retryInMs });
    this.#timer("retry", retryInMs, () => this.#connect());
  }

  #set(state, more = {}) {
    this.state = state;
    this.#emit("state", { state, ...more });
    // What was in flight is queued again, and the page shows that.
    if (state !== "connecting") this.#changed(null);
  }

  /** Two beats without a sign of life end the connection; the first one asks for such a sign. */
  #beat() {
    if (this.#quiet) return this.#lost(4009);
    this.#quiet = true;
    this.#write({ type: "ping" });
    const now = this.#clock.now();
    this.outbox.expire(now - ACCEPT_DEADLINE_MS, now);
    this.#pump();
    this.#timer("beat", this.#heartbeat, () => this.#beat());
  }

  // ---- frames in

  #hear(text) {
    let frame;
    try {
      frame = JSON.parse(text);
    } catch {
      return; // not ours to judge; the next frame stands for itself
    }
    this.#quiet = false;
    switch (frame.type) {
      case "hello": return this.#hello(frame);
      case "opened": return this.#opened(frame);
      case "accepted": return this.#accepted(frame);
      case "history": return this.#history(frame);
      case "replay_end": return this.#replayEnd(frame);
      case "resync": return this.#resync(frame);
      case "read": return this.#read(frame);
      case "recv": case "delivered": return this.#delivered(frame);
      case "assigned": return this.#assigned(frame);
      case "closed": return this.#closed(frame);
      case "seckill_result": return this.#emit("seckill", frame);
      case "token_expiring": return this.#emit("token", frame);
      case "migrate": return this.#migrate(frame);
      case "error": return this.#error(frame);
      default:
        if (Number.isSafeInteger(frame.seq) && frame.sessionId) this.#push(frame);
    }
  }

  #hello(frame) {
    this.#cancel("hello");
    this.#refusedTokens = 0;
    this.#heartbeat = frame.heartbeat > 0 ? frame.heartbeat : HEARTBEAT_MS;
    this.#quiet = false;
    this.#timer("beat", this.#heartbeat, () => this.#beat());
    // A server that greets and falls over again must not be met with a storm: calm down only after a beat.
    this.#timer("stable", this.#heartbeat / 2, () => { this.#attempt = 0; });
    const listed = new Set();
    const known = [];
    for (const entry of frame.sessions ?? []) {
      listed.add(entry.sessionId);
      const session = this.#enter(entry);
      if (session.timeline.loaded) known.push(session);
    }
    for (const session of this.sessions.values()) if (!listed.has(session.id)) session.closed = true;
    this.#set("online");
    this.#resume(known);
    for (const session of this.sessions.values()) {
      if (session.wanted && !session.timeline.loaded && !session.closed) this.#page(session);
      this.#cursor(session);
    }
    if (this.outbox.wantsSession && this.current) this.#bind(this.current.id);
    this.#emit("sessions", {});
    this.#pump();
  }

  /** Takes over what the server says of a session, new or known. */
  #enter(entry) {
    let session = this.sessions.get(entry.sessionId);
    if (!session) {
      session = new Session(entry.sessionId);
      session.timeline.reset(entry.epoch);
      this.sessions.set(session.id, session);
    }
    const { timeline } = session;
    const replaced = entry.epoch !== undefined && entry.epoch !== timeline.epoch;
    if (replaced || (timeline.loaded && entry.maxSeq < timeline.last)) this.#restart(session, entry.epoch);
    session.closed = false;
    session.no = entry.sessionNo ?? session.no;
    session.userId = entry.userId ?? session.userId;
    session.agentId = entry.agentId ?? session.agentId;
    session.subject = entry.subject ?? session.subject;
    session.lastMessage = entry.lastMessage ?? session.lastMessage;
    session.unread = entry.unread ?? session.unread;
    session.top = Math.max(session.top, entry.maxSeq ?? 0);
    session.counted = session.top;
    session.acked = entry.yourSeq ?? session.acked;
    session.wantAcked = Math.max(session.wantAcked, session.acked);
    session.received = Math.max(session.received, session.acked);
    session.peerRead = Math.max(session.peerRead, entry.peerSeq ?? 0);
    if (!timeline.loaded && entry.maxSeq === 0) timeline.prepend([], false);
    return session;
  }

  /** The stream was replaced: forget the old numbers. */
  #restart(session, epoch) {
    session.timeline.reset(epoch);
    Object.assign(session, {
      top: 0, counted: 0, acked: 0, wantAcked: 0, received: 0, peerReceived: 0, peerRead: 0,
      paging: null, resuming: null, stalls: 0,
    });
  }

  #push(message) {
    if (!this.sessions.has(message.sessionId)) {
      // Opened on another device of ours, or handed to us before anybody said so.
      this.#enter({ sessionId: message.sessionId, epoch: message.epoch, unread: 0 }).wanted = true;
      this.#emit("sessions", {});
    }
    if (message.clientMsgId && this.#isOurs(message)) this.outbox.accept(message.clientMsgId);
    this.#place(this.sessions.get(message.sessionId), message);
  }

  /** Puts a message where it belongs, wherever it came from. */
  #place(session, message) {
    const { timeline } = session;
    if (message.epoch !== undefined && message.epoch !== timeline.epoch) this.#restart(session, message.epoch);
    const isNew = message.seq > session.top;
    session.top = Math.max(session.top, message.seq);
    if (isNew && message.type !== "recalled") session.lastMessage = message;
    const fate = timeline.apply(message);
    if (fate === "gap") this.#resume([session]);
    if (fate === "unloaded" && session.wanted) this.#page(session);
    const uncounted = fate === "unloaded" ? isNew : fate !== "duplicate" && message.seq > session.counted;
    if (uncounted && message.type !== "recalled" && !this.#isOurs(message)) {
      session.unread += 1;
      this.#emit("message", { sessionId: session.id, message });
    }
    this.#cursor(session);
    this.#changed(session.id);
  }

  #isOurs(message) {
    return sideOf(message) === this.me.kind;
  }

  #accepted(frame) {
    const session = this.sessions.get(frame.sessionId);
    const item = this.outbox.accept(frame.clientMsgId);
    if (session && item) {
      this.#place(session, {
        id: frame.id, type: item.type, sessionId: frame.sessionId, seq: frame.seq, epoch: frame.epoch,
        content: frame.content ?? item.content, sender: this.me, clientMsgId: frame.clientMsgId, time: frame.time,
      });
    }
    this.#pump();
  }

  #opened(frame) {
    if (this.#opening && frame.reqId !== undefined && frame.reqId !== this.#opening) return;
    this.#forget(this.#opening);
    this.#opening = null;
    this.#enter({ unread: 0, subject: this.subject, ...frame });
    this.load(frame.sessionId);
    this.#bind(frame.sessionId);
    this.#emit("sessions", {});
    this.#pump();
  }

  #bind(sessionId) {
    this.outbox.bind(sessionId);
    this.#changed(sessionId);
  }

  #assigned(frame) {
    const mine = this.me.kind === "agent" && frame.agentId === this.me.id;
    let session = this.sessions.get(frame.sessionId);
    if (mine) session = this.#enter(frame.session ?? { sessionId: frame.sessionId });
    if (!session) return;
    session.agentId = frame.agentId;
    if (this.me.kind === "agent" && !mine) session.closed = true;
    if (session.wanted && !session.timeline.loaded) this.#page(session);
    this.#emit("sessions", {});
    this.#changed(session.id);
  }

  #closed(frame) {
    const session = this.sessions.get(frame.sessionId);
    if (!session) return;
    session.closed = true;
    this.#emit("sessions", {});
    this.#changed(session.id);
  }

  #read(frame) {
    const session = this.sessions.get(frame.sessionId);
    if (!session) return;
    if (String(frame.by).startsWith(`${this.me.kind}:`)) {
      session.acked = Math.max(session.acked, frame.lastSeq);
      session.wantAcked = Math.max(session.wantAcked, frame.lastSeq);
      // What this device has read and not yet told stays read here.
      if (session.wantAcked <= frame.lastSeq) session.unread = frame.unread ?? session.unread;
    } else {
      session.peerRead = Math.max(session.peerRead, frame.lastSeq);
    }
    this.#changed(session.id);
  }

  #delivered(frame) {
    const session = this.sessions.get(frame.sessionId);
    if (!session || String(frame.by).startsWith(`${this.me.kind}:`)) return;
    session.peerReceived = Math.max(session.peerReceived, frame.lastSeq);
    this.#changed(session.id);
  }

  /** The node is about to go: come back at a moment of our own within the time it gave. */
  #migrate(frame) {
    const within = Math.max(0, frame.afterMs ?? 0);
    this.#timer("migrate", within * this.#clock.random(), () => this.#connect());
  }

  #error(frame) {
    const item = this.outbox.get(frame.clientMsgId ?? frame.reqId);
    const wait = Math.max(frame.retryAfterMs ?? RETRY_MS, 0);
    if (item) {
      if (frame.temporary) {
        this.outbox.putOff(item.clientMsgId, this.#clock.now() + Math.max(wait, backoff(item.tries, 0)));
      } else {
        this.outbox.fail(item.clientMsgId, frame.code, frame.message);
        if (frame.code === "SESSION_CLOSED") this.#closed({ sessionId: item.sessionId });
      }
      this.#changed(item.sessionId);
      this.#pump();
      return;
    }
    const request = this.#requests.get(frame.reqId);
    this.#forget(frame.reqId);
    if (request && frame.temporary) this.#timer(frame.reqId, wait, request.again);
    else if (request) request.refused(frame);
    else this.#emit("problem", frame);
  }

  // ---- filling gaps and paging

  /** Asks for everything after what is shown, unless that is under way. */
  #resume(sessions) {
    const idle = sessions.filter((session) => session.timeline.loaded && session.resuming === null);
    if (idle.length === 0 || this.state !== "online") return;
    const positions = idle.map(({ id, timeline }) => ({ sessionId: id, epoch: timeline.epoch, lastSeq: timeline.last }));
    const release = () => {
      const waiting = idle.filter((session) => session.resuming === reqId);
      for (const session of waiting) session.resuming = null;
      return waiting;
    };
    const reqId = this.#ask({ type: "resume", positions }, () => this.#resume(release()), release);
    for (const session of idle) Object.assign(session, { resuming: reqId, resumedFrom: session.timeline.last });
  }

  #replayEnd(frame) {
    const session = this.sessions.get(frame.sessionId);
    if (!session?.timeline.loaded) return;
    const { timeline, resuming } = session;
    session.resuming = null;
    if (![...this.sessions.values()].some((other) => other.resuming === resuming)) this.#forget(resuming);
    if (!frame.hasMore) timeline.settle(frame.lastSeq);
    this.#cursor(session);
    this.#changed(session.id);
    const advanced = timeline.last > session.resumedFrom;
    session.stalls = advanced ? 0 : session.stalls + 1;
    if (timeline.last >= session.top) return;
    if (advanced) this.#resume([session]);
    else if (session.stalls < STALLS_MAX) this.#timer(`stall ${session.id}`, RETRY_MS, () => this.#resume([session]));
    else timeline.settle(session.top);
  }

  #resync(frame) {
    const session = this.sessions.get(frame.sessionId);
    if (!session) return;
    this.#restart(session, frame.epoch);
    session.top = frame.maxSeq ?? 0;
    if (session.top === 0) session.timeline.prepend([], false);
    else this.load(session.id);
    this.#changed(session.id);
  }

  #page(session) {
    if (session.paging !== null || this.state !== "online") return;
    const { timeline } = session;
    const beforeSeq = timeline.messages[0]?.seq ?? (timeline.loaded ? timeline.last : session.top) + 1;
    const again = () => {
      session.paging = null;
      this.#page(session);
    };
    session.paging = this.#ask({ type: "history", sessionId: session.id, beforeSeq, limit: PAGE }, again, (error) => {
      session.paging = null;
      this.#emit("problem", error);
    });
    this.#changed(session.id);
  }

  #history(frame) {
    const session = this.sessions.get(frame.sessionId);
    if (!session || session.paging === null) return;
    this.#forget(session.paging);
    session.paging = null;
    const { timeline } = session;
    const page = frame.messages.filter((message) => message.epoch === undefined || message.epoch === timeline.epoch);
    for (const message of page) if (message.clientMsgId && this.#isOurs(message)) this.outbox.accept(message.clientMsgId);
    timeline.prepend(page, frame.hasMore === true);
    session.lastMessage = timeline.messages.findLast((message) => message.type !== "recalled") ?? session.lastMessage;
    session.top = Math.max(session.top, timeline.last);
    session.counted = Math.max(session.counted, session.top);
    if (timeline.last < session.top) this.#resume([session]);
    this.#cursor(session);
    this.#changed(session.id);
    this.#pump();
  }

  // ---- frames out

  /** Sends what is due, and opens a session first when something waits for one. */
  #pump() {
    if (this.state !== "online") return;
    this.#cancel("pump");
    const now = this.#clock.now();
    if (this.outbox.wantsSession && !this.#opening) this.#open();
    for (const item of this.outbox.due(now)) {
      const { clientMsgId, sessionId, type, content } = item;
      this.#write({ type, sessionId, content, clientMsgId, reqId: clientMsgId });
      this.outbox.sent(clientMsgId, now);
    }
    const nextAt = this.outbox.nextAt();
    if (nextAt !== null && nextAt > now) this.#timer("pump", nextAt - now, () => this.#pump());
  }

  #open() {
    const again = () => {
      this.#opening = null;
      this.#pump();
    };
    this.#opening = this.#ask({ type: "open", subject: this.subject }, again, (error) => {
      this.#opening = null;
      for (const item of this.outbox.of(null)) this.outbox.fail(item.clientMsgId, error.code, error.message);
      this.#changed(null);
    });
  }

  /** Sends the cursors soon, so that a burst of messages costs one frame. */
  #cursor(session) {
    this.#dirty.add(session.id);
    if (this.state === "online" && !this.#timers.has("cursor")) {
      this.#timer("cursor", CURSOR_EVERY_MS, () => this.#sendCursors());
    }
  }

  #sendCursors() {
    for (const sessionId of this.#dirty) {
      const session = this.sessions.get(sessionId);
      if (session && !session.closed) this.#sendCursor(session);
    }
    this.#dirty.clear();
  }

  #sendCursor(session) {
    const { id, timeline } = session;
    if (session.wantAcked > session.acked) {
      this.#write({ type: "ack", sessionId: id, lastSeq: session.wantAcked });
      session.acked = session.wantAcked;
      session.received = Math.max(session.received, session.acked);
    }
    if (timeline.loaded && timeline.last > session.received) {
      this.#write({ type: "recv", sessionId: id, lastSeq: timeline.last });
      session.received = timeline.last;
    }
  }

  /** Sends a request whose refusal matters. @returns its id */
  #ask(frame, again, refused) {
    const reqId = `r${++this.#requestNo}`;
    this.#requests.set(reqId, { again, refused });
    this.#write({ ...frame, reqId });
    return reqId;
  }

  #forget(reqId) {
    this.#requests.delete(reqId);
  }

  #write(frame) {
    // What a socket that is closing does not take is made up for by resume, rewind and cursors.
    if (this.state === "online" && this.#socket.readyState === OPEN) this.#socket.send(JSON.stringify(frame));
  }

  // ---- timers and events

  #timer(name, ms, run) {
    this.#cancel(name);
    this.#timers.set(name, this.#clock.after(ms, () => {
      this.#timers.delete(name);
      run();
    }));
  }

  #cancel(name) {
    this.#clock.cancel(this.#timers.get(name));
    this.#timers.delete(name);
  }

  #changed(sessionId) {
    this.#emit("change", { sessionId });
  }

  #emit(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
}

/** Compares decimal ids, which may be larger than a number can hold. */
function isLater(a, b) {
  return a.length === b.length ? a > b : a.length > b.length;
}
