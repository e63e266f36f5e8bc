"""LEDS: endpoints one by one, as members of an xdstp glob over delta."""

import resources
from harness import PORTS, Case, Envoy, eventually, get
from resources import LB_ENDPOINT

COLLECTION = "xdstp://interop.example/envoy.config.endpoint.v3.LbEndpoint/collected/here"


def story(stage, source):
    """A cluster of one locality, with changing members."""
    plane = stage.upstream()
    port = PORTS.take()
    leds = {"leds_config": source, "leds_collection_name": f"{COLLECTION}/*"}

    def member(name, color):
        endpoint = {"@type": LB_ENDPOINT, **resources.lb_endpoint(stage.backend(color))}
        plane.put(endpoint, name=f"{COLLECTION}/{name}")

    def served():
        return {get(port).body for _ in range(4)}

    member("a", "red")
    # Deeper than the glob (NAM-14).
    member("a/deeper", "black")
    plane.put(
        resources.cluster("collected"),
        resources.endpoints("collected", leds_cluster_locality_config=leds),
        resources.listener("http", port, routes="main"),
        resources.routes("main", "collected"),
    )
    envoy = Envoy(stage, "delta-ads")
    eventually("the only member serves", lambda: served() == {"red"})
    member("b", "blue")
    eventually("a second one serves beside it", lambda: served() == {"red", "blue"})
    member("b", "green")
    eventually("a changed member is followed", lambda: served() == {"red", "green"})
    plane.remove(LB_ENDPOINT, f"{COLLECTION}/a")
    eventually("a removed member serves no more", lambda: served() == {"green"})
    envoy.assert_content()
    assert not plane.nacks, plane.nacks


CASES = [
    Case("leds over ads", {"envoy"}, lambda stage: story(stage, resources.ADS)),
    Case("leds own stream", {"envoy"}, lambda stage: story(stage, resources.source("DELTA_GRPC"))),
]
