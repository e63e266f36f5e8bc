"""Client status: the gRPC project's own stubs ask the relay, as grpcdebug does."""

import json
import queue
import urllib.error
import urllib.request

import grpc
from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2
from envoy.service.status.v3 import csds_pb2, csds_pb2_grpc
from envoy.type.matcher.v3 import node_pb2, string_pb2

from harness import Case, eventually
from quickstart import Quickstart

CANARY = "CANARY-of-interop"

# envoy.admin.v3.ClientResourceStatus, and envoy.service.status.v3.ConfigStatus.
ACKED, SYNCED = 3, 1

SECRET = """
version_info: "1"
resources:
  - "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret
    name: hidden
    generic_secret: { secret: { inline_string: CANARY } }
"""

CLUSTER = """
  - "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
    name: with-key
    connect_timeout: 1s
    transport_socket:
      name: tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        common_tls_context: { tls_certificates: [{ private_key: { inline_string: CANARY } }] }
"""


def message(node_id=None):
    request = csds_pb2.ClientStatusRequest()
    if node_id is not None:
        request.node_matchers.append(node_pb2.NodeMatcher(node_id=string_pb2.StringMatcher(**node_id)))
    return request


class Reader:
    """A client of the state of the world, which asks for types one after the other and accepts everything."""

    def __init__(self, port):
        self.requests = queue.SimpleQueue()
        channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        stub = ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel)
        self.answers = stub.StreamAggregatedResources(iter(self.requests.get, None))

    def reads(self, kind, *names):
        type_url = f"type.googleapis.com/{kind}"
        request = discovery_pb2.DiscoveryRequest(type_url=type_url, resource_names=names)
        request.node.id = "reader"
        self.requests.put(request)
        answer = next(self.answers)
        request.version_info, request.response_nonce = answer.version_info, answer.nonce
        self.requests.put(request)
        return answer


def rows(config):
    return {row.name: row for row in config.generic_xds_configs}


def grpc_asks(stage):
    """One client for the one source, as grpcdebug demands, and the streams of clients; secrets stay where they are."""
    quickstart = Quickstart(stage)
    clusters = quickstart.files() / "clusters.yaml"
    clusters.write_text(clusters.read_text().rstrip() + "\n" + CLUSTER.replace("CANARY", CANARY))
    (quickstart.files() / "secrets.yaml").write_text(SECRET.replace("CANARY", CANARY))
    stub = csds_pb2_grpc.ClientStatusDiscoveryServiceStub(grpc.insecure_channel(f"127.0.0.1:{quickstart.admin}"))
    eventually("the relay has read the files", lambda: "with-key" in quickstart.relay.log.read_text())

    reader = Reader(quickstart.xds)
    assert CANARY in str(reader.reads("envoy.config.cluster.v3.Cluster")), "the client itself gets everything"
    (config,) = stub.FetchClientStatus(message(), timeout=10).config
    found = rows(config)
    assert all(row.client_status == ACKED for row in found.values()), config
    cluster = found["with-key"]
    assert cluster.xds_config.type_url == cluster.type_url and b"with-key" in cluster.xds_config.value
    assert CANARY.encode() not in config.SerializeToString()

    assert CANARY in str(reader.reads("envoy.extensions.transport_sockets.tls.v3.Secret", "hidden"))
    everything = stub.FetchClientStatus(message(), timeout=10)
    assert CANARY.encode() not in everything.SerializeToString()
    (hidden,) = [rows(config)["hidden"] for config in everything.config if "hidden" in rows(config)]
    assert not hidden.HasField("xds_config") and not hidden.version_info, hidden

    asked = iter([message({"prefix": ""}), message({"exact": "nobody"})])
    everybody, nobody = stub.StreamClientStatus(asked, timeout=10)
    assert not nobody.config, nobody
    (config,) = everybody.config
    assert config.node.id == "reader" and config.client_scope.startswith("main/"), config
    assert rows(config)["with-key"].config_status == SYNCED, config
    assert CANARY.encode() not in everybody.SerializeToString()

    try:
        stub.FetchClientStatus(message({"safe_regex": {"regex": "("}}), timeout=10)
        raise AssertionError("a bad expression was taken")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error
        assert "node_matchers[0].node_id.safe_regex" in error.details(), error

    # One client must not read another: the listener for clients has no such service.
    xds = csds_pb2_grpc.ClientStatusDiscoveryServiceStub(grpc.insecure_channel(f"127.0.0.1:{quickstart.xds}"))
    try:
        xds.FetchClientStatus(message(), timeout=10)
        raise AssertionError("a listener for clients answered")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.UNIMPLEMENTED, error

    request = urllib.request.Request(f"http://127.0.0.1:{quickstart.admin}/v3/discovery:client_status", data=b"{}")
    with urllib.request.urlopen(request, timeout=10) as answer:
        text = answer.read().decode()
    assert CANARY not in text
    assert json.loads(text)["config"], text
    for path in ("/resources/Cluster/with-key", "/resources/Secret/hidden"):
        with urllib.request.urlopen(f"http://127.0.0.1:{quickstart.admin}{path}", timeout=10) as answer:
            assert CANARY not in answer.read().decode()


CASES = [Case("client status", {"grpc"}, grpc_asks, relay_only=True)]
