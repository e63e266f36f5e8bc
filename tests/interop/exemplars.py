"""Exemplars: the OpenMetrics parser of PyPI's prometheus-client finds the exported trace beside the samples (OBS-8)."""

import queue
from concurrent import futures

import grpc
from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from harness import PORTS, Case, eventually, get, server_entry
from resources import CLUSTER

NACKS, DELIVERY = "sluice_downstream_nacks", "sluice_downstream_delivery_seconds"


class Collector(grpc.GenericRpcHandler):
    """Takes every request, and keeps it as bytes."""

    def __init__(self):
        self.requests = []

    def service(self, handler_call_details):
        def export(request, _):
            self.requests.append(request)
            return b""

        return grpc.unary_unary_rpc_method_handler(export)

    def has(self, trace_id):
        return any(bytes.fromhex(trace_id) in request for request in self.requests)


def cluster(timeout):
    return {"@type": CLUSTER, "name": "web", "connect_timeout": timeout}


class Client:
    """A client of the state of the world that accepts or rejects each answer."""

    def __init__(self, port):
        self.requests = queue.SimpleQueue()
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        stub = ads_pb2_grpc.AggregatedDiscoveryServiceStub(self.channel)
        self.answers = stub.StreamAggregatedResources(iter(self.requests.get, None))
        self.accepted = ""
        first = discovery_pb2.DiscoveryRequest(type_url=CLUSTER)
        first.node.id = "reader"
        self.requests.put(first)

    def next(self, error=None):
        answer = next(self.answers)
        request = discovery_pb2.DiscoveryRequest(type_url=CLUSTER, response_nonce=answer.nonce)
        if error is None:
            self.accepted = answer.version_info
        else:
            request.error_detail.code, request.error_detail.message = 3, error
        request.version_info = self.accepted
        self.requests.put(request)


def the_parser_reads_them(stage):
    """Two updates, one of them rejected: both have traces, and the parser finds them beside their samples."""
    collector, port = Collector(), PORTS.take()
    server = grpc.server(futures.ThreadPoolExecutor(2), handlers=[collector])
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    stage.callback(server.stop, None)
    plane = stage.control_plane("the control plane")
    plane.put(cluster("1s"))
    plane.start()
    traces = {"endpoint": f"http://127.0.0.1:{port}", "slow": "0s", "per_second": 1000}
    client = Client(stage.relay([server_entry(plane, "AGGREGATED_DELTA_GRPC")], traces=traces))
    stage.callback(client.channel.close)
    client.next()
    plane.put(cluster("2s"))
    client.next()
    plane.put(cluster("3s"))
    client.next(error="no such timeout")

    def exemplars():
        found = {}
        for family in text_string_to_metric_families(get(stage.admin, "/metrics").body):
            for sample in family.samples:
                if sample.exemplar is not None:
                    found.setdefault(family.name, []).append(sample)
        return found if {NACKS, DELIVERY} <= found.keys() else None

    eventually("both metrics have exemplars", exemplars)
    found = exemplars()
    assert found.keys() == {NACKS, DELIVERY}, found
    for samples in found.values():
        for sample in samples:
            assert sample.labels["type"] == "Cluster", sample
            (trace,) = sample.exemplar.labels.values()
            assert list(sample.exemplar.labels) == ["trace_id"] and len(trace) == 32, sample
            assert collector.has(trace), f"{trace} was not exported"
            assert sample.exemplar.value <= float(sample.labels.get("le", "inf")), sample
            assert sample.exemplar.timestamp is not None, sample


CASES = [Case("exemplars", {"grpc"}, the_parser_reads_them, relay_only=True)]
