// The chat client without a browser and without a network: the test plays the server and moves the clock.

import assert from "node:assert/strict";
import { test } from "node:test";
import { ChatClient } from "../../gateway/web/chat-client.js";
import { SOCKET_TRIES } from "../../gateway/web/chat-state.js";
import { Clock, edge, network, settled } from "./fakes.mjs";

const ME = { kind: "user", id: "88" };
const AGENT = { kind: "agent", id: "7" };

function push(seq, sender = AGENT, more = {}) {
  return { id: `${seq}`, type: "text", sessionId: "9001", seq, epoch: "a1", content: `m${seq}`, sender, time: 1, ...more };
}

function entry(more = {}) {
  return { sessionId: "9001", sessionNo: "CS1", epoch: "a1", maxSeq: 0, yourSeq: 0, unread: 0, ...more };
}

function hello(...sessions) {
  return { type: "hello", v: 1, heartbeat: 10_000, serverTime: 1, sessions };
}

/** A client that was greeted with these sessions. */
async function greeted(...sessions) {
  const clock = new Clock();
  const net = network();
  const client = new ChatClient({ url: "ws://x/ws/chat", token: () => "T0K.en", me: ME, events: null, clock, WebSocket: net.Socket });
  client.start();
  await settled();
  net.last.says(hello(...sessions));
  return { client, net, clock, shown: () => client.sessions.get("9001").timeline.messages.map((one) => one.content) };
}

/** A client in a session of which it shows everything up to `maxSeq`. */
async function reading(maxSeq) {
  const all = await greeted(entry({ maxSeq }));
  all.client.load("9001");
  if (maxSeq > 0) {
    const messages = Array.from({ length: maxSeq }, (_, index) => push(index + 1));
    all.net.last.says({ type: "history", sessionId: "9001", messages, hasMore: false });
  }
  return all;
}

/** Comes back after the connection was lost; the server has these sessions. */
async function reconnected({ net, clock }, ...sessions) {
  net.last.ends(1006);
  await clock.pass(30_000);
  net.last.says(hello(...sessions));
}

test("signs in by subprotocol, so that the token stays out of addresses", async () => {
  const { net } = await greeted();
  assert.deepEqual(net.last.protocols, ["chat.v1.json", "bearer.T0K.en"]);
  assert.ok(!net.last.url.includes("T0K"));
});

test("opens a session for the first message and sends it there", async () => {
  const { client, net } = await greeted();
  client.subject = "order SK1";
  const id = client.send(null, "你好");
  client.send(null, "and more");
  assert.equal(net.last.of("open").length, 1);
  assert.equal(net.last.of("open")[0].subject, "order SK1");
  const { reqId } = net.last.of("open")[0];
  net.last.says({ type: "opened", reqId, sessionId: "9001", sessionNo: "CS1", epoch: "a1", maxSeq: 0 });
  assert.deepEqual(net.last.of("text").map((frame) => [frame.sessionId, frame.clientMsgId]), [["9001", id]]);
});

test("does not open a second session when the first answer got lost", async () => {
  const all = await greeted();
  all.client.send(null, "你好");
  await reconnected(all, entry());
  assert.equal(all.net.last.of("open").length, 0);
  assert.equal(all.net.last.of("text")[0].sessionId, "9001");
});

test("shows an accepted message at its number", async () => {
  const { client, net, shown } = await reading(2);
  const clientMsgId = client.send("9001", "mine");
  assert.equal(client.outbox.of("9001").length, 1);
  net.last.says({ type: "accepted", sessionId: "9001", clientMsgId, id: "3", seq: 3, epoch: "a1", dup: false, time: 2 });
  assert.deepEqual(shown(), ["m1", "m2", "mine"]);
  assert.equal(client.outbox.of("9001").length, 0);
});

test("sends one message at a time and keeps their order over a refusal for want of durability", async () => {
  const { client, net, clock, shown } = await reading(0);
  const ids = ["a", "b", "c"].map((text) => client.send("9001", text));
  assert.deepEqual(net.last.of("text").map((frame) => frame.content), ["a"]);
  net.last.says({ type: "error", code: "NOT_DURABLE", temporary: true, retryAfterMs: 800, clientMsgId: ids[0] });
  await clock.pass(700);
  assert.equal(net.last.of("text").length, 1);
  await clock.pass(200);
  assert.deepEqual(net.last.of("text").map((frame) => frame.clientMsgId), [ids[0], ids[0]]);
  ids.forEach((clientMsgId, index) => {
    net.last.says({ type: "accepted", sessionId: "9001", clientMsgId, id: "x", seq: index + 1, epoch: "a1", time: 2 });
  });
  assert.deepEqual(net.last.of("text").map((frame) => frame.content), ["a", "a", "b", "c"]);
  assert.deepEqual(shown(), ["a", "b", "c"]);
});

test("sends what was not accepted again after a reconnect, under the same id, in order", async () => {
  const all = await reading(1);
  const ids = ["a", "b"].map((text) => all.client.send("9001", text));
  await reconnected(all, entry({ maxSeq: 1 }));
  const { net } = all;
  assert.deepEqual(net.last.of("text").map((frame) => frame.clientMsgId), [ids[0]]);
  net.last.says({ type: "accepted", sessionId: "9001", clientMsgId: ids[0], id: "2", seq: 2, epoch: "a1", dup: true, time: 2 });
  assert.deepEqual(net.last.of("text").map((frame) => frame.clientMsgId), ids);
});

test("drops from the outbox what a replay shows to have been stored", async () => {
  const all = await reading(1);
  const clientMsgId = all.client.send("9001", "mine");
  await reconnected(all, entry({ maxSeq: 2 }));
  all.net.last.says(push(2, ME, { clientMsgId, content: "mine" }));
  all.net.last.says({ type: "replay_end", sessionId: "9001", lastSeq: 2, hasMore: false });
  all.net.last.says({ type: "accepted", sessionId: "9001", clientMsgId, id: "2", seq: 2, epoch: "a1", dup: true, time: 2 });
  assert.deepEqual(all.shown(), ["m1", "mine"]);
  assert.equal(all.client.outbox.of("9001").length, 0);
});

test("sends again what nobody answered", async () => {
  const { client, net, clock } = await reading(0);
  const id = client.send("9001", "lost");
  for (let beat = 0; beat < 2; beat += 1) {
    await clock.pass(10_000);
    net.last.says({ type: "pong" });
  }
  assert.deepEqual(net.last.of("text").map((frame) => frame.clientMsgId), [id, id]);
});

test("keeps a finally refused message, lets the others pass, and sends it again when asked", async () => {
  const { client, net } = await reading(0);
  const bad = client.send("9001", "bad");
  const good = client.send("9001", "good");
  net.last.says({ type: "error", code: "CONTENT_REFUSED", message: "no", temporary: false, clientMsgId: bad });
  assert.deepEqual(net.last.of("text").map((frame) => frame.content), ["bad", "good"]);
  assert.equal(client.outbox.get(bad).state, "failed");
  net.last.says({ type: "accepted", sessionId: "9001", clientMsgId: good, id: "1", seq: 1, epoch: "a1", time: 2 });
  client.retry(bad);
  assert.deepEqual(net.last.of("text").map((frame) => frame.clientMsgId), [bad, good, bad]);
  client.discard(bad);
  assert.equal(client.outbox.get(bad), undefined);
});

test("drops what it has, asks for what it misses, and shows both in order", async () => {
  const { net, shown } = await reading(2);
  net.last.says(push(2));
  net.last.says(push(5));
  net.last.says(push(6));
  assert.deepEqual(shown(), ["m1", "m2"]);
  assert.deepEqual(net.last.of("resume").map((frame) => frame.positions), [[{ sessionId: "9001", epoch: "a1", lastSeq: 2 }]]);
  for (const seq of [3, 4, 5, 6]) net.last.says(push(seq));
  net.last.says({ type: "replay_end", sessionId: "9001", lastSeq: 6, hasMore: false });
  assert.deepEqual(shown(), ["m1", "m2", "m3", "m4", "m5", "m6"]);
  assert.equal(net.last.of("resume").length, 1);
});

test("replays page by page", async () => {
  const all = await reading(1);
  await reconnected(all, entry({ maxSeq: 4 }));
  const { net } = all;
  for (const seq of [2, 3]) net.last.says(push(seq));
  net.last.says({ type: "replay_end", sessionId: "9001", lastSeq: 3, hasMore: true });
  assert.deepEqual(net.last.of("resume").map((frame) => frame.positions[0].lastSeq), [1, 3]);
  net.last.says(push(4));
  net.last.says({ type: "replay_end", sessionId: "9001", lastSeq: 4, hasMore: false });
  assert.deepEqual(all.shown(), ["m1", "m2", "m3", "m4"]);
});

test("gives up on a gap that nothing fills, after a bounded number of replays", async () => {
  const { net, clock, shown } = await reading(1);
  net.last.says(push(3));
  for (let replay = 0; replay < 8; replay += 1) {
    net.last.says({ type: "replay_end", sessionId: "9001", lastSeq: 1, hasMore: false });
    await clock.pass(1_000);
  }
  assert.equal(net.last.of("resume").length, 5);
  assert.deepEqual(shown(), ["m1", "m3"]);
});

test("tries a busy replay again", async () => {
  const { net, clock } = await reading(1);
  net.last.says(push(3));
  const { reqId } = net.last.of("resume")[0];
  net.last.says({ type: "error", reqId, code: "BUSY_REPLAY", temporary: true, retryAfterMs: 300 });
  await clock.pass(300);
  assert.equal(net.last.of("resume").length, 2);
});

test("starts over when the stream was replaced", async () => {
  const { net, shown } = await reading(3);
  net.last.says({ type: "resync", sessionId: "9001", epoch: "b2", maxSeq: 1, reason: "epoch" });
  assert.deepEqual(shown(), []);
  assert.equal(net.last.of("history").at(-1).beforeSeq, 2);
  net.last.says({ type: "history", sessionId: "9001", messages: [push(1, AGENT, { epoch: "b2", content: "new" })], hasMore: false });
  net.last.says(push(2, AGENT, { epoch: "b2" }));
  assert.deepEqual(shown(), ["new", "m2"]);
});

test("notices on its own that the server lost messages", async () => {
  const all = await reading(3);
  await reconnected(all, entry({ epoch: "b2", maxSeq: 0 }));
  assert.deepEqual(all.shown(), []);
  assert.deepEqual(all.net.last.of("resume")[0].positions, [{ sessionId: "9001", epoch: "b2", lastSeq: 0 }]);
});

test("pages back to the first message", async () => {
  const { client, net, shown } = await greeted(entry({ maxSeq: 4 }));
  client.load("9001");
  client.load("9001");
  assert.deepEqual(net.last.of("history").map((frame) => frame.beforeSeq), [5]);
  net.last.says({ type: "history", sessionId: "9001", messages: [push(3), push(4)], hasMore: true });
  client.older("9001");
  assert.equal(net.last.of("history")[1].beforeSeq, 3);
  net.last.says({ type: "history", sessionId: "9001", messages: [push(1), push(2)], hasMore: false });
  assert.deepEqual(shown(), ["m1", "m2", "m3", "m4"]);
  client.older("9001");
  assert.equal(net.last.of("history").length, 2);
});

test("misses nothing that arrives while the first page is on its way", async () => {
  const { client, net, shown } = await greeted(entry({ maxSeq: 1 }));
  client.load("9001");
  net.last.says(push(2));
  net.last.says({ type: "history", sessionId: "9001", messages: [push(1)], hasMore: false });
  assert.equal(net.last.of("resume")[0].positions[0].lastSeq, 1);
  net.last.says(push(2));
  net.last.says({ type: "replay_end", sessionId: "9001", lastSeq: 2, hasMore: false });
  assert.deepEqual(shown(), ["m1", "m2"]);
  assert.equal(client.unread, 1);
});

test("takes over a session that another device of the same user opened", async () => {
  const { client, net } = await greeted();
  net.last.says(push(1, ME, { clientMsgId: "other-device" }));
  assert.ok(client.sessions.has("9001"));
  assert.equal(net.last.of("history")[0].beforeSeq, 2);
  assert.equal(client.unread, 0);
});

test("counts unread messages of the other side, each once, until they are read", async () => {
  const { client, net, clock } = await reading(1);
  net.last.says(push(2));
  net.last.says(push(2));
  net.last.says(push(4));
  net.last.says(push(3, ME));
  assert.equal(client.unread, 2);
  client.markRead("9001");
  assert.equal(client.unread, 0);
  await clock.pass(500);
  assert.deepEqual(net.last.of("ack").map((frame) => frame.lastSeq), [4]);
});

test("tells what it received once for a burst, and what was read instead when it was read", async () => {
  const { client, net, clock } = await reading(0);
  for (const seq of [1, 2, 3]) net.last.says(push(seq));
  await clock.pass(500);
  assert.deepEqual(net.last.of("recv").map((frame) => frame.lastSeq), [3]);
  client.markRead("9001");
  await clock.pass(500);
  assert.deepEqual(net.last.of("ack").map((frame) => frame.lastSeq), [3]);
  assert.equal(net.last.of("recv").length, 1);
});

test("tells again after a reconnect what the server does not know to be read", async () => {
  const all = await reading(2);
  all.net.last.ends(1006);
  all.client.markRead("9001");
  await all.clock.pass(30_000);
  all.net.last.says(hello(entry({ maxSeq: 2, yourSeq: 0, unread: 2 })));
  await all.clock.pass(500);
  assert.deepEqual(all.net.last.of("ack").map((frame) => frame.lastSeq), [2]);
});

test("follows the read cursors of both sides, forwards only", async () => {
  const { client, net } = await reading(3);
  net.last.says({ type: "read", sessionId: "9001", by: "agent:7", lastSeq: 3, unread: 0 });
  net.last.says({ type: "read", sessionId: "9001", by: "agent:7", lastSeq: 2, unread: 0 });
  assert.equal(client.sessions.get("9001").peerRead, 3);
  net.last.says(push(4));
  net.last.says({ type: "read", sessionId: "9001", by: "user:88", lastSeq: 4, unread: 0 });
  assert.equal(client.unread, 0);
});

test("marks a message as withdrawn when its recall arrives", async () => {
  const { client, net } = await reading(2);
  net.last.says({ type: "recalled", sessionId: "9001", seq: 3, epoch: "a1", refSeq: 2 });
  assert.equal(client.sessions.get("9001").timeline.messages[1].recalled, true);
  assert.equal(client.unread, 0);
});

test("waits longer after each failure and starts afresh after a quiet connection", async () => {
  const { client, net, clock } = await greeted();
  const waits = [];
  client.addEventListener("state", ({ detail }) => {
    if (detail.state === "waiting") waits.push(detail.retryInMs);
  });
  for (let failure = 0; failure < 4; failure += 1) {
    net.last.ends(1006);
    await clock.pass(waits.at(-1));
  }
  assert.deepEqual(waits, [375, 750, 1_500, 3_000]);
  net.last.says(hello());
  await clock.pass(6_000);
  net.last.ends(1006);
  assert.equal(waits.at(-1), 375);
});

test("does not come back after a verdict that forbids it", async () => {
  for (const code of [4400, 4403, 4426]) {
    const { client, net, clock } = await greeted();
    net.last.ends(code);
    await clock.pass(120_000);
    assert.equal(client.state, "ended");
    assert.equal(net.sockets.length, 1);
  }
});

test("tries one other token after the old one was refused, then stops", async () => {
  const { client, net, clock } = await greeted();
  net.last.ends(4401);
  await clock.pass(1_000);
  assert.equal(net.sockets.length, 2);
  net.last.ends(4401);
  await clock.pass(120_000);
  assert.equal(client.state, "ended");
  assert.equal(net.sockets.length, 2);
});

test("moves to another node within the time it was given", async () => {
  const { client, net, clock } = await greeted();
  net.last.says({ type: "migrate", afterMs: 3_000 });
  await clock.pass(1_499);
  assert.equal(net.sockets.length, 1);
  await clock.pass(1);
  assert.equal(net.sockets.length, 2);
  assert.equal(net.sockets[0].closedWith, 1000);
  net.last.says(hello());
  assert.equal(client.state, "online");
});

test("gives up a connection that gives no sign of life", async () => {
  const { client, net, clock } = await greeted();
  await clock.pass(10_000);
  assert.equal(net.last.of("ping").length, 1);
  net.last.says({ type: "pong" });
  await clock.pass(10_000);
  assert.equal(client.state, "online");
  await clock.pass(10_000);
  assert.notEqual(client.state, "online");
  assert.equal(net.sockets[0].closedWith, 4009);
});

test("gives up a connection that never says hello", async () => {
  const clock = new Clock();
  const net = network();
  const client = new ChatClient({ url: "ws://x", token: () => "t", me: ME, clock, WebSocket: net.Socket });
  client.start();
  await settled();
  await clock.pass(10_000);
  assert.equal(client.state, "waiting");
});

test("tries again when no token can be had", async () => {
  const clock = new Clock();
  const net = network();
  let fail = true;
  const token = () => (fail ? Promise.reject(new Error("no network")) : "t");
  const client = new ChatClient({ url: "ws://x", token, me: ME, clock, WebSocket: net.Socket });
  client.start();
  await settled();
  assert.equal(client.state, "waiting");
  fail = false;
  client.wake();
  await settled();
  assert.equal(net.sockets.length, 1);
});

test("ignores frames of a connection it has left", async () => {
  const all = await reading(0);
  const old = all.net.last;
  await reconnected(all, entry());
  old.says(push(1));
  old.ends(4403);
  assert.deepEqual(all.shown(), []);
  assert.equal(all.client.state, "online");
});

test("survives frames it does not understand", async () => {
  const { client, net } = await reading(0);
  net.last.onmessage({ data: "not json" });
  net.last.says({ type: "from the future", x: 1 });
  net.last.says({ type: "read", sessionId: "unknown", by: "agent:7", lastSeq: 1 });
  assert.equal(client.state, "online");
});

test("keeps a session that ended to read, and opens another one for the next message", async () => {
  const all = await reading(2);
  await reconnected(all);
  assert.equal(all.client.sessions.get("9001").closed, true);
  assert.equal(all.client.current, null);
  all.client.send(null, "again");
  assert.equal(all.net.last.of("open").length, 1);
});

test("gives an agent the sessions it is assigned and takes those it is not", async () => {
  const clock = new Clock();
  const net = network();
  const client = new ChatClient({ url: "ws://x", token: () => "t", me: AGENT, clock, WebSocket: net.Socket });
  client.start();
  await settled();
  net.last.says(hello());
  net.last.says({ type: "assigned", sessionId: "9001", agentId: "7", reason: "least_unread", session: entry({ userId: "88" }) });
  assert.equal(client.sessions.get("9001").userId, "88");
  net.last.says({ type: "assigned", sessionId: "9001", agentId: "8", reason: "transfer" });
  assert.equal(client.sessions.get("9001").closed, true);
});

test("knows who serves a session whose opening it has not heard of yet", async () => {
  const { client, net } = await greeted();
  client.send(null, "hi");
  net.last.says({ type: "assigned", sessionId: "9001", agentId: "7", reason: "least_unread", session: entry({ agentId: "7" }) });
  net.last.says({ type: "opened", reqId: net.last.of("open")[0].reqId, sessionId: "9001", sessionNo: "CS1", epoch: "a1", maxSeq: 0 });
  assert.equal(client.sessions.get("9001").agentId, "7");
  assert.equal(net.last.of("text")[0].sessionId, "9001");
});

test("keeps what it shows when word of another agent is older than the messages", async () => {
  const { client, net, shown } = await reading(3);
  net.last.says({ type: "assigned", sessionId: "9001", agentId: "8", reason: "agent_away", session: entry({ agentId: "8", maxSeq: 2 }) });
  assert.deepEqual(shown(), ["m1", "m2", "m3"]);
  assert.equal(client.sessions.get("9001").agentId, "8");
});

test("catches up on a session that comes back to it", async () => {
  const clock = new Clock();
  const net = network();
  const client = new ChatClient({ url: "ws://x", token: () => "t", me: AGENT, clock, WebSocket: net.Socket });
  client.start();
  await settled();
  net.last.says(hello(entry({ maxSeq: 1, agentId: "7" })));
  client.load("9001");
  net.last.says({ type: "history", sessionId: "9001", messages: [push(1, ME)], hasMore: false });
  net.last.says({ type: "assigned", sessionId: "9001", agentId: "8", reason: "transferred" });
  net.last.says({ type: "assigned", sessionId: "9001", agentId: "7", reason: "transferred", session: entry({ maxSeq: 4, unread: 2, agentId: "7" }) });
  const session = client.sessions.get("9001");
  assert.deepEqual([session.closed, session.left, session.unread], [false, false, 2]);
  assert.deepEqual(net.last.of("resume").at(-1).positions, [{ sessionId: "9001", epoch: "a1", lastSeq: 1 }]);
});

test("passes on the result of an order", async () => {
  const { client, net } = await greeted();
  let result;
  client.addEventListener("seckill", (event) => { result = event.detail; });
  net.last.says({ type: "seckill_result", orderNo: "SK1", status: "success", nseq: 12 });
  assert.equal(result.orderNo, "SK1");
});

test("comes back for the first time when the server said, within its own part of that time", async () => {
  const { client, net, clock } = await greeted();
  net.last.says({ ...hello(), reconnectMs: 8_000 });
  let waited;
  client.addEventListener("state", ({ detail }) => { waited = detail.retryInMs ?? waited; });
  net.last.ends(1001);
  assert.equal(waited, 4_000);
  await clock.pass(4_000);
  net.last.ends(1006);
  assert.equal(waited, 750, "from then on as always");
});

test("takes a message back with a message of its own, which is sent until it is accepted", async () => {
  const all = await reading(1);
  const { client } = all;
  const said = client.send("9001", "typo");
  all.net.last.says({ type: "accepted", sessionId: "9001", clientMsgId: said, id: "2", seq: 2, epoch: "a1", time: 2 });
  const id = client.recall("9001", 2);
  await reconnected(all, entry({ maxSeq: 2 }));
  const [recall] = all.net.last.of("recall");
  assert.deepEqual([recall.sessionId, recall.seq, recall.clientMsgId, recall.content], ["9001", 2, id, undefined]);
  all.net.last.says({ type: "accepted", sessionId: "9001", clientMsgId: id, id: "3", seq: 3, epoch: "a1", time: 3 });
  assert.equal(client.sessions.get("9001").timeline.messages[1].recalled, true);
  assert.equal(client.outbox.of("9001").length, 0);
});

test("knows what the other side has received and read, from the first frame on", async () => {
  const { client, net } = await reading(0);
  net.last.says(hello(entry({ maxSeq: 5, peerSeq: 3, peerReceived: 5 })));
  const session = client.sessions.get("9001");
  assert.deepEqual([session.peerRead, session.peerReceived], [3, 5]);
  net.last.says({ type: "delivered", sessionId: "9001", by: "agent:7", lastSeq: 6 });
  net.last.says({ type: "delivered", sessionId: "9001", by: "user:88", lastSeq: 9 });
  assert.deepEqual([session.peerRead, session.peerReceived], [3, 6]);
});

test("asks for notices it missed, and tells each once", async () => {
  const all = await greeted();
  const { client, net } = all;
  const heard = [];
  client.addEventListener("seckill", ({ detail }) => heard.push(detail.nseq));
  const notice = (nseq) => net.last.says({ type: "seckill_result", orderNo: "SK1", status: "success", nseq });
  notice(12);
  notice(12);
  notice(15);
  assert.deepEqual(net.last.of("resume").map((frame) => frame.positions), [[{ sessionId: "@me", lastSeq: 12 }]]);
  for (const nseq of [13, 14, 15]) notice(nseq);
  net.last.says({ type: "replay_end", sessionId: "@me", lastSeq: 15, hasMore: false });
  assert.deepEqual(heard, [12, 13, 14, 15]);
  await reconnected(all);
  assert.deepEqual(all.net.last.of("resume")[0].positions, [{ sessionId: "@me", lastSeq: 15 }]);
});

test("fetches a new token before the old one ends", async () => {
  const { net } = await greeted();
  net.last.says({ type: "token_expiring", inMs: 60_000 });
  await settled();
  assert.deepEqual(net.last.of("refresh").map((frame) => frame.token), ["T0K.en"]);
});

test("proves its frames when it is asked to", async () => {
  const { client, net } = await greeted();
  const key = Buffer.alloc(32, 7).toString("base64url");
  net.last.says({ ...hello(entry()), frameKey: key });
  client.send("9001", "你好");
  client.send("9001", "more");
  const signed = () => net.last.of("signed").find((frame) => JSON.parse(frame.body).type === "text");
  while (!signed()) await new Promise((resolve) => { setImmediate(resolve); });
  const { mac, body } = signed();
  const { createHmac } = await import("node:crypto");
  assert.equal(mac, createHmac("sha256", Buffer.alloc(32, 7)).update(body).digest("base64url"));
  const frame = JSON.parse(body);
  assert.equal(frame.content, "你好");
  assert.ok(frame.timestamp > 0 && frame.nonce, "a signature alone does not stop a frame that is sent again");
  assert.equal(net.last.of("text").length, 0);
});

test("gives an agent its waiting line, its state, and the word that it is late", async () => {
  const clock = new Clock();
  const net = network();
  const client = new ChatClient({ url: "ws://x", token: () => "t", me: AGENT, clock, WebSocket: net.Socket });
  client.start();
  await settled();
  net.last.says({ ...hello(entry({ maxSeq: 1 })), state: "busy" });
  assert.equal(client.agentState, "busy");
  net.last.says({ type: "waiting", count: 3 });
  assert.equal(client.waiting, 3);
  net.last.says({ type: "overdue", sessionId: "9001", clock: "first_response", elapsedMs: 61_000 });
  assert.equal(client.sessions.get("9001").overdue.clock, "first_response");
  net.last.says(push(2, AGENT));
  assert.equal(client.sessions.get("9001").overdue, null, "answered");
  client.status("away");
  net.last.says({ type: "status", reqId: net.last.of("status")[0].reqId, state: "away" });
  assert.equal(client.agentState, "away");
  client.transfer("9001", "waiting");
  net.last.says({ type: "transferred", reqId: net.last.of("transfer")[0].reqId, sessionId: "9001", to: "waiting" });
  assert.equal(client.sessions.get("9001").left, true);
  let problem;
  client.addEventListener("problem", ({ detail }) => { problem = detail.code; });
  client.close("9001");
  net.last.says({ type: "error", reqId: net.last.of("close")[0].reqId, code: "NOT_FOUND", message: "no", temporary: false });
  assert.equal(problem, "NOT_FOUND");
});

test("tells of typing at most now and then, and forgets that the other side did", async () => {
  const { client, net, clock } = await reading(0);
  for (let key = 0; key < 5; key += 1) client.typing("9001");
  assert.equal(net.last.of("typing").length, 1);
  net.last.says({ type: "typing", sessionId: "9001", by: "agent:7" });
  assert.ok(client.sessions.get("9001").typingUntil > clock.now());
  await clock.pass(4_000);
  assert.ok(client.sessions.get("9001").typingUntil <= clock.now());
});

// ---- without a WebSocket

/** A client in a network that lets no WebSocket through, greeted by events. */
async function greetedByEvents(...sessions) {
  const clock = new Clock();
  const net = network();
  const http = edge();
  const client = new ChatClient({ url: "ws://x/ws/chat", token: () => "T0K.en", me: ME, device: "d1", clock, WebSocket: net.Socket, fetch: http.fetch });
  client.start();
  await settled();
  for (let miss = 0; miss < SOCKET_TRIES; miss += 1) {
    net.last.ends(1006);
    await clock.pass(2_000);
  }
  http.stream.says(hello(...sessions));
  await http.quiet();
  return { client, net, clock, http };
}

test("takes events where no WebSocket gets through, and sends by requests", async () => {
  const { client, net, http } = await greetedByEvents(entry());
  assert.equal(net.sockets.length, SOCKET_TRIES);
  assert.deepEqual([client.state, client.transport], ["online", "events"]);
  assert.equal(http.streams.length, 1);
  assert.equal(http.stream.request.url, "http://x/api/chat/events?device=d1");
  assert.equal(http.stream.request.headers.authorization, "Bearer T0K.en");
  const id = client.send("9001", "你好");
  await http.quiet();
  const [post] = http.asked("POST", "messages");
  assert.deepEqual(post.body, { type: "text", sessionId: "9001", content: "你好", clientMsgId: id });
  post.answers(200, { type: "accepted", sessionId: "9001", clientMsgId: id, id: "9001-1", seq: 1, epoch: "a1", dup: false, time: 2 });
  await http.quiet();
  assert.equal(client.outbox.of("9001").length, 0);
  http.stream.says(push(2));
  await http.quiet();
  assert.deepEqual(client.sessions.get("9001").timeline.messages.map((one) => one.content), ["你好", "m2"]);
});

test("sends a message again whose request failed, under the same id", async () => {
  const { client, clock, http } = await greetedByEvents(entry());
  const id = client.send("9001", "a");
  await http.quiet();
  http.asked("POST", "messages")[0].fails();
  await http.quiet();
  await clock.pass(2_000);
  await http.quiet();
  http.asked("POST", "messages")[1].answers(503, { code: "NOT_DURABLE", message: "later", retryAfterMs: 500 });
  await http.quiet();
  await clock.pass(4_000);
  await http.quiet();
  assert.deepEqual(http.asked("POST", "messages").map((post) => post.body.clientMsgId), [id, id, id]);
  http.asked("POST", "messages")[2].answers(409, { code: "SESSION_CLOSED", message: "over" });
  await http.quiet();
  assert.equal(client.outbox.get(id).state, "failed");
});

test("fills a gap in the stream by reading", async () => {
  const { client, http } = await greetedByEvents(entry());
  http.stream.says(push(3));
  await http.quiet();
  const [get] = http.asked("GET", "messages");
  assert.equal(get.url, "http://x/api/chat/messages?sessionId=9001&afterSeq=0&limit=100");
  get.answers(200, { sessionId: "9001", epoch: "a1", maxSeq: 3, hasMore: false, messages: [push(1), push(2), push(3)] });
  await http.quiet();
  assert.deepEqual(client.sessions.get("9001").timeline.messages.map((one) => one.seq), [1, 2, 3]);
});

test("resumes a stream from what it has, notices included", async () => {
  const { clock, http } = await greetedByEvents(entry());
  http.stream.says(push(1));
  http.stream.says({ type: "seckill_result", orderNo: "SK1", status: "success", nseq: 4 });
  await http.quiet();
  http.stream.ends();
  await http.quiet();
  await clock.pass(4_000);
  await http.quiet();
  assert.equal(http.streams.length, 2);
  assert.equal(http.stream.request.headers["last-event-id"], "9001.a1.1,@me.4");
});

test("goes back to a WebSocket as soon as one is greeted, and keeps the stream until then", async () => {
  const { client, net, clock, http } = await greetedByEvents(entry());
  for (let beat = 0; beat < 6; beat += 1) {
    http.stream.beats();
    await http.quiet();
    await clock.pass(10_000);
  }
  assert.equal(net.sockets.length, SOCKET_TRIES + 1, "a WebSocket is tried beside the stream");
  assert.equal(client.transport, "events");
  assert.equal(client.state, "online");
  net.last.says(hello(entry()));
  assert.deepEqual([client.state, client.transport], ["online", "socket"]);
  await http.quiet();
  assert.equal(http.stream.request.signal.aborted, true);
});

test("tries both ways in turn while nothing gets through", async () => {
  const { client, net, clock, http } = await greetedByEvents(entry());
  http.down = true;
  http.stream.ends();
  const ways = [];
  client.addEventListener("state", ({ detail }) => {
    if (detail.state === "connecting") ways.push(detail.transport);
  });
  for (let attempt = 0; attempt < 5; attempt += 1) {
    await http.quiet();
    await clock.pass(30_000);
    if (client.transport === "socket" && client.state === "connecting") net.last.ends(1006);
  }
  assert.deepEqual(ways.slice(0, 4), ["events", "socket", "events", "socket"]);
});

test("is told by a stream what a browser hides of a WebSocket: that the token is not believed", async () => {
  const { client, clock, http } = await greetedByEvents(entry());
  http.stream.closes(4401);
  await http.quiet();
  await clock.pass(4_000);
  await http.quiet();
  assert.equal(http.streams.length, 2, "one other token is tried");
  http.refusal = { status: 401, body: { code: "UNAUTHENTICATED", message: "no" } };
  http.stream.closes(4401);
  await http.quiet();
  await clock.pass(120_000);
  assert.equal(client.state, "ended");
});
