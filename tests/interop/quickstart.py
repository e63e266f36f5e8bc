"""The steps of the README: a copy of the quickstart, `sluice bootstrap`, then Envoy or gRPC."""

import shutil

import packages
from harness import PORTS, Case, GrpcClient, Process, eventually, get


class Quickstart:
    """A copy of config/ with other ports, and a relay with this configuration, started without arguments."""

    def __init__(self, stage):
        self.directory = stage.directory
        shutil.copytree(packages.ROOT / "config", self.directory / "config")
        names = ("xds", "admin", "http", "backend", "canary")
        self.xds, self.admin, self.http, self.backend, self.canary = fresh = [PORTS.take() for _ in names]
        ports = dict(zip(("18000", "19000", "10000", "50051", "50052"), fresh, strict=True))
        for file in [self.directory / "config" / "sluice.yaml", *self.files().iterdir()]:
            text = file.read_text()
            for old, new in ports.items():
                text = text.replace(old, str(new))
            file.write_text(text)
        self.relay = Process(stage, "sluice", [stage.sluice, "serve"])
        eventually("the relay is ready", lambda: get(self.admin, "/ready"))

    def files(self):
        return self.directory / "config" / "quickstart"

    def edit(self, name, old, new, rename):
        """Replaces text in a file: by a rename over it, or in place."""
        path = self.files() / name
        text = path.read_text()
        assert old in text, f"{name} has no {old!r}; the quickstart changed"
        if rename:
            fresh = path.with_name(f".{name}.new")
            fresh.write_text(text.replace(old, new))
            fresh.replace(path)
        else:
            path.write_text(text.replace(old, new))


FRESH_CLUSTER = """
  - "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
    name: fresh
    type: EDS
    eds_cluster_config:
      eds_config: { resource_api_version: V3, ads: {} }
    connect_timeout: 1s
"""

FRESH_ENDPOINTS = """
  - "@type": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment
    cluster_name: fresh
    endpoints:
      - locality: { region: here }
        load_balancing_weight: 1
        lb_endpoints:
          - endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: PORT } } }
"""


def envoy_follows(stage, variant):
    """Envoy serves with configuration from the relay, and follows changes of the files."""
    quickstart = Quickstart(stage)
    envoy_admin = PORTS.take()
    flags = ["--sotw"] if variant == "sotw" else []
    text = stage.sluice_says("bootstrap", "envoy", "--admin-port", str(envoy_admin), *flags)
    assert ("api_type: GRPC" if flags else "api_type: DELTA_GRPC") in text, text
    (quickstart.directory / "envoy.yaml").write_text(text)
    command = [packages.envoy_binary(), "-c", "envoy.yaml", "--concurrency", "1", "--disable-hot-restart"]
    stage.witness("Envoy's clusters", lambda: get(envoy_admin, "/clusters").body)
    Process(stage, "envoy", command)

    def says(text, path="/", host=None):
        answer = get(quickstart.http, path, host=host)
        return answer and text in answer.body

    eventually("Envoy answers by itself", lambda: says("Hello from sluice"))
    eventually("a route to a cluster", lambda: says("ok", "/healthz", "relay.example"))

    quickstart.edit("routes.yaml", "Hello from sluice", "Saved in place, says sluice", rename=False)
    eventually("Envoy follows a save in place", lambda: says("Saved in place"))
    quickstart.edit("routes.yaml", "Saved in place", "Renamed over", rename=True)
    eventually("Envoy follows a rename", lambda: says("Renamed over"))

    # A cluster, its endpoints and a route to it: make before break.
    for name, text in [("clusters.yaml", FRESH_CLUSTER), ("endpoints.yaml", FRESH_ENDPOINTS)]:
        path = quickstart.files() / name
        path.write_text(path.read_text().rstrip() + "\n" + text.replace("PORT", str(quickstart.admin)))
    route = '- match: { prefix: "/healthz" }\n            route: { cluster: relay-admin, host_rewrite_literal: localhost }'
    fresh = route.replace('"/healthz"', '"/ready"').replace("relay-admin", "fresh")
    quickstart.edit("routes.yaml", route, f"{fresh}\n          {route}", rename=True)
    eventually("a new cluster warms", lambda: says("", "/ready", "relay.example"))

    def stats(name):
        return get(envoy_admin, f"/stats?filter={name}").body

    # A changed cluster warms again only after its endpoints are sent again (ORD-5).
    quickstart.edit("clusters.yaml", "name: fresh", "name: fresh\n    alt_stat_name: again", rename=True)
    eventually("the changed cluster is used", lambda: "cluster.again.membership_healthy: 1" in stats("again"))
    assert says("", "/ready", "relay.example")
    assert "warming_clusters: 0" in stats("warming_clusters"), stats("warming_clusters")

    rejected = [line for line in stats("update_rejected").splitlines() if not line.endswith(": 0")]
    assert not rejected, rejected
    assert "control_plane.connected_state: 1" in stats("connected_state")

    # The relay exits; Envoy keeps its configuration.
    quickstart.relay.child.terminate()
    assert quickstart.relay.child.wait(90) == 0, "the relay drains with exit code 0"
    assert says("Renamed over")


def grpc_follows(stage):
    """A proxyless gRPC client finds its backend through the relay, and follows a change to another backend."""
    quickstart = Quickstart(stage)
    for port in (quickstart.backend, quickstart.canary):
        Process(stage, f"backend-{port}", [packages.PYTHON, packages.HERE / "grpc_peer.py", "serve", port])
    client = GrpcClient(stage, "quickstart", bootstrap=stage.sluice_says("bootstrap", "grpc"))
    client.reaches(quickstart.backend)
    # Both clusters' endpoints change places.
    text = (quickstart.files() / "endpoints.yaml").read_text()
    first, second = str(quickstart.backend), str(quickstart.canary)
    swapped = text.replace(first, "PORT").replace(second, first).replace("PORT", second)
    quickstart.edit("endpoints.yaml", text, swapped, rename=True)
    client.reaches(quickstart.canary)


CASES = [
    Case("quickstart envoy delta", {"envoy"}, lambda stage: envoy_follows(stage, "delta"), relay_only=True),
    Case("quickstart envoy sotw", {"envoy"}, lambda stage: envoy_follows(stage, "sotw"), relay_only=True),
    Case("quickstart grpc C-core", {"grpc"}, grpc_follows, relay_only=True),
]
