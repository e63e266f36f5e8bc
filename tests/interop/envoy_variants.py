"""Envoy in every variant: it warms up, serves, follows updates and removals, from a control plane and from files."""

import resources
from harness import PORTS, Case, Envoy, eventually, get
from resources import CLUSTER, ENDPOINTS, LISTENER


def story(stage, variant, upstream):
    """Listener, routes, cluster and endpoints; then each changes, and unused resources are removed."""
    plane = stage.upstream(upstream)
    source = Envoy.SOURCES[variant]
    red, green, blue = (stage.backend(name) for name in ("red", "green", "blue"))
    port, second = PORTS.take(), PORTS.take()
    plane.put(
        resources.cluster("first", source),
        resources.endpoints("first", red),
        resources.listener("http", port, source, routes="main"),
        resources.routes("main", "first"),
    )
    envoy = Envoy(stage, variant)

    def says(text, at=port):
        answer = get(at)
        return answer and answer.body == text

    eventually("Envoy serves what it was given", lambda: says("red"))

    plane.put(resources.endpoints("first", green))
    eventually("it follows changed endpoints", lambda: says("green"))

    # Make before break: the new routes come with all their resources.
    plane.put(
        resources.cluster("second", source),
        resources.endpoints("second", blue),
        resources.routes("main", "second"),
    )
    eventually("it follows routes to a new cluster", lambda: says("blue"))

    plane.remove(CLUSTER, "first")
    plane.remove(ENDPOINTS, "first")
    eventually("it drops a cluster", lambda: "first" not in envoy.clusters())
    assert says("blue"), "what serves is not hurt"

    # A removed name returns with other content.
    plane.put(resources.cluster("first", source), resources.endpoints("first", red))
    plane.put(resources.routes("main", "first"))
    eventually("it follows a cluster that is back", lambda: says("red"))

    plane.put(resources.listener("more", second, source, routes="main"))
    eventually("it opens a second listener", lambda: says("red", second))
    plane.remove(LISTENER, "http")
    eventually("it closes the first listener", lambda: get(port).status == 0)
    assert says("red", second), "the other listener is not hurt"

    envoy.assert_content()
    assert not plane.nacks, plane.nacks


def case(variant, upstream):
    def play(stage):
        story(stage, variant, upstream)

    return Case(f"envoy {variant} from {upstream}", {"envoy"}, play, relay_only=upstream != DEFAULT)


# Every variant downstream of the relay, from a control plane and from files; then every kind of control plane.
DEFAULT = "AGGREGATED_DELTA_GRPC"
CASES = [case(variant, upstream) for upstream in (DEFAULT, "files") for variant in Envoy.SOURCES]
CASES += [case("delta-ads", upstream) for upstream in ("AGGREGATED_GRPC", "GRPC", "DELTA_GRPC", "REST")]
