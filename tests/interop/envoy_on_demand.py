"""On demand: a request waits at Envoy for a virtual host (VHDS) or a cluster (ODCDS), or learns its absence."""

import resources
from harness import PORTS, Case, Envoy, eventually, get
from resources import CLUSTER, VIRTUAL_HOST

# Shorter than Envoy's own timeout, so that a faster answer came from the server.
PROMPT = 4.0


def virtual_hosts(stage, source):
    """VHDS: names are <route configuration>/<host>, and the answer has an alias."""
    plane = stage.upstream()
    red, blue = stage.backend("red"), stage.backend("blue")
    port = PORTS.take()

    def lazy(name, cluster):
        # Envoy matches removals by the virtual host's own name, so the resource has the same name.
        host = resources.virtual_host(f"main/{name}", [f"{name}.example"], {"cluster": cluster})
        plane.put({"@type": VIRTUAL_HOST, **host}, on_demand=True, aliases=[f"main/{name}.example"])

    plane.put(
        *(resources.cluster(name) for name in ("red", "blue")),
        resources.endpoints("red", red),
        resources.endpoints("blue", blue),
        resources.listener("http", port, routes="main", on_demand={}),
        {"@type": resources.ROUTES, "name": "main", "vhds": {"config_source": source}},
    )
    # This host belongs to the route configuration without a request.
    known = resources.virtual_host("main/known", ["known.example"], {"cluster": "red"})
    plane.put({"@type": VIRTUAL_HOST, **known})
    lazy("lazy", "red")
    envoy = Envoy(stage, "delta-ads")
    eventually("a virtual host that nobody asked for", lambda: get(port, host="known.example"))

    def asked(host):
        """A request that must not be sent twice."""
        answer = get(port, host=host)
        assert answer.seconds < PROMPT, f"{host} had to wait: {answer}"
        return answer

    answer = asked("lazy.example")
    assert answer and answer.body == "red", f"the first request is answered: {answer}"
    assert asked("nobody.example").status == 404, "the relay says that there is none"
    assert asked("lazy.example"), "what was found stays"

    lazy("lazy", "blue")
    eventually("an update is followed", lambda: get(port, host="lazy.example").body == "blue")
    lazy("nobody", "red")
    eventually("what was not there comes", lambda: get(port, host="nobody.example").body == "red")
    plane.remove(VIRTUAL_HOST, "main/lazy")
    eventually("a removal is followed", lambda: "lazy.example" not in envoy.routes())
    assert asked("known.example") and asked("nobody.example"), "the others stay"
    # Envoy requests a name only once, and then waits for an update.
    lazy("lazy", "red")
    eventually("what was removed comes back", lambda: get(port, host="lazy.example").body == "red")
    envoy.assert_content()
    assert not plane.nacks, plane.nacks


def clusters(stage, source):
    """ODCDS: the request's header names a cluster, asked for by name beside the wildcard of CDS."""
    plane = stage.upstream()
    red, blue = stage.backend("red"), stage.backend("blue")
    port = PORTS.take()
    host = resources.virtual_host("all", ["*"], {"cluster_header": "x-cluster"})
    plane.put(
        resources.cluster("member"),
        resources.endpoints("member", red),
        resources.listener("http", port, routes="main", on_demand={"odcds": {"source": source, "timeout": "15s"}}),
        {"@type": resources.ROUTES, "name": "main", "virtual_hosts": [host]},
    )
    plane.put(resources.cluster("lazy"), resources.endpoints("lazy", red), on_demand=True)
    envoy = Envoy(stage, "delta-ads")
    eventually("Envoy serves", lambda: get(port, x_cluster="member"))
    assert "lazy" not in envoy.clusters()

    def asked(cluster):
        """A request that must not be sent twice."""
        answer = get(port, x_cluster=cluster, timeout=20)
        assert answer.seconds < PROMPT, f"{cluster} had to wait: {answer}"
        return answer

    answer = asked("lazy")
    assert answer and answer.body == "red", f"the first request is answered: {answer}"
    assert asked("nobody").status == 503, "the relay says that there is none"
    assert asked("member"), "members of the wildcard stay"

    plane.put(resources.endpoints("lazy", blue), on_demand=True)
    eventually("its endpoints are followed", lambda: get(port, x_cluster="lazy").body == "blue")
    plane.put(resources.cluster("nobody"), resources.endpoints("nobody", red), on_demand=True)
    eventually("what was not there comes", lambda: get(port, x_cluster="nobody").body == "red")
    plane.remove(CLUSTER, "lazy")
    eventually("Envoy drops it", lambda: "lazy" not in envoy.clusters())
    assert asked("member") and asked("nobody"), "the others stay"
    # Envoy requests a name only once, and then waits for an update.
    plane.put(resources.cluster("lazy"), on_demand=True)
    eventually("what was removed comes back", lambda: get(port, x_cluster="lazy"))
    envoy.assert_content()
    assert not plane.nacks, plane.nacks


def case(name, story, source):
    return Case(name, {"envoy"}, lambda stage: story(stage, source))


OWN = resources.source("DELTA_GRPC")
CASES = [
    case("vhds over ads", virtual_hosts, resources.ADS),
    case("vhds own stream", virtual_hosts, OWN),
    case("odcds over ads", clusters, resources.ADS),
    case("odcds own stream", clusters, OWN),
]
