"""An Envoy that reaches the relay through a cluster whose name is none that an `:authority` may have (ADR 64)."""

import json

import resources
from harness import PORTS, Case, Envoy, eventually, get

# Istio's names of clusters; Envoy sends the name as `:authority`, and Contour's have slashes.
NAMES = ("outbound|18000||relay.istio-system.svc.cluster.local", "projectcontour/relay/xds")


class Meshed(Envoy):
    """Its cluster for discovery has another name."""

    def __init__(self, stage, variant, cluster):
        self.cluster = cluster
        super().__init__(stage, variant)

    def bootstrap(self, variant, more):
        text = json.dumps(super().bootstrap(variant, more))
        return json.loads(text.replace('"xds"', json.dumps(self.cluster)))


def story(stage, cluster):
    plane = stage.upstream()
    red, blue = stage.backend("red"), stage.backend("blue")
    port = PORTS.take()
    plane.put(
        resources.cluster("backend"),
        resources.endpoints("backend", red),
        resources.listener("http", port, routes="main"),
        resources.routes("main", "backend"),
    )
    envoy = Meshed(stage, "delta-ads", cluster)
    eventually("Envoy serves", lambda: get(port).body == "red")
    plane.put(resources.endpoints("backend", blue))
    eventually("Envoy follows", lambda: get(port).body == "blue")
    envoy.assert_content()


def case(number, cluster):
    return Case(f"mesh {number}", {"envoy"}, lambda stage: story(stage, cluster), relay_only=True)


CASES = [case(number, name) for number, name in enumerate(NAMES, 1)]
