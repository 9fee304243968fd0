// The two clients of message brokers behind one face: connect, subscribe, send with a receipt, disconnect. Each is used as its own
// documentation says; nothing of either is replaced.

import { Client } from '@stomp/stompjs';
import { createRequire } from 'node:module';
import { WebSocket } from 'ws';

const Old = createRequire(import.meta.url)('stompjs');

/** Receipts that are waited for, by name. */
class Receipts {
  #waiting = new Map();
  #count = 0;

  /** A name for the next frame, and what settles when the server has carried it out. */
  next() {
    const name = `r${(this.#count += 1)}`;
    return { name, came: new Promise((resolve) => this.#waiting.set(name, resolve)) };
  }

  arrived(name) {
    this.#waiting.get(name)?.();
    this.#waiting.delete(name);
  }
}

/** `@stomp/stompjs` 7: speaks 1.2 and sends large frames in chunks. */
export async function current(url) {
  Object.assign(globalThis, { WebSocket });
  const client = new Client({ brokerURL: url, reconnectDelay: 0, splitLargeFrames: true });
  const receipts = new Receipts();
  const failed = new Promise((_, reject) => {
    client.onStompError = (frame) => reject(new Error(`ERROR ${frame.headers.message}: ${frame.body}`));
    client.onWebSocketError = (event) => reject(new Error(`socket: ${event.message}`));
  });
  failed.catch(() => {});
  client.onUnhandledReceipt = (frame) => receipts.arrived(frame.headers['receipt-id']);
  await Promise.race([
    failed,
    new Promise((resolve) => {
      client.onConnect = resolve;
      client.activate();
    }),
  ]);
  const carriedOut = (came) => Promise.race([failed, came]);
  return {
    version: client.connectedVersion,
    failed,
    subscribe(destination, headers, heard) {
      const { name, came } = receipts.next();
      client.subscribe(destination, heard, { ...headers, receipt: name });
      return carriedOut(came);
    },
    send(destination, headers, body) {
      const { name, came } = receipts.next();
      client.publish({ destination, headers: { ...headers, receipt: name }, body });
      return carriedOut(came);
    },
    disconnect: () => client.deactivate(),
  };
}

/** `stompjs` 2.3.3: speaks 1.1 and knows no header escapes. */
export async function old(url) {
  const socket = new WebSocket(url, ['v10.stomp', 'v11.stomp']);
  const client = Old.over(socket);
  client.debug = null;
  const receipts = new Receipts();
  client.onreceipt = (frame) => receipts.arrived(frame.headers['receipt-id']);
  let version;
  const connected = new Promise((resolve, reject) => {
    const refused = (frame) => reject(new Error(`ERROR ${frame?.headers?.message ?? frame}`));
    client.connect({}, (frame) => resolve((version = frame.headers.version)), refused);
  });
  const failed = new Promise((_, reject) => socket.on('error', reject));
  failed.catch(() => {});
  await Promise.race([failed, connected]);
  const carriedOut = (came) => Promise.race([failed, came]);
  return {
    version,
    failed,
    subscribe(destination, headers, heard) {
      const { name, came } = receipts.next();
      client.subscribe(destination, heard, { ...headers, receipt: name });
      return carriedOut(came);
    },
    send(destination, headers, body) {
      const { name, came } = receipts.next();
      client.send(destination, { ...headers, receipt: name }, body);
      return carriedOut(came);
    },
    disconnect: () => new Promise((resolve) => client.disconnect(resolve)),
  };
}
