// One buyer's purchase: from the click to the final result, over a network that may fail in between.
// Knows the HTTP answers of the flash sale; draws nothing, speaks no language. `shop.js` is the only caller.
//
// `view` is one of
//   {kind: "idle"}                              nothing asked for
//   {kind: "sending"}                           the attempt is on its way
//   {kind: "queued", orderNo, slow}             admitted; the order is being written; slow: for a long while now
//   {kind: "won", orderNo, code}                ours; code: "CANCELLING", or why it could not be cancelled
//   {kind: "lost", orderNo, message}
//   {kind: "closed", orderNo}                   was ours and is closed; a new click buys again
//   {kind: "held", code, untilMs}               refused for now, may try again at `untilMs`
//   {kind: "refused", code, message, left}      refused; a new click is a new attempt
//   {kind: "broken", code, message, traceId, unsure}   no answer we can use; while unsure whether the attempt counted,
//                                               a new click repeats the same one

/** Longest wait for one HTTP answer. */
export const ANSWER_DEADLINE_MS = 8_000;
/** How often an attempt is repeated under the same key when the answer got lost or the server was not able to. */
const REPEATS_MAX = 3;
/** Polling starts fast, since most orders are written at once, and slows down to spare the server. */
const POLL_FIRST_MS = 300;
const POLL_MAX_MS = 5_000;
/** After this long in the queue we say that it is taking long. */
const SLOW_AFTER_MS = 20_000;
/** An order number without a result for this many answers in a row is not known to the server. */
const UNKNOWN_MAX = 5;

export class Purchase extends EventTarget {
  #token;
  #device;
  #fetch;
  #clock;
  #key = null;
  #run = 0;

  /**
   * @param {object} options
   * @param {() => string|Promise<string>} options.token the buyer's token
   * @param {string} options.device names this device to the risk policy
   * @param {{now: () => number, random: () => number, sleep: (ms: number) => Promise<void>}} options.clock
   */
  constructor({ token, device, fetch, clock }) {
    super();
    this.#token = token;
    this.#device = device;
    this.#fetch = fetch;
    this.#clock = clock;
    this.view = { kind: "idle" };
  }

  get busy() {
    return this.view.kind === "sending" || this.view.kind === "queued";
  }

  /** One click. A click after a broken attempt repeats it, every other click is a new intention. */
  async buy({ activityId, skuId }) {
    if (this.busy || this.view.kind === "won") return;
    const run = ++this.#run;
    this.#key ??= crypto.randomUUID?.() ?? String(this.#clock.random()).slice(2);
    this.#show({ kind: "sending" });
    let answer;
    for (let repeat = 0; ; repeat += 1) {
      answer = await this.#ask("POST", "/api/seckill/buy", { activityId, skuId, qty: 1 });
      if (run !== this.#run) return;
      const unsure = answer.status === 0 || answer.status >= 500;
      if (!unsure || repeat === REPEATS_MAX) break;
      await this.#clock.sleep(answer.body.retryAfterMs ?? 400 * 2 ** repeat * (0.5 + this.#clock.random()));
    }
    this.#judge(answer);
    if (this.view.kind === "queued") await this.#poll(run, false);
  }

  /** Takes up an order of an earlier visit; forgets it when the server does not know it. */
  async restore(orderNo) {
    const run = ++this.#run;
    this.#show({ kind: "queued", orderNo, slow: false });
    await this.#poll(run, true);
  }

  /** The result as the chat socket brings it, usually before the next poll. */
  pushed({ orderNo, status, message }) {
    if (this.view.orderNo !== orderNo) return;
    if (this.view.kind === "queued") this.#finish(orderNo, status, message);
    // Cancelled on another device, or not paid in time.
    else if (this.view.kind === "won" && status === "fail") this.#show({ kind: "closed", orderNo });
  }

  /** Takes the order back. */
  async cancel() {
    const { kind, orderNo, code } = this.view;
    if (kind !== "won" || code === "CANCELLING") return;
    const run = ++this.#run;
    this.#show({ kind, orderNo, code: "CANCELLING" });
    const { status, body } = await this.#ask("POST", `/api/seckill/orders/${encodeURIComponent(orderNo)}/cancel`);
    if (run !== this.#run || this.view.kind !== "won") return;
    if (status === 200) this.#show({ kind: "closed", orderNo });
    else this.#show({ kind, orderNo, code: body.code ?? "OFFLINE" });
  }

  /** The reason for a refusal is over: the clock ran down, or units came back. */
  clear() {
    if (!this.busy) this.#show({ kind: "idle" });
  }

  #judge({ status, body, traceId }) {
    const known = status !== 0 && status < 500;
    if (known) this.#key = null;
    const { code, message } = body;
    if (status === 202 || status === 200) {
      this.#show({ kind: "queued", orderNo: body.orderNo, slow: false });
      if (body.status !== "pending") this.#finish(body.orderNo, body.status, message);
    } else if (status === 429 || code === "NOT_STARTED") {
      this.#show({ kind: "held", code, untilMs: this.#clock.now() + (body.retryAfterMs ?? 1_000) });
    } else if (status === 409) {
      this.#show({ kind: "refused", code, message, left: body.left });
    } else {
      const name = code ?? (status === 0 ? "OFFLINE" : `HTTP_${status}`);
      this.#show({ kind: "broken", code: name, message, traceId, unsure: !known });
    }
  }

  /** Asks until the result is final; every pause is longer than the one before, up to five seconds. */
  async #poll(run, forgettable) {
    const { orderNo } = this.view;
    const since = this.#clock.now();
    let unknown = 0;
    for (let pause = forgettable ? 0 : POLL_FIRST_MS; ; pause = Math.min(POLL_MAX_MS, Math.max(POLL_FIRST_MS, pause * 1.6))) {
      await this.#clock.sleep(pause * (0.8 + 0.4 * this.#clock.random()));
      if (run !== this.#run || this.view.kind !== "queued") return;
      const { status, body } = await this.#ask("GET", `/api/seckill/result/${encodeURIComponent(orderNo)}`);
      if (run !== this.#run || this.view.kind !== "queued") return;
      unknown = status === 404 ? unknown + 1 : 0;
      if (status === 404 && forgettable) return this.#show({ kind: "idle" });
      if (unknown === UNKNOWN_MAX) return this.#finish(orderNo, "fail", body.message);
      if (status === 200 && body.status !== "pending") return this.#finish(orderNo, body.status, body.message);
      if (!this.view.slow && this.#clock.now() - since > SLOW_AFTER_MS) this.#show({ ...this.view, slow: true });
    }
  }

  #finish(orderNo, status, message) {
    if (status === "success") this.#show({ kind: "won", orderNo });
    else if (status === "fail") this.#show({ kind: "lost", orderNo, message });
  }

  /** One HTTP exchange. Status 0: no answer came. */
  async #ask(method, path, body) {
    try {
      const headers = { Authorization: `Bearer ${await this.#token()}`, "X-Device-Id": this.#device };
      if (body) Object.assign(headers, { "Content-Type": "application/json", "Idempotency-Key": this.#key });
      const response = await this.#fetch(path, {
        method, headers, body: body && JSON.stringify(body), signal: AbortSignal.timeout(ANSWER_DEADLINE_MS), cache: "no-store",
      });
      const answer = await response.json().catch(() => ({}));
      const retryAfterMs = answer.retryAfterMs ?? (Number(response.headers.get("Retry-After")) * 1_000 || undefined);
      return {
        status: response.status,
        body: { ...answer, retryAfterMs },
        traceId: answer.traceId ?? response.headers.get("X-Trace-Id") ?? undefined,
      };
    } catch {
      return { status: 0, body: {}, traceId: undefined };
    }
  }

  #show(view) {
    this.view = view;
    this.dispatchEvent(new CustomEvent("view"));
  }
}
