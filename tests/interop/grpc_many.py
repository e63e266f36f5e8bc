"""Clients with many targets, and clients with many clusters: as fast through the relay as without it, within its default limits.

The number of targets and of clusters is `SLUICE_MANY`: 1,000 in the long run of the tests, by an optimized relay, and less
otherwise. The control plane is go-control-plane, because the comparison needs a fast one.
"""

import json
import os
import re
import time

import packages
import resources
from harness import PORTS, Case, Envoy, GrpcClient, Process, eventually, get
from packages import LANGUAGES

MANY = os.environ.get("SLUICE_MANY")
TARGETS, CLUSTERS = (int(MANY), int(MANY)) if MANY else (130, 260)
# The time through the relay may be this multiple of the time without it, and so many seconds more: an unoptimized relay takes as
# much CPU as the client.
FACTOR, MARGIN = (1.2, 1) if MANY else (2, 2)
# Other processes take CPU, too, so the best of some rounds counts.
ROUNDS = 4
# A client asks for one cluster after the other, and waits a little. No other limit acts on these clients.
MAY_HIT = {"changes_per_second"}


class Counter(GrpcClient):
    """A client that makes many calls at once, and tells how many were answered and when."""

    def answers(self):
        """The number of answered calls, and the seconds until the last."""
        said, _ = self.process.child.communicate(timeout=90)
        match = re.fullmatch(r"answered (\d+) in ([\d.]+)\n", said)
        assert match, f"the client says {said!r}"
        return int(match[1]), float(match[2])


class Targets(Counter):
    MODE = "many"


class Clusters(Counter):
    MODE = "each"


def go_peer(stage, name, *arguments):
    process = Process(stage, name, [packages.GO_PEER, *arguments])
    eventually(f"the {name} is ready", lambda: "ready" in process.log.read_text())


def ports(stage, configs):
    """A control plane of go-control-plane with these resources, and a relay below it: the name of each with its port."""
    direct = PORTS.take()
    file = stage.directory / "resources"
    file.write_text("".join(f"{json.dumps(config)}\n" for config in configs))
    go_peer(stage, "control plane", "serve", direct, file)
    server = {"server_uri": f"127.0.0.1:{direct}", "api_type": "AGGREGATED_DELTA_GRPC"}
    relayed = stage.relay([{**server, "channel_creds": [{"type": "insecure"}]}])
    return {"direct": direct, "relayed": relayed}


def compare(stage, ports, seconds_of):
    """Calls `seconds_of` with the name and the port of each server in turn, until the relay has been fast enough."""
    seconds = {name: [] for name in ports}
    for number in range(ROUNDS):
        for name, port in ports.items():
            seconds[name].append(seconds_of(f"{name}-{number}", port))
        if min(seconds["relayed"]) <= FACTOR * min(seconds["direct"]) + MARGIN:
            break
    else:
        raise AssertionError(f"the relay is slow: {seconds}")
    hits = dict(line.rsplit(" ", 1) for line in stage.metrics("sluice_limit_hits_total"))
    hits = {re.search('limit="(.*?)"', line)[1] for line, count in hits.items() if count != "0"}
    assert hits <= MAY_HIT, f"the relay's limits acted: {hits}"


def play_grpc(stage, configs, kind, target, count, language):
    """All calls of the client are answered."""

    def seconds_of(name, port):
        server = {"server_uri": f"127.0.0.1:{port}", "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}
        bootstrap = json.dumps({"xds_servers": [server], "node": {"id": name, "cluster": "interop", "locality": {}}})
        client = kind(stage, target, bootstrap=bootstrap, language=language, name=name, arguments=[str(count)])
        answered, seconds = client.answers()
        assert answered == count, f"{name}: {answered} of {count} calls were answered"
        return seconds

    compare(stage, ports(stage, configs), seconds_of)


def backend(stage):
    port = PORTS.take()
    go_peer(stage, "backend", "answer", port)
    return port


def targets(stage, language):
    """C-core and grpc-java have a stream for each target, on one connection; grpc-go has a connection for each. grpc-js has one stream."""
    listeners = [resources.api_listener(f"target-{number}", "main") for number in range(TARGETS)]
    chain = [resources.routes("main", "one"), resources.cluster("one"), resources.endpoints("one", backend(stage))]
    play_grpc(stage, [*listeners, *chain], Targets, "target", TARGETS, language)


def chosen(backend):
    """Routes that choose a cluster by the header `number`, the clusters, and the endpoints of each."""

    def route(number, name):
        header = {"name": "number", "string_match": {"exact": str(number)}}
        return {"match": {"prefix": "", "headers": [header]}, "route": {"cluster": name}}

    names = [f"cluster-{number}" for number in range(CLUSTERS)]
    hosts = [{"name": "all", "domains": ["*"], "routes": [route(*one) for one in enumerate(names)]}]
    routes = {"@type": resources.ROUTES, "name": "main", "virtual_hosts": hosts}
    return [routes, *map(resources.cluster, names), *(resources.endpoints(name, backend) for name in names)]


def clusters(stage, language):
    """A channel asks for its clusters in longer and longer lists."""
    configs = [resources.api_listener("greeter", "main"), *chosen(backend(stage))]
    play_grpc(stage, configs, Clusters, "greeter", CLUSTERS, language)


def envoy_clusters(stage, variant):
    """Envoy warms all clusters up, and the last route serves."""
    port = PORTS.take()
    configs = [resources.listener("http", port, routes="main"), *chosen(stage.backend("here"))]

    def seconds_of(name, server):
        stage.xds = stage.rest = server
        begun = time.monotonic()
        envoy = Envoy(stage, variant, name=name)
        eventually("Envoy serves", lambda: get(port, number=str(CLUSTERS - 1)).body == "here")
        assert {f"cluster-{number}" for number in range(CLUSTERS)} <= envoy.clusters()
        seconds = time.monotonic() - begun
        envoy.assert_content()
        envoy.process.end()
        return seconds

    compare(stage, ports(stage, configs), seconds_of)


CASES = [
    *(
        Case(f"grpc many {what}, {language}", {"go", package}, lambda stage, play=play, language=language: play(stage, language), relay_only=True)
        for what, play in (("targets", targets), ("clusters", clusters))
        for language, package in LANGUAGES.items()
    ),
    *(Case(f"envoy many clusters, {variant}", {"go", "envoy"}, lambda stage, variant=variant: envoy_clusters(stage, variant), relay_only=True) for variant in Envoy.ADS),
]
