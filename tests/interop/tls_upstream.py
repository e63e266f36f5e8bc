"""TLS of the relay towards servers that nobody here wrote: C-core's own server, and Envoy's TLS listener."""

import base64
import json
import ssl
import time

import grpc
import packages
import resources
from harness import PORTS, Case, GrpcClient, Process, eventually, get, server_entry

CA = {"ca_certificate_file": "certs/ca.crt"}
OURS = {"certificate_file": "certs/client/tls.crt", "private_key_file": "certs/client/tls.key"}
SPIFFE = {"prefix": "spiffe://dev.example/"}


def secure_plane(stage, mutual):
    """A control plane of grpcio with TLS; `mutual`: it wants a certificate of the same authority."""
    stage.sluice_says("dev-certs", "certs")
    certs = stage.directory / "certs"
    pair = [((certs / "relay/tls.key").read_bytes(), (certs / "relay/tls.crt").read_bytes())]
    root = (certs / "ca.crt").read_bytes() if mutual else None
    plane = stage.control_plane("the control plane")
    plane.credentials = grpc.ssl_server_credentials(pair, root, require_client_auth=mutual)
    plane.start()
    return plane


def entry(plane, config, **more):
    """The control plane with TLS in the relay's list of servers."""
    server = server_entry(plane, "AGGREGATED_DELTA_GRPC")
    return server | {"channel_creds": [{"type": "tls", "config": config}], **more}


def follows(stage, plane):
    """A client reaches its backends through the relay, and follows a change."""
    first, second = stage.grpc_backend(), stage.grpc_backend()
    plane.put(
        resources.cluster("one"),
        resources.endpoints("one", first),
        resources.api_listener("greeter", "main"),
        resources.routes("main", "one"),
    )
    client = GrpcClient(stage, "greeter")
    client.reaches(first)
    plane.put(resources.endpoints("one", second))
    client.reaches(second)


def failures(stage):
    """The TLS failures towards control planes, by reason. Each reason exists at 0 from the start."""
    return [line for line in stage.metrics("sluice_upstream_tls_failures_total") if not line.endswith(" 0")]


def grpcio(stage, mutual):
    plane = secure_plane(stage, mutual)
    stage.xds = stage.relay([entry(plane, CA | (OURS if mutual else {}), tls={"match_sans": [{"spiffe": SPIFFE}]})])
    follows(stage, plane)
    assert not failures(stage)


def rest(stage):
    """A server of Python's own http and ssl wants the relay's certificate; REST by https."""
    stage.sluice_says("dev-certs", "certs")
    plane = stage.control_plane("the control plane")
    certs = stage.directory / "certs"
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certs / "ca.crt")
    context.load_cert_chain(certs / "relay/tls.crt", certs / "relay/tls.key")
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["http/1.1"])
    plane.rest_context = context
    plane.start()
    server = server_entry(plane, "REST") | {"server_uri": f"https://localhost:{plane.rest_port}"}
    server["channel_creds"] = [{"type": "tls", "config": CA | OURS}]
    stage.xds = stage.relay([server])
    follows(stage, plane)
    assert plane.calls


def token():
    """A token that is valid for an hour; nobody checks its signature."""
    def part(content):
        return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")

    return ".".join([part({"alg": "none"}), part({"exp": int(time.time()) + 3600}), "c2ln"])


def token_over_tls(stage):
    """The relay's token and header reach grpcio over TLS."""
    plane = secure_plane(stage, mutual=False)
    text = token()
    (stage.directory / "token").write_text(text)
    creds = [{"type": "jwt_token_file", "config": {"jwt_token_file": "token"}}]
    metadata = [{"key": "x-consul-token", "value": "canary"}]
    stage.xds = stage.relay([entry(plane, CA, call_creds=creds, initial_metadata=metadata)])
    follows(stage, plane)
    seen = plane.metadata[-1]
    assert seen["authorization"] == f"Bearer {text}", seen
    assert seen["x-consul-token"] == "canary", seen
    shown = get(stage.admin, "/sources").body + (stage.directory / "sluice.log").read_text()
    assert "canary" not in shown and text not in shown


def refused(stage):
    """grpcio refuses a relay without a certificate, and sends no alert; the relay tells the likely reason."""
    plane = secure_plane(stage, mutual=True)
    stage.xds = stage.relay([entry(plane, CA)])
    # A client that asks for something, so that the relay connects.
    asks = GrpcClient(stage, "greeter").process.child.stdin
    asks.write("nobody\n")
    asks.flush()

    def is_told():
        return "it may want a certificate of ours" in get(stage.admin, "/sources").body

    eventually("the relay tells why", is_told)
    assert failures(stage)


def through_envoy(stage):
    """Envoy's TLS listener wants the relay's certificate, and passes the bytes on to a plaintext control plane."""
    stage.sluice_says("dev-certs", "certs")
    plane = stage.control_plane("the control plane")
    plane.start()
    port = PORTS.take()
    certs = stage.directory / "certs"
    pair = {
        "certificate_chain": {"filename": str(certs / "relay/tls.crt")},
        "private_key": {"filename": str(certs / "relay/tls.key")},
    }
    context = {
        "tls_certificates": [pair],
        "validation_context": {"trusted_ca": {"filename": str(certs / "ca.crt")}},
        "alpn_protocols": ["h2"],
    }
    tls = {"@type": resources.DOWNSTREAM_TLS, "require_client_certificate": True, "common_tls_context": context}
    proxy = {
        "@type": resources.PREFIX + "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
        "stat_prefix": "xds",
        "cluster": "xds",
    }
    chain = {
        "filters": [{"name": "tcp", "typed_config": proxy}],
        "transport_socket": {"name": "tls", "typed_config": tls},
    }
    cluster = resources.static_cluster("xds", plane.port)
    del cluster["@type"]
    listener = {"name": "tls", "address": resources.address(port), "filter_chains": [chain]}
    config = {"static_resources": {"listeners": [listener], "clusters": [cluster]}}
    (stage.directory / "front.json").write_text(json.dumps(config))
    command = [packages.envoy_binary(), "-c", "front.json", "--concurrency", "1", "--disable-hot-restart"]
    Process(stage, "front", command)
    server = entry(plane, CA | OURS) | {"server_uri": f"localhost:{port}"}
    stage.xds = stage.relay([server])
    follows(stage, plane)


CASES = [
    Case("upstream grpcio TLS", {"grpc"}, lambda stage: grpcio(stage, mutual=False), relay_only=True),
    Case("upstream grpcio mTLS", {"grpc"}, lambda stage: grpcio(stage, mutual=True), relay_only=True),
    Case("upstream Python REST mTLS", {"grpc"}, rest, relay_only=True),
    Case("upstream grpcio token", {"grpc"}, token_over_tls, relay_only=True),
    Case("upstream grpcio refuses", {"grpc"}, refused, relay_only=True),
    Case("upstream Envoy mTLS", {"grpc", "envoy"}, through_envoy, relay_only=True),
]
