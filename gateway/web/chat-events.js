// The chat without a WebSocket, behind the face of one: frames arrive as server-sent events and leave as requests. Holds
// nothing but the running requests; what they mean is `chat-client.js`'s business, the only caller. Depends on `fetch` alone.

/** Longest wait for the answer to a request; the server itself answers within 5 s. */
const ANSWER_MS = 10_000;
/** Wait before something that failed on its way is sent again. */
const AGAIN_MS = 1_000;
/** Bytes of one event; the largest frame is far below. */
const EVENT_MAX = 1 << 20;

/** Where a frame goes, by its type; the others have a path in common. */
const PATHS = {
  text: "messages", image: "messages", order_card: "messages", product_card: "messages", open: "sessions", ack: "read",
};

/** What a close code of a socket would be for this refusal of the stream. */
function closeFor(status) {
  if (status === 401) return 4401;
  if (status === 403) return 4403;
  if (status === 404 || status === 405) return 4426;
  return status === 429 || status === 503 ? 1013 : 1006;
}

export class EventSocket {
  #base;
  #token;
  #fetch;
  #asked;
  #ends = new AbortController();

  /**
   * @param {object} options
   * @param {string} options.url address of `/api/chat`
   * @param {string} options.token
   * @param {string} options.device names this device; may be empty
   * @param {string} options.lastEventId positions to resume from: `9001.1.42,@me.7`
   * @param {typeof fetch} options.fetch
   */
  constructor({ url, token, device = "", lastEventId = "", fetch = globalThis.fetch.bind(globalThis) }) {
    this.#base = url;
    this.#token = token;
    this.#fetch = fetch;
    this.#asked = lastEventId;
    /** As `WebSocket.readyState`: 0 until the stream is open, 1 while it is, 3 after. */
    this.readyState = 0;
    this.onmessage = () => {};
    this.onclose = () => {};
    this.#listen(device ? `?device=${encodeURIComponent(device)}` : "");
  }

  close() {
    this.readyState = 3;
    this.#ends.abort();
  }

  /** Takes a frame as a socket does. Never throws; what fails comes back as an `error` frame. */
  send(text) {
    const frame = JSON.parse(text);
    switch (frame.type) {
      case "ping": return; // the stream has beats of its own
      case "refresh": return this.#over(4001); // a stream lives as long as its token: the next one has the new token
      case "history": return void this.#history(frame);
      case "resume": return void this.#resume(frame);
      default: return void this.#post(frame);
    }
  }

  // ---- frames in

  async #listen(query) {
    try {
      const headers = { accept: "text/event-stream", authorization: `Bearer ${this.#token}` };
      if (this.#asked) headers["last-event-id"] = this.#asked;
      const response = await this.#fetch(`${this.#base}/events${query}`, { headers, cache: "no-store", signal: this.#ends.signal });
      if (!response.ok) {
        const { retryAfterMs } = await response.json().catch(() => ({}));
        return this.#over(closeFor(response.status), retryAfterMs);
      }
      this.readyState = 1;
      for await (const { name, data } of eventsOf(response.body)) {
        if (this.readyState !== 1) return;
        if (name === "close") return this.#over(JSON.parse(data).code);
        // A beat is the stream's sign of life.
        this.#say(data ?? '{"type":"pong"}');
      }
      this.#over(1006);
    } catch {
      this.#over(1006);
    }
  }

  #over(code, retryAfterMs) {
    if (this.readyState === 3) return;
    this.close();
    this.onclose({ code, retryAfterMs });
  }

  #say(text) {
    if (this.readyState === 1) this.onmessage({ data: text });
  }

  #hand(frame) {
    this.#say(JSON.stringify(frame));
  }

  // ---- frames out

  async #post(frame) {
    const { reqId, ...body } = frame;
    const answer = await this.#ask(PATHS[frame.type] ?? "frames", JSON.stringify(body));
    if (answer.type) this.#hand({ reqId, ...answer, ...(answer.type === "error" ? named(frame) : {}) });
  }

  async #history({ sessionId, beforeSeq, limit, reqId }) {
    const answer = await this.#ask(`messages?sessionId=${sessionId}${number({ beforeSeq, limit })}`);
    if (answer.type === "error") this.#hand({ ...answer, reqId, sessionId });
    else this.#hand({ type: "history", reqId, sessionId, messages: answer.messages, hasMore: answer.hasMore });
  }

  /** What a socket would replay is read page by page, each page answered as a replay of its own. */
  async #resume({ positions, reqId }) {
    for (const { sessionId, epoch, lastSeq } of positions) {
      if (sessionId === "@me") {
        // Notices come by the stream alone, from where it was opened.
        if (!this.#asked.split(",").includes(`@me.${lastSeq}`)) return this.#over(4003);
        continue;
      }
      const answer = await this.#ask(`messages?sessionId=${sessionId}${number({ afterSeq: lastSeq, limit: 100 })}`);
      if (answer.type === "error") {
        this.#hand({ ...answer, reqId, sessionId });
        return;
      }
      const { maxSeq, messages, hasMore } = answer;
      const replaced = epoch !== undefined && String(answer.epoch) !== String(epoch);
      if (replaced || lastSeq > maxSeq) {
        this.#hand({ type: "resync", reqId, sessionId, epoch: answer.epoch, maxSeq, reason: replaced ? "epoch" : "ahead" });
        continue;
      }
      for (const message of messages) this.#hand(message);
      this.#hand({ type: "replay_end", reqId, sessionId, lastSeq: messages.at(-1)?.seq ?? lastSeq, hasMore });
    }
  }

  /** @returns the answer, or an `error` frame without ids */
  async #ask(path, body) {
    const headers = { authorization: `Bearer ${this.#token}` };
    if (body) headers["content-type"] = "application/json";
    try {
      const signal = AbortSignal.any([this.#ends.signal, AbortSignal.timeout(ANSWER_MS)]);
      const response = await this.#fetch(`${this.#base}/${path}`, { method: body ? "POST" : "GET", headers, body, cache: "no-store", signal });
      const answer = await response.json();
      if (response.ok) return answer;
      if (response.status === 401) this.#over(4401);
      const { code, message, retryAfterMs } = answer;
      return { type: "error", code, message, temporary: response.status === 429 || response.status >= 500, retryAfterMs };
    } catch {
      return { type: "error", code: "OFFLINE", message: "no answer", temporary: true, retryAfterMs: AGAIN_MS };
    }
  }
}

function named({ sessionId, clientMsgId }) {
  return { sessionId, clientMsgId };
}

function number(fields) {
  return Object.entries(fields).filter(([, value]) => value !== undefined).map(([name, value]) => `&${name}=${value}`).join("");
}

/** Parses a stream of events: `{name, data}`, and `{}` for each comment. */
export async function* eventsOf(body) {
  const decoder = new TextDecoder();
  const reader = body.getReader();
  let rest = "";
  let event = { name: undefined, lines: [] };
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + decoder.decode(value, { stream: true })).split(/\r?\n/);
      rest = lines.pop();
      if (rest.length > EVENT_MAX) throw new Error("an event without end");
      for (const line of lines) {
        const at = line.indexOf(":");
        const [field, text] = at < 0 ? [line, ""] : [line.slice(0, at), line.slice(at + 1).replace(/^ /, "")];
        if (line === "") {
          if (event.lines.length) yield { name: event.name, data: event.lines.join("\n") };
          event = { name: undefined, lines: [] };
        } else if (at === 0) yield {};
        else if (field === "data") event.lines.push(text);
        else if (field === "event") event.name = text;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
