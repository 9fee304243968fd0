// The chat client's rules as plain data.

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  Fallback, HELD_MAX, KEPT_MAX, Notices, OUTBOX_MAX, Outbox, POSITIONS_MAX, PROBE_MAX_MS, SOCKET_TRIES, Timeline, backoff, newId, positions,
  verdict,
} from "../../gateway/web/chat-state.js";

const message = (seq) => ({ seq, epoch: "a", type: "text" });

test("ends in the same timeline whatever the order of arrival", () => {
  // A small generator with a fixed seed, so that a failure can be looked at again.
  let seed = 7;
  const random = () => (seed = (seed * 48_271) % 2_147_483_647) / 2_147_483_647;
  for (let round = 0; round < 200; round += 1) {
    const timeline = new Timeline("a");
    timeline.prepend([], false);
    const arrivals = Array.from({ length: 60 }, () => 1 + Math.floor(random() * 20));
    for (const seq of [...arrivals, ...Array.from({ length: 20 }, (_, index) => index + 1)]) timeline.apply(message(seq));
    assert.deepEqual(timeline.messages.map((one) => one.seq), Array.from({ length: 20 }, (_, index) => index + 1));
    assert.equal(timeline.held.size, 0);
  }
});

test("loses nothing it holds when the server says that the gap before it is empty", () => {
  const timeline = new Timeline("a");
  timeline.prepend([message(1)], false);
  for (const seq of [3, 5, 7]) timeline.apply(message(seq));
  timeline.settle(6);
  assert.deepEqual(timeline.messages.map((one) => one.seq), [1, 3, 5, 7]);
  assert.equal(timeline.held.size, 0);
});

test("keeps a bounded number of messages, shown and held", () => {
  const timeline = new Timeline("a");
  timeline.prepend([], false);
  for (let seq = 1; seq <= KEPT_MAX + 10; seq += 1) timeline.apply(message(seq));
  assert.equal(timeline.messages.length, KEPT_MAX);
  assert.equal(timeline.hasOlder, true);
  for (let seq = 1; seq <= HELD_MAX + 10; seq += 1) timeline.apply(message(KEPT_MAX + 20 + seq));
  assert.equal(timeline.held.size, HELD_MAX);
});

test("marks a message withdrawn when its page comes after the recall", () => {
  const timeline = new Timeline("a");
  timeline.prepend([{ seq: 5, type: "recalled", refSeq: 2 }], true);
  timeline.prepend([message(1), message(2)], false);
  assert.equal(timeline.messages.find((one) => one.seq === 2).recalled, true);
});

test("refuses a message when too many wait", () => {
  const outbox = new Outbox();
  for (let index = 0; index < OUTBOX_MAX; index += 1) assert.equal(outbox.add({ clientMsgId: `${index}`, sessionId: "1" }), true);
  assert.equal(outbox.add({ clientMsgId: "one too many", sessionId: "1" }), false);
});

test("lets sessions send side by side, each one message at a time", () => {
  const outbox = new Outbox();
  for (const [clientMsgId, sessionId] of [["a1", "a"], ["a2", "a"], ["b1", "b"], ["n1", null]]) outbox.add({ clientMsgId, sessionId });
  assert.deepEqual(outbox.due(0).map((item) => item.clientMsgId), ["a1", "b1"]);
  outbox.sent("a1", 0);
  assert.deepEqual(outbox.due(0).map((item) => item.clientMsgId), ["b1"]);
  assert.equal(outbox.wantsSession, true);
  outbox.bind("c");
  assert.deepEqual(outbox.due(0).map((item) => item.clientMsgId), ["b1", "n1"]);
});

test("backs off from half a second to twenty, never to nothing", () => {
  assert.equal(backoff(0, 0), 250);
  assert.equal(backoff(0, 1), 500);
  assert.equal(backoff(100, 1), 20_000);
  assert.equal(backoff(100, 0), 10_000);
});

test("knows the verdict of each close code", () => {
  const expected = {
    retry: [1000, 1001, 1006, 1011, 4000, 4001, 4003, 4008, 4009], later: [1013, 4029], token: [4401], stop: [4400, 4403, 4408, 4409, 4426],
  };
  for (const [ruling, codes] of Object.entries(expected)) for (const code of codes) assert.equal(verdict(code), ruling, `${code}`);
});

test("makes ids that sort by time and fit the protocol", () => {
  const early = newId(1_780_300_000_000, Math.random);
  const late = newId(1_780_300_000_001, Math.random);
  assert.match(early, /^[0-9A-HJKMNP-TV-Z]{26}$/);
  assert.ok(early < late);
  assert.notEqual(newId(1, Math.random), newId(1, Math.random));
});

test("takes events only where sockets never open, and sockets again once one has", () => {
  for (const [history, byEvents] of [
    [[], false],
    [["socket 1006", "socket 1006"], false],
    [["socket 1006", "socket 1006", "socket 1006"], true],
    [["socket 1006", "socket 1006", "socket 4009"], true],
    [["socket 1006", "socket 1006", "socket 4401"], false],
    [["socket 1006", "socket 1006", "socket ok", "socket 1006"], false],
    [["socket 1006", "socket 1006", "socket 1006", "events 1006"], false],
    [["socket 1006", "socket 1006", "socket 1006", "events 1006", "socket 1006"], true],
    [["socket 1006", "socket 1006", "socket 1006", "events ok"], true],
  ]) {
    const fallback = new Fallback();
    for (const [transport, end] of history.map((step) => step.split(" "))) {
      if (end === "ok") fallback.worked(transport);
      else fallback.failed(transport, Number(end));
    }
    assert.equal(fallback.byEvents, byEvents, history.join(", "));
  }
  assert.ok(SOCKET_TRIES > 1, "one failure is nothing to judge a network by");
});

test("tries a socket beside events ever less often", () => {
  const fallback = new Fallback();
  const waits = Array.from({ length: 20 }, () => fallback.probeIn());
  assert.deepEqual(waits, waits.toSorted((a, b) => a - b));
  assert.equal(waits.at(-1), PROBE_MAX_MS);
});

test("shows each notice once", () => {
  for (const [last, arriving, fates] of [
    [null, [7, 7, 8], ["new", "duplicate", "new"]],
    [6, [7, 9, 8, 9], ["new", "gap", "new", "new"]],
    [6, [3, undefined, undefined], ["duplicate", "new", "new"]],
  ]) {
    const notices = new Notices(last);
    assert.deepEqual(arriving.map((nseq) => notices.apply(nseq)), fates);
  }
  const notices = new Notices(40);
  assert.equal(notices.resume() && !notices.resume(), true, "asks once at a time");
  notices.reset(0);
  assert.equal(notices.apply(1), "new", "the count began anew");
});

test("says what it has in a bounded line", () => {
  const session = (id, more = {}) => ({ id, timeline: { loaded: true, epoch: "1", last: 5 }, closed: false, ...more });
  assert.equal(positions([session("1"), session("2", { closed: true })], 9), "1.1.5,@me.9");
  assert.equal(positions([], null), "");
  const many = Array.from({ length: 300 }, (_, index) => session(`${index}`, { lastMessage: { time: index } }));
  const line = positions(many, 1).split(",");
  assert.equal(line.length, POSITIONS_MAX + 1);
  assert.ok(line.includes("299.1.5"), "the liveliest ones");
});
