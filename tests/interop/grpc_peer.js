// The client of grpc_peer.py for @grpc/grpc-js: calls until it has reached each port that its input names, in turn. As
// `ads`, an ADS stream over mutual TLS, with messages in base64, one a line: grpc-js-xds 1.14 has no `tls` credentials in
// its bootstrap (gRFC A65), so its xDS client cannot do this.
//
// As `many` and `each` it makes many calls at once, as grpc_peer.py does.
//
// usage: node grpc_peer.js call TARGET
//        node grpc_peer.js many TARGET COUNT
//        node grpc_peer.js each TARGET COUNT
//        node grpc_peer.js ads ADDRESS CA KEY CERTIFICATE
'use strict';

const fs = require('node:fs');
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

const Ads = grpc.makeGenericClientConstructor({
  Stream: {
    path: '/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources',
    requestStream: true,
    responseStream: true,
    requestSerialize: asIs,
    requestDeserialize: asIs,
    responseSerialize: asIs,
    responseDeserialize: asIs,
  },
});

async function ads(address, ...files) {
  const client = new Ads(address, grpc.credentials.createSsl(...files.map((file) => fs.readFileSync(file))));
  const stream = client.Stream();
  stream.on('data', (response) => console.log(response.toString('base64')));
  stream.on('error', (error) => {
    console.error(error.message);
    process.exit(1);
  });
  for await (const request of readline.createInterface({ input: process.stdin })) {
    stream.write(Buffer.from(request, 'base64'));
  }
  process.exit(0);
}

function call(client) {
  return new Promise((done) => {
    client.Port(Buffer.alloc(0), { deadline: Date.now() + 5000 }, (error, port) => {
      done(error ? ['nobody', ` (${error.message})`] : [port.toString(), '']);
    });
  });
}

async function main(target) {
  const client = open(target);
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

// Waits for all calls; prints how many were answered, and the time. A call waits for its resources.
async function answered(calls) {
  const begun = process.hrtime.bigint();
  const one = ([client, headers]) => new Promise((done) => {
    const metadata = new grpc.Metadata({ waitForReady: true });
    Object.entries(headers).forEach(([key, value]) => metadata.set(key, value));
    client.Port(Buffer.alloc(0), metadata, { deadline: Date.now() + 60000 }, (error) => {
      if (error) console.error(error.message);
      done(!error);
    });
  });
  const good = (await Promise.all(calls.map(one))).filter((isGood) => isGood).length;
  console.log(`answered ${good} in ${(Number(process.hrtime.bigint() - begun) / 1e9).toFixed(3)}`);
  process.exit(0);
}

const numbers = (count) => Array.from({ length: Number(count) }, (_, number) => number);
const open = (target) => new Which(target, grpc.credentials.createInsecure());

function many(target, count) {
  const clients = numbers(count).map((number) => open(`${target}-${number}`));
  return answered(clients.map((client) => [client, {}]));
}

function each(target, count) {
  const client = open(target);
  return answered(numbers(count).map((number) => [client, { number: String(number) }]));
}

const [mode, ...rest] = process.argv.slice(2);
({ ads, call: main, many, each })[mode](...rest);
