"""Simulated delta-ADS clients by the thousand, beside the real ones.

One event loop in one thread serves all of them. A client takes every cluster and listener, and tells contents apart by
their marks. It rejects some marks and dies of others: its stream ends without a word, and a new one begins soon, without
a memory of the old one.
"""

import asyncio
import collections
import functools
import threading
import time

import grpc
import grpc.aio
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.listener.v3 import listener_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2
from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2

from resources import CLUSTER, LISTENER

# A connection carries half of the streams that the relay grants to one: the relay remembers reset streams for a while.
STREAMS_PER_CONNECTION = 50
# The seconds between a death and the next life.
REBIRTH = 0.1
INVALID_ARGUMENT = 3
# The words of a rejection, after the name.
WORDS = "is rejected, says a simulated client"


def limit_of(cluster):
    """The mark of a cluster: its maximum number of connections; `None` without one."""
    thresholds = cluster_pb2.Cluster.FromString(cluster).circuit_breakers.thresholds
    return thresholds[0].max_connections.value if thresholds else None


def prefix_of(listener):
    """The mark of a listener: the prefix of its statistics."""
    (chain,) = listener_pb2.Listener.FromString(listener).filter_chains
    manager = http_connection_manager_pb2.HttpConnectionManager()
    chain.filters[0].typed_config.Unpack(manager)
    return manager.stat_prefix


MARKS = {CLUSTER: limit_of, LISTENER: prefix_of}


@functools.cache
def loop():
    """The event loop of all crowds: grpc.aio complains of several loops in one process."""
    made = asyncio.new_event_loop()
    threading.Thread(target=made.run_forever, daemon=True).start()
    return made


LOCK = threading.Lock()


def in_loop(coroutine):
    """Waits until the event loop has run a coroutine; its result."""
    with LOCK:
        events = loop()
    return asyncio.run_coroutine_threadsafe(coroutine, events).result()


class Client:
    """A client of a crowd, and its memory over all lives: times and marks."""

    def __init__(self, crowd, node):
        self.crowd, self.node = crowd, node
        # Every answer by type, in order.
        self.given = {type_url: [] for type_url in MARKS}
        # The latest answer of this life by type.
        self.latest = {}
        self.rejections, self.deaths = [], []
        # The errors of streams. No case expects any.
        self.faults = []

    async def run(self, stub):
        while True:
            try:
                await self.live(stub)
            except Exception as error:
                self.faults.append(repr(error))
            self.latest = {}
            await asyncio.sleep(REBIRTH)

    async def live(self, stub):
        """One stream, until a deadly content comes."""
        call = stub.DeltaAggregatedResources()
        for type_url in MARKS:
            request = discovery_pb2.DeltaDiscoveryRequest(type_url=type_url, resource_names_subscribe=["*"])
            request.node.id, request.node.cluster = self.node, "interop"
            await call.write(request)
        while (response := await call.read()) is not grpc.aio.EOF:
            mark = mark_of(response)
            self.given[response.type_url].append((time.monotonic(), mark))
            self.latest[response.type_url] = mark
            if mark in self.crowd.dies_of:
                self.deaths.append(time.monotonic())
                call.cancel()
                return
            answer = discovery_pb2.DeltaDiscoveryRequest(type_url=response.type_url, response_nonce=response.nonce)
            if mark in self.crowd.rejects:
                self.rejections.append(time.monotonic())
                answer.error_detail.code = INVALID_ARGUMENT
                answer.error_detail.message = f"{response.resources[0].name} {WORDS}"
            await call.write(answer)
        self.faults.append(f"{await call.code()}: {await call.details()}")


def mark_of(response):
    """The mark of the one resource of an answer; the text of any other answer."""
    if len(response.resources) != 1 or response.removed_resources:
        return str(response)
    return MARKS[response.type_url](response.resources[0].resource.value)


class Crowd:
    """Clients over a few connections, named by numbers."""

    def __init__(self, stage, count, rejects=(), dies_of=(), name="simulated"):
        self.rejects, self.dies_of = rejects, dies_of
        self.clients = {node: Client(self, node) for node in (f"{name}-{number}" for number in range(count))}
        self.channels, self.tasks = [], {}
        stage.callback(lambda: in_loop(self.stop()))
        stage.witness(f"the crowd {name}", self.tell)
        in_loop(self.start(f"127.0.0.1:{stage.xds}"))

    async def start(self, address):
        for number, client in enumerate(self.clients.values()):
            if number % STREAMS_PER_CONNECTION == 0:
                # Channels with the same address would share their connections.
                alone = [("grpc.use_local_subchannel_pool", 1)]
                self.channels.append(grpc.aio.insecure_channel(address, options=alone))
                stub = ads_pb2_grpc.AggregatedDiscoveryServiceStub(self.channels[-1])
            self.tasks[client.node] = asyncio.create_task(client.run(stub))

    async def end(self, nodes):
        for node in nodes:
            self.tasks[node].cancel()
        await asyncio.wait([self.tasks.pop(node) for node in nodes])

    async def stop(self):
        if self.tasks:
            await self.end(list(self.tasks))
        for channel in self.channels:
            await channel.close()

    def leave(self, nodes):
        """These clients go for good."""
        in_loop(self.end(nodes))
        for node in nodes:
            del self.clients[node]

    def have(self, type_url, mark):
        """Whether the latest content of all clients has this mark."""
        return all(client.latest.get(type_url) == mark for client in self.clients.values())

    def given(self, type_url, mark):
        """The clients that were ever given this content, and when for the first time."""
        given = {}
        for client in self.clients.values():
            times = [at for at, one in client.given[type_url] if one == mark]
            if times:
                given[client.node] = times[0]
        return given

    def assert_given(self, type_url, wanted):
        """
        Asserts that clients were given these contents in this order, and nothing else; `wanted` has them by node. The relay
        restates a content once if the rejection of the one before comes after the way back began (WAV-10).
        """
        for client in self.clients.values():
            marks = [mark for _, mark in client.given[type_url]]
            for rejected in set(marks) & set(self.rejects):
                after = marks.index(rejected) + 1
                if len(marks) > after + 1 and marks[after] == marks[after + 1]:
                    del marks[after]
            assert marks == wanted(client.node), f"{client.node} was given {marks} instead of {wanted(client.node)}"
            assert not client.faults, f"{client.node}: {client.faults}"

    def tell(self):
        """The clients with the same story are one line."""
        clients = collections.defaultdict(list)
        for client in self.clients.values():
            marks = [[mark for _, mark in given] for given in client.given.values()]
            clients[f"given {marks}, latest {list(client.latest.values())}, faults {client.faults}"].append(client.node)
        return "\n".join(f"{len(nodes)} like {nodes[0]}: {story}" for story, nodes in clients.items())
