// Refuses clients that are on a list of the operator's: the rule of ../rust, in JavaScript.
//
// The exports are the functions of wit/world.wit in camel case. A policy cannot wait, so nothing here is async.

import { contains } from "sluice:policy/lists@0.1.1";

const DEFAULTS = { header: "x-client-id", list: "block-clients" };
const NAME = /^[a-z0-9-]{1,64}$/;

let rule = DEFAULTS;

const proceed = (effects = {}) => ({
  tag: "proceed",
  val: { setHeaders: [], removeHeaders: [], charges: [], tags: [], score: 0, ...effects },
});

/** Reads the configuration. What is thrown is the error of `configure`. */
export function configure(text) {
  const config = parse(text || "{}");
  const unknown = Object.keys(config).find((key) => !(key in DEFAULTS));
  if (unknown !== undefined) throw `configuration: unknown key ${unknown}`;
  rule = { ...DEFAULTS, ...config };
  if (!isName(rule.header)) throw "header: not a header name in lower case";
  if (!isName(rule.list)) throw "list: not a list's name";
  return { name: "js", version: "0.1.0", phases: { request: true }, headers: [rule.header] };
}

export function onRequest(request, _facts) {
  const client = header(request.headers, rule.header);
  if (client === undefined) return proceed({ tags: ["no-client"] });
  if (!contains(rule.list, client)) return proceed();
  return { tag: "refuse", val: { status: 403, code: "BLOCKED", message: "this client is blocked" } };
}

export const onAttempt = () => proceed();
export const onMessage = () => proceed();
export const onResponse = () => proceed();

function parse(text) {
  let config;
  try {
    config = JSON.parse(text);
  } catch (error) {
    throw `configuration: ${error.message}`;
  }
  if (config === null || typeof config !== "object" || Array.isArray(config)) throw "configuration: not a JSON object";
  return config;
}

/** The first value of field `name` in a block of `name: value` lines. */
function header(block, name) {
  const line = block.split("\n").find((line) => line.startsWith(`${name}: `));
  return line?.slice(name.length + 2);
}

const isName = (text) => typeof text === "string" && NAME.test(text);
