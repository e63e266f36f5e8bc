// The client of grpc_peer.py for @grpc/grpc-js: calls on some channels all the time, and prints each result. As
// `ads`, an ADS stream over mutual TLS, with messages in base64, one a line: grpc-js-xds 1.14 has no `tls` credentials in
// its bootstrap (gRFC A65), so its xDS client cannot do this.
//
// As `many` and `each` it makes many calls at once, as grpc_peer.py does.
//
// usage: node grpc_peer.js loop CHANNEL...
//        node grpc_peer.js many TARGET COUNT
//        node grpc_peer.js each TARGET COUNT
//        node grpc_peer.js ads ADDRESS CA KEY CERTIFICATE
'use strict';

const fs = require('node:fs');
const readline = require('node:readline');
const grpc = require('@grpc/grpc-js');
require('@grpc/grpc-js-xds').register();

const asIs = (buffer) => buffer;
const unary = (path) => ({
  path,
  requestStream: false,
  responseStream: false,
  requestSerialize: asIs,
  requestDeserialize: asIs,
  responseSerialize: asIs,
  responseDeserialize: asIs,
});
const Which = grpc.makeGenericClientConstructor({ Port: unary('/kit.Which/Port'), Other: unary('/kit.Which/Other') });

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

// Calls on each of the channels until killed, and prints the result of each call. A channel is NAME,TARGET,METHOD,AUTHORITY.
function loop(...channels) {
  for (const words of channels) {
    const [name, target, method, authority] = words.split(',');
    const client = open(target, authority ? { 'grpc.default_authority': authority } : {});
    const call = () => {
      const metadata = new grpc.Metadata();
      metadata.set('name', name);
      client[method](Buffer.alloc(0), metadata, { deadline: Date.now() + 5000 }, (error, port) => {
        console.log(`${name} ${error ? `${error.code} ${error.details}` : port}`);
        setTimeout(call, 20);
      });
    };
    call();
  }
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
  for await (const _ of process.stdin);
  process.exit(0);
}

const numbers = (count) => Array.from({ length: Number(count) }, (_, number) => number);
const open = (target, options) => new Which(target, grpc.credentials.createInsecure(), options);

function many(target, count) {
  const clients = numbers(count).map((number) => open(`${target}-${number}`));
  return answered(clients.map((client) => [client, {}]));
}

function each(target, count) {
  const client = open(target);
  return answered(numbers(count).map((number) => [client, { number: String(number) }]));
}

const [mode, ...rest] = process.argv.slice(2);
({ ads, loop, many, each })[mode](...rest);
