"""Load reports of Envoy and of gRPC clients, straight to a reference server and through the relay: the sums of the server are those of the backends, to the request."""

import collections
import http.server
import threading
import time
from concurrent import futures

import grpc
from envoy.config.core.v3 import base_pb2
from envoy.service.load_stats.v3 import lrs_pb2
from xds.data.orca.v3 import orca_load_report_pb2

import grpc_peer
import resources
from harness import DEADLINE, PORTS, Case, Envoy, GrpcClient, eventually, get, server_entry
from load_server import ALL_CLUSTERS_FEATURE, METHOD, TOTAL, LoadServer
from packages import LANGUAGES

# Requests have numbers. By its last digit, a request goes to the cluster `two`, or is dropped by the client, or fails.
TO_TWO, DROPPED, FAILS = "7", "9", "5"
# The request with this number waits until its backend lets it go.
HELD = "3"
# The last request goes to a backend.
COUNT = 61
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


def relay(stage, plane):
    return stage.relay([{**server_entry(plane, "AGGREGATED_DELTA_GRPC"), "lrs": "aggregate"}])


class Peers:
    """A control plane that takes load reports, some backends, and clients of one kind."""

    metric = f"named_metrics.{METRIC}"

    def __init__(self, stage, kind, is_relayed, seconds=1.0):
        self.stage, self.seconds = stage, seconds
        self.server = LoadServer(seconds)
        self.plane = stage.control_plane("the control plane")
        self.plane.beside.append(self.server)
        self.plane.start()
        stage.witness("the load reports", self.server.evidence)
        stage.witness("the backends' sums", lambda: str(self.expected()))
        stage.direct = not is_relayed
        stage.xds = stage.rest = relay(stage, self.plane) if is_relayed else self.plane.port
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

    def reported(self):
        """The requests in the reports that the relay has read."""
        return sum(float(line.split()[-1]) for line in self.stage.metrics("sluice_load_requests_total"))

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
    def __init__(self, stage, is_relayed=True, **more):
        self.port = PORTS.take()
        super().__init__(stage, HttpBackend, is_relayed, **more)

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

    def __init__(self, stage, language, is_relayed, **more):
        self.language = language
        # grpc-js reports no metrics.
        self.metric = None if language == "Node.js" else self.metric
        super().__init__(stage, GrpcBackend, is_relayed, **more)

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


def outage(peers):
    """A client comes and goes while the control plane is away: its requests are reported afterwards."""
    peers.visit("first")
    before = peers.sums()
    peers.plane.stop()
    process = peers.calls("second")
    # The relay has the reports of the second client.
    reported = sum(sums["issued"] for sums in peers.expected().values() if "issued" in sums)
    eventually("the relay has read all reports", lambda: peers.reported() >= reported)
    process.end()
    assert peers.sums() == before, "nobody could tell the server"
    peers.dropped *= 2
    peers.plane.start()
    peers.agrees()


def drain(peers):
    """The relay ends at once after it has read the reports of a client: the server has them all."""
    process = peers.calls("first")
    peers.dropped += sum(str(number).endswith(DROPPED) for number in range(COUNT))
    eventually("a request is held", peers.holding)
    peers.release()
    eventually("the relay has read all reports", lambda: peers.reported() >= COUNT - peers.dropped)
    peers.stage.relay_process.child.terminate()
    assert peers.stage.relay_process.child.wait(30) == 0
    assert peers.sums() == peers.expected(), f"{peers.sums()} instead of {peers.expected()}"
    process.end()


def upgrade(peers):
    """The process of the relay is replaced between two clients."""
    peers.visit("first")
    peers.stage.upgrade()
    peers.visit("second")


class Reporter:
    """A client whose reports are scripted; each has one request to the cluster `one`."""

    def __init__(self, stage, name):
        self.name, self.changed = name, threading.Condition()
        self.waiting, self.answers, self.reported = [lrs_pb2.LoadStatsRequest(node=self.node())], [], []
        channel = stage.enter_context(grpc.insecure_channel(f"127.0.0.1:{stage.xds}"))
        call = channel.stream_stream(METHOD, lrs_pb2.LoadStatsRequest.SerializeToString, lrs_pb2.LoadStatsResponse.FromString)
        self.stream = call(self.requests())
        stage.callback(self.stream.cancel)
        threading.Thread(target=self.read, daemon=True).start()

    def node(self):
        return base_pb2.Node(id=self.name, cluster="interop", client_features=[ALL_CLUSTERS_FEATURE])

    def requests(self):
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.waiting)
                request = self.waiting.pop(0)
            yield request

    def read(self):
        try:
            for answer in self.stream:
                self.answers.append((time.monotonic(), answer))
        except grpc.RpcError:
            pass  # the case is over

    def report(self):
        request = lrs_pb2.LoadStatsRequest()
        stats = request.cluster_stats.add(cluster_name="one", cluster_service_name="one-service")
        stats.load_report_interval.FromMilliseconds(1000)
        stats.upstream_locality_stats.add(locality={"zone": "east"}, total_issued_requests=1, total_successful_requests=1)
        self.reported.append(time.monotonic())
        with self.changed:
            self.waiting.append(request)
            self.changed.notify_all()

    def interval(self):
        return self.answers[-1][1].load_reporting_interval.ToMilliseconds() / 1000


def answers(stage):
    """Each client is asked for an interval of its own, a little shorter than the server's; for a changed wish it is asked again, after
    a report, and no sooner than after its interval. A client that is silent for three intervals is asked again without a report."""
    server, plane = LoadServer(seconds=2), stage.control_plane("the control plane")
    plane.beside.append(server)
    plane.start()
    stage.witness("the load reports", server.evidence)
    stage.xds = relay(stage, plane)
    reporters = [Reporter(stage, f"client-{number}") for number in range(8)]
    eventually("all are answered", lambda: all(reporter.answers for reporter in reporters))
    intervals = [reporter.interval() for reporter in reporters]
    # LRS-20
    assert all(1.8 <= interval <= 2 for interval in intervals) and len(set(intervals)) > 1, intervals
    server.wish(1, ["nobody", "one"])

    def goes_on(reporter):
        """Reports at its interval, until it has been asked again and reported twice after that."""
        while len(reporter.answers) < 2 or sum(at > reporter.answers[1][0] for at in reporter.reported) < 2:
            begun, interval = time.monotonic(), reporter.interval()
            while time.monotonic() < begun + interval:
                time.sleep(0.01)
            reporter.report()

    silent, *busy = reporters
    with futures.ThreadPoolExecutor(len(busy)) as pool:
        list(pool.map(goes_on, busy, timeout=DEADLINE))
    eventually("the silent client is asked again", lambda: len(silent.answers) == 2)
    assert silent.answers[1][0] >= silent.answers[0][0] + 3 * 1.8
    for reporter in busy:
        # LRS-19
        (first, _), (second, answer), *more = reporter.answers
        assert not more, f"{reporter.name} was asked again for nothing: {more}"
        assert second > reporter.reported[0] and second >= first + 1.8, f"{second - first} s between two answers"
        assert answer.send_all_clusters or "one" in answer.clusters, answer
        # No interval is below a second (LRS-8).
        assert reporter.interval() == 1, answer
    total = sum(len(reporter.reported) for reporter in busy)
    eventually("all are counted", lambda: server.sums() == {("one", "one-service", "east"): {"issued": total, "success": total}})


def cases(name, needs, play):
    """A case without the relay, and one through it."""
    yield Case(f"loads {name}, straight", needs, lambda stage: play(stage, False))
    yield Case(f"loads {name}, relayed", needs, lambda stage: play(stage, True), relay_only=True)


CASES = [
    *cases("Envoy", {"envoy"}, lambda stage, is_relayed: story(Envoys(stage, is_relayed))),
    *cases("balance", {"envoy"}, lambda stage, is_relayed: balance(Envoys(stage, is_relayed))),
    *(
        case
        for language, package in LANGUAGES.items()
        for case in cases(language, {package}, lambda stage, is_relayed, language=language: story(Callers(stage, language, is_relayed)))
    ),
    Case("loads outage", {"envoy"}, lambda stage: outage(Envoys(stage)), relay_only=True),
    Case("loads drain", {"envoy"}, lambda stage: drain(Envoys(stage, seconds=5.0)), relay_only=True),
    Case("loads upgrade", {"envoy"}, lambda stage: upgrade(Envoys(stage)), relay_only=True),
    Case("loads answers", set(), answers, relay_only=True),
]
