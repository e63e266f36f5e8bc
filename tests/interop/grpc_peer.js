// The client of grpc_peer.py for @grpc/grpc-js: calls until it has reached each port that its input names, in turn.
//
// usage: node grpc_peer.js call TARGET
'use strict';

const readline = require('node:readline');
const grpc = require('@grpc/grpc-js');
require('@grpc/grpc-js-xds').register();

const asIs = (buffer) => buffer;
const Which = grpc.makeGenericClientConstructor({
  Port: {
    path: '/kit.Which/Port',
    requestStream: false,
    responseStream: false,
    requestSerialize: asIs,
    requestDeserialize: asIs,
    responseSerialize: asIs,
    responseDeserialize: asIs,
  },
});

function call(client) {
  return new Promise((done) => {
    client.Port(Buffer.alloc(0), { deadline: Date.now() + 5000 }, (error, port) => {
      done(error ? ['nobody', ` (${error.message})`] : [port.toString(), '']);
    });
  });
}

async function main(target) {
  const client = new Which(target, grpc.credentials.createInsecure());
  for await (const port of readline.createInterface({ input: process.stdin })) {
    const end = Date.now() + 25000;
    for (;;) {
      const [reached, reason] = await call(client);
      if (reached === port) {
        console.log(`reached ${port}`);
        break;
      }
      if (Date.now() > end) {
        console.error(`reached ${reached}${reason}, not ${port}`);
        process.exit(1);
      }
      await new Promise((done) => setTimeout(done, 100));
    }
  }
  process.exit(0);
}

main(process.argv[3]);
