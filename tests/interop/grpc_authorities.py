"""Proxyless gRPC with names of two authorities, one of them unreachable for the relay (RLY-5, ADR 12): the dead
authority has no effect on the other."""

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
    """A client takes a route to a cluster of the dead authority, and keeps using the healthy one, with its changes."""
    plane = stage.control_plane("the control plane")
    plane.start()
    # The address has no listener.
    dead = server_entry(type("Dead", (), {"port": PORTS.take(), "rest_port": 0}), "AGGREGATED_DELTA_GRPC")
    stage.xds = stage.relay(
        [server_entry(plane, "AGGREGATED_DELTA_GRPC")], authorities={"dead.example": {"xds_servers": [dead]}}
    )
    bootstrap = json.loads(stage.sluice_says("bootstrap", "grpc", "--config", "sluice.json"))
    # The same server: the relay.
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
        """The number of the client's clusters, and the ACKed version of their set."""
        clients = json.loads(stage.admin_says("/clients?type=Cluster"))["clients"]
        return [(one["types"][0]["names"], one["types"][0]["version_acked"]) for one in clients]

    plane.put(both("main", "healthy"))
    eventually("the client asks for both clusters", lambda: [names for names, _ in clusters()] == [2])
    # The relay sends a change of the known cluster at once. C-core itself applies no change until each cluster of its
    # routes is known, or missing for 15 s; a relay has no influence on that.
    (_, before), = clusters()
    plane.put(resources.endpoints("other", second), resources.cluster("healthy", eds="other"))
    client.goes_on()
    eventually("the client has the change", lambda: [version for _, version in clusters()] != [before])
    assert "nobody" not in client.calls(), client.calls()
    assert not plane.nacks, plane.nacks


CASES = [
    Case("grpc a dead authority", {"grpc"}, dead_authority, relay_only=True),
]
