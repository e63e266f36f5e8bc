"""NACKs: a rejection by Envoy is reported, affects nothing else, and ends with the next good update."""

import resources
from harness import PORTS, Case, Envoy, eventually, get


def story(stage, variant):
    """Invalid routes, with valid endpoints."""
    plane = stage.upstream()
    red, blue = stage.backend("red"), stage.backend("blue")
    port = PORTS.take()
    plane.put(
        resources.cluster("backend"),
        resources.endpoints("backend", red),
        resources.listener("http", port, routes="main"),
        resources.routes("main", "backend"),
    )
    envoy = Envoy(stage, variant)

    def told():
        """Envoy's error text. The relay shows the text in /clients, and does not forward it upstream."""
        return "\n".join(plane.nacks) if stage.direct else get(stage.admin, "/clients?state=ERROR").body

    eventually("Envoy serves", lambda: get(port).body == "red")
    assert "no argument for repetition operator" not in told()
    bad = resources.routes("main", "backend")
    bad["virtual_hosts"][0]["routes"][0]["match"] = {"safe_regex": {"regex": "*"}}
    plane.put(bad, resources.endpoints("backend", blue))
    eventually("Envoy's words are told", lambda: "no argument for repetition operator" in told())
    eventually("what came beside is followed", lambda: get(port).body == "blue")

    plane.put(resources.routes("main", "backend"), resources.cluster("more"), resources.endpoints("more", red))
    plane.put(resources.routes("main", "more"))
    eventually("good routes are followed", lambda: get(port).body == "red")
    assert envoy.stats("rds.main.update_rejected") == {"http.main.rds.main.update_rejected": "1"}, "it is sent once"
    if not stage.direct:
        eventually("it is over", lambda: "repetition" not in told())
        assert not plane.nacks, plane.nacks


CASES = [
    Case("nack delta-ads", {"envoy"}, lambda stage: story(stage, "delta-ads")),
    Case("nack sotw-ads", {"envoy"}, lambda stage: story(stage, "sotw-ads")),
]
