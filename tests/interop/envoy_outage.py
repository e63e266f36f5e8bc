"""An outage of the control plane: Envoy continues to serve, and an Envoy that starts in the outage is served, too."""

import resources
from harness import PORTS, Case, Envoy, eventually, get


def story(stage, variant):
    """The relay has cached the resources of the first Envoy."""
    plane = stage.upstream()
    red, blue = stage.backend("red"), stage.backend("blue")
    port = PORTS.take()
    plane.put(
        resources.cluster("backend"),
        resources.endpoints("backend", red),
        resources.listener("http", port, routes="main"),
        resources.routes("main", "backend"),
    )
    first = Envoy(stage, variant, name="first")
    eventually("Envoy serves", lambda: get(port).body == "red")

    plane.stop()
    assert get(port).body == "red", "what Envoy has, it keeps"
    first.process.end()
    second = Envoy(stage, variant, name="second")
    eventually("an Envoy that starts during the outage serves", lambda: get(port).body == "red")

    plane.put(resources.endpoints("backend", blue))
    plane.start()
    eventually("the control plane is back with news", lambda: get(port).body == "blue")
    second.assert_content()
    assert not plane.nacks, plane.nacks


CASES = [
    Case("outage delta-ads", {"envoy"}, lambda stage: story(stage, "delta-ads"), relay_only=True),
    Case("outage sotw-ads", {"envoy"}, lambda stage: story(stage, "sotw-ads"), relay_only=True),
]
