"""Proxyless gRPC with names of two authorities below a relay that reaches one of them (RLY-5, ADR 12): what the dead one
owes costs nothing of the other."""

import json

import resources
from harness import PORTS, Case, GrpcCaller, eventually, server_entry
from resources import CLUSTER, ROUTES

DEAD = "xdstp://dead.example/envoy.config.cluster.v3.Cluster/x"


def both(name, healthy):
    """Calls of one service go to the cluster of the dead authority, all others to the healthy one."""
    lost = {"match": {"prefix": "/kit.Lost/"}, "route": {"cluster": DEAD}}
    rest = {"match": {"prefix": ""}, "route": {"cluster": healthy}}
    hosts = [{"name": "all", "domains": ["*"], "routes": [lost, rest]}]
    return {"@type": ROUTES, "name": name, "virtual_hosts": hosts}


def dead_authority(stage):
    """A client takes a route to a cluster of the dead authority, and goes on with the healthy one, changes included."""
    plane = stage.control_plane("the control plane")
    plane.start()
    # Nobody listens there.
    dead = server_entry(type("Dead", (), {"port": PORTS.take(), "rest_port": 0}), "AGGREGATED_DELTA_GRPC")
    stage.xds = stage.relay(
        [server_entry(plane, "AGGREGATED_DELTA_GRPC")], authorities={"dead.example": {"xds_servers": [dead]}}
    )
    bootstrap = json.loads(stage.sluice_says("bootstrap", "grpc", "--config", "sluice.json"))
    # The same server, which is the relay.
    bootstrap["authorities"] = {"dead.example": {}}
    first, second = stage.grpc_backend(), stage.grpc_backend()
    plane.put(
        resources.cluster("healthy"),
        resources.endpoints("healthy", first),
        resources.api_listener("greeter", "main"),
        resources.routes("main", "healthy"),
    )
    client = GrpcCaller(stage, "greeter", bootstrap=json.dumps(bootstrap))
    client.has_reached(first)

    def clusters():
        """How many clusters the client asks for, and which version of what there is of them it has ACKed."""
        clients = json.loads(stage.admin_says("/clients?type=Cluster"))["clients"]
        return [(one["types"][0]["names"], one["types"][0]["version_acked"]) for one in clients]

    plane.put(both("main", "healthy"))
    eventually("the client asks for both clusters", lambda: [names for names, _ in clusters()] == [2])
    # A change of the cluster that it has waits for nothing. That C-core itself uses no news before each cluster of its routes
    # is known, or was not heard of for 15 s, is nothing that a relay can help.
    (_, before), = clusters()
    plane.put(resources.endpoints("other", second), resources.cluster("healthy", eds="other"))
    client.goes_on()
    eventually("the client has the change", lambda: [version for _, version in clusters()] != [before])
    assert "nobody" not in client.calls(), client.calls()
    assert not plane.nacks, plane.nacks


CASES = [
    Case("grpc a dead authority", {"grpc"}, dead_authority, relay_only=True),
]
