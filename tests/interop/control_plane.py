"""A scripted xDS control plane: a set of resources, served in every variant of the protocol.

Offers SotW and delta gRPC, over ADS and over the services of each type, and REST-JSON on a second port. Changes go to
subscribers at once and without waiting for ACKs, in the order of ADS.

Strict points: members of a wildcard or glob differ from names; a delta stream gets removals of names that don't exist;
only clients with the feature get TTLs; every NACK is recorded (`nacks`).
"""

import http.server
import importlib
import itertools
import json
import threading
import zlib
from concurrent import futures

import grpc
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf import any_pb2, json_format

from resources import CLUSTER, ENDPOINTS, LB_ENDPOINT, LISTENER, ROUTES, SECRET, VIRTUAL_HOST, name_of
from resources import EXTENSION, RUNTIME, SCOPED_ROUTES

# The messages in resources; JSON finds only imported messages.
for module in (
    "envoy.config.cluster.v3.cluster",
    "envoy.config.endpoint.v3.endpoint",
    "envoy.config.listener.v3.listener",
    "envoy.config.route.v3.route",
    "envoy.config.route.v3.scoped_route",
    "envoy.extensions.clusters.aggregate.v3.cluster",
    "envoy.extensions.filters.http.fault.v3.fault",
    "envoy.extensions.filters.http.on_demand.v3.on_demand",
    "envoy.extensions.filters.http.router.v3.router",
    "envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager",
    "envoy.extensions.transport_sockets.tls.v3.tls",
    "envoy.service.runtime.v3.rtds",
):
    importlib.import_module(f"{module}_pb2")

ADS = "envoy.service.discovery.v3.AggregatedDiscoveryService"
# The service of each type, the noun of its methods, and its path in REST-JSON.
SERVICES = {
    LISTENER: ("envoy.service.listener.v3.ListenerDiscoveryService", "Listeners", "listeners"),
    ROUTES: ("envoy.service.route.v3.RouteDiscoveryService", "Routes", "routes"),
    SCOPED_ROUTES: ("envoy.service.route.v3.ScopedRoutesDiscoveryService", "ScopedRoutes", "scoped-routes"),
    VIRTUAL_HOST: ("envoy.service.route.v3.VirtualHostDiscoveryService", "VirtualHosts", None),
    CLUSTER: ("envoy.service.cluster.v3.ClusterDiscoveryService", "Clusters", "clusters"),
    ENDPOINTS: ("envoy.service.endpoint.v3.EndpointDiscoveryService", "Endpoints", "endpoints"),
    LB_ENDPOINT: ("envoy.service.endpoint.v3.LocalityEndpointDiscoveryService", "LocalityEndpoints", None),
    SECRET: ("envoy.service.secret.v3.SecretDiscoveryService", "Secrets", "secrets"),
    RUNTIME: ("envoy.service.runtime.v3.RuntimeDiscoveryService", "Runtime", "runtime"),
    EXTENSION: (
        "envoy.service.extension.v3.ExtensionConfigDiscoveryService",
        "ExtensionConfigs",
        "extension_configs",
    ),
}
# Responses of these types are complete (SST-1, SST-2), so that a missing resource is a removal.
FULL_STATE = (LISTENER, CLUSTER, SCOPED_ROUTES)
# The sending order of types on one stream.
ORDER = (CLUSTER, ENDPOINTS, LB_ENDPOINT, SECRET, LISTENER, ROUTES, SCOPED_ROUTES, VIRTUAL_HOST, RUNTIME, EXTENSION)
TTL_FEATURE = "xds.config.supports-resource-ttl"


class Resource:
    """One resource in its present version. On demand: only for requests of the name or of an alias."""

    def __init__(self, config, version, name=None, ttl=None, on_demand=False, aliases=()):
        self.name = name or name_of(config)
        self.type_url = config["@type"]
        self.body = json_format.ParseDict(config, any_pb2.Any())
        self.version = version
        self.ttl = ttl
        self.on_demand = on_demand
        self.aliases = aliases

    def entry(self, features, with_body=True):
        """The entry of a delta response, or the wrapper of a SotW response. A heartbeat has no body."""
        entry = discovery_pb2.Resource(name=self.name, version=self.version, aliases=self.aliases)
        if with_body:
            entry.resource.CopyFrom(self.body)
        if self.ttl and TTL_FEATURE in features:
            entry.ttl.FromMilliseconds(int(self.ttl * 1000))
        return entry


class Subscription:
    """The subscription of one stream to one type, and the sent versions by name; None for an absent name."""

    def __init__(self, plane, type_url, features=()):
        self.plane = plane
        self.type_url = type_url
        self.features = features
        self.names = set()
        self.wildcard = None  # unknown before the first request
        self.sent = {}
        self.answered = False
        self.beats = plane.beats
        self.nonces = map(str, itertools.count(1))
        self.nonce = ""

    def wanted(self):
        """The existing resources of the subscription, by name."""
        found = {}
        for resource in self.plane.of(self.type_url):
            globbed = resource.name.rpartition("/")[0] + "/*"
            is_member = (self.wildcard and not resource.on_demand) or globbed in self.names
            if is_member or not self.names.isdisjoint([resource.name, *resource.aliases]):
                found[resource.name] = resource
        return found

    def is_time_for_heartbeat(self):
        """True once after each of the plane's heartbeats."""
        due = TTL_FEATURE in self.features and self.plane.beats > self.beats
        self.beats = self.plane.beats
        return due


class Sotw(Subscription):
    """State of the world."""

    @staticmethod
    def asked(request):
        """The requested names."""
        return request.resource_names

    def handle(self, request):
        if request.response_nonce and request.response_nonce != self.nonce:
            return  # stale
        names = set(request.resource_names)
        if self.wildcard is None:
            self.wildcard = not names and self.type_url in FULL_STATE
        self.wildcard = (self.wildcard and not names) or "*" in names
        self.names = names - {"*"}
        self.sent = {name: version for name, version in self.sent.items() if self.wildcard or name in names}

    def response(self):
        wanted = self.wanted()
        versions = {name: resource.version for name, resource in wanted.items()}
        # With bodies: Envoy ignores heartbeats without, and for a full-state type the set would be empty (TTL-6).
        beating = [resource for resource in wanted.values() if resource.ttl] if self.is_time_for_heartbeat() else []
        if self.type_url in FULL_STATE:
            chosen = wanted.values()
            is_due = beating or not self.answered or versions != self.sent
        else:
            chosen = [one for one in wanted.values() if one in beating or self.sent.get(one.name) != one.version]
            is_due = chosen
        if not is_due:
            return None
        self.sent = versions
        self.answered = True
        return self.holding(chosen, wanted)

    def holding(self, chosen, wanted):
        """A response with some of the resources; its version covers the whole subscription."""
        self.nonce = next(self.nonces)
        response = discovery_pb2.DiscoveryResponse(type_url=self.type_url, nonce=self.nonce)
        versions = sorted((name, resource.version) for name, resource in wanted.items())
        response.version_info = f"{zlib.crc32(repr(versions).encode()):08x}"
        for resource in chosen:
            if resource.ttl and TTL_FEATURE in self.features:
                response.resources.add().Pack(resource.entry(self.features))
            else:
                response.resources.append(resource.body)
        return response


class Delta(Subscription):
    """Incremental."""

    @staticmethod
    def asked(request):
        """The requested names."""
        return request.resource_names_subscribe

    def handle(self, request):
        asked = set(request.resource_names_subscribe)
        is_first = self.wildcard is None
        if is_first:
            # An empty list requests virtual hosts, too: hosts that need no request (VHD-3).
            self.wildcard = not asked
        if "*" in asked:
            self.wildcard = True
        if "*" in request.resource_names_unsubscribe:
            self.wildcard = False
        self.names = (self.names | asked - {"*"}) - set(request.resource_names_unsubscribe)
        # A request gets an answer, even without a change (DEL-19).
        for name in asked.union(request.resource_names_unsubscribe):
            self.sent.pop(name, None)
            for resource in self.plane.of(self.type_url):
                if name in resource.aliases:
                    self.sent.pop(resource.name, None)
        if is_first:
            self.sent = dict(request.initial_resource_versions)

    def response(self):
        wanted = self.wanted()
        known = set(wanted).union(*(resource.aliases for resource in wanted.values()))
        known.update(name.rpartition("/")[0] + "/*" for name in wanted)
        beat = self.is_time_for_heartbeat()
        changed = [resource for name, resource in wanted.items() if self.sent.get(name) != resource.version]
        bare = [resource for resource in wanted.values() if beat and resource.ttl and resource not in changed]
        gone = {name for name, version in self.sent.items() if version is not None and name not in wanted}
        missing = {name for name in self.names - known if name not in self.sent}
        if self.answered and not (changed or bare or gone or missing):
            return None
        self.answered = True
        response = discovery_pb2.DeltaDiscoveryResponse(type_url=self.type_url, nonce=next(self.nonces))
        response.system_version_info = str(self.plane.version)
        for resource in changed:
            response.resources.append(resource.entry(self.features))
        for resource in bare:
            response.resources.append(resource.entry(self.features, with_body=False))
        if self.type_url == VIRTUAL_HOST:
            # An HTTP request waits for each name: an entry without a body fails the request (VHD-6).
            response.resources.extend(discovery_pb2.Resource(name=name, aliases=[name]) for name in missing)
            response.removed_resources.extend(sorted(gone))
        else:
            response.removed_resources.extend(sorted(gone | missing))
        self.sent = {name: resource.version for name, resource in wanted.items()}
        self.sent.update(dict.fromkeys(self.names - known))
        return response


class ControlPlane(grpc.GenericRpcHandler):
    """The resources, and the servers that serve them. Every method may be called from any thread."""

    def __init__(self, port, rest_port):
        self.port = port
        self.rest_port = rest_port
        self.changed = threading.Condition()
        self.resources = {}
        self.version = 0
        self.beats = 0
        self.beat_interval = None
        self.nacks = []
        self.calls = []
        self.opened = self.live = 0  # streams
        self.refuses = False
        self.fatal = None
        self.server = self.rest = None
        # The compression of all responses: grpc.Compression.
        self.compression = None
        # TLS of the gRPC port: grpc.ServerCredentials.
        self.credentials = None
        self.rest_context = None
        # The servers of further services on the gRPC port.
        self.beside = []
        self.metadata = []  # of each call
        self.running = threading.Lock()

    # For tests.

    def put(self, *configs, **options):
        """Adds or replaces resources, all in one step; the options are those of `Resource`."""
        with self.changed:
            self.version += 1
            for config in configs:
                resource = Resource(config, str(self.version), **options)
                self.resources[resource.type_url, resource.name] = resource
            self.changed.notify_all()

    def remove(self, type_url, *names):
        with self.changed:
            self.version += 1
            for name in names:
                del self.resources[type_url, name]
            self.changed.notify_all()

    def heartbeat(self, interval):
        """Refreshes resources with a TTL at this interval from now on; None: no more."""
        self.beat_interval = interval
        if interval is not None:
            threading.Thread(target=self._beat, args=(interval,), daemon=True).start()

    def _beat(self, interval):
        pause = threading.Event()
        while self.beat_interval == interval:
            with self.changed:
                self.beats += 1
                self.changed.notify_all()
            pause.wait(interval)

    def start(self):
        with self.running:
            self.server = grpc.server(futures.ThreadPoolExecutor(max_workers=64), options=[("grpc.so_reuseport", 0)], compression=self.compression)
            self.server.add_generic_rpc_handlers((self, *self.beside))
            if self.credentials:
                self.server.add_secure_port(f"127.0.0.1:{self.port}", self.credentials)
            else:
                self.server.add_insecure_port(f"127.0.0.1:{self.port}")
            self.server.start()
            self.rest = rest_server(self)
            threading.Thread(target=self.rest.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self):
        """An outage: every stream ends, the port is closed. The resources stay for a later start()."""
        with self.running:
            if self.server:
                self.server.stop(0).wait()
                self.rest.shutdown()
                self.rest.server_close()
                self.server = self.rest = None
                self.fatal = None

    def stop_when_asked(self, type_url, name):
        """Begins an outage at the next request for this name, instead of an answer."""
        self.fatal = (type_url, name)

    def evidence(self):
        """The evidence for a failed test."""
        with self.changed:
            holds = [f"{name} version {resource.version}" for (_, name), resource in self.resources.items()]
        return "\n".join(["holds: " + ", ".join(holds), *(f"NACK {nack}" for nack in self.nacks), *self.calls[-60:]])

    # For peers.

    def of(self, type_url):
        """The resources of a type; requires the lock."""
        return [resource for (kind, _), resource in self.resources.items() if kind == type_url]

    def service(self, handler_call_details):
        self.metadata.append(dict(handler_call_details.invocation_metadata))
        service, _, method = handler_call_details.method[1:].partition("/")
        implied = None
        noun = "AggregatedResources"
        if service != ADS:
            found = [(kind, entry[1]) for kind, entry in SERVICES.items() if entry[0] == service]
            if not found:
                return None
            implied, noun = found[0]
        if method == f"Delta{noun}":
            session, request = Delta, discovery_pb2.DeltaDiscoveryRequest
        elif method == f"Stream{noun}" and implied not in (VIRTUAL_HOST, LB_ENDPOINT):
            session, request = Sotw, discovery_pb2.DiscoveryRequest
        else:
            return None
        return grpc.stream_stream_rpc_method_handler(
            lambda requests, context: self._serve(requests, context, implied, session, method),
            request_deserializer=request.FromString,
            response_serializer=lambda response: response.SerializeToString(),
        )

    def _serve(self, requests, context, implied, session, method):
        """One stream: a separate thread reads the requests, this thread builds the responses."""
        if self.refuses:
            context.abort(grpc.StatusCode.UNAVAILABLE, "this control plane serves nobody")
        subscriptions = {}
        ended = threading.Event()
        # Only the first request must have the node.
        features = set()
        with self.changed:
            self.opened += 1
            self.live += 1

        def read():
            try:
                for request in requests:
                    with self.changed:
                        features.update(request.node.client_features)
                        type_url = implied or request.type_url
                        self.calls.append(f"{method}: {said(request)}")
                        if self.fatal and self.fatal[0] == type_url and self.fatal[1] in session.asked(request):
                            threading.Thread(target=self.stop, daemon=True).start()
                            continue
                        if type_url not in subscriptions:
                            subscriptions[type_url] = session(self, type_url, features)
                        if request.HasField("error_detail"):
                            self.nacks.append(f"{type_url}: {request.error_detail.message}")
                        subscriptions[type_url].handle(request)
                        self.changed.notify_all()
            except grpc.RpcError:
                pass  # the peer went away, or this server stopped
            with self.changed:
                ended.set()
                self.live -= 1
                self.changed.notify_all()

        threading.Thread(target=read, daemon=True).start()
        while True:
            with self.changed:
                response = self.changed.wait_for(lambda: ended.is_set() or next_response(subscriptions))
            if ended.is_set():
                return
            yield response

    def poll(self, path, request):
        """A REST poll: the response, or None without a change after a while."""
        type_url = next(kind for kind, entry in SERVICES.items() if path == f"/v3/discovery:{entry[2]}")
        subscription = Sotw(self, type_url)

        def news():
            wanted = subscription.wanted()
            response = subscription.holding(wanted.values(), wanted)
            return response if response.version_info != request.version_info else None

        with self.changed:
            subscription.handle(request)
            response = self.changed.wait_for(news, timeout=0.3)
            if response:
                self.calls.append(f"{path}: {said(request)} answered by version {response.version_info}")
            return response


def next_response(subscriptions):
    """The first due response, in the order of the types."""
    for type_url in sorted(subscriptions, key=ORDER.index):
        response = subscriptions[type_url].response()
        if response is not None:
            return response
    return None


def said(request):
    """A request in one line."""
    fields = json_format.MessageToDict(request)
    node = fields.pop("node", {})
    return f"{node.get('id', '')} {json.dumps(fields)}"


def rest_server(plane):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            response = plane.poll(self.path, json_format.Parse(body, discovery_pb2.DiscoveryRequest()))
            self.send_response(200 if response else 304)
            text = json_format.MessageToJson(response, preserving_proto_field_name=True) if response else ""
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_):
            pass

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_):
            pass  # a client that left during its poll

    server = Server(("127.0.0.1", plane.rest_port), Handler)
    if plane.rest_context:
        # Handshakes belong to the thread of a connection, not to the one that accepts.
        server.socket = plane.rest_context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    return server
