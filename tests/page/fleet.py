"""A small fleet for the page: a control plane, the relay, and clients that accept, reject, or do not answer."""

import json
import pathlib
import queue
import subprocess
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "interop"))

import grpc  # noqa: E402
from envoy.service.discovery.v3 import discovery_pb2  # noqa: E402

import resources  # noqa: E402
from harness import Process, Stage, eventually, get  # noqa: E402, F401

DELTA = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
REQUEST, RESPONSE = discovery_pb2.DeltaDiscoveryRequest, discovery_pb2.DeltaDiscoveryResponse
TYPES = (resources.CLUSTER, resources.ENDPOINTS, resources.LISTENER, resources.ROUTES)

# A client that wants to be markup, to clear a terminal, and to be read from right to left.
RUDE = "<img src=x onerror=\"document.title='owned'\">\x1b[2J\u202erude"


class Client:
    """A delta stream. `answer(type_url, names)` is None for an ACK, a text for a NACK, and False for silence."""

    def __init__(self, port, node, cluster="web", answer=lambda *_: None, types=TYPES):
        self.answer = answer
        self.requests = queue.SimpleQueue()
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.use_local_subchannel_pool", 1)])
        method = self.channel.stream_stream(DELTA, REQUEST.SerializeToString, RESPONSE.FromString)
        for number, type_url in enumerate(types):
            request = REQUEST(type_url=type_url, resource_names_subscribe=["*"])
            if number == 0:
                request.node.id, request.node.cluster = node, cluster
                request.node.user_agent_name = "envoy"
            self.requests.put(request)
        self.responses = method(iter(self.requests.get, None))
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        try:
            for response in self.responses:
                names = [resource.name for resource in response.resources]
                said = self.answer(response.type_url, names)
                if said is False:
                    continue
                reply = REQUEST(type_url=response.type_url, response_nonce=response.nonce)
                if said:
                    reply.error_detail.code, reply.error_detail.message = 3, said
                self.requests.put(reply)
        except grpc.RpcError:
            pass

    def end(self):
        self.responses.cancel()
        self.requests.put(None)
        self.channel.close()


def cluster(name, timeout="1s"):
    return {
        "@type": resources.CLUSTER,
        "name": name,
        "type": "STATIC",
        "connect_timeout": timeout,
        "load_assignment": {"cluster_name": name},
    }


def endpoints(name):
    return {"@type": resources.ENDPOINTS, "cluster_name": name}


def route(name, target):
    route = {"match": {"prefix": "/"}, "route": {"cluster": target}}
    return {
        "@type": resources.ROUTES,
        "name": name,
        "virtual_hosts": [{"name": name, "domains": ["*"], "routes": [route]}],
    }


SERVICES = ("cart", "checkout", "payments", "search", "web")


class Fleet:
    """All processes of the stories. `extra`: further clients that accept everything."""

    def __init__(self, stage, extra=0):
        self.stage = stage
        self.plane = stage.control_plane("the control plane")
        self.plane.start()
        server = {"server_uri": f"127.0.0.1:{self.plane.port}", "api_type": "AGGREGATED_DELTA_GRPC"}
        server["channel_creds"] = [{"type": "insecure"}]
        server["backoff"] = {"initial": "100ms", "max": "500ms"}
        # Clusters by client, so that there are classes.
        classes = [{"split_by": {"cluster": True}}]
        # Everybody is admitted to the first step.
        plan = {"name": "all", "mode": "observe", "gather": {"quiet": "100ms", "max": "1s"}, "steps": [{"percent": 100}]}
        keys = {"node": {"id": "sluice-eu-1"}, "node_classes": classes, "rollouts": [plan], "handover": {"drain": "8s"}}
        self.port = stage.relay([server], **keys)
        self.admin = stage.admin
        self.plane.put(*map(cluster, SERVICES), *map(endpoints, SERVICES))
        self.plane.put(*(route(f"{name}-route", name) for name in SERVICES))
        self.clients = []
        self.extra = extra

    def client(self, *arguments, **options):
        client = Client(self.port, *arguments, **options)
        self.clients.append(client)
        self.stage.callback(client.end)
        return client

    def assemble(self):
        """Connects the clients, and lets some of them reject or miss a change."""
        rejects = lambda kind, names: (
            'Proto constraint validation failed (ClusterValidationError.ConnectTimeout: value must be greater than 0s): cluster "web"'
            if kind == resources.CLUSTER and names == ["web"]
            else None
        )
        slow = lambda kind, names: False if kind == resources.CLUSTER and names == ["web"] else None
        for number in range(1, 4):
            self.client(f"envoy-web-{number}")
        self.client("envoy-api-1", "api", rejects)
        self.client("envoy-api-2", "api", slow)
        self.client(RUDE, "rude")
        for number in range(self.extra):
            self.client(f"envoy-batch-{number:05}", f"batch-{number % 7}")
        wanted = 6 + self.extra
        eventually("all clients are in sync", lambda: get(self.admin, "/clients").body.count('"SYNCED"') >= 4 * min(wanted, 200))
        self.plane.put(cluster("web", "2s"))
        eventually("the change is rejected", lambda: '"ERROR"' in get(self.admin, "/clients?state=ERROR").body)

    def config(self):
        return json.loads((self.stage.directory / "sluice.json").read_text())

    def reload(self, config, *options):
        """Writes the file, and lets the relay take it; an invalid one is refused."""
        (self.stage.directory / "sluice.json").write_text(json.dumps(config))
        self.sluice("reload", *options)

    def sluice(self, *arguments):
        """A command to the relay."""
        command = [self.stage.sluice, *arguments, "--relay", f"127.0.0.1:{self.admin}"]
        subprocess.run(command, check=False, capture_output=True, timeout=30)

    def stop_relay(self):
        self.stage.relay_process.end()

    def start_relay(self):
        """Starts the relay again, with the same addresses."""
        self.stage.relay_process = Process(self.stage, "sluice-again", [self.stage.sluice, "serve", "--config", "sluice.json"])
        eventually("the relay is ready again", lambda: get(self.admin, "/ready"))
