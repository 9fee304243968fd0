// What both pages share: the demo's starting data, the server's clock, theme, language, icons and small DOM helpers.
// No sale and no chat here. Used by `shop.js`, `desk.js` and `thread.js`.

import { switchLanguage, t, translate } from "./i18n.js";

/** Longest wait for the starting data. */
const STATE_DEADLINE_MS = 8_000;
/** How long a remark stays. */
const REMARK_MS = 6_000;
/** The screen shows no more often than this. */
const FRAME_MS = 16;
const THEME = "sluice.theme";

const PATHS = {
  check: ["M4 12.5 9.5 18 20 6.5"],
  checks: ["M1.5 12.5 7 18 17 6.5", "M12 17l1 1L22.5 7"],
  clock: ["M12 3.5a8.5 8.5 0 1 0 0 17 8.5 8.5 0 0 0 0-17Z", "M12 7.5V12l3 2"],
  alert: ["M12 3.5a8.5 8.5 0 1 0 0 17 8.5 8.5 0 0 0 0-17Z", "M12 8v4.5", "M12 16h.01"],
  copy: ["M9 9h10v11H9z", "M15 9V4H5v11h4"],
};

/** The element with that id. */
export function byId(id) {
  return document.getElementById(id);
}

/** Makes an element. */
export function make(tag, className = "", text = "") {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text) element.textContent = text;
  return element;
}

/** A line drawing that takes the colour of the text around it. */
export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  for (const d of PATHS[name]) {
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("d", d);
    svg.append(path);
  }
  return svg;
}

/** A random word of 8 characters, for names that live in this browser only. */
export function chance() {
  return [...crypto.getRandomValues(new Uint8Array(8))].map((byte) => (byte % 36).toString(36)).join("");
}

/** A value that stays the same in this browser. */
export function remembered(key, first) {
  const value = localStorage.getItem(key) ?? first();
  localStorage.setItem(key, value);
  return value;
}

/** The demo's starting data for one user or agent, and the server's time that came with it. */
export class Demo {
  #query;
  #anchor = null;

  /** @param {"user"|"agent"} role @param {string} name */
  constructor(role, name) {
    this.#query = `${role}=${encodeURIComponent(name)}`;
    this.state = null;
  }

  /** Fetches it anew; throws when no answer came in time. */
  async load() {
    const asked = performance.now();
    const response = await fetch(`/demo/state?${this.#query}`, { cache: "no-store", signal: AbortSignal.timeout(STATE_DEADLINE_MS) });
    if (!response.ok) throw new Error(`GET /demo/state answered ${response.status}`);
    this.state = await response.json();
    // The server read its clock somewhere between asking and hearing: half way is the best guess.
    const heard = performance.now();
    this.#anchor = { server: this.state.serverTime, local: (asked + heard) / 2 };
    return this.state;
  }

  /** The server's clock now. Does not follow changes of the device's own clock. */
  now() {
    return this.#anchor ? this.#anchor.server + (performance.now() - this.#anchor.local) : Date.now();
  }
}

/** Address of the chat socket on the host the page came from. */
export function chatUrl() {
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  return `${scheme}://${location.host}/ws/chat`;
}

/** Words the page and makes the switches in its bar work. */
export function setUp() {
  translate();
  byId("language").addEventListener("click", switchLanguage);
  const root = document.documentElement;
  const theme = localStorage.getItem(THEME);
  if (theme === "dark" || theme === "light") root.dataset.theme = theme;
  byId("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem(THEME, root.dataset.theme);
  });
}

/** Shows the state of a chat client's connection in `element`. */
export function showLink(element, { state, transport }) {
  element.dataset.state = state;
  element.dataset.transport = transport;
  element.querySelector("[data-part=text]").textContent = t(`link.${state}`);
}

let remarkTimer;

/** Shows a passing remark at the head of the page. */
export function remark(text) {
  const element = byId("remark");
  // Said again, it stays longer, but is not read out again.
  if (element.textContent !== text) element.textContent = text;
  element.hidden = text === "";
  clearTimeout(remarkTimer);
  remarkTimer = setTimeout(() => remark(""), REMARK_MS);
}

/** A function that runs `draw` soon, once for any number of calls until then. */
export function soon(draw) {
  let timer = null;
  return () => {
    timer ??= setTimeout(() => {
      timer = null;
      draw();
    }, FRAME_MS);
  };
}
