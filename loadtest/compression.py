#!/usr/bin/env python3
"""What compression between relays saves: 10,000 clusters of the kind that istiod writes, from a root to leaves.

    cargo build --profile dist --workspace --bins
    python3 loadtest/compression.py
    python3 loadtest/compression.py --clusters 1000 --leaves 2 --binaries target/debug

A root that compresses and one that does not, each with fresh leaves that fetch all clusters. Prints the bytes to each leaf and
the CPU of both tiers, and fails if compression does not make the bytes at least eight times fewer.
"""

import argparse
import json
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from figures import ROOT, Relay

MIB = 1 << 20
FACTOR = 8
CLUSTER = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
PORTS = (80, 443, 8080, 9090)


def cluster(number):
    """An outbound cluster of a sidecar in a mesh with mutual TLS."""
    port, host = PORTS[number % len(PORTS)], f"service-{number // 4}.team-{number % 97}.svc.cluster.local"
    tls = {
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        "common_tls_context": {
            "alpn_protocols": ["istio-peer-exchange", "istio"],
            "tls_certificate_sds_secret_configs": [{"name": "default", "sds_config": {"ads": {}, "resource_api_version": "V3"}}],
            "combined_validation_context": {
                "default_validation_context": {},
                "validation_context_sds_secret_config": {"name": "ROOTCA", "sds_config": {"ads": {}, "resource_api_version": "V3"}},
            },
        },
        "sni": f"outbound_.{port}_._.{host}",
    }
    matches = [
        {"name": "tlsMode-istio", "match": {"tlsMode": "istio"}, "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": tls}},
        {"name": "tlsMode-disabled", "match": {}, "transport_socket": {"name": "envoy.transport_sockets.raw_buffer"}},
    ]
    services = [{"host": host, "name": host.split(".")[0], "namespace": host.split(".")[1]}]
    return {
        "@type": CLUSTER,
        "name": f"outbound|{port}||{host}",
        "type": "EDS",
        "eds_cluster_config": {"eds_config": {"ads": {}, "resource_api_version": "V3"}, "service_name": f"outbound|{port}||{host}"},
        "connect_timeout": "10s",
        "circuit_breakers": {"thresholds": [{"max_connections": 4294967295, "max_requests": 4294967295, "track_remaining": True}]},
        "common_lb_config": {},
        "transport_socket_matches": matches,
        "metadata": {"filter_metadata": {"istio": {"services": services, "default_original_port": port}}},
    }


class Root(Relay):
    """A relay of a directory, whose clusters are the same for all."""

    def __init__(self, sluice, directory, compression):
        self.directory_of_files, self.compression = directory, compression
        super().__init__(sluice, 1)

    def command(self, sluice):
        text = self.config.read_text().splitlines()
        text[0] = f"xds_servers: [ {{ server_uri: 'file:{self.directory_of_files}' }} ]"
        listener = f':{self.port}"'
        self.config.write_text("\n".join(text).replace(listener, f"{listener}, compression: {self.compression}") + "\n")
        return super().command(sluice)


def fetched(leaf):
    """The clusters at a leaf, by REST: asks until the leaf knows them."""
    body = json.dumps({"node": {"id": "a-client", "cluster": "edge"}}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{leaf.port}/v3/discovery:clusters", body, {"content-type": "application/json"})
    for _ in range(60):
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return len(json.load(answer).get("resources", []))
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise
    raise SystemExit("a leaf does not know the clusters")


def run(options, sluice, directory, compression):
    """The bytes to each leaf, and the CPU seconds of the root and of all leaves for them."""
    with Root(sluice, directory, compression) as root:
        begun, leaves = root.cpu_s(), 0.0
        for _ in range(options.leaves):
            with Relay(sluice, root.port) as leaf:
                idle = leaf.cpu_s()
                count = fetched(leaf)
                if count != options.clusters:
                    raise SystemExit(f"a leaf has {count} of {options.clusters} clusters")
                leaves += leaf.cpu_s() - idle
        written = root.metric('sluice_downstream_response_bytes_total{type="Cluster"}')
        return written / options.leaves, root.cpu_s() - begun, leaves


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", type=int, default=10_000)
    parser.add_argument("--leaves", type=int, default=10)
    parser.add_argument("--binaries", type=Path, default=ROOT / "target/dist")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sluice-compression-") as directory:
        document = {"version_info": "1", "type_url": CLUSTER, "resources": [cluster(number) for number in range(options.clusters)]}
        Path(directory, "clusters.json").write_text(json.dumps(document))
        rows = {word: run(options, options.binaries / "sluice", directory, word) for word in ("off", "relays")}
    print("| compression | MiB to each leaf | CPU of the root, s | CPU of all leaves, s |\n|---|---|---|---|")
    for word, (written, root, leaves) in rows.items():
        print(f"| `{word}` | {written / MIB:.2f} | {root:.2f} | {leaves:.2f} |")
    factor = rows["off"][0] / rows["relays"][0]
    print(f"{factor:.1f} times fewer bytes for {options.clusters} clusters to each of {options.leaves} leaves")
    return 0 if factor >= FACTOR else 1


if __name__ == "__main__":
    sys.exit(main())
