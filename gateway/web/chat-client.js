// A `chat.v1` client for browsers: one connection, kept alive, that never shows a message twice, out of order or not at
// all, and never loses one it was given to send. Depends on nothing but `WebSocket` and `fetch`; draws nothing.
// The pages listen to its events and read `sessions` and `outbox`. The rules are in `chat-state.js`; where WebSockets do not
// get through, `chat-events.js` takes the socket's place.
//
// Events (CustomEvent, data in `detail`):
//   state     {state, transport, code?, retryInMs?}  the connection: idle, connecting, online, waiting, ended
//   change    {sessionId}                 messages, cursors or unsent messages of a session; null: those without one
//   sessions  {}                          sessions came, went or changed owner
//   message   {sessionId, message}        the other side wrote something new
//   typing    {sessionId, by}             the other side is writing
//   presence  {who, state}                an agent came, went, or says something else of itself
//   status    {state}                     what this agent says of itself
//   waiting   {count}                     the waiting line of the agent's shop
//   overdue   {sessionId, clock, elapsedMs}  a user waits longer than it should
//   seckill   {orderNo, status, nseq?}    the result of a flash-sale order
//   token     {inMs}                      the token expires soon; a new one is fetched by itself
//   problem   {code, message}             the server refused something that belongs to no message

import { EventSocket } from "./chat-events.js";
import { Fallback, Notices, Outbox, PAGE, Timeline, backoff, newId, positions, sideOf, verdict } from "./chat-state.js";

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
/** The other side counts as writing for this long after it said so, and is told of us this often. */
const TYPING_MS = 4_000;
const TYPING_EVERY_MS = 2_500;
/** Longest wait for a list that is asked for by itself. */
const LIST_MS = 8_000;
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
    /** Until when the other side counts as writing. */
    this.typingUntil = 0;
    /** The clock that runs too long, `{clock, elapsedMs}`; of agents. */
    this.overdue = null;
    /** Whether an agent no longer serves it. */
    this.left = false;
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
  #events;
  #token;
  #device;
  #clock;
  #WebSocket;
  #fetch;
  #socket = null;
  #probing = null;
  #fallback = new Fallback();
  #notices;
  #guarded;
  #key = null;
  #signing = Promise.resolve();
  /** Server's clock minus ours. */
  #offset = 0;
  #greeted = false;
  #spread;
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
   * @param {string|null} [options.events] address of `/api/chat`, for when no WebSocket gets through; null: never
   * @param {string} [options.device] names this device
   * @param {number|null} [options.notices] highest `nseq` this device has; null: count from the next one
   * @param {boolean} [options.guard] give every frame a timestamp and a nonce
   */
  constructor({
    url, token, me, events = besides(url), device = "", notices = null, guard = false,
    clock = browserClock, WebSocket = globalThis.WebSocket, fetch = globalThis.fetch?.bind(globalThis),
  }) {
    super();
    this.#url = device ? `${url}${url.includes("?") ? "&" : "?"}device=${encodeURIComponent(device)}` : url;
    this.#events = events;
    this.#token = token;
    this.#device = device;
    this.#notices = new Notices(notices);
    this.#guarded = guard;
    this.#clock = clock;
    this.#WebSocket = WebSocket;
    this.#fetch = fetch;
    this.me = me;
    this.state = "idle";
    /** What carries the frames: `socket` or `events`. */
    this.transport = "socket";
    /** Of an agent: what it says of itself, and how many sessions of its shop wait. */
    this.agentState = undefined;
    /** Agents by `agent:<id>`, as they were last heard of. */
    this.presence = new Map();
    this.waiting = 0;
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

  /** This side is writing; may be called for every key. */
  typing(sessionId) {
    const session = this.sessions.get(sessionId);
    if (!session || session.closed || this.#timers.has(`typing ${sessionId}`)) return;
    this.#write({ type: "typing", sessionId });
    this.#timer(`typing ${sessionId}`, TYPING_EVERY_MS, () => {});
  }

  /** Takes one of this side's messages back. It is a message of its own: sent until it is accepted or refused. */
  recall(sessionId, seq) {
    return this.send(sessionId, seq, "recall");
  }

  /** An agent's state: `online`, `busy`, `away` or `offline`. */
  status(state) {
    this.#request({ type: "status", state });
  }

  /** Hands a session over: to `agent:<id>`, or back to the line with `waiting`. To oneself: takes it from the line. */
  transfer(sessionId, to) {
    this.#request({ type: "transfer", sessionId, to });
  }

  /** Ends a session for both sides. */
  close(sessionId) {
    this.#request({ type: "close", sessionId });
  }

  /** An agent's shop: the sessions that wait, those that wait longest first. */
  async line() {
    const { count, sessions } = await this.#list("waiting");
    this.waiting = count;
    return sessions;
  }

  /** An agent's shop: its agents, with their state and how many sessions they have. */
  async colleagues() {
    return (await this.#list("agents")).agents;
  }

  /** The server's clock, as far as it is known. */
  now() {
    return this.#clock.now() + this.#offset;
  }

  /** Highest number of this party's notices that this device has; null: none yet. */
  get nseq() {
    return this.#notices.last;
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
    this.transport = this.#events !== null && this.#fallback.byEvents ? "events" : "socket";
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
    try {
      this.#adopt(this.transport === "events" ? this.#stream(token) : this.#dial(token));
    } catch {
      this.#lost(1006); // a page may be forbidden to open sockets at all
    }
  }

  #dial(token) {
    return new this.#WebSocket(this.#url, ["chat.v1.json", `bearer.${token}`]);
  }

  #stream(token) {
    const lastEventId = positions(this.sessions.values(), this.#notices.last);
    return new EventSocket({ url: this.#events, token, device: this.#device, lastEventId, fetch: this.#fetch });
  }

  #adopt(socket) {
    this.#socket = socket;
    socket.onmessage = (event) => {
      if (this.#socket === socket) this.#hear(event.data);
    };
    socket.onclose = (event) => {
      if (this.#socket === socket) this.#lost(event.code, event.retryAfterMs);
    };
  }

  /** Events do; whether a socket gets through by now is tried beside them, and nothing is left before one has greeted. */
  async #probe() {
    const stream = this.#socket;
    let socket = null;
    const failed = () => {
      if (this.#probing !== socket) return;
      this.#probing = null;
      if (this.#socket === stream) this.#timer("probe", this.#fallback.probeIn(), () => this.#probe());
    };
    try {
      const token = await this.#token();
      if (this.#socket !== stream) return;
      socket = this.#dial(token);
    } catch {
      failed();
      return;
    }
    this.#probing = socket;
    this.#timer("probe", HELLO_DEADLINE_MS, () => {
      const given = this.#probing;
      failed();
      given?.close(4009);
    });
    socket.onclose = failed;
    socket.onmessage = (event) => {
      if (this.#probing !== socket || this.#socket !== stream) return;
      this.#probing = null;
      this.#leave(1000);
      this.transport = "socket";
      this.#adopt(socket);
      this.#hear(event.data);
    };
  }

  /** Lets go of the socket without waiting for the other end, which may be gone. */
  #leave(code) {
    const socket = this.#socket;
    this.#socket = null;
    this.#probing?.close(code);
    this.#probing = null;
    this.#key = null;
    this.#greeted = false;
    this.#notices.interrupted();
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

  #lost(code, retryAfterMs = 0) {
    const greeted = this.#greeted;
    if (!greeted) this.#fallback.failed(this.transport, code);
    this.#leave(4009);
    let ruling = verdict(code);
    if (ruling === "token") ruling = ++this.#refusedTokens > 1 ? "stop" : "retry";
    if (ruling === "stop") {
      this.#set("ended", { code });
      return;
    }
    const floor = Math.max(ruling === "later" ? LATER_MS : 0, retryAfterMs);
    const { random } = this.#clock;
    // The first attempt comes when the server said, so that many who fell together come back spread out.
    const first = greeted && this.#attempt === 0 && this.#spread !== undefined;
    const retryInMs = floor + (first ? Math.round(this.#spread * random()) : backoff(this.#attempt, random()));
    this.#attempt += 1;
    this.#set("waiting", { code, retryInMs });
    this.#timer("retry", retryInMs, () => this.#connect());
  }

  #set(state, more = {}) {
    this.state = state;
    this.#emit("state", { state, transport: this.transport, ...more });
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
      case "delivered": return this.#delivered(frame);
      case "assigned": return this.#assigned(frame);
      case "closed": return this.#closed(frame);
      case "transferred": return this.#transferred(frame);
      case "status": return this.#stated(frame);
      case "waiting": return this.#waits(frame);
      case "overdue": return this.#late(frame);
      case "typing": return this.#typed(frame);
      case "presence": return this.#came(frame);
      case "seckill_result": return this.#notice(frame);
      case "token_expiring": return void this.#renew(frame);
      case "migrate": return this.#migrate(frame);
      case "error": return this.#error(frame);
      default:
        if (Number.isSafeInteger(frame.seq) && frame.sessionId) this.#push(frame);
    }
  }

  #hello(frame) {
    this.#cancel("hello");
    this.#greeted = true;
    this.#fallback.worked(this.transport);
    this.#refusedTokens = 0;
    this.#spread = frame.reconnectMs;
    this.#offset = (frame.serverTime ?? this.#clock.now()) - this.#clock.now();
    if (frame.frameKey && this.transport === "socket") this.#key = importKey(frame.frameKey);
    if (frame.state) this.#stated(frame);
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
    for (const session of this.sessions.values()) {
      if (listed.has(session.id)) continue;
      session.left ||= this.me.kind === "agent" && !session.closed;
      session.closed = true;
    }
    this.#set("online");
    if (this.transport === "events") {
      // The stream begins where the positions it was opened with end.
      for (const session of known) session.resumedFrom = session.timeline.last;
      this.#timer("probe", this.#fallback.probeIn(), () => this.#probe());
    } else {
      this.#resume(known);
      if (this.#notices.last !== null) this.#resumeNotices();
    }
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
    session.left = false;
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
    session.peerReceived = Math.max(session.peerReceived, entry.peerReceived ?? 0, session.peerRead);
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
    if (this.#isOurs(message)) session.overdue = null;
    else session.typingUntil = 0;
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

  #isMine(by) {
    return String(by).startsWith(`${this.me.kind}:`);
  }

  #isOurs(message) {
    return sideOf(message) === this.me.kind;
  }

  #accepted(frame) {
    const session = this.sessions.get(frame.sessionId);
    const item = this.outbox.accept(frame.clientMsgId);
    if (session && item) {
      const { id, sessionId, seq, epoch, clientMsgId, time } = frame;
      const said = item.type === "recall"
        ? { type: "recalled", refSeq: item.content } : { type: item.type, content: frame.content ?? item.content };
      this.#place(session, { id, sessionId, seq, epoch, sender: this.me, clientMsgId, time, ...said });
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
    const own = this.me.kind === "user" || frame.agentId === this.me.id;
    let session = this.sessions.get(frame.sessionId);
    // It may come before the answer to our own `open`.
    if (own) session = this.#join(session, frame.session ?? { sessionId: frame.sessionId });
    if (!session) return;
    session.agentId = frame.agentId;
    if (!own) this.#hadOver(session);
    if (session.wanted && !session.timeline.loaded) this.#page(session);
    this.#emit("sessions", {});
    this.#changed(session.id);
  }

  /** A session is ours, new or again. What the entry counts may be older than what came since: it only ever adds. */
  #join(session, entry) {
    if (!session || (entry.epoch !== undefined && entry.epoch !== session.timeline.epoch)) return this.#enter(entry);
    session.top = Math.max(session.top, entry.maxSeq ?? 0);
    if (session.left) Object.assign(session, { unread: entry.unread ?? 0, counted: session.top });
    session.closed = false;
    session.left = false;
    if (session.timeline.loaded && session.timeline.last < session.top) this.#resume([session]);
    return session;
  }

  /** Somebody else serves it now, or nobody. */
  #hadOver(session) {
    Object.assign(session, { closed: true, left: true, overdue: null, unread: 0 });
  }

  #transferred(frame) {
    this.#forget(frame.reqId);
    const session = this.sessions.get(frame.sessionId);
    const to = frame.to === "waiting" ? undefined : String(frame.to).replace(/^agent:/, "");
    if (!session || to === this.me.id) return;
    session.agentId = to;
    if (this.me.kind === "agent") this.#hadOver(session);
    this.#emit("sessions", {});
    this.#changed(session.id);
  }

  #stated(frame) {
    this.#forget(frame.reqId);
    this.agentState = frame.state;
    this.#emit("status", { state: frame.state });
  }

  #came(frame) {
    this.presence.set(frame.who, frame.state);
    this.#emit("presence", frame);
  }

  #waits({ count }) {
    this.waiting = count;
    this.#emit("waiting", { count });
  }

  #late({ sessionId, clock, elapsedMs }) {
    const session = this.sessions.get(sessionId);
    if (!session) return;
    session.overdue = { clock, elapsedMs };
    this.#emit("overdue", { sessionId, clock, elapsedMs });
    this.#changed(sessionId);
  }

  #typed({ sessionId, by }) {
    const session = this.sessions.get(sessionId);
    if (!session || this.#isMine(by)) return;
    session.typingUntil = this.#clock.now() + TYPING_MS;
    this.#timer(`typed ${sessionId}`, TYPING_MS, () => this.#changed(sessionId));
    this.#emit("typing", { sessionId, by });
    this.#changed(sessionId);
  }

  /** A token ends soon. Without a new one the connection ends with it, and the next one asks again. */
  async #renew(frame) {
    this.#emit("token", frame);
    const socket = this.#socket;
    try {
      const token = await this.#token();
      if (this.#socket === socket) this.refresh(token);
    } catch {
      // Said above.
    }
  }

  #closed(frame) {
    this.#forget(frame.reqId);
    const session = this.sessions.get(frame.sessionId);
    if (!session) return;
    session.closed = true;
    session.overdue = null;
    this.#emit("sessions", {});
    this.#changed(session.id);
  }

  #read(frame) {
    const session = this.sessions.get(frame.sessionId);
    if (!session) return;
    if (this.#isMine(frame.by)) {
      session.acked = Math.max(session.acked, frame.lastSeq);
      session.wantAcked = Math.max(session.wantAcked, frame.lastSeq);
      // What this device has read and not yet told stays read here.
      if (session.wantAcked <= frame.lastSeq) session.unread = frame.unread ?? session.unread;
    } else {
      session.peerRead = Math.max(session.peerRead, frame.lastSeq);
      session.peerReceived = Math.max(session.peerReceived, frame.lastSeq);
    }
    this.#changed(session.id);
  }

  #delivered(frame) {
    const session = this.sessions.get(frame.sessionId);
    if (!session || this.#isMine(frame.by)) return;
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
      } else if (item.type === "recall") {
        this.outbox.discard(item.clientMsgId);
        this.#emit("problem", frame);
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

  // ---- notices

  #notice(frame) {
    const fate = this.#notices.apply(frame.nseq);
    if (fate === "gap") this.#resumeNotices();
    if (fate === "new") this.#emit("seckill", frame);
  }

  #resumeNotices() {
    if (!this.#notices.resume()) return;
    const again = () => {
      this.#notices.interrupted();
      this.#resumeNotices();
    };
    this.#ask({ type: "resume", positions: [{ sessionId: "@me", lastSeq: this.#notices.last }] }, again, () => {
      this.#notices.interrupted();
    });
  }

  #replayEnd(frame) {
    if (frame.sessionId === "@me") {
      this.#forget(frame.reqId);
      this.#notices.settle(frame.lastSeq);
      return;
    }
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
    if (frame.sessionId === "@me") {
      this.#notices.reset(frame.maxSeq);
      return;
    }
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
      const said = type === "recall" ? { seq: content } : { content };
      this.#write({ type, sessionId, ...said, clientMsgId, reqId: clientMsgId });
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

  /** The same for what is done when nothing comes back, and told to the page when it is refused. */
  #request(frame) {
    this.#ask(frame, () => this.#request(frame), (error) => this.#emit("problem", error));
  }

  #forget(reqId) {
    this.#requests.delete(reqId);
  }

  #write(frame) {
    // What a socket that is closing does not take is made up for by resume, rewind and cursors.
    const socket = this.#socket;
    if (this.state !== "online" || socket.readyState !== OPEN) return;
    const proof = this.#guarded || this.#key ? { timestamp: this.now(), nonce: this.#clock.id() } : {};
    const text = JSON.stringify({ ...frame, ...proof });
    if (!this.#key) {
      socket.send(text);
      return;
    }
    const key = this.#key;
    // One after another, for frames must leave in the order they were written.
    this.#signing = this.#signing.then(async () => {
      const mac = await sign(await key, text);
      if (this.#socket === socket && socket.readyState === OPEN) socket.send(JSON.stringify({ type: "signed", mac, body: text }));
    }).catch(() => this.#socket === socket && this.#lost(1006));
  }

  /** Reads a list that is no part of the stream. Throws when it cannot be had. */
  async #list(name) {
    const headers = { authorization: `Bearer ${await this.#token()}` };
    const signal = AbortSignal.timeout(LIST_MS);
    const response = await this.#fetch(`${this.#events}/${name}`, { headers, cache: "no-store", signal });
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.message ?? `${name}: ${response.status}`);
    return answer;
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

/** Where the chat is without a WebSocket, by the socket's address. */
function besides(url) {
  return /^ws.*\/ws\/chat/.test(url) ? url.replace(/^ws/, "http").replace(/\/ws\/chat.*$/, "/api/chat") : null;
}

function importKey(text) {
  const raw = Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (char) => char.charCodeAt(0));
  return crypto.subtle.importKey("raw", raw, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
}

/** HMAC-SHA-256 of `text`, base64url. */
async function sign(key, text) {
  const mac = new Uint8Array(await crypto.subtle.sign("HMAC", key, new TextEncoder().encode(text)));
  return btoa(String.fromCharCode(...mac)).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}

/** Compares decimal ids, which may be larger than a number can hold. */
function isLater(a, b) {
  return a.length === b.length ? a > b : a.length > b.length;
}
