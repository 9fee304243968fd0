// A peer of `cargo xtask bench chat`: sends what one socket says to all the others. `node ws.cjs PORT`, with `ws` on NODE_PATH.
'use strict';
const { WebSocketServer, WebSocket } = require('ws');

const server = new WebSocketServer({ host: '127.0.0.1', port: Number(process.argv[2]), backlog: 4096 });
server.on('connection', (socket) => {
  socket.on('message', (text) => {
    for (const other of server.clients) {
      if (other !== socket && other.readyState === WebSocket.OPEN) other.send(text, { binary: false });
    }
  });
});
