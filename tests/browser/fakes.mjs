// Stand-ins for what the chat client gets from the browser: a clock that a test moves, a socket that a test answers.

/** Time that stands still until `pass` is called. */
export class Clock {
  #now = 1_780_300_000_000;
  #timers = [];
  #ids = 0;

  now = () => this.#now;
  random = () => 0.5;
  id = () => `id-${(this.#ids += 1)}`;
  after = (ms, run) => {
    const timer = { at: this.#now + ms, run };
    this.#timers.push(timer);
    return timer;
  };
  cancel = (timer) => {
    this.#timers = this.#timers.filter((other) => other !== timer);
  };

  /** Lets `ms` go by and runs what falls due, in order. */
  async pass(ms) {
    const end = this.#now + ms;
    for (;;) {
      const [next] = this.#timers.filter((timer) => timer.at <= end).sort((a, b) => a.at - b.at);
      if (!next) break;
      this.cancel(next);
      this.#now = Math.max(this.#now, next.at);
      next.run();
      await settled();
    }
    this.#now = end;
  }
}

/** Lets every promise that can go on do so. */
export async function settled() {
  for (let i = 0; i < 20; i += 1) await Promise.resolve();
}

/** A network in which the test plays the server. */
export function network() {
  const sockets = [];
  class Socket {
    constructor(url, protocols) {
      Object.assign(this, { url, protocols, sent: [], closedWith: null, readyState: 1 });
      sockets.push(this);
    }
    send(text) {
      this.sent.push(JSON.parse(text));
    }
    close(code) {
      this.closedWith ??= code;
    }
    /** The server says this. */
    says(frame) {
      this.onmessage({ data: JSON.stringify(frame) });
    }
    /** The server, or the network, ends it. */
    ends(code) {
      this.onclose({ code });
    }
    /** Frames of a type, in the order they were sent. */
    of(type) {
      return this.sent.filter((frame) => frame.type === type);
    }
  }
  return {
    Socket,
    sockets,
    get last() {
      return sockets.at(-1);
    },
  };
}

/** An edge in which the test answers every request, and says what streams of events say. */
export function edge() {
  const requests = [];
  const streams = [];
  const encoder = new TextEncoder();
  const all = {
    requests,
    streams,
    /** Whether nothing gets through, and what a stream is refused with. */
    down: false,
    refusal: null,
    get stream() {
      return streams.at(-1);
    },
    asked: (method, path) => requests.filter((one) => one.method === method && new URL(one.url).pathname.endsWith(`/${path}`)),
    /** Lets streams and answers arrive: they take turns of the event loop. */
    async quiet() {
      for (let turn = 0; turn < 10; turn += 1) await new Promise((resolve) => { setImmediate(resolve); });
    },
    fetch(url, { method = "GET", headers = {}, body, signal } = {}) {
      if (all.down) return Promise.reject(new TypeError("no network"));
      const request = { url, method, headers, signal, body: body && JSON.parse(body) };
      if (new URL(url).pathname.endsWith("/events")) {
        if (all.refusal) return Promise.resolve(Response.json(all.refusal.body, { status: all.refusal.status }));
        let out;
        const stream = new ReadableStream({ start: (controller) => { out = controller; } });
        signal.addEventListener("abort", () => { try { out.error(new DOMException("", "AbortError")); } catch { /* ended before */ } });
        const write = (text) => out.enqueue(encoder.encode(text));
        streams.push({
          request,
          says: (frame) => write(`data: ${JSON.stringify(frame)}\n\n`),
          beats: () => write(": beat\n\n"),
          closes: (code) => write(`event: close\ndata: {"code":${code}}\n\n`),
          ends: () => out.close(),
        });
        return Promise.resolve(new Response(stream, { headers: { "content-type": "text/event-stream" } }));
      }
      return new Promise((resolve, reject) => {
        request.answers = (status, answer) => resolve(Response.json(answer, { status }));
        request.fails = () => reject(new TypeError("no network"));
        requests.push(request);
      });
    },
  };
  return all;
}
