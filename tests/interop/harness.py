"""The processes of the cases: the relay, a control plane or a directory upstream, Envoy and gRPC clients downstream.

All processes listen on loopback, on separate ports, and end with their case.
"""

import contextlib
import dataclasses
import http.client
import http.server
import itertools
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import grpc

import grpc_peer
import packages
import resources
from control_plane import SERVICES, ControlPlane

# Generous for a busy machine; no passing test waits this long.
DEADLINE = 30.0
# The names of gRPC's status codes.
STATUS = {str(code.value[0]): code.name for code in grpc.StatusCode}


@dataclasses.dataclass
class Case:
    """One test. `needs` are packages; a `relay_only` test is meaningless without the relay, and a `long` test runs by its name, and in the long run."""

    name: str
    needs: set[str]
    play: Callable
    relay_only: bool = False
    long: bool = False


def eventually(what, check, seconds=None):
    """Waits until check() is true; the failure shows the last value."""
    end = time.monotonic() + (seconds or DEADLINE)
    while not (last := check()):
        if time.monotonic() > end:
            raise AssertionError(f"never: {what} (last: {last!r})")
        time.sleep(0.05)


class Answer(tuple):
    """Status, body and seconds of an HTTP request; (0, reason, seconds) without an answer. True for a 200."""

    def __bool__(self):
        return self[0] == 200

    status = property(lambda self: self[0])
    body = property(lambda self: self[1])
    seconds = property(lambda self: self[2])


def get(port, path="/", timeout=10, method="GET", **headers):
    """GET over loopback, or another method. A header's name is written with underscores."""
    start = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    headers = {name.replace("_", "-"): value for name, value in headers.items() if value is not None}
    with contextlib.closing(connection):
        try:
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            status, body = response.status, response.read().decode()
        except (OSError, http.client.HTTPException) as error:
            status, body = 0, str(error)
    return Answer((status, body, time.monotonic() - start))


class Ports:
    """Free ports, each returned once, below the ephemeral range: an outgoing connection could take an ephemeral port
    before the owner listens.

    The lock is also that of new processes: until its exec, a child has copies of all open sockets, and would hold the
    socket that checked a port when the port's owner listens.
    """

    FIRST, COUNT = 11_000, 6_000

    def __init__(self):
        self.lock = threading.Lock()
        self.next = os.getpid() * 100

    def take(self):
        with self.lock:
            while True:
                port = self.FIRST + self.next % self.COUNT
                self.next += 1
                with socket.socket() as one:
                    try:
                        one.bind(("127.0.0.1", port))
                    except OSError:
                        continue
                return port

    def spawn(self, command, **options):
        """A child process, which has no socket of a check."""
        with self.lock:
            return subprocess.Popen(command, **options)


PORTS = Ports()


class Process:
    """A child process with its output in a file, unless its output is wanted."""

    def __init__(self, stage, name, arguments, environment=None, **pipes):
        self.log = stage.directory / f"{name}.log"
        with open(self.log, "wb") as log:
            self.child = PORTS.spawn(
                [str(argument) for argument in arguments],
                cwd=stage.directory,
                env={**os.environ, **(environment or {})},
                **{"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, **pipes},
            )
        stage.callback(self.end)
        stage.witness(f"the end of {self.log.name}", self.end_of_log)

    def end_of_log(self):
        """Repeated lines as one, with their number."""
        lines = itertools.groupby(self.log.read_text(errors="replace").splitlines())
        counted = [(line, len(list(same))) for line, same in lines]
        return "\n".join(line if count == 1 else f"{line} ({count} times)" for line, count in counted)[-4000:]

    def end(self):
        self.child.terminate()
        try:
            self.child.wait(10)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        for pipe in (self.child.stdin, self.child.stdout):
            if pipe:
                pipe.close()


class Files:
    """A directory that a relay serves, used like a control plane: one file for each type, replaced by a rename."""

    def __init__(self, directory):
        self.directory = directory
        self.directory.mkdir()
        self.resources = {type_url: {} for type_url in SERVICES}
        self.nacks = []
        # A relay starts over an empty set of resources, but not without a file.
        self.write(resources.LISTENER)

    def put(self, *configs):
        for config in configs:
            self.resources[config["@type"]][resources.name_of(config)] = config
        for type_url in {config["@type"]: None for config in configs}:
            self.write(type_url)

    def remove(self, type_url, *names):
        for name in names:
            del self.resources[type_url][name]
        self.write(type_url)

    def write(self, type_url):
        response = {"type_url": type_url, "resources": list(self.resources[type_url].values())}
        name = SERVICES[type_url][1]
        fresh = self.directory / f".{name}"
        fresh.write_text(json.dumps(response))
        fresh.replace(self.directory / f"{name}.json")


def server_entry(plane, kind):
    """A control plane in the relay's list of servers."""
    server = {"server_uri": f"127.0.0.1:{plane.port}", "api_type": kind}
    server["channel_creds"] = [{"type": "insecure"}]
    if kind == "REST":
        server |= {"server_uri": f"http://127.0.0.1:{plane.rest_port}", "refresh_delay": "100ms"}
    # The control plane returns within the case.
    server["backoff"] = {"initial": "100ms", "max": "500ms"}
    return server


class Stage(contextlib.ExitStack):
    """The processes of one case. Its witnesses supply the evidence after a failure."""

    def __init__(self, sluice, direct):
        super().__init__()
        self.sluice = sluice
        self.direct = direct
        self.directory = pathlib.Path(self.enter_context(tempfile.TemporaryDirectory()))
        self.witnesses = []
        self.reserve = []

    def witness(self, name, tell):
        self.witnesses.append((name, tell))

    def evidence(self):
        parts = []
        for name, tell in self.witnesses:
            try:
                text = tell().strip()
            except Exception as error:
                text = f"can't tell: {error!r}"
            parts.append(f"--- {name} ---\n{text}")
        return "\n".join(parts)

    def upstream(self, kind="AGGREGATED_DELTA_GRPC"):
        """A control plane, or `files`, as the relay's upstream; resources put there reach the peers.

        `kind` is the relay's `api_type`. The peers find their server at `xds` (gRPC) and
        `rest`; if the cases are run without the relay, those are the control plane's own.
        """
        if kind == "files":
            plane = Files(self.directory / "served")
            server = {"server_uri": "file:served"}
        else:
            plane = self.control_plane("the control plane")
            plane.start()
            server = server_entry(plane, kind)
        if self.direct:
            self.xds, self.rest = plane.port, plane.rest_port
        else:
            self.xds = self.rest = self.relay([server])
        return plane

    def upstreams(self, *names, kind="AGGREGATED_DELTA_GRPC", server=None, **more):
        """Control planes that don't run yet, the preferred one first, all of them upstreams of the relay; without the
        relay a gRPC client has them all in its bootstrap. `server` and `more` are keys of the relay's configuration."""
        planes = [self.control_plane(name) for name in names]
        if self.direct:
            self.xds, *self.reserve = [plane.port for plane in planes]
        else:
            # A case moves resources more often than a server should.
            fallback = {"resolve_timeout": "2s", "hold_down": "0s"}
            self.xds = self.relay([{**server_entry(plane, kind), **(server or {})} for plane in planes], fallback=fallback, **more)
        return planes

    def control_plane(self, name):
        """A control plane that doesn't run yet."""
        plane = ControlPlane(PORTS.take(), PORTS.take())
        self.callback(plane.stop)
        self.witness(name, plane.evidence)
        return plane

    def relay(self, servers, **more):
        """Starts the relay; returns its port."""
        xds, self.admin = PORTS.take(), PORTS.take()
        config = {
            "xds_servers": servers,
            "listeners": [{"name": "main", "address": f"127.0.0.1:{xds}"}],
            "admin": {"address": f"127.0.0.1:{self.admin}"},
            **more,
        }
        (self.directory / "sluice.json").write_text(json.dumps(config))
        self.start_relay("sluice")
        self.witness("the relay's clients", lambda: get(self.admin, "/clients").body)
        self.witness("the relay's sources", lambda: get(self.admin, "/sources").body)
        self.witness("the relay's fallback", lambda: "\n".join(self.metrics("sluice_fallback")))
        return xds

    def start_relay(self, name):
        """Starts the relay, with its present configuration; `name` is that of its log."""
        relay = self.relay_process = Process(self, name, [self.sluice, "serve", "--config", "sluice.json"])

        def is_ready():
            assert relay.child.poll() is None, f"the relay ended with exit code {relay.child.poll()}"
            return get(self.admin, "/ready")

        eventually("the relay is ready", is_ready)

    def admin_says(self, path):
        """The answer of the relay's admin listener."""
        return get(self.admin, path).body

    def metrics(self, prefix):
        """The relay's metrics with this prefix, as exposed."""
        return [line for line in get(self.admin, "/metrics").body.splitlines() if line.startswith(prefix)]

    def metric(self, name, plane):
        """The sum of a relay metric over all samples of this control plane."""
        label = f'server="127.0.0.1:{plane.port}"'
        return sum(float(line.rpartition(" ")[2]) for line in self.metrics(f"{name}{{") if label in line)

    def upgrade(self):
        """Replaces the relay's process; returns once the new one accepts."""
        text = self.sluice_says("upgrade", "--relay", f"127.0.0.1:{self.admin}")
        pid = int(re.match(r"upgraded: process (\d+) ", text).group(1))

        def end():
            for kind in (signal.SIGTERM, signal.SIGKILL):
                end = time.monotonic() + 5
                while time.monotonic() < end:
                    try:
                        os.kill(pid, kind)
                    except ProcessLookupError:
                        return
                    time.sleep(0.05)

        self.callback(end)

    def sluice_says(self, *arguments):
        """The output of a relay command."""
        command = [self.sluice, *arguments]
        with PORTS.spawn(command, cwd=self.directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
            output, errors = child.communicate()
        assert child.returncode == 0, f"{command}: {errors}"
        return output

    def backend(self, name):
        """An HTTP server that answers its name; its port."""

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("content-length", str(len(name)))
                self.end_headers()
                self.wfile.write(name.encode())

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        server.handle_error = lambda *_: None  # a client that left with the end of its case
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        self.callback(server.server_close)
        self.callback(server.shutdown)
        return server.server_port

    def grpc_backend(self):
        """A gRPC server that answers its port; its port."""
        port = PORTS.take()
        server = grpc_peer.backend(port)
        self.callback(lambda: server.stop(0).wait())
        return port


class Envoy:
    """An Envoy with configuration from the stage's server, in one variant of the protocol."""

    # The source of LDS and CDS, and of the resources that these refer to: ADS in variants of ADS.
    ADS = {"sotw-ads": "GRPC", "delta-ads": "DELTA_GRPC"}
    SOURCES = {
        "sotw-ads": resources.ADS,
        "delta-ads": resources.ADS,
        "sotw": resources.source("GRPC"),
        "delta": resources.source("DELTA_GRPC"),
        "rest": resources.source("REST"),
    }

    def __init__(self, stage, variant, name="envoy", **bootstrap):
        self.stage = stage
        self.admin_address = stage.directory / f"{name}.admin"
        file = stage.directory / f"{name}.json"
        file.write_text(json.dumps(self.bootstrap(variant, bootstrap)))
        command = [packages.envoy_binary(), "-c", file, "--concurrency", "1", "--disable-hot-restart"]
        logging = ["--log-level", "warning", "--component-log-level", "config:info,upstream:info"]
        stage.witness(f"what {name} holds", self.holds)
        self.command = [*command, *logging, "--admin-address-path", self.admin_address]
        self.name, self.starts = name, 0
        self.start()

    def start(self):
        self.starts += 1
        name = self.name if self.starts == 1 else f"{self.name}-{self.starts}"
        # For `%ENVIRONMENT(ENVOY_NAME)%` in a header: the name of the Envoy that answers.
        self.process = Process(self.stage, name, self.command, {"ENVOY_NAME": self.name})

    def crash(self):
        """Ends the process without a word, and starts another one."""
        self.process.child.kill()
        self.process.child.wait()
        self.admin_address.unlink()
        self.start()

    def bootstrap(self, variant, more):
        source = self.SOURCES[variant]
        dynamic = {"cds_config": source, "lds_config": source}
        if variant in self.ADS:
            ads = resources.source(self.ADS[variant])["api_config_source"]
            dynamic["ads_config"] = {**ads, "set_node_on_first_message_only": True}
        http2 = {"explicit_http_config": {"http2_protocol_options": {}}}
        options = {resources.HTTP_OPTIONS: {"@type": resources.PREFIX + resources.HTTP_OPTIONS, **http2}}
        xds = resources.static_cluster("xds", self.stage.xds, typed_extension_protocol_options=options)
        rest = resources.static_cluster("xds-rest", self.stage.rest)
        clusters = [{key: value for key, value in one.items() if key != "@type"} for one in (xds, rest)]
        return {
            "node": {"id": "envoy", "cluster": "interop"},
            "dynamic_resources": dynamic,
            "static_resources": {"clusters": clusters},
            "admin": {"address": resources.address(0)},
            **more,
        }

    def admin(self, path):
        """A page of Envoy's admin; '' before the admin is up."""
        address = ""
        with contextlib.suppress(FileNotFoundError):
            address = self.admin_address.read_text()
        return get(int(address.rpartition(":")[2]), path).body if address else ""

    def stats(self, pattern):
        lines = self.admin(f"/stats?filter={pattern}").splitlines()
        return {name: value for name, _, value in (line.partition(": ") for line in lines)}

    def clusters(self):
        """The clusters that Envoy uses."""
        return {line.partition("::")[0] for line in self.admin("/clusters").splitlines()}

    def routes(self):
        """The route configurations that Envoy uses, as JSON."""
        return self.admin("/config_dump?resource=dynamic_route_configs")

    def assert_content(self):
        """Asserts that Envoy rejected nothing."""
        rejected = {name: value for name, value in self.stats("update_rejected").items() if value != "0"}
        assert not rejected, f"Envoy rejected {rejected}"

    def holds(self):
        """Envoy's configuration without the bootstrap, and the statistics of discovery."""
        dump = json.loads(self.admin("/config_dump?include_eds") or "{}").get("configs", [])
        dump = [part for part in dump if "bootstrap" not in part]
        telling = "update_|warming|active_clusters|connected_state|vhds|on_demand"
        stats = [f"{name}: {value}" for name, value in self.stats(telling).items() if value.strip('"').strip("0")]
        return "\n".join([json.dumps(dump)[:8000], *(line for line in stats if "_duration" not in line)])


class GrpcClient:
    """A proxyless gRPC client of a target xds:///<name>, in a process of its own, in one of `packages.LANGUAGES`."""

    MODE = "call"
    PIPES: ClassVar = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}

    def __init__(self, stage, target, bootstrap=None, language="C-core", name="client", arguments=()):
        if bootstrap is None and not stage.direct:
            bootstrap = stage.sluice_says("bootstrap", "grpc", "--config", "sluice.json")
        if bootstrap is None:
            server = {"channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}
            servers = [{"server_uri": f"127.0.0.1:{port}", **server} for port in (stage.xds, *stage.reserve)]
            node = {"id": name, "cluster": "interop", "locality": {}}
            bootstrap = json.dumps({"xds_servers": servers, "node": node})
        file = stage.directory / f"{name}.json"
        file.write_text(bootstrap)
        command, environment = packages.grpc_client(language)
        environment["GRPC_XDS_BOOTSTRAP"] = str(file)
        command = [*command, self.MODE, *([f"xds:///{target}"] if target else []), *arguments]
        self.process = Process(stage, name, command, environment, **self.PIPES)

    def reaches(self, port):
        """Waits until a call reaches this port; for `nobody`, until calls fail."""
        child = self.process.child
        child.stdin.write(f"{port}\n")
        child.stdin.flush()
        timer = threading.Timer(DEADLINE, child.kill)
        timer.start()
        line = child.stdout.readline()
        timer.cancel()
        assert line == f"reached {port}\n", f"the client says {line!r} instead of having reached {port}"


class Call(NamedTuple):
    """A call of a client. The result is a port, or the code of a status, which has a text."""

    channel: str
    result: str
    text: str

    has_failed = property(lambda self: self.result in STATUS.values())


class GrpcCalls(GrpcClient):
    """A client that calls on several channels all the time, so that no failed call is missed. A channel is a name with a target, a
    method and an authority; each of its calls has the name in the header `name`."""

    MODE = "loop"
    PIPES: ClassVar = {}

    def __init__(self, stage, channels, **more):
        words = [f"{name},xds:///{target},{method},{authority}" for name, (target, method, authority) in channels.items()]
        super().__init__(stage, None, arguments=words, **more)
        self.channels = set(channels)
        self.output = stage.enter_context(open(self.process.log, errors="replace"))
        self.rest, self.known = "", []
        stage.witness("the texts of failed calls", lambda: "\n".join(dict.fromkeys(f"{call.channel} {call.text}" for call in self.results() if call.has_failed)))

    def results(self):
        """The calls since the start."""
        whole, _, self.rest = (self.rest + self.output.read()).rpartition("\n")
        for line in whole.splitlines():
            channel, _, said = line.partition(" ")
            result, _, text = said.partition(" ")
            if channel in self.channels:
                self.known.append(Call(channel, STATUS.get(result, result), text))
        return self.known


class GrpcCaller(GrpcCalls):
    """A client whose calls to one target count; it calls the targets `beside` as well."""

    def __init__(self, stage, target, beside=(), **more):
        channels = {name: (name, "Port", "") for name in (target, *beside)}
        super().__init__(stage, channels, **more)
        self.target, self.is_direct = target, stage.direct
        self.begun = 0

    def begins(self):
        """Waits until a call is answered; calls before it don't count. On a busy machine a client may start longer than a call lasts."""
        eventually("a call is answered", lambda: self.calls()[-1:] not in ([], ["nobody"]))
        self.begun = len(self.calls()) - 1

    def calls(self):
        """The result of each call to the target, a port or `nobody`."""
        results = [call.result for call in self.results() if call.channel == self.target]
        return [result if result.isdigit() else "nobody" for result in results][self.begun :]

    def has_reached(self, *ports):
        """Waits until the last of these is reached. Since its start the client must have reached them in this order,
        and nothing else. Without the relay failures are ignored: C-core itself may lose a call during its return."""
        wanted = [str(port) for port in ports]
        eventually(f"calls reach {wanted[-1]}", lambda: self.calls()[-1:] == wanted[-1:])
        passed_over = {"nobody"} - set(wanted[-1:]) if self.is_direct else set()
        calls = [port for port in self.calls() if port not in passed_over]
        wanted = [port for port in wanted if port not in passed_over]
        reached = [port for port, _ in itertools.groupby(calls)]
        assert reached == wanted, f"calls reached {reached} instead of {wanted}"

    def goes_on(self, count=50):
        """Asserts that this number of further calls reach the same port."""
        before = self.calls()
        eventually(f"{count} more calls", lambda: len(self.calls()) >= len(before) + count)
        further = self.calls()[len(before) :]
        assert set(further) == {before[-1]}, f"after {before[-1]} calls reached {further}"
