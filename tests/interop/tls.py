"""TLS of the relay's listeners, with clients that nobody here wrote."""

import base64
import json
import shutil
import socket
import ssl

import packages
import resources
from harness import PORTS, Case, Envoy, GrpcClient, Process, eventually, get, server_entry

PAIR = {"certificate_file": "certs/relay/tls.crt", "private_key_file": "certs/relay/tls.key"}
MUTUAL = {"certificates": [PAIR], "ca_certificate_file": "certs/ca.crt", "trust_domain": "dev.example"}
FILES = ("--ca", "certs/ca.crt", "--certificate", "certs/client/tls.crt", "--private-key", "certs/client/tls.key")


def mutual_relay(stage, more=()):
    """A relay over a control plane, with a listener that demands client certificates."""
    plane = stage.control_plane("the control plane")
    plane.start()
    stage.sluice_says("dev-certs", "certs", "--keep-authority")
    secure = PORTS.take()
    listeners = [{"name": "mesh", "address": f"127.0.0.1:{secure}", "tls": MUTUAL}, *more]
    stage.relay([server_entry(plane, "AGGREGATED_DELTA_GRPC")], listeners=listeners)
    return plane, secure


def handshakes(stage, result):
    """The relay's count of handshakes with this result."""
    lines = stage.metrics(f'sluice_tls_handshakes_total{{result="{result}"}}')
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def serving(plane, stage, name):
    """Resources with which an Envoy answers `name`; the port."""
    port = PORTS.take()
    plane.put(
        resources.cluster(name),
        resources.endpoints(name, stage.backend(name)),
        resources.listener("http", port, routes="main"),
        resources.routes("main", name),
    )
    return port


def envoy_with_files(stage, version):
    """An Envoy with its certificate in files; TLS 1.2 is the default of Envoy, 1.3 that of our bootstrap."""
    plane, _ = mutual_relay(stage)
    port = serving(plane, stage, "blue")
    admin = PORTS.take()
    text = stage.sluice_says("bootstrap", "envoy", "--config", "sluice.json", *FILES, "--admin-port", str(admin))
    if version == "1.2":
        kept = [line for line in text.splitlines() if "tls_params" not in line and "alpn_protocols" not in line]
        text = "\n".join(kept)
    (stage.directory / "envoy.yaml").write_text(text)
    command = [packages.envoy_binary(), "-c", "envoy.yaml", "--concurrency", "1", "--disable-hot-restart"]
    Process(stage, "envoy", command)
    eventually("Envoy serves", lambda: "blue" in get(port).body)
    stats = get(admin, "/stats?filter=cluster.sluice.ssl").body
    assert f"ssl.versions.TLSv{version}: 1" in stats, stats
    assert "ssl.session_reused: 0" in stats, stats

    assert '"identity":"spiffe://dev.example/ns/default/sa/client"' in stage.admin_says("/clients")

    # A change of the listener's own pair cuts nobody.
    before = get(admin, "/stats?filter=cluster.sluice.upstream_cx_destroy").body
    stage.sluice_says("dev-certs", "certs", "--keep-authority")
    eventually("the relay reloads", lambda: "reloaded the certificate files" in (stage.directory / "sluice.log").read_text())
    plane.put(resources.cluster("red"), resources.endpoints("red", stage.backend("red")))
    plane.put(resources.routes("main", "red"))
    eventually("Envoy follows", lambda: "red" in get(port).body)
    assert get(admin, "/stats?filter=cluster.sluice.upstream_cx_destroy").body == before


def envoy_by_sds(stage):
    """An Envoy gets certificate and authorities from the relay itself, over a plaintext listener beside. Both are
    replaced while it serves: its connection ends, as nobody trusts the old certificate, and it returns with the new."""
    plain = PORTS.take()
    plane, secure = mutual_relay(stage, [{"name": "bootstrap", "address": f"127.0.0.1:{plain}"}])
    port = serving(plane, stage, "blue")

    def secrets():
        read = lambda name: (stage.directory / "certs" / name).read_text()
        pair = {
            "certificate_chain": {"inline_string": read("client/tls.crt")},
            "private_key": {"inline_string": read("client/tls.key")},
        }
        trusted = {"trusted_ca": {"inline_string": read("ca.crt")}}
        return (
            {"@type": resources.SECRET, "name": "client", "tls_certificate": pair},
            {"@type": resources.SECRET, "name": "authorities", "validation_context": trusted},
        )

    plane.put(*secrets())
    stage.xds = stage.rest = plain
    sds = {
        "api_config_source": {
            "api_type": "DELTA_GRPC",
            "transport_api_version": "V3",
            "grpc_services": [{"envoy_grpc": {"cluster_name": "sds"}}],
        },
        "resource_api_version": "V3",
    }
    context = {
        "@type": resources.PREFIX + "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        "common_tls_context": {
            "tls_certificate_sds_secret_configs": [{"name": "client", "sds_config": sds}],
            "validation_context_sds_secret_config": {"name": "authorities", "sds_config": sds},
        },
    }
    http2 = {"explicit_http_config": {"http2_protocol_options": {}}}
    options = {resources.HTTP_OPTIONS: {"@type": resources.PREFIX + resources.HTTP_OPTIONS, **http2}}

    def cluster(name, port, **more):
        made = resources.static_cluster(name, port, typed_extension_protocol_options=options, **more)
        return {key: value for key, value in made.items() if key != "@type"}

    socket_of_tls = {"name": "tls", "typed_config": context}
    clusters = [cluster("sds", plain), cluster("xds", secure, transport_socket=socket_of_tls)]
    envoy = Envoy(stage, "delta-ads", static_resources={"clusters": clusters})
    eventually("Envoy serves", lambda: "blue" in get(port).body)
    assert handshakes(stage, "ok") == 1

    stage.sluice_says("dev-certs", "certs")
    plane.put(*secrets())
    eventually("Envoy returns with the new certificate", lambda: handshakes(stage, "ok") >= 2)
    plane.put(resources.cluster("red"), resources.endpoints("red", stage.backend("red")))
    plane.put(resources.routes("main", "red"))
    eventually("Envoy follows", lambda: "red" in get(port).body)
    refused = stage.metrics('sluice_downstream_goaways_total{reason="certificate_refused"}')
    assert refused[0].endswith(" 1"), refused
    envoy.assert_content()


def quickstart_with_tls(stage):
    """The five commands of the README, with other ports."""
    shutil.copytree(packages.ROOT / "config", stage.directory / "config", ignore=shutil.ignore_patterns("certs"))
    ports = {old: PORTS.take() for old in ("18001", "19000", "10000")}
    for file in [stage.directory / "config/tls.yaml", *(stage.directory / "config/quickstart").iterdir()]:
        text = file.read_text()
        for old, new in ports.items():
            text = text.replace(old, str(new))
        file.write_text(text)
    assert "trying out only" in stage.sluice_says("dev-certs", "config/certs")
    Process(stage, "sluice", [stage.sluice, "serve", "--config", "config/tls.yaml"])
    eventually("the relay is ready", lambda: get(ports["19000"], "/ready"))
    files = [f"config/{file}" if "/" in file else file for file in FILES]
    admin = str(PORTS.take())
    flags = ("--config", "config/tls.yaml", *files, "--admin-port", admin)
    (stage.directory / "envoy.yaml").write_text(stage.sluice_says("bootstrap", "envoy", *flags))
    command = [packages.envoy_binary(), "-c", "envoy.yaml", "--concurrency", "1", "--disable-hot-restart"]
    Process(stage, "envoy", command)
    eventually("Envoy answers", lambda: "Hello from sluice" in get(ports["10000"]).body)


def grpc_client(stage):
    """C-core with the `tls` credentials of A65."""
    plane, _ = mutual_relay(stage)
    first, second = stage.grpc_backend(), stage.grpc_backend()
    plane.put(
        resources.cluster("one"),
        resources.endpoints("one", first),
        resources.api_listener("greeter", "main"),
        resources.routes("main", "one"),
    )
    bootstrap = stage.sluice_says("bootstrap", "grpc", "--config", "sluice.json", *FILES)
    assert json.loads(bootstrap)["xds_servers"][0]["channel_creds"][0]["type"] == "tls"
    client = GrpcClient(stage, "greeter", bootstrap=bootstrap)
    client.reaches(first)
    plane.put(resources.endpoints("one", second))
    client.reaches(second)
    assert handshakes(stage, "ok") > 0


def grpc_js(stage):
    """Node's TLS: an ADS stream over mutual TLS, with an update on it."""
    # Present once the packages are installed.
    from envoy.service.discovery.v3 import discovery_pb2

    plane, secure = mutual_relay(stage)
    plane.put(resources.cluster("one"))
    certs = stage.directory / "certs"
    files = [certs / "ca.crt", certs / "client/tls.key", certs / "client/tls.crt"]
    command = ["node", packages.HERE / "grpc_peer.js", "ads", f"localhost:{secure}", *files]
    environment = {"NODE_PATH": str(packages.NODE / "node_modules")}
    child = Process(stage, "node", command, environment, **GrpcClient.PIPES).child
    request = discovery_pb2.DiscoveryRequest(type_url=resources.CLUSTER)
    request.node.id = "node-js"

    def exchange():
        """Sends the request, and returns the names in the next response."""
        child.stdin.write(base64.b64encode(request.SerializeToString()).decode() + "\n")
        child.stdin.flush()
        response = discovery_pb2.DiscoveryResponse.FromString(base64.b64decode(child.stdout.readline()))
        request.version_info, request.response_nonce = response.version_info, response.nonce
        return len(response.resources)

    assert exchange() == 1
    plane.put(resources.cluster("two"))
    assert exchange() == 2
    assert "node-js" in stage.admin_says("/clients")
    assert handshakes(stage, "ok") == 1


def openssl(stage):
    """OpenSSL, by Python: versions, sessions, ALPN, alerts, REST."""
    _, secure = mutual_relay(stage)
    certs = stage.directory / "certs"

    def context(client=True, version=None):
        made = ssl.create_default_context(cafile=certs / "ca.crt")
        made.set_alpn_protocols(["http/1.1"])
        if client:
            made.load_cert_chain(certs / "client/tls.crt", certs / "client/tls.key")
        if version:
            made.minimum_version = made.maximum_version = version
        return made

    def talk(made, session=None):
        """The TLS version, whether the session was reused, and the answer to a request."""
        with socket.create_connection(("127.0.0.1", secure), timeout=10) as plain:
            with made.wrap_socket(plain, server_hostname="localhost", session=session) as tls:
                tls.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                answer = b""
                while chunk := tls.recv(4096):
                    answer += chunk
                return tls.version(), tls.session_reused, tls.session, answer.decode()

    for version, name in ((ssl.TLSVersion.TLSv1_2, "TLSv1.2"), (ssl.TLSVersion.TLSv1_3, "TLSv1.3")):
        made = context(version=version)
        spoken, _, session, answer = talk(made)
        assert spoken == name and answer.startswith("HTTP/1.1 "), (spoken, answer)
        assert not talk(made, session)[1], "no session is resumed"
    for version in (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2):
        try:
            talk(context(client=False, version=version))
            raise AssertionError("a client without a certificate was served")
        except ssl.SSLError as error:
            assert "CERTIFICATE_REQUIRED" in str(error) or "HANDSHAKE_FAILURE" in str(error), error
    eventually("they are counted", lambda: handshakes(stage, "no_certificate") == 2)
    assert get(secure).status == 400, "plaintext is answered in words"


CASES = [
    Case("tls quickstart", {"envoy"}, quickstart_with_tls, relay_only=True),
    Case("tls envoy 1.3", {"envoy"}, lambda stage: envoy_with_files(stage, "1.3"), relay_only=True),
    Case("tls envoy 1.2", {"envoy"}, lambda stage: envoy_with_files(stage, "1.2"), relay_only=True),
    Case("tls envoy sds", {"envoy"}, envoy_by_sds, relay_only=True),
    Case("tls grpc C-core", {"grpc"}, grpc_client, relay_only=True),
    Case("tls grpc Node.js", {"node", "grpc"}, grpc_js, relay_only=True),
    Case("tls openssl", set(), openssl, relay_only=True),
]
