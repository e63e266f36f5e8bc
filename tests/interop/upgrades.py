"""The relay's process is replaced several times under every kind of client, while a resource changes every 100 ms (HND-1).

One case for each kind of listener: Envoy in both variants and by REST, C-core, and streams and polls by bare stubs, which judge
each message. `SLUICE_UPGRADES` is the number of upgrades of a case: 3, and 20 in the long run of the tests.
"""

import contextlib
import http.client
import json
import os
import queue
import re
import socket
import ssl
import threading
import time

import grpc
from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2

import resources
from harness import PORTS, Case, Envoy, GrpcCaller, eventually, get, server_entry
from resources import CLUSTER, ENDPOINTS, LISTENER, PREFIX, ROUTES, SECRET
from tls import FILES, MUTUAL

UPGRADES = int(os.environ.get("SLUICE_UPGRADES", "3"))
PAUSE = 0.1
ASKED = {CLUSTER: ["*"], ENDPOINTS: ["one"], LISTENER: ["*"], ROUTES: ["main"], SECRET: ["hidden"]}


class Tcp:
    """A way to the relay: its listener, and how each peer takes it."""

    files = ()

    def __init__(self, stage):
        self.stage = stage
        self.port = PORTS.take()
        self.path = stage.directory / "xds.sock"

    def listener(self):
        return {"name": "main", "address": f"127.0.0.1:{self.port}"}

    def channel(self):
        return grpc.insecure_channel(f"127.0.0.1:{self.port}")

    def cluster(self, name, http2):
        """The relay as a cluster of an Envoy."""
        made = resources.static_cluster(name, self.port)
        if http2:
            config = {"@type": PREFIX + resources.HTTP_OPTIONS, "explicit_http_config": {"http2_protocol_options": {}}}
            made["typed_extension_protocol_options"] = {resources.HTTP_OPTIONS: config}
        del made["@type"]
        return made

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)


class Unix(Tcp):
    def listener(self):
        return {"name": "main", "address": f"unix:{self.path}"}

    def channel(self):
        return grpc.insecure_channel(f"unix:{self.path}")

    def cluster(self, name, http2):
        made = super().cluster(name, http2)
        endpoint = {"address": {"pipe": {"path": str(self.path)}}}
        made["load_assignment"]["endpoints"] = [{"lb_endpoints": [{"endpoint": endpoint}]}]
        return made

    def connect(self):
        plain = socket.socket(socket.AF_UNIX)
        plain.settimeout(30)
        plain.connect(str(self.path))
        return plain


class Tls(Tcp):
    files = FILES

    def __init__(self, stage):
        super().__init__(stage)
        stage.sluice_says("dev-certs", "certs", "--keep-authority")
        certs = stage.directory / "certs"
        self.ca, self.pair = certs / "ca.crt", (certs / "client/tls.crt", certs / "client/tls.key")

    def listener(self):
        return super().listener() | {"tls": MUTUAL}

    def channel(self):
        chain, key = self.pair
        credentials = grpc.ssl_channel_credentials(self.ca.read_bytes(), key.read_bytes(), chain.read_bytes())
        return grpc.secure_channel(f"localhost:{self.port}", credentials)

    def cluster(self, name, http2):
        chain, key = ({"filename": str(file)} for file in self.pair)
        common = {
            "tls_certificates": [{"certificate_chain": chain, "private_key": key}],
            "validation_context": {"trusted_ca": {"filename": str(self.ca)}},
            "alpn_protocols": ["h2" if http2 else "http/1.1"],
        }
        context = f"{PREFIX}envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
        config = {"@type": context, "sni": "localhost", "common_tls_context": common}
        return super().cluster(name, http2) | {"transport_socket": {"name": "tls", "typed_config": config}}

    def connect(self):
        context = ssl.create_default_context(cafile=self.ca)
        context.set_alpn_protocols(["http/1.1"])
        context.load_cert_chain(*self.pair)
        return context.wrap_socket(super().connect(), server_hostname="localhost")


class Peer:
    """A client by bare stubs in a thread of its own: its content, its faults, and the ends of its streams."""

    asked = tuple(ASKED)

    def __init__(self, stage, way, name):
        self.way = way
        self.name = name
        self.held = {type_url: {} for type_url in ASKED}  # by type and name: version and body
        self.faults = []
        self.ends = []
        self.received = 0
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.guarded, daemon=True)
        stage.callback(self.stop)
        stage.witness(name, lambda: f"{self.received} messages, ends {self.ends}, faults {self.faults}")

    def guarded(self):
        try:
            self.run()
        except Exception as error:
            self.faults.append(f"{self.name} ended: {error!r}")

    def stop(self):
        self.stopped.set()

    def keep(self, type_url, bodies):
        """Takes a message with resources over; each is its body with a version, by name."""
        self.received += 1
        self.held[type_url].update(bodies)

    def holds(self, plane):
        """Whether the content is the control plane's."""
        for (type_url, name), resource in plane.resources.items():
            if type_url not in self.asked or resource.on_demand:
                continue
            if self.held[type_url].get(name, ("", None))[1] != resource.body:
                return False
        return True

    def is_at(self, upgrades):
        """Each stream moves with each upgrade."""
        return len(self.ends) == upgrades


class Stream(Peer):
    def run(self):
        with self.way.channel() as channel:
            while not self.stopped.is_set():
                self.one(ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel))

    def one(self, stub):
        """A stream until its end."""
        requests = queue.SimpleQueue()
        call = self.open(stub, iter(requests.get, None))
        self.stop = lambda: (self.stopped.set(), call.cancel(), requests.put(None))
        for type_url in ASKED:
            requests.put(self.first(type_url))
        try:
            for response in call:
                requests.put(self.take(response))
        except grpc.RpcError as error:
            if not self.stopped.is_set():
                self.ends.append((error.code().name, error.details()))
        requests.put(None)


class Delta(Stream):
    """Presents its versions to each process, and wants nothing but changes and no removal."""

    def open(self, stub, requests):
        return stub.DeltaAggregatedResources(requests)

    def first(self, type_url):
        request = discovery_pb2.DeltaDiscoveryRequest(type_url=type_url)
        request.node.id = self.name
        request.resource_names_subscribe.extend(ASKED[type_url])
        for name, (version, _) in self.held[type_url].items():
            request.initial_resource_versions[name] = version
        return request

    def take(self, response):
        held = self.held[response.type_url]
        noun = response.type_url.rpartition(".")[2]
        for resource in response.resources:
            if held.get(resource.name, (None,))[0] == resource.version:
                self.faults.append(f"{noun} {resource.name} is sent again after {len(self.ends)} upgrades")
        if response.removed_resources:
            self.faults.append(f"{noun} {list(response.removed_resources)} are removed")
        if not response.resources:
            self.faults.append(f"{noun}: a message without a change")
        self.keep(response.type_url, {one.name: (one.version, one.resource) for one in response.resources})
        ack = discovery_pb2.DeltaDiscoveryRequest(type_url=response.type_url, response_nonce=response.nonce)
        return ack


def named(response, bodies):
    """The resources of a complete message by name, with the version of the whole."""
    messages = {PREFIX + one.DESCRIPTOR.full_name: one for one in MESSAGES}
    found = {}
    for body in bodies:
        resource = messages[body.type_url].FromString(body.value)
        name = resource.cluster_name if body.type_url == ENDPOINTS else resource.name
        found[name] = (response.version_info, body)
    return found


def messages():
    """The classes of the asked types. The control plane has imported their modules."""
    from google.protobuf import message_factory, symbol_database

    pool = symbol_database.Default().pool
    return [message_factory.GetMessageClass(pool.FindMessageTypeByName(url.removeprefix(PREFIX))) for url in ASKED]


class Sotw(Stream):
    """No message of a full-state type lacks a resource."""

    def open(self, stub, requests):
        return stub.StreamAggregatedResources(requests)

    def first(self, type_url):
        names = [name for name in ASKED[type_url] if name != "*"]
        request = discovery_pb2.DiscoveryRequest(type_url=type_url, resource_names=names)
        request.node.id = self.name
        request.version_info = next((version for version, _ in self.held[type_url].values()), "")
        return request

    def take(self, response):
        found = named(response, response.resources)
        lost = self.held[response.type_url].keys() - found.keys()
        if lost:
            self.faults.append(f"{response.type_url} lacks {sorted(lost)}")
        self.keep(response.type_url, found)
        names = [name for name in ASKED[response.type_url] if name != "*"]
        ack = discovery_pb2.DiscoveryRequest(type_url=response.type_url, resource_names=names)
        ack.version_info, ack.response_nonce = response.version_info, response.nonce
        return ack


class Rest(Peer):
    """A new connection for each poll: none is refused, none is reset, and no answer lacks a resource."""

    PATHS = {CLUSTER: "clusters", ENDPOINTS: "endpoints", LISTENER: "listeners", ROUTES: "routes"}
    # The relay forgets Secrets between the polls of their only client, so each poll waits for the control plane.
    asked = tuple(PATHS)

    def run(self):
        from google.protobuf import json_format

        while not self.stopped.wait(PAUSE / 2):
            for type_url, path in self.PATHS.items():
                version = next((version for version, _ in self.held[type_url].values()), "")
                names = [name for name in ASKED[type_url] if name != "*"]
                request = {"node": {"id": self.name}, "version_info": version, "resource_names": names}
                try:
                    status, body = self.poll(path, json.dumps(request))
                except (OSError, http.client.HTTPException) as error:
                    self.faults.append(f"{path}: {error!r}")
                    continue
                if status == 200:
                    response = json_format.Parse(body, discovery_pb2.DiscoveryResponse())
                    found = named(response, response.resources)
                    if self.held[type_url].keys() - found.keys():
                        self.faults.append(f"{path} lacks {self.held[type_url].keys() - found.keys()}")
                    self.keep(type_url, found)
                elif status != 304:
                    self.faults.append(f"{path}: {status} {body}")

    def poll(self, path, body):
        connection = http.client.HTTPConnection("localhost")
        connection.sock = self.way.connect()
        with contextlib.closing(connection):
            headers = {"content-type": "application/json", "connection": "close"}
            connection.request("POST", f"/v3/discovery:{path}", body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def is_at(self, upgrades):
        return True


class Asking:
    """An HTTP client of an Envoy, which must have an answer every time."""

    def __init__(self, stage, envoy):
        self.envoy = envoy
        self.answers = []
        self.stopped = threading.Event()
        stage.callback(self.stopped.set)
        eventually(f"{envoy.name} serves", lambda: self.port() and get(self.port()))
        threading.Thread(target=self.run, daemon=True).start()

    def port(self):
        found = re.search(r"^http::127.0.0.1:(\d+)$", self.envoy.admin("/listeners"), re.MULTILINE)
        return int(found.group(1)) if found else None

    def run(self):
        port = self.port()
        while not self.stopped.wait(PAUSE / 2):
            self.answers.append(get(port))

    def judge(self):
        bad = [answer for answer in self.answers if not answer]
        assert self.answers and not bad, f"{self.envoy.name}: {bad}"


def envoy_of(stage, way, variant):
    stage.xds = stage.rest = 1  # by `way`
    clusters = [way.cluster("xds", True), way.cluster("xds-rest", False)]
    name = f"envoy-{variant}"
    node = {"id": name, "cluster": "interop"}
    more = {"node": node, "static_resources": {"clusters": clusters}}
    if variant == "rest":
        # Listeners and clusters by polls; routes and endpoints name ADS as their source.
        by_polls = Envoy.SOURCES["rest"]
        ads = Envoy.SOURCES["sotw"]["api_config_source"]
        more["dynamic_resources"] = {"cds_config": by_polls, "lds_config": by_polls, "ads_config": ads}
    envoy = Envoy(stage, variant, name=name, **more)
    envoy.variant = variant
    return envoy


def judge_envoy(envoy, upgrades):
    envoy.assert_content()
    stats = envoy.stats("cluster.xds|cluster_manager.cluster_removed|listener_manager")
    counted = lambda name: int(stats.get(name, "0"))
    never = [
        *(f"cluster.{name}.upstream_cx_connect_fail" for name in ("xds", "xds-rest")),
        "cluster.xds.upstream_rq_rx_reset",
        *(f"cluster.{name}.upstream_cx_destroy_remote_with_active_rq" for name in ("xds", "xds-rest")),
        "cluster_manager.cluster_removed",
        "listener_manager.listener_removed",
        "listener_manager.listener_modified",
    ]
    bad = {name: stats.get(name) for name in never if counted(name)}
    assert not bad, f"{envoy.name}: {bad}"
    streams = counted("cluster.xds.upstream_rq_total")
    assert streams == upgrades + 1, f"{envoy.name} opened {streams} streams"
    if envoy.variant == "delta-ads":
        # It tells the new process what it has, and is sent nothing.
        updates = counted("listener_manager.lds.update_success")
        assert updates == 1, f"{envoy.name} was sent its listeners {updates} times"


class Changes:
    """A change of endpoints and a change of a cluster in turn."""

    def __init__(self, stage, plane, port):
        self.plane, self.port, self.count = plane, port, 0
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        stage.callback(self.stop)
        self.thread.start()

    def run(self):
        while not self.stopped.wait(PAUSE):
            self.count += 1
            if self.count % 2:
                self.plane.put(resources.endpoints("one", self.port, load_balancing_weight=self.count))
            else:
                self.plane.put(resources.static_cluster("ticking", 1, connect_timeout=f"{10 + self.count}s"))

    def stop(self):
        self.stopped.set()
        self.thread.join()


def upgrade(stage, number):
    """Replaces the process; returns when the old one has ended."""
    stage.upgrade()
    is_alone = lambda: '"predecessor":null' in stage.admin_says("/overview")
    eventually(f"upgrade {number} is over", is_alone)


def matrix(stage, kind):
    way = kind(stage)
    plane = stage.control_plane("the control plane")
    plane.start()
    blue, red = stage.grpc_backend(), stage.grpc_backend()
    http_blue, http_red = stage.backend("blue"), stage.backend("red")
    plane.put(
        resources.cluster("one"),
        resources.endpoints("one", http_blue),
        resources.static_cluster("ticking", 1),
        resources.listener("http", 0, routes="main"),
        resources.routes("main", "one"),
        {"@type": SECRET, "name": "hidden", "generic_secret": {"secret": {"inline_string": "quiet"}}},
    )
    # Only C-core asks for these, by name.
    plane.put(
        resources.cluster("grpc"),
        resources.endpoints("grpc", blue),
        resources.api_listener("greeter", "of-grpc"),
        resources.routes("of-grpc", "grpc"),
        on_demand=True,
    )
    servers = [server_entry(plane, "AGGREGATED_DELTA_GRPC")]
    stage.relay(servers, listeners=[way.listener()], handover={"drain": "1s"})
    peers = [made(stage, way, f"bare-{made.__name__.lower()}") for made in (Delta, Sotw, Rest)]
    for peer in peers:
        peer.thread.start()
    envoys = [envoy_of(stage, way, variant) for variant in ("delta-ads", "sotw-ads", "rest")]
    bootstrap = stage.sluice_says("bootstrap", "grpc", "--config", "sluice.json", *way.files)
    caller = GrpcCaller(stage, "greeter", bootstrap=bootstrap, name="c-core")
    caller.has_reached(blue)
    asking = [Asking(stage, envoy) for envoy in envoys]
    eventually("the bare clients have everything", lambda: all(peer.holds(plane) or peer.faults for peer in peers))

    changes = Changes(stage, plane, http_blue)
    for number in range(1, UPGRADES + 1):
        upgrade(stage, number)
        eventually(f"all have moved {number} times", lambda: all(peer.is_at(number) for peer in peers))
        before = changes.count, [peer.received for peer in peers]
        news = lambda: all(peer.received > count for peer, count in zip(peers, before[1], strict=True))
        eventually("changes go on", lambda: changes.count > before[0] + 3 and news())
        assert not [fault for peer in peers for fault in peer.faults], "see the bare clients"

    changes.stop()
    plane.put(resources.endpoints("one", http_red))
    plane.put(resources.endpoints("grpc", red), on_demand=True)
    for peer in peers:
        eventually(f"{peer.name} has everything", lambda peer=peer: peer.holds(plane))
        assert not peer.faults, peer.faults
        assert peer.is_at(UPGRADES), peer.ends
        wrong = [end for end in peer.ends if end != ("UNAVAILABLE", "the server is draining")]
        assert not wrong, f"{peer.name}: {wrong}"
    caller.has_reached(blue, red)
    for client in asking:
        eventually(f"{client.envoy.name} follows", lambda client=client: client.answers[-1].body == "red")
        client.judge()
        judge_envoy(client.envoy, UPGRADES)
    assert not plane.nacks, plane.nacks


MESSAGES = messages()
CASES = [
    Case(f"upgrade {kind.__name__.lower()}", {"envoy", "grpc"}, lambda stage, kind=kind: matrix(stage, kind), relay_only=True)
    for kind in (Tls, Unix, Tcp)
]
