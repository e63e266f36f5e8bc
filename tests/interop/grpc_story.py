"""Proxyless gRPC: one story in four languages, without the relay and through it, side by side.

Each step has an outcome in each of the two runs: for each channel of the client the backends that answer its calls, or the code with
which its calls fail; the channels that lost calls on the way; and the types that the control plane has seen rejected. A step says the
outcome that all languages have in both runs. `DIFFERENCES` has the exceptions, each with its reason; any other fails the case.
"""

import dataclasses
import itertools
import json
import time
from collections.abc import Callable
from concurrent import futures

import packages
import resources
from harness import DEADLINE, PORTS, Case, GrpcCalls, Process, Stage, eventually
from packages import LANGUAGES
from resources import CLUSTER, ENDPOINTS, LISTENER, PREFIX, ROUTES

WAYS = DIRECT, RELAYED = ("direct", "relayed")
BACKENDS = ("a", "b", "c", "d", "e", "reserve")
# The target, the method and the authority of each channel. A route is chosen by the method of `path`, the header of `header`, and the
# authority of `host`.
CHANNELS = {
    "plain": ("greeter", "Port", ""),
    "path": ("greeter", "Other", ""),
    "header": ("greeter", "Port", ""),
    "host": ("greeter", "Port", "other.example"),
    "second": ("second", "Port", ""),
    "no-listener": ("ghost", "Port", ""),
    "no-cluster": ("lost", "Port", ""),
}
# The channels of the target whose resources change.
MAIN = ("plain", "path", "header", "host")
NEWCOMER = {"newcomer": ("greeter", "Port", "")}
# Calls on these may take 5 s to fail, so only one step looks at them.
MISSING = ("no-listener", "no-cluster")
GONE = "UNAVAILABLE"
REJECTED, LOST = "rejected", "lost"


@dataclasses.dataclass(frozen=True)
class Step:
    """`play` is called with the run. `outcome` has the channels whose outcome changes; backends that share the calls are joined by `+`.
    `calls` is the number of calls of each channel that have to have this outcome."""

    name: str
    play: Callable
    outcome: dict
    rejected: str = ""
    calls: int = 3
    ways: tuple = WAYS


@dataclasses.dataclass(frozen=True)
class Difference:
    """What is otherwise at a step than the step says, in these languages and runs."""

    step: str
    languages: set
    ways: tuple
    outcome: dict
    reason: str


def all_as(outcome, channels=MAIN):
    return dict.fromkeys(channels, outcome)


def by(cluster, **match):
    """A route."""
    action = cluster if isinstance(cluster, dict) else {"cluster": cluster}
    return {"match": {"prefix": "", **match}, "route": action}


def virtual_host(*routes, domains=("*",)):
    return {"name": domains[0], "domains": domains, "routes": routes}


def routes(name, *hosts):
    return {"@type": ROUTES, "name": name, "virtual_hosts": hosts}


def half_each(*clusters):
    return {"weighted_clusters": {"clusters": [{"name": name, "weight": 50} for name in clusters]}}


def aggregate(name, *clusters):
    config = {"@type": PREFIX + "envoy.extensions.clusters.aggregate.v3.ClusterConfig", "clusters": clusters}
    return {"@type": CLUSTER, "name": name, "cluster_type": {"name": "envoy.clusters.aggregate", "typed_config": config}}


def dns(name, port):
    endpoint = {"endpoint": {"address": {"socket_address": {"address": "localhost", "port_value": port}}}}
    return {"@type": CLUSTER, "name": name, "type": "LOGICAL_DNS", "load_assignment": {"endpoints": [{"lb_endpoints": [endpoint]}]}}


def places(name, *localities):
    """Endpoints in localities, each with a priority, and with a port or `None`."""
    parts = []
    for number, (priority, port) in enumerate(localities):
        part = {"locality": {"region": f"region-{number}"}, "priority": priority, "load_balancing_weight": 1}
        parts.append(part | ({"lb_endpoints": [resources.lb_endpoint(port)]} if port else {}))
    return {"@type": ENDPOINTS, "cluster_name": name, "endpoints": parts}


HEADER = [{"name": "name", "string_match": {"exact": "header"}}]
BY_METHOD = {"prefix": "/kit.Which/Other"}
TO_HOST = virtual_host(by("two"), domains=("other.example",))


class Run:
    """The story in one language, with the relay or without it."""

    def __init__(self, stage, language, ports):
        self.stage, self.language, self.at = stage, language, ports
        self.way = DIRECT if stage.direct else RELAYED
        self.clients = []
        self.outcomes, self.wanted = {}, {}
        # 1 s ends the streams of the old relay soon.
        more = {"checkpoint": {"directory": "checkpoint", "interval": "100ms"}, "drain": "1s"}
        self.plane, self.reserve = stage.upstreams("first", "reserve", server={"report_rejections": True}, **more)
        self.put, self.remove = self.plane.put, self.plane.remove

    def client(self, name, channels):
        self.clients.append(GrpcCalls(self.stage, channels, language=self.language, name=name))

    def opens(self):
        self.put(
            resources.cluster("one"),
            resources.endpoints("one", self.at["a"]),
            resources.api_listener("greeter", "main"),
            resources.routes("main", "one"),
            resources.api_listener("second", "second"),
            resources.routes("second", "one"),
            resources.api_listener("lost", "lost"),
            resources.routes("lost", "nowhere"),
        )
        self.reserve.put(
            # Without the cluster `new`, which the first control plane does not answer for, grpc-java would wait for 15 s.
            *(resources.cluster(name) for name in ("reserve", "new")),
            *(resources.endpoints(name, self.at["reserve"]) for name in ("reserve", "new")),
            *(resources.api_listener(name, "reserve") for name in ("greeter", "second")),
            resources.routes("reserve", "reserve"),
        )
        self.plane.start()
        self.reserve.start()
        self.client("client", CHANNELS)

    def adds_cluster_two(self):
        self.put(resources.cluster("two"), resources.endpoints("two", self.at["d"]), resources.routes("main", "two"))

    def aggregates(self):
        clusters = [aggregate("both", "three", "dns"), resources.cluster("three"), dns("dns", self.at["e"])]
        self.put(*clusters, places("three", (0, self.at["c"])), self.by_all("both"))

    def by_all(self, cluster):
        """Routes by method, header and authority to cluster two, all others to this cluster."""
        return routes("other", TO_HOST, virtual_host(by("two", **BY_METHOD), by("two", headers=HEADER), by(cluster)))

    def ends_plane(self):
        self.live = self.plane.live
        self.plane.stop()

    def returns_plane(self):
        self.plane.start()
        eventually("all streams are open again", lambda: self.plane.live >= self.live)

    def restarts_plane(self):
        self.plane.stop()
        self.put(places("more", (0, self.at["c"])), resources.cluster("two"), resources.endpoints("two", self.at["e"]))
        self.plane.start()

    def restarts_relay(self):
        def streams():
            return json.loads(self.stage.admin_says("/clients"))["count"]

        before = streams()
        self.stage.relay_process.end()
        self.stage.start_relay("sluice-again")
        eventually("all clients are back", lambda: streams() >= before)

    def needs_reserve(self):
        """The control plane goes down at the request for a cluster."""
        self.plane.stop_when_asked(CLUSTER, "new")
        self.put(resources.routes("again", "new"), resources.cluster("new"), resources.endpoints("new", self.at["a"]))

    # The course of a step.

    def plays(self):
        """The outcome of each step, and the one that it should have; ends with the first step that has another."""
        expected = {}
        for step in (one for one in STEPS if self.way in one.ways):
            self.step, self.before = step, self.wanted
            self.wanted = expected | step.outcome | {REJECTED: step.rejected, LOST: ""} | differences(step, self.language, self.way)
            self.marks, self.nacks = [len(client.results()) for client in self.clients], len(self.plane.nacks)
            step.play(self)
            end = time.monotonic() + DEADLINE
            while (outcome := self.outcome()) != self.wanted and time.monotonic() < end:
                time.sleep(0.03)
            self.outcomes[step.name] = outcome, self.wanted
            if outcome != self.wanted:
                break
            expected |= {channel: result for channel, result in step.outcome.items() if channel not in MISSING}
        return self.outcomes

    def outcome(self):
        """The outcome of the step so far."""
        calls = [call for client, mark in itertools.zip_longest(self.clients, self.marks, fillvalue=0) for call in client.results()[mark:]]
        outcome = {channel: self.answering(channel, calls) for channel in self.wanted if channel not in (REJECTED, LOST)}
        outcome[REJECTED] = "+".join(sorted({nack.partition(":")[0].rpartition(".")[2] for nack in self.plane.nacks[self.nacks :]}))
        outcome[LOST] = "+".join(sorted({call.channel for call in calls if self.is_lost(call)}))
        return outcome

    def is_lost(self, call):
        """Whether a call failed on a channel whose calls succeed before the step and after it, and not by an error of the client itself."""
        is_kept = not any(outcome.get(call.channel, GONE).isupper() for outcome in (self.before, self.wanted))
        own = OWN_LOSSES.get((self.language, self.way))
        return is_kept and call.has_failed and not (own and own in call.text)

    def answering(self, channel, calls):
        """What the last calls of a channel have reached: only what they should if there are enough of them."""
        names = {str(port): name for name, port in self.at.items()}
        results = [names.get(call.result, call.result) for call in calls if call.channel == channel]
        wanted = set(self.wanted[channel].split("+"))
        last = list(itertools.takewhile(wanted.__contains__, reversed(results)))
        if len(last) >= self.step.calls and set(last) == wanted:
            return self.wanted[channel]
        last = results[-10:]
        return f"{'+'.join(sorted(set(last)))} ({len(last)} of {self.step.calls} calls)"


def differences(step, language, way):
    """What is otherwise at a step in a language and a run."""
    found = (one for one in DIFFERENCES if one.step == step.name and language in one.languages and way in one.ways)
    return {what: outcome for one in found for what, outcome in one.outcome.items()}


STEPS = [
    Step("a chain of four", Run.opens, all_as("a", (*MAIN, "second"))),
    Step("other endpoints", lambda run: run.put(resources.endpoints("one", run.at["b"])), all_as("b", (*MAIN, "second"))),
    Step(
        "another cluster",
        lambda run: run.put(resources.cluster("one", eds="more"), resources.endpoints("more", run.at["c"])),
        all_as("c", (*MAIN, "second")),
    ),
    Step("other routes", Run.adds_cluster_two, all_as("d")),
    Step(
        "another listener",
        lambda run: run.put(resources.api_listener("greeter", "other"), resources.routes("other", "one")),
        all_as("c"),
    ),
    Step("weighted clusters", lambda run: run.put(routes("other", virtual_host(by(half_each("one", "two"))))), all_as("c+d")),
    Step(
        "a route by method",
        lambda run: run.put(routes("other", virtual_host(by("two", **BY_METHOD), by("one")))),
        all_as("c") | {"path": "d"},
    ),
    Step(
        "a route by header",
        lambda run: run.put(routes("other", virtual_host(by("two", headers=HEADER), by("one")))),
        all_as("c") | {"header": "d"},
    ),
    Step(
        "a virtual host by authority",
        lambda run: run.put(routes("other", TO_HOST, virtual_host(by("one")))),
        all_as("c") | {"host": "d"},
    ),
    Step(
        "no virtual host for an authority",
        lambda run: run.put(routes("other", virtual_host(by("one"), domains=("greeter",)))),
        {"host": GONE},
    ),
    Step(
        "endpoints with priorities",
        lambda run: run.put(places("more", (0, run.at["a"]), (1, run.at["b"])), run.by_all("one")),
        all_as("d") | all_as("a", ("plain", "second")),
    ),
    Step(
        "the first priority is dead",
        lambda run: run.put(places("more", (0, run.at["dead"]), (1, run.at["b"]))),
        all_as("b", ("plain", "second")),
    ),
    Step(
        "the first priority is back",
        lambda run: run.put(places("more", (0, run.at["a"]), (1, run.at["b"]))),
        all_as("a", ("plain", "second")),
    ),
    Step(
        "two localities",
        lambda run: run.put(places("more", (0, run.at["a"]), (0, run.at["b"]))),
        all_as("a+b", ("plain", "second")),
    ),
    Step("a drained locality", lambda run: run.put(places("more", (0, None), (0, run.at["b"]))), all_as("b", ("plain", "second"))),
    Step("no endpoints", lambda run: run.put(places("more", (0, None))), all_as(GONE, ("plain", "second"))),
    Step("endpoints again", lambda run: run.put(places("more", (0, run.at["a"]))), all_as("a", ("plain", "second"))),
    Step("an aggregate cluster", Run.aggregates, {"plain": "c"}),
    Step("its first cluster is drained", lambda run: run.put(places("three", (0, None))), {"plain": "e"}),
    Step("its first cluster is back", lambda run: run.put(places("three", (0, run.at["a"]))), {"plain": "a"}),
    Step("bad endpoints", lambda run: run.put(places("more", (1, run.at["b"]))), {}, rejected="ClusterLoadAssignment"),
    Step("good endpoints", lambda run: run.put(places("more", (0, run.at["b"]))), {"second": "b"}),
    Step("a bad cluster", lambda run: run.put(resources.cluster("two", lb_policy="MAGLEV")), {}, rejected="Cluster"),
    Step(
        "a good cluster",
        lambda run: run.put(resources.cluster("two", eds="more-two"), resources.endpoints("more-two", run.at["c"])),
        all_as("c", ("path", "header", "host")),
    ),
    Step("the cluster is removed", lambda run: run.remove(CLUSTER, "two"), all_as(GONE, ("path", "header", "host"))),
    Step("the cluster returns", lambda run: run.put(resources.cluster("two", eds="more-two")), all_as("c", ("path", "header", "host"))),
    Step("the cluster that returned changes", lambda run: run.put(resources.cluster("two")), all_as("d", ("path", "header", "host"))),
    Step("the listener is removed", lambda run: run.remove(LISTENER, "greeter"), all_as(GONE)),
    Step(
        "the listener returns",
        lambda run: run.put(resources.api_listener("greeter", "other")),
        all_as("d") | {"plain": "a"},
    ),
    Step(
        "the listener that returned changes",
        lambda run: run.put(resources.api_listener("greeter", "again"), resources.routes("again", "two")),
        all_as("d"),
    ),
    Step("names that never existed", lambda run: None, all_as(GONE, MISSING), calls=1),
    Step("the control plane goes down", Run.ends_plane, {}, calls=25),
    Step("a client starts in the outage", lambda run: run.client("newcomer", NEWCOMER), {"newcomer": "d"}, calls=1),
    Step("the relay restarts in the outage", Run.restarts_relay, {}, calls=25, ways=(RELAYED,)),
    Step("the control plane is back as it was", Run.returns_plane, {}, calls=25),
    Step(
        "the control plane restarts with changes",
        Run.restarts_plane,
        all_as("e", (*MAIN, "newcomer")) | {"second": "c"},
    ),
    Step("a second control plane helps out", Run.needs_reserve, all_as("reserve", (*MAIN, "newcomer"))),
    Step("the first control plane is back", lambda run: run.plane.start(), all_as("a", (*MAIN, "newcomer")), calls=25),
]

DIFFERENCES = [
    *(
        Difference(
            step,
            {"Java"},
            WAYS,
            outcome,
            "grpc-java keeps its endpoints when an update has none (`handleNameResolutionError` in CdsLoadBalancer2.java)",
        )
        for step, outcome in (("no endpoints", all_as("b", ("plain", "second"))), ("its first cluster is drained", {"plain": "c"}))
    ),
    *(
        Difference(
            f"the {what} returns",
            {"Node.js"},
            WAYS,
            all_as(GONE, channels),
            "grpc-js-xds keeps the resource that was removed, and does not see that it is back while it is equal (`resourcesEqual` in xds-client.ts)",
        )
        for what, channels in (("cluster", ("path", "header", "host")), ("listener", MAIN))
    ),
    Difference(
        "names that never existed",
        {"Node.js"},
        WAYS,
        {"no-listener": "DEADLINE_EXCEEDED"},
        "grpc-js tells the error for a second, then a channel without a listener waits (`backoffTimeout` in resolving-load-balancer.ts)",
    ),
    Difference(
        "a client starts in the outage",
        {"C-core", "Java", "Go"},
        (DIRECT,),
        {"newcomer": "reserve"},
        "the client knows nothing and falls back; the relay has all that it asks for",
    ),
    Difference(
        "a client starts in the outage",
        {"Node.js"},
        (DIRECT,),
        {"newcomer": "DEADLINE_EXCEEDED"},
        "grpc-js-xds uses the first server alone (`getOrCreateClient` in xds-client.ts), and the relay has all that it asks for",
    ),
    Difference(
        "a second control plane helps out",
        {"Node.js"},
        (DIRECT,),
        all_as(GONE, (*MAIN, "newcomer")),
        "grpc-js-xds uses the first server alone, which cannot answer for the new cluster",
    ),
    Difference(
        "a second control plane helps out",
        {"Node.js"},
        (RELAYED,),
        {"second": "reserve"},
        "a client falls back as a whole, and grpc-js has one stream for all targets, where the others have a stream for each",
    ),
]

# What a failed call says that the client has lost by itself.
OWN_LOSSES = {
    # The resolver chooses clusters of new routes before the balancer has them (internal/xds/balancer/clustermanager/picker.go).
    **dict.fromkeys([("Go", way) for way in WAYS], "unknown cluster selected for RPC"),
    # At the return from the second control plane, the new listener comes with clusters that lack the one in use.
    **dict.fromkeys([("C-core", DIRECT), ("Java", DIRECT)], "CDS resource reserve"),
}


def play(stage, language):
    """Both runs; compares their outcomes with each other and with what the steps say."""
    assert {one.step for one in DIFFERENCES} <= {step.name for step in STEPS}
    ports = {name: PORTS.take() for name in BACKENDS}
    backends = Process(stage, "backends", [packages.GO_PEER, "answer", *ports.values()])
    eventually("the backends are ready", lambda: "ready" in backends.log.read_text())
    # The port has no listener.
    ports["dead"] = PORTS.take()
    stages = [stage]
    if not stage.direct:
        stages.append(stage.enter_context(Stage(stage.sluice, direct=True)))
        stage.witness("the run without the relay", stages[1].evidence)
    with futures.ThreadPoolExecutor() as pool:
        runs = [pool.submit(Run(one, language, ports).plays) for one in stages]
        outcomes = {DIRECT if one.direct else RELAYED: run.result() for one, run in zip(stages, runs, strict=True)}
    assert not (faults := list(compare(language, outcomes))), "\n".join(faults)


def compare(language, outcomes):
    """The outcomes that are not as they should be, of a step and of a channel, in words."""
    for step in STEPS:
        pairs = {way: outcomes[way][step.name] for way in outcomes if step.name in outcomes[way]}
        for what in sorted({what for outcome, _ in pairs.values() for what in outcome}):
            said = {way: (outcome.get(what), wanted.get(what)) for way, (outcome, wanted) in pairs.items()}
            if any(outcome != wanted for outcome, wanted in said.values()):
                words = (f"{way} {outcome!r} instead of {wanted!r}" for way, (outcome, wanted) in said.items())
                yield f"{language}, {step.name}, {what}: {', '.join(words)}"


CASES = [
    # Java first: it starts slowly.
    Case(f"grpc story {language}", {"go", package}, lambda stage, language=language: play(stage, language))
    for language, package in reversed(LANGUAGES.items())
]
