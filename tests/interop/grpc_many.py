"""gRPC clients with more than the usual: many targets in one process, and many clusters in one channel."""

import json
import re

import resources
from harness import Case, GrpcClient, eventually

TARGETS = 130
CLUSTERS = 500
# Other processes take CPU, too, so the best of some rounds counts. The binary of the tests is not optimized.
ROUNDS = 4


class Counter(GrpcClient):
    """A C-core client that makes many calls at once, and tells how many were answered and when."""

    def answers(self):
        """The number of answered calls, and the seconds until the last."""
        eventually("the client has made its calls", lambda: self.process.child.poll() is not None)
        said = self.process.child.stdout.read()
        match = re.fullmatch(r"answered (\d+) in ([\d.]+)\n", said)
        assert match, f"the client says {said!r}"
        return int(match[1]), float(match[2])


class Targets(Counter):
    MODE = "many"


class Clusters(Counter):
    MODE = "each"


def targets(stage):
    """C-core has a stream for each target, and all of them on one connection."""
    plane = stage.upstream()
    backend = stage.grpc_backend()
    listeners = [resources.api_listener(f"target-{number}", "main") for number in range(TARGETS)]
    plane.put(*listeners, resources.routes("main", "one"), resources.cluster("one"), resources.endpoints("one", backend))
    count, _ = Targets(stage, "target", arguments=[str(TARGETS)]).answers()
    assert count == TARGETS, f"{count} of {TARGETS} targets were answered"


def clusters(stage):
    """A channel asks for its clusters in longer and longer lists, and waits for no limit of the relay."""
    plane = stage.upstream()
    backend = stage.grpc_backend()
    names = [f"cluster-{number}" for number in range(CLUSTERS)]

    def route(number, name):
        header = {"name": "number", "string_match": {"exact": str(number)}}
        return {"match": {"prefix": "", "headers": [header]}, "route": {"cluster": name}}

    hosts = [{"name": "all", "domains": ["*"], "routes": [route(*one) for one in enumerate(names)]}]
    plane.put(
        resources.api_listener("greeter", "main"),
        {"@type": resources.ROUTES, "name": "main", "virtual_hosts": hosts},
        *(resources.cluster(name) for name in names),
        *(resources.endpoints(name, backend) for name in names),
    )
    seconds = {"direct": [], "relayed": []}

    def is_fast():
        return min(seconds["relayed"]) <= 2 * min(seconds["direct"]) + 2

    for number, (name, port) in enumerate([("direct", plane.port), ("relayed", stage.xds)] * ROUNDS):
        server = {"server_uri": f"127.0.0.1:{port}", "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}
        node = {"id": name, "cluster": "interop", "locality": {}}
        bootstrap = json.dumps({"xds_servers": [server], "node": node})
        client = Clusters(stage, "greeter", bootstrap=bootstrap, name=f"{name}-{number}", arguments=[str(CLUSTERS)])
        count, taken = client.answers()
        assert count == CLUSTERS, f"{name}: {count} of {CLUSTERS} clusters were reached"
        seconds[name].append(taken)
        if name == "relayed" and is_fast():
            return
    raise AssertionError(f"the relay is slow: {seconds}")


CASES = [
    Case("grpc many targets", {"grpc"}, targets),
    Case("grpc many clusters", {"grpc"}, clusters, relay_only=True),
]
