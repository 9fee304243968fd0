// A purchase over a network that the test makes fail.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Purchase } from "../../gateway/web/purchase.js";

const LOT = { activityId: "1", skuId: "1001" };
const QUEUED = [202, { code: "QUEUED", orderNo: "SK1", status: "pending" }];
const pending = [200, { status: "pending", orderNo: "SK1" }];
const success = [200, { status: "success", orderNo: "SK1" }];

/** A purchase whose requests get these answers in turn; an Error is a lost connection. Time jumps, nothing waits. */
function shop(...answers) {
  const asked = [];
  let now = 0;
  const purchase = new Purchase({
    token: () => "T",
    device: "D",
    clock: { now: () => now, random: () => 0.5, sleep: async (ms) => { now += ms; } },
    fetch: async (path, { method, headers }) => {
      asked.push({ path, method, key: headers["Idempotency-Key"], headers, at: now });
      const next = answers.shift();
      assert.ok(next, `unexpected ${method} ${path}`);
      if (next instanceof Error) throw next;
      return Response.json(next[1], { status: next[0], headers: next[2] });
    },
  });
  const seen = [];
  purchase.addEventListener("view", () => seen.push(purchase.view.kind));
  return { purchase, asked, seen };
}

test("buys, polls with growing pauses, and wins", async () => {
  const { purchase, asked, seen } = shop(QUEUED, pending, pending, pending, success);
  await purchase.buy(LOT);
  assert.deepEqual(seen, ["sending", "queued", "won"]);
  assert.deepEqual(purchase.view, { kind: "won", orderNo: "SK1" });
  const pauses = asked.slice(1).map(({ at }, index) => at - asked[index].at);
  assert.deepEqual([...pauses].sort((a, b) => a - b), pauses);
  assert.equal(asked[0].headers.Authorization, "Bearer T");
  assert.equal(asked[0].headers["X-Device-Id"], "D");
});

test("repeats an attempt whose answer got lost under the same key", async () => {
  const { purchase, asked } = shop(new Error("reset"), [503, { code: "UNAVAILABLE", retryAfterMs: 50 }], QUEUED, success);
  await purchase.buy(LOT);
  assert.equal(purchase.view.kind, "won");
  assert.equal(new Set(asked.slice(0, 3).map(({ key }) => key)).size, 1);
});

test("keeps the key over a broken attempt, so that the next click cannot buy twice", async () => {
  const lost = new Error("reset");
  const { purchase, asked } = shop(lost, lost, lost, lost, QUEUED, success);
  await purchase.buy(LOT);
  assert.equal(purchase.view.code, "OFFLINE");
  await purchase.buy(LOT);
  assert.equal(new Set(asked.slice(0, 5).map(({ key }) => key)).size, 1);
  assert.equal(purchase.view.kind, "won");
});

test("takes a new key for a new intention", async () => {
  const { purchase, asked } = shop([429, { code: "RISK_REFUSED", retryAfterMs: 5_000 }], [409, { code: "SOLD_OUT" }]);
  await purchase.buy(LOT);
  assert.deepEqual(purchase.view, { kind: "held", code: "RISK_REFUSED", untilMs: 5_000 });
  purchase.clear();
  await purchase.buy(LOT);
  assert.equal(purchase.view.code, "SOLD_OUT");
  assert.notEqual(asked[0].key, asked[1].key);
});

test("reads the pause from the header when the body has none", async () => {
  const { purchase } = shop([429, { code: "RATE_LIMITED" }, { "Retry-After": "3" }]);
  await purchase.buy(LOT);
  assert.equal(purchase.view.untilMs, 3_000);
});

test("shows the trace of a failure, from the header when the body is not ours", async () => {
  const answer = [500, { nonsense: true }, { "X-Trace-Id": "abc" }];
  const { purchase } = shop(answer, answer, answer, answer);
  await purchase.buy(LOT);
  assert.equal(purchase.view.kind, "broken");
  assert.equal(purchase.view.traceId, "abc");
});

test("says when an order came to nothing", async () => {
  const { purchase } = shop(QUEUED, [200, { status: "fail", orderNo: "SK1", message: "stale" }]);
  await purchase.buy(LOT);
  assert.deepEqual(purchase.view, { kind: "lost", orderNo: "SK1", message: "stale" });
});

test("goes on polling through failures", async () => {
  const { purchase } = shop(QUEUED, new Error("reset"), [503, {}], success);
  await purchase.buy(LOT);
  assert.equal(purchase.view.kind, "won");
});

test("takes the pushed result and polls no more", async () => {
  const { purchase, asked } = shop(QUEUED);
  purchase.addEventListener("view", () => {
    purchase.pushed({ orderNo: "SK-other", status: "fail" });
    purchase.pushed({ orderNo: "SK1", status: "success" });
  });
  await purchase.buy(LOT);
  assert.equal(purchase.view.kind, "won");
  assert.equal(asked.length, 1);
});

test("forgets a remembered order that the server does not know", async () => {
  const { purchase } = shop([404, { code: "NOT_FOUND" }]);
  await purchase.restore("SK1");
  assert.equal(purchase.view.kind, "idle");
});

test("does nothing on a second click while the first is on its way", async () => {
  const { purchase, asked } = shop(QUEUED, success);
  await Promise.all([purchase.buy(LOT), purchase.buy(LOT)]);
  await purchase.buy(LOT);
  assert.equal(asked.length, 2);
});

test("takes an order back, and buys again under a new key", async () => {
  const again = [202, { code: "QUEUED", orderNo: "SK2", status: "pending" }];
  const { purchase, asked, seen } = shop(QUEUED, success, [200, { code: "CANCELLED", orderNo: "SK1", status: "closed" }], again, success);
  await purchase.buy(LOT);
  await purchase.cancel();
  assert.deepEqual(purchase.view, { kind: "closed", orderNo: "SK1" });
  assert.equal(asked[2].path, "/api/seckill/orders/SK1/cancel");
  await purchase.buy(LOT);
  assert.deepEqual(seen, ["sending", "queued", "won", "won", "closed", "sending", "queued", "won"]);
  assert.equal(purchase.view.orderNo, "SK2");
  assert.notEqual(asked[0].key, asked[3].key);
});

test("keeps an order that could not be taken back, and says why", async () => {
  const { purchase } = shop(QUEUED, success, [409, { code: "ALREADY_PAID" }], new Error("reset"));
  await purchase.cancel();
  await purchase.buy(LOT);
  await purchase.cancel();
  assert.deepEqual(purchase.view, { kind: "won", orderNo: "SK1", code: "ALREADY_PAID" });
  await purchase.cancel();
  assert.deepEqual(purchase.view, { kind: "won", orderNo: "SK1", code: "OFFLINE" });
});

test("learns from the chat that an order was closed elsewhere", async () => {
  const { purchase } = shop(QUEUED, success);
  await purchase.buy(LOT);
  purchase.pushed({ orderNo: "SK9", status: "fail" });
  assert.equal(purchase.view.kind, "won");
  purchase.pushed({ orderNo: "SK1", status: "fail" });
  assert.deepEqual(purchase.view, { kind: "closed", orderNo: "SK1" });
});
