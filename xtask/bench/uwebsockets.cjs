// A peer of `cargo xtask bench chat`: sends what one socket says to all the others. `node uwebsockets.cjs PORT`, with
// `uwebsockets` on NODE_PATH.
'use strict';
const uws = require('uwebsockets');

uws
  .App()
  .ws('/*', {
    idleTimeout: 0,
    open: (socket) => socket.subscribe('all'),
    message: (socket, text) => socket.publish('all', text, false),
  })
  .listen('127.0.0.1', Number(process.argv[2]), (listening) => {
    if (!listening) process.exit(1);
  });
