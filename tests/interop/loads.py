"""Load reports of Envoy and of gRPC clients, straight to a reference server: the sums of the server are those of the backends, to the request."""

import collections
import http.server
import threading
from concurrent import futures

import grpc
from xds.data.orca.v3 import orca_load_report_pb2

import grpc_peer
import resources
from harness import PORTS, Case, Envoy, GrpcClient, eventually, get, server_entry
from load_server import TOTAL, LoadServer
from packages import LANGUAGES

# Requests have numbers. By its last digit, a request goes to the cluster `two`, or is dropped by the client, or fails.
TO_TWO, DROPPED, FAILS = "7", "9", "5"
# The request with this number waits until its backend lets it go.
HELD = "3"
COUNT = 60
# Each good answer tells this by ORCA. The value is exact in binary.
METRIC, VALUE = "queue", 0.5
CATEGORY = "lottery"
CLUSTERS = ("one", "two", "shed")


class Backend:
    """Counts what it is asked, and how it answers."""

    def __init__(self):
        self.lock, self.counts, self.release = threading.Lock(), collections.Counter(), threading.Event()
        # The client of the held request has died.
        self.is_deserted = False

    def count(self, *keys):
        with self.lock:
            self.counts.update(keys)

    def is_good(self, number):
        """Whether the request with this number gets a good answer, once it is time for the answer."""
        self.count("issued")
        if number == HELD:
            self.count("held")
            self.release.wait(60)
            with self.lock:
                self.counts["held"] -= 1
            if self.is_deserted:
                self.count("lost")
                return False
        is_good = not number.endswith(FAILS)
        self.count("success" if is_good else "error")
        return is_good

    def is_done(self):
        """Whether each request is answered, held, or lost with its client."""
        return self.counts["issued"] == sum(self.counts[fate] for fate in ("success", "error", "held", "lost"))

    def sums(self, metric):
        """The sums that a server of load reports should have."""
        good = self.counts["success"]
        sums = {key: self.counts[key] for key in ("issued", "success", "error")}
        if metric:
            sums |= {metric: good, TOTAL + metric: VALUE * good}
        return {key: value for key, value in sums.items() if value}


class HttpBackend(Backend):
    def __init__(self, stage):
        super().__init__()
        backend = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                good = backend.is_good(self.headers["number"])
                self.send_response(200 if good else 500)
                self.send_header("content-length", "0")
                if good:
                    self.send_header("endpoint-load-metrics", f"TEXT named_metrics.{METRIC}={VALUE}")
                self.end_headers()

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        server.handle_error = lambda *_: None  # a client that left
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        stage.callback(server.server_close)
        stage.callback(server.shutdown)
        self.port = server.server_port


class GrpcBackend(Backend):
    def __init__(self, stage):
        super().__init__()
        self.port = PORTS.take()
        service, method = grpc_peer.METHOD.strip("/").split("/")
        handler = grpc.method_handlers_generic_handler(service, {method: grpc.unary_unary_rpc_method_handler(self.answer)})
        server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
        server.add_generic_rpc_handlers((handler,))
        server.add_insecure_port(f"127.0.0.1:{self.port}")
        server.start()
        stage.callback(lambda: server.stop(0).wait())

    def answer(self, _request, context):
        if not self.is_good(dict(context.invocation_metadata())["number"]):
            context.abort(grpc.StatusCode.ABORTED, "as its number demands")
        report = orca_load_report_pb2.OrcaLoadReport(named_metrics={METRIC: VALUE})
        context.set_trailing_metadata((("endpoint-load-metrics-bin", report.SerializeToString()),))
        return b""


def assignment(name, backends, **more):
    """Endpoints in a zone for each backend."""
    zones = [
        {"locality": {"zone": zone}, "load_balancing_weight": 1, "lb_endpoints": [resources.lb_endpoint(backend.port)]}
        for zone, backend in backends.items()
    ]
    return {"@type": resources.ENDPOINTS, "cluster_name": name, "endpoints": zones, **more}


def last_digit(digit, cluster):
    header = {"name": "number", "string_match": {"suffix": digit}}
    return {"match": {"prefix": "", "headers": [header]}, "route": {"cluster": cluster}}


class Peers:
    """A control plane that takes load reports, some backends, and clients of one kind."""

    metric = f"named_metrics.{METRIC}"

    def __init__(self, stage, kind, seconds=1.0):
        self.stage, self.seconds = stage, seconds
        self.server = LoadServer(seconds)
        self.plane = stage.control_plane("the control plane")
        self.plane.beside.append(self.server)
        self.plane.start()
        stage.witness("the load reports", self.server.evidence)
        stage.witness("the backends' sums", lambda: str(self.expected()))
        stage.direct, stage.xds, stage.rest = True, self.plane.port, self.plane.port
        self.backends = {("one", "east"): kind(stage), ("one", "west"): kind(stage), ("two", "north"): kind(stage)}
        stage.callback(self.release)
        self.put()
        self.dropped = 0
        self.before = {}  # sums of clusters that are no longer wanted

    def release(self):
        for backend in self.backends.values():
            backend.release.set()

    def put(self):
        cluster = {"lrs_server": {"self": {}}, "lrs_report_endpoint_metrics": [f"named_metrics.{METRIC}"]}
        chosen = [last_digit(TO_TWO, "two"), last_digit(DROPPED, "shed"), {"match": {"prefix": ""}, "route": {"cluster": "one"}}]
        drops = [{"category": CATEGORY, "drop_percentage": {"numerator": 100}}]
        self.plane.put(
            *self.listeners(),
            {"@type": resources.ROUTES, "name": "main", "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": chosen}]},
            *(resources.cluster(name, eds=f"{name}-service", **cluster) for name in CLUSTERS),
            assignment("one-service", {"east": self.backends["one", "east"], "west": self.backends["one", "west"]}),
            assignment("two-service", {"north": self.backends["two", "north"]}),
            assignment("shed-service", {"south": self.backends["two", "north"]}, policy={"drop_overloads": drops}),
        )

    def expected(self):
        """The sums by what the backends counted and the clients dropped."""
        rows = {(cluster, f"{cluster}-service", zone): backend.sums(self.metric) for (cluster, zone), backend in self.backends.items()}
        if self.dropped:
            rows["shed", "", CATEGORY] = {"dropped": self.dropped}
        return {row: sums for row, sums in (rows | self.before).items() if sums}

    def wants_no_more(self, unwanted):
        """The server wants all clusters but one from now on."""
        self.before = {row: sums for row, sums in self.expected().items() if row[0] == unwanted}
        # grpc-js leaves out the first of a list.
        self.server.wish(self.seconds, ["nobody", *(name for name in CLUSTERS if name != unwanted)])

    def sums(self):
        """The sums of the server, without the clusters of Envoy's bootstrap."""
        return {row: sums for row, sums in self.server.sums().items() if row[0] in CLUSTERS}

    def in_progress(self):
        return {row: count for row, count in self.server.in_progress().items() if row[0] in CLUSTERS}

    def holding(self):
        """The requests that wait at backends, by cluster and locality."""
        return {row: backend.counts["held"] for row, backend in self.backends.items() if backend.counts["held"]}

    def agrees(self):
        """The sums become those of the backends."""

        def is_settled():
            is_done = all(backend.is_done() for backend in self.backends.values())
            return is_done and self.in_progress() == self.holding() and self.sums() == self.expected()

        eventually("the sums are those of the backends", is_settled)

    def visit(self, name, dies=False):
        """A client comes and makes its requests, one of which is held. It goes once all are in the sums, or dies before."""
        for backend in self.backends.values():
            backend.release.clear()
            backend.is_deserted = dies
        process = self.calls(name)
        self.dropped += sum(str(number).endswith(DROPPED) for number in range(COUNT))
        eventually("a request is held", self.holding)
        self.agrees()
        if dies:
            process.child.kill()
            eventually("nothing is in progress without a client", lambda: not self.in_progress())
        self.release()
        eventually("no request is held", lambda: not self.holding())
        self.agrees()
        process.end()


class Envoys(Peers):
    def __init__(self, stage, **more):
        self.port = PORTS.take()
        super().__init__(stage, HttpBackend, **more)

    def listeners(self):
        return [resources.listener("http", self.port, routes="main")]

    def start(self, name):
        load_stats = resources.source("GRPC")["api_config_source"]
        envoy = Envoy(self.stage, "delta-ads", name=name, cluster_manager={"load_stats_config": load_stats})
        eventually("Envoy listens", lambda: envoy.admin("/ready") == "LIVE\n")
        # Envoy leaves out what it counts before its first report with a cluster. Its name for its reports is `responses`.
        sent = lambda: int(envoy.stats("load_reporter.responses").get("load_reporter.responses", 0))
        before = sent()
        eventually("Envoy has reported each cluster", lambda: sent() >= before + 2)
        return envoy

    def calls(self, name):
        envoy = self.start(name)
        for number in map(str, range(COUNT)):
            call = threading.Thread(target=get, args=(self.port,), kwargs={"timeout": 60, "number": number})
            call.start()
            if number != HELD:
                call.join()
        return envoy.process


class Callers(Peers):
    """Clients of gRPC in one language."""

    class Client(GrpcClient):
        MODE = "each"

    def __init__(self, stage, language, **more):
        self.language = language
        # grpc-js reports no metrics.
        self.metric = None if language == "Node.js" else self.metric
        super().__init__(stage, GrpcBackend, **more)

    def listeners(self):
        return [resources.api_listener("greeter", "main")]

    def calls(self, name):
        return self.Client(self.stage, "greeter", language=self.language, name=name, arguments=[str(COUNT)]).process


def story(peers):
    """A client comes and goes, one dies, and another one comes, for which the list is shorter: each request is counted once."""
    peers.visit("first")
    peers.visit("second", dies=True)
    peers.wants_no_more("two")
    peers.visit("third")


# The numbers of requests between two decisions.
ROUNDS = (30, 50, 20, 40, 25, 1, 35)
ZONES = ("east", "middle", "west")


def decisions(report):
    """What a control plane does that gives the next round of requests to the zone with the fewest so far: the zone, and the sums
    before. `report` has a round made, and returns the sums after it."""
    sums = dict.fromkeys(ZONES, 0)
    for count in ROUNDS:
        zone = min(ZONES, key=lambda zone: (sums[zone], zone))
        yield zone, sums
        sums = report(zone, count, sums)


def balance(peers):
    """A control plane that balances two Envoys by their reports decides as one that sees each request."""
    backends = {zone: HttpBackend(peers.stage) for zone in ZONES}
    envoys = [peers.start(name) for name in ("first", "second")]

    def report(zone, count, sums):
        peers.plane.put(assignment("one-service", {zone: backends[zone]}))
        # A host that Envoy no longer has keeps its line while it has connections.
        uses = f"one::127.0.0.1:{backends[zone].port}::"
        eventually("both follow", lambda: all(uses in envoy.admin("/clusters") for envoy in envoys))
        asked = sum(sums.values()) + count
        for _ in range(count):
            assert get(peers.port, number="0")

        def issued():
            rows = peers.sums()
            return {zone: rows.get(("one", "one-service", zone), {}).get("issued", 0) for zone in ZONES}

        eventually("the round is reported", lambda: sum(issued().values()) >= asked)
        return issued()

    seen = list(decisions(report))
    expected = list(decisions(lambda zone, count, sums: {**sums, zone: sums[zone] + count}))
    assert seen == expected, f"{seen} instead of {expected}"


CASES = [
    Case("loads Envoy, straight", {"envoy"}, lambda stage: story(Envoys(stage))),
    Case("loads balance, straight", {"envoy"}, lambda stage: balance(Envoys(stage))),
    *(
        Case(f"loads {language}, straight", {package}, lambda stage, language=language: story(Callers(stage, language)))
        for language, package in LANGUAGES.items()
    ),
]
