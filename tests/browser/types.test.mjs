// The type declarations name what the class has, and nothing else. What they say of it is for a compiler of the reader's own.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import * as module from "../../gateway/web/chat-client.js";

const declared = readFileSync(new URL("../../gateway/web/chat-client.d.ts", import.meta.url), "utf8");
const source = readFileSync(new URL("../../gateway/web/chat-client.js", import.meta.url), "utf8");

/** Names of members in the body of a declaration that begins with `head`. */
function members(head) {
  const body = declared.slice(declared.indexOf(head) + head.length);
  const lines = body.slice(0, body.indexOf("\n}")).split("\n");
  return lines.flatMap((line) => line.match(/^ {2}(?:readonly )?(\w+)\??[(:<]/)?.[1] ?? []);
}

test("every public member of the client is declared, and only those", () => {
  const client = new module.ChatClient({ url: "ws://x", token: () => "t", me: { kind: "user", id: "1" } });
  const methods = Object.getOwnPropertyNames(module.ChatClient.prototype);
  assert.deepEqual(members("class ChatClient extends EventTarget {").filter((name) => name !== "addEventListener").sort(),
    [...methods, ...Object.keys(client)].sort());
});

test("every event is declared, and said at the head of the file", () => {
  const emitted = new Set([...source.matchAll(/#emit\("(\w+)"/g)].map(([, name]) => name));
  const described = [...source.matchAll(/^\/\/ {3}(\w+) {2,}\{/gm)].map(([, name]) => name);
  assert.deepEqual(members("interface ChatEvents {").sort(), [...emitted].sort());
  assert.deepEqual([...described].sort(), [...emitted].sort());
});

test("every option is declared", () => {
  const taken = source.match(/constructor\(\{([^}]*)\}\)/)[1].split(",").map((part) => part.split("=")[0].trim()).filter(Boolean);
  assert.deepEqual(members("interface Options {").filter((name) => !["now", "random", "id", "after", "cancel"].includes(name)).sort(), taken.sort());
});
