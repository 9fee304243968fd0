// A user's whole exchange with a client of message brokers: `node exchange.mjs current|old`. The other side is an agent with a
// client of chat.v1 on another node, played by the test that starts this: it answers the first message, and writes two more while
// this side is away. What is said about that goes through standard output and input, a line each.

import assert from 'node:assert/strict';
import { createInterface } from 'node:readline';

import * as clients from './clients.mjs';

const [, , which] = process.argv;
const { SLUICE_WS, SLUICE_TOKEN, SLUICE_SHOP } = process.env;
const url = `${SLUICE_WS}?token=${SLUICE_TOKEN}`;
const expected = { current: '1.2', old: '1.1' }[which];
const told = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/** What arrives on a subscription, to be taken in order. */
function inbox(client) {
  const arrived = [];
  let wake = () => {};
  return {
    heard: (message) => {
      arrived.push(message);
      wake();
    },
    async next(what, fits = () => true) {
      for (;;) {
        const at = arrived.findIndex((message) => fits(JSON.parse(message.body)));
        if (at >= 0) return arrived.splice(0, at + 1).at(-1);
        const more = new Promise((resolve) => (wake = resolve));
        const late = new Promise((_, reject) => setTimeout(() => reject(new Error(`no ${what} in 20 s`)), 20_000).unref());
        await Promise.race([more, late, client.failed]);
      }
    },
    isEmpty: () => arrived.length === 0,
  };
}

const body = (message) => JSON.parse(message.body);

let client = await clients[which](url);
assert.equal(client.version, expected);
const opened = inbox(client);
const notify = inbox(client);
await client.subscribe('/user/queue/opened', {}, opened.heard);
await client.subscribe('/user/queue/notify', {}, notify.heard);
await client.send('/app/open', { 'content-type': 'application/json' }, JSON.stringify({ subject: 'returns', shopId: SLUICE_SHOP }));
const session = body(await opened.next('session')).sessionId;
const topic = `/topic/chat/${session}`;
const chat = `/app/chat/${session}`;

let messages = inbox(client);
await client.subscribe(topic, { ack: 'client' }, messages.heard);

// A receipt says that the message is stored, and its sender sees it where everybody does.
await client.send(chat, { 'client-msg-id': 's1' }, '你好: \\ 😂');
const own = await messages.next('own message');
assert.equal(own.headers.seq, '1');
assert.equal(own.headers['message-id'], `${session}-1`);
assert.deepEqual([body(own).content, body(own).clientMsgId, body(own).sender.kind], ['你好: \\ 😂', 's1', 'user']);

// The agent answers; what was read is acknowledged, and everybody is told.
const answer = await messages.next('answer');
assert.deepEqual([body(answer).seq, body(answer).content, body(answer).sender.kind], [2, '您好 😀', 'agent']);
answer.ack();
const read = body(await notify.next('read mark', (frame) => frame.type === 'read'));
assert.deepEqual([read.lastSeq, read.unread], [2, 0]);

// Sent again with the same id it is stored once.
await client.send(chat, { 'client-msg-id': 's1' }, '你好: \\ 😂');
// A large one, in chunks where the client does so; and one as the first design wrote them.
const large = '好'.repeat(15_000);
await client.send(chat, { 'client-msg-id': 's2', 'content-type': 'text/plain' }, large);
assert.deepEqual([body(await messages.next('large message')).seq, large.length], [3, 15_000]);
await client.send(chat, {}, JSON.stringify({ type: 'image', content: 'https://cdn.example.com/a.jpg' }));
assert.deepEqual([body(await messages.next('picture')).seq, messages.isEmpty()], [4, true]);
await client.disconnect();

console.log(JSON.stringify({ away: session }));
assert.equal((await told.next()).value, 'written');

// What was written meanwhile comes first, in order, and the receipt behind it.
client = await clients[which](url);
messages = inbox(client);
await client.subscribe(topic, { 'last-seq': '4', epoch: own.headers.epoch, ack: 'client-individual' }, messages.heard);
for (const [seq, content] of [
  [5, 'first'],
  [6, 'second'],
]) {
  const message = await messages.next(`message ${seq}`);
  assert.deepEqual([body(message).seq, message.headers.seq, body(message).content], [seq, String(seq), content]);
  message.ack();
}
assert.ok(messages.isEmpty());
await client.disconnect();
console.log(JSON.stringify({ done: session }));
process.exit(0);
