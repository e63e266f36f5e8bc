"""A plan with `mode: enforce`: clients that die of a cluster's content die at the first step only, and live again.

Nothing in a cluster makes Envoy crash on demand. So a supervisor ends an Envoy by SIGKILL as soon as the Envoy uses the
deadly cluster, and starts it again at once, as a node does whose pod crashes.
"""

import contextlib
import json
import queue
import threading
import time

import grpc
from envoy.config.cluster.v3 import cluster_pb2
from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2

import resources
from harness import Case, eventually, get
from resources import CLUSTER
from rollouts import PLAN, Fleet

PERCENT = PLAN["steps"][0]["percent"]
# The cluster's maximum number of connections marks its content.
GOOD, DEADLY, MENDED = 101, 666, 102


def cluster(limit):
    return resources.cluster("backend", circuit_breakers={"thresholds": [{"max_connections": limit}]})


class Supervisor:
    """Ends Envoys that use the deadly cluster, and starts them again."""

    def __init__(self, stage, fleet):
        self.fleet, self.stopped = fleet, threading.Event()
        # The times of the deaths, and the contents since the last start.
        self.deaths = {number: [] for number in fleet.envoys}
        self.limits = {number: [] for number in fleet.envoys}
        self.thread = threading.Thread(target=self.run, daemon=True)
        stage.callback(self.stop)
        stage.witness("the supervisor", lambda: f"deaths {self.deaths}, contents {self.limits}")
        self.thread.start()

    def run(self):
        while not self.stopped.wait(0.01):
            for number, envoy in self.fleet.envoys.items():
                limit = limit_of(envoy)
                if limit and self.limits[number][-1:] != [limit]:
                    self.limits[number].append(limit)
                if limit == DEADLY:
                    self.deaths[number].append(time.monotonic())
                    self.limits[number] = []
                    envoy.crash()

    def stop(self):
        self.stopped.set()
        self.thread.join()


def limit_of(envoy):
    """The content of the cluster that an Envoy uses; `None` before it has one."""
    mark = "backend::default_priority::max_connections::"
    marks = [line.removeprefix(mark) for line in envoy.admin("/clusters").splitlines() if line.startswith(mark)]
    return int(marks[0]) if marks else None


class Mortal:
    """A simulated client that dies of the deadly cluster and comes back: its stream ends without a word."""

    def __init__(self, stage, channel, name):
        self.name, self.limit, self.deaths, self.stopped = name, None, 0, False
        self.stub = ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel)
        self.call = None
        stage.callback(self.stop)
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while not self.stopped:
            with contextlib.suppress(grpc.RpcError):
                self.live()
            self.limit = None
            time.sleep(0.1)

    def live(self):
        requests = queue.SimpleQueue()
        first = discovery_pb2.DeltaDiscoveryRequest(type_url=CLUSTER, resource_names_subscribe=["*"])
        first.node.id = self.name
        requests.put(first)
        call = self.call = self.stub.DeltaAggregatedResources(iter(requests.get, None))
        try:
            for response in call:
                found = [cluster_pb2.Cluster.FromString(one.resource.value) for one in response.resources]
                self.limit = found[-1].circuit_breakers.thresholds[0].max_connections.value
                if self.limit == DEADLY:
                    self.deaths += 1
                    call.cancel()
                    return
                requests.put(discovery_pb2.DeltaDiscoveryRequest(type_url=CLUSTER, response_nonce=response.nonce))
        finally:
            requests.put(None)

    def stop(self):
        self.stopped = True
        if self.call:
            self.call.cancel()


def seated(stage):
    """The nodes with a seat in the first step."""
    clients = json.loads(get(stage.admin, "/clients?limit=all").body)["clients"]
    return {one["node"] for one in clients if one["seats"][0]["percent"] < PERCENT}


def story(stage, variant, count):
    """`count` simulated clients die of the cluster as well."""
    fleet = Fleet(stage, variant)
    fleet.plane.put(
        cluster(GOOD),
        resources.endpoints("backend", stage.backend("red")),
        fleet.listener("first"),
        resources.routes("main", "backend"),
    )
    for number in (1, 2, 3):
        fleet.add(number)
    # One connection for all.
    channel = stage.enter_context(grpc.insecure_channel(f"127.0.0.1:{stage.xds}"))
    mortals = [Mortal(stage, channel, f"mortal-{number}") for number in range(count)]
    have = lambda limit: all(limit_of(envoy) == limit for envoy in fleet.envoys.values())
    have_all = lambda limit: have(limit) and all(mortal.limit == limit for mortal in mortals)
    eventually("all have the cluster", lambda: have_all(GOOD))
    eventually("the fleet serves", lambda: get(fleet.port).body == "red")
    seats = seated(stage)
    assert {seat for seat in seats if seat.startswith("envoy")} == {"envoy-2"}, seats

    supervisor = Supervisor(stage, fleet)
    fleet.plane.put(cluster(DEADLY))
    eventually("the plan is halted", lambda: fleet.plan()["state"] == "halted")
    halted = time.monotonic()
    assert "ended within a minute of the push" in fleet.plan()["why"], fleet.plan()["why"]
    eventually("all live again, with the good cluster", lambda: have_all(GOOD))
    # An Envoy with the deadly cluster would be dead by now.
    eventually("the fleet serves", lambda: all(get(fleet.port).body == "red" for _ in range(8)))
    assert fleet.plan()["state"] == "halted"
    assert supervisor.deaths[1] == supervisor.deaths[3] == [], "only the first step loses any"
    if not count:
        assert halted - supervisor.deaths[2][1] < 1.7, "a tally after the second death, and the pace of this test"
    assert supervisor.limits[2][0] == GOOD, "the Envoy that died starts with the good cluster"
    given = {mortal.name for mortal in mortals if mortal.deaths}
    assert given <= seats, f"{sorted(given - seats)} have no seat in the first step"
    assert given or not count
    assert [updates(fleet.envoys[number]) for number in (1, 3)] == [1, 1], "nobody else was given another cluster"

    fleet.plane.put(cluster(MENDED))
    eventually("all have the mended cluster", lambda: have_all(MENDED))
    eventually("the plan is open again", lambda: fleet.plan()["state"] == "open")
    assert get(fleet.port).body == "red"


def updates(envoy):
    """The number of contents that an Envoy was given for its clusters."""
    stats = envoy.stats("cluster_manager.cluster_(added|modified)")
    return int(stats["cluster_manager.cluster_modified"]) + int(stats["cluster_manager.cluster_added"]) - len(STATIC)


# The clusters of the bootstrap.
STATIC = ("xds", "xds-rest")

CASES = [
    Case("rollout crash delta-ads", {"envoy"}, lambda stage: story(stage, "delta-ads", 100), relay_only=True),
    Case("rollout crash sotw-ads", {"envoy"}, lambda stage: story(stage, "sotw-ads", 0), relay_only=True),
]
