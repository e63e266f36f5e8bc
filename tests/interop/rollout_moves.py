"""A plan with `mode: enforce` over a list of two control planes: clients move to the second one in the middle of a push, and
come back (gRFC A71). Nobody is given a part of the push that its seat does not allow, and traffic goes on all the time.

Each content leads to a cluster and a backend of its own, so the answers show the content that a client uses. The push brings a
cluster and the route to it, and takes the former cluster: a client that has a route without its cluster answers 503.
"""

import http.client
import json
import re
import threading

import resources
from harness import PORTS, Case, Envoy, GrpcCaller, eventually, get, server_entry
from resources import CLUSTER

# The seats of nodes are fixed by their ids and the name of the plan: envoy-2 at 34.64 %, envoy-1 at 41.23 %, envoy-3 at
# 70.59 %, caller-2 at 48.63 %, caller-1 at 85.82 %.
PERCENT = {"envoy-2": 35, "caller-2": 60}
PLAN = {"name": "edge", "mode": "enforce", "gather": {"quiet": "200ms", "max": "5s"}}
# The clusters of the bootstrap.
STATIC = {"xds", "xds-rest"}
# Connections to each Envoy.
CONNECTIONS = 2
# Connects until each Envoy has enough of them.
TRIES = 300
# The pause between two requests of a connection.
PACE = 0.002


class Lists:
    """A relay with the plan and a list of two control planes, `first` and `second`."""

    def __init__(self, stage, seated):
        """The first step has this client alone."""
        self.stage, self.seated, self.percent = stage, seated, PERCENT[seated]
        self.first, self.second = planes = [stage.control_plane(name) for name in ("first", "second")]
        servers = [server_entry(plane, "AGGREGATED_DELTA_GRPC") for plane in planes]
        plan = {**PLAN, "steps": [{"percent": self.percent, "bake": "1h"}]}
        more = {"rollouts": [plan], "node_classes": [{"split_by": {"cluster": True}}]}
        # All clients leave a lost control plane, and come back at once.
        more |= {"fallback_on_reachability_only": True, "fallback": {"resolve_timeout": "5s", "hold_down": "0s"}}
        stage.xds = stage.rest = stage.relay(servers, **more)
        stage.witness("the plan", lambda: get(stage.admin, "/rollouts/edge").body)

    def start(self):
        self.first.start()
        self.second.start()

    def plan(self):
        return json.loads(get(self.stage.admin, "/rollouts/edge").body)

    def reaches(self, state, push=1):
        eventually(f"the plan is {state}", lambda: (self.plan()["state"], self.plan()["push"]) == (state, push))

    def push(self, *added, removed=()):
        """Waits until the first step has the push, which may take clusters."""
        self.first.put(*added)
        self.first.remove(CLUSTER, *removed)
        self.reaches("waving")

    def orders(self, order):
        self.stage.sluice_says("rollout", *order.split(), "--relay", f"127.0.0.1:{self.stage.admin}")

    def assert_seats(self):
        clients = json.loads(get(self.stage.admin, "/clients?limit=all").body)["clients"]
        seats = {one["node"]: one["seats"][0]["percent"] for one in clients}
        assert [node for node, percent in seats.items() if percent < self.percent] == [self.seated], seats


class Connection:
    """A connection that sends a request after the other, and remembers the answers: equal ones in a row are one."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        self.answers, self.stopped = [], threading.Event()
        self.node = self.ask()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def ask(self):
        """One request; the node that answered."""
        self.connection.request("GET", "/")
        response = self.connection.getresponse()
        answer = response.read().decode(errors="replace")
        answer = answer if response.status == 200 else f"{response.status} {answer}"
        if self.answers[-1:] != [answer]:
            self.answers.append(answer)
        return response.headers["x-node"]

    def run(self):
        while not self.stopped.wait(PACE):
            try:
                self.ask()
            except Exception as error:
                self.answers.append(repr(error))
                return

    def end(self):
        self.stopped.set()
        if self.thread.is_alive():
            self.thread.join()
        self.connection.close()


class Traffic:
    """Connections to all Envoys, which share a port by SO_REUSEPORT."""

    def __init__(self, stage, port, nodes):
        self.connections = {node: [] for node in nodes}
        for _ in range(TRIES):
            connection = Connection(port)
            known = self.connections[connection.node]
            if len(known) < CONNECTIONS:
                known.append(connection)
                stage.callback(connection.end)
                connection.thread.start()
            else:
                connection.end()
            if all(len(known) == CONNECTIONS for known in self.connections.values()):
                break
        else:
            raise AssertionError(f"too few connections: {self.answers()}")
        stage.witness("the answers", lambda: json.dumps(self.answers()))

    def answers(self):
        return {node: [one.answers for one in known] for node, known in self.connections.items()}

    def has(self, node, *wanted):
        """Waits until all connections to this Envoy have the last of these answers; they must have had these, in this order."""
        connections = self.connections[node]
        eventually(f"{node} serves {wanted[-1]}", lambda: all(one.answers[-1] == wanted[-1] for one in connections))
        for one in connections:
            assert one.answers == list(wanted), f"{node} answered {one.answers} instead of {wanted}"


class Seen(threading.Thread):
    """The names of all clusters that Envoys were seen with."""

    def __init__(self, stage, envoys):
        super().__init__(daemon=True)
        self.envoys, self.names, self.stopped = envoys, {node: set() for node in envoys}, threading.Event()
        stage.callback(self.end)
        stage.witness("the seen clusters", lambda: str(self.names))
        self.start()

    def run(self):
        while not self.stopped.wait(0.02):
            for node, envoy in self.envoys.items():
                self.names[node] |= envoy.clusters()

    def end(self):
        self.stopped.set()
        self.join()


class Fleet:
    """Three Envoys with traffic, which have the content of the first control plane. The first step has envoy-2."""

    def __init__(self, stage, variant):
        self.stage, self.port, self.lists = stage, PORTS.take(), Lists(stage, "envoy-2")
        self.lists.first.put(*self.content("red"))
        self.lists.second.put(*self.content("blue"))
        self.lists.start()
        nodes = {name: {"id": name, "cluster": "interop"} for name in ("envoy-1", "envoy-2", "envoy-3")}
        self.envoys = {name: Envoy(stage, variant, name, node=node) for name, node in nodes.items()}
        for name, envoy in self.envoys.items():
            eventually(f"{name} has its routes", lambda envoy=envoy: "main" in envoy.routes())
        self.lists.assert_seats()
        self.traffic, self.seen = Traffic(stage, self.port, nodes), Seen(stage, self.envoys)

    def content(self, name):
        """A cluster with a backend of its name, and routes that lead there and name the Envoy that answers."""
        routes = resources.routes("main", name)
        routes["response_headers_to_add"] = [{"header": {"key": "x-node", "value": "%ENVIRONMENT(ENVOY_NAME)%"}}]
        listener = resources.listener("http", self.port, routes="main")
        # With its endpoints: Envoy lacks a cluster that still waits for them (README.md).
        return resources.static_cluster(name, self.stage.backend(name)), listener, routes

    def push(self, **more):
        self.lists.push(*self.content("green"), **more)

    def serve(self, seated, others):
        """Waits until all have served these in this order, and nothing else: the Envoy of the first step, and the others."""
        for name in self.envoys:
            self.traffic.has(name, *(seated if name == self.lists.seated else others).split())

    def assert_order(self):
        """Asserts that no Envoy was told in one message to add a cluster and to remove another: routes change between these. Nor
        did an Envoy reject anything, or have the cluster of a push that its seat does not allow."""
        for name, envoy in self.envoys.items():
            eventually("one cluster is left", lambda envoy=envoy: len(envoy.clusters() - STATIC) == 1)
            steps = re.findall(r"cds: added/updated (\d+) cluster\(s\) .*; removed (\d+) cluster", envoy.process.log.read_text())
            assert steps and all("0" in step for step in steps), f"{name}: added and removed clusters {steps}"
            envoy.assert_content()
            assert ("green" in self.seen.names[name]) == (name == self.lists.seated), self.seen.names


def abort(stage, variant):
    """A push that only adds a cluster goes back: first the route, and then its cluster."""
    fleet = Fleet(stage, variant)
    fleet.push()
    fleet.serve("red green", "red")
    fleet.lists.orders("abort edge --push 1")
    fleet.serve("red green red", "red")
    fleet.assert_order()
    times = {name.split(".")[-2]: int(time) for name, time in fleet.envoys["envoy-2"].stats("(cds|main).update_time").items()}
    assert times["main"] < times["cds"], f"the cluster went before the route: {times}"
    fleet.serve("red green red", "red")


def move(stage, variant):
    """All move to the second control plane, and come back in the middle of the push. Once more after an abort."""
    fleet = Fleet(stage, variant)
    lists = fleet.lists
    fleet.push(removed=["red"])
    fleet.serve("red green", "red")
    lists.first.stop()
    fleet.serve("red green blue", "red blue")
    lists.reaches("paused")
    lists.first.start()
    fleet.serve("red green blue green", "red blue red")
    lists.reaches("waving")
    lists.orders("abort edge --push 1")
    fleet.serve("red green blue green red", "red blue red")
    lists.first.stop()
    fleet.serve("red green blue green red blue", "red blue red blue")
    lists.first.start()
    fleet.serve("red green blue green red blue red", "red blue red blue red")
    lists.reaches("halted")
    fleet.assert_order()


def callers(stage):
    """The same with clients of gRPC."""
    lists = Lists(stage, "caller-2")
    ports = {name: stage.grpc_backend() for name in ("red", "green", "blue")}
    chain = lambda name: (
        resources.api_listener("greeter", "main"),
        resources.routes("main", name),
        resources.cluster(name),
        resources.endpoints(name, ports[name]),
    )
    lists.first.put(*chain("red"))
    lists.second.put(*chain("blue"))
    lists.start()
    names = ("caller-1", "caller-2")
    other, seated = [GrpcCaller(stage, "greeter", bootstrap=bootstrap(stage, name), name=name) for name in names]
    has = lambda client, *wanted: client.has_reached(*(ports[name] for name in wanted))
    for client in (other, seated):
        has(client, "red")
    lists.assert_seats()

    lists.push(*chain("green"), removed=["red"])
    has(seated, "red", "green")
    lists.first.stop()
    has(other, "red", "blue")
    has(seated, "red", "green", "blue")
    lists.reaches("paused")
    lists.first.start()
    has(other, "red", "blue", "red")
    has(seated, "red", "green", "blue", "green")
    lists.reaches("waving")
    other.goes_on()
    lists.orders("abort edge --push 1")
    has(seated, "red", "green", "blue", "green", "red")
    seated.goes_on()
    other.goes_on()
    has(other, "red", "blue", "red")


def bootstrap(stage, node):
    server = {"server_uri": f"127.0.0.1:{stage.xds}", "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}
    return json.dumps({"xds_servers": [server], "node": {"id": node, "cluster": "interop", "locality": {}}})


CASES = [
    *(Case(f"rollout move {name}", {"envoy"}, lambda stage, name=name: move(stage, name), relay_only=True) for name in Envoy.ADS),
    *(Case(f"rollout abort {name}", {"envoy"}, lambda stage, name=name: abort(stage, name), relay_only=True) for name in Envoy.ADS),
    Case("rollout move grpc", {"grpc"}, callers, relay_only=True),
]
