"""TTL: resources expire at Envoy after the last refresh, and no sooner."""

import time

import resources
from harness import Case, Envoy, eventually

TTL = 2.0


def story(stage, variant, outage):
    """A cluster and a runtime layer with a TTL, beside a cluster without one."""
    plane = stage.upstream()
    plane.heartbeat(TTL / 4)
    stage.callback(plane.heartbeat, None)
    plane.put(resources.cluster("immortal"), resources.endpoints("immortal", 1), resources.endpoints("mortal", 1))
    plane.put(resources.cluster("mortal"), resources.runtime("layer", **{"interop.mortal": "alive"}), ttl=TTL)
    layer = {"name": "layer", "rtds_layer": {"name": "layer", "rtds_config": resources.ADS}}
    # Without the feature a client must not get a TTL (TTL-1).
    features = ["xds.config.supports-resource-ttl", "xds.config.resource-in-sotw"]
    node = {"id": "envoy", "cluster": "interop", "client_features": features}
    envoy = Envoy(stage, variant, node=node, layered_runtime={"layers": [layer]})

    def alive():
        return ("mortal" in envoy.clusters(), "alive" in envoy.admin("/runtime"))

    eventually("Envoy has both", lambda: alive() == (True, True))
    end = time.monotonic() + 1.5 * TTL
    while time.monotonic() < end:
        assert alive() == (True, True), f"expired although it was refreshed: {alive()}"
        time.sleep(0.1)

    if outage:
        plane.stop()
    else:
        plane.heartbeat(None)
    start = time.monotonic()
    eventually("both expire", lambda: alive() == (False, False))
    took = time.monotonic() - start
    assert took < 3 * TTL, f"it took {took:.1f} s to expire"
    assert "immortal" in envoy.clusters()
    envoy.assert_content()
    assert not plane.nacks, plane.nacks


CASES = [
    Case("ttl delta-ads, no more heartbeats", {"envoy"}, lambda stage: story(stage, "delta-ads", outage=False)),
    Case("ttl sotw-ads, no more heartbeats", {"envoy"}, lambda stage: story(stage, "sotw-ads", outage=False)),
    Case("ttl delta-ads, outage", {"envoy"}, lambda stage: story(stage, "delta-ads", outage=True)),
]
