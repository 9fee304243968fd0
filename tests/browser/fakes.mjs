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
