// What stands in front of a cluster, as small as it can be: passes a connection on to the first node that takes it. Can be made
// a proxy of the kind that lets no WebSocket through.

import { once } from "node:events";
import { connect, createServer } from "node:net";

/** @param {string[]} nodes `host:port`, the one to prefer first */
export async function balancer(nodes) {
  const state = { webSockets: true };
  const open = new Set();
  const server = createServer((client) => {
    open.add(client);
    client.on("close", () => open.delete(client));
    client.on("error", () => {});
    client.once("data", async (head) => {
      client.pause();
      if (!state.webSockets && /^upgrade: *websocket/im.test(head.toString("latin1"))) {
        client.end("HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        return;
      }
      const node = await first(nodes);
      if (!node) {
        client.destroy();
        return;
      }
      node.on("error", () => client.destroy());
      node.on("close", () => client.destroy());
      client.on("close", () => node.destroy());
      node.write(head);
      client.pipe(node);
      node.pipe(client);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    /** Whether WebSockets get through from now on. */
    set webSockets(through) {
      state.webSockets = through;
    },
    close() {
      server.close();
      for (const client of open) client.destroy();
    },
  };
}

/** A connection to the first of `nodes` that takes one. */
async function first(nodes) {
  for (const node of nodes) {
    const [host, port] = node.split(":");
    const socket = connect({ host, port: Number(port), noDelay: true });
    const taken = await new Promise((resolve) => {
      socket.once("connect", () => resolve(true));
      socket.once("error", () => resolve(false));
    });
    if (taken) return socket;
  }
  return null;
}
