"""The types that the other cases don't need: scoped routes (SRDS), extensions (ECDS) and runtime (RTDS)."""

import resources
from harness import PORTS, Case, Envoy, eventually, get
from resources import SCOPED_ROUTES


def story(stage, variant, source):
    """All three come from `source`; each changes, and a scope is removed."""
    plane = stage.upstream()
    port = PORTS.take()
    for color in ("red", "blue"):
        plane.put(
            resources.cluster(color),
            resources.endpoints(color, stage.backend(color)),
            resources.routes(color, color),
            resources.scope(color, color),
        )
    plane.put(
        resources.listener("http", port, manage=resources.scoped_manager(source)),
        resources.fault("fault", 418),
        resources.runtime("layer", **{"interop.value": "first"}),
    )
    layer = {"name": "layer", "rtds_layer": {"name": "layer", "rtds_config": source}}
    envoy = Envoy(stage, variant, layered_runtime={"layers": [layer]})

    eventually("a scope is served", lambda: get(port, x_scope="red").body == "red")
    eventually("another scope is served", lambda: get(port, x_scope="blue").body == "blue")
    eventually("the extension acts", lambda: get(port, x_scope="red", x_fault="yes").status == 418)
    eventually("runtime has a value", lambda: "first" in envoy.admin("/runtime"))

    plane.put(resources.fault("fault", 429))
    eventually("a changed extension is followed", lambda: get(port, x_scope="red", x_fault="yes").status == 429)
    plane.put(resources.runtime("layer", **{"interop.value": "second"}))
    eventually("changed runtime is followed", lambda: "second" in envoy.admin("/runtime"))
    plane.put(resources.scope("green", "blue"))
    eventually("a new scope is followed", lambda: get(port, x_scope="green").body == "blue")
    plane.remove(SCOPED_ROUTES, "red")
    eventually("a scope goes", lambda: get(port, x_scope="red").status == 404)
    assert get(port, x_scope="blue"), "the other scope stays"
    envoy.assert_content()
    assert not plane.nacks, plane.nacks


def case(name, variant, source):
    return Case(f"types {name}", {"envoy"}, lambda stage: story(stage, variant, source))


CASES = [case(variant, variant, resources.ADS) for variant in Envoy.ADS]
CASES += [case(f"own {api}", "delta-ads", resources.source(api)) for api in ("GRPC", "DELTA_GRPC", "REST")]
