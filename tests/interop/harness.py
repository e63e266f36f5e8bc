"""What the cases play on: the relay, a control plane or a directory above it, Envoy and gRPC clients below it.

Everything listens on loopback, on ports of its own, and ends with its case.
"""

import contextlib
import dataclasses
import http.client
import http.server
import json
import os
import pathlib
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable

import grpc_peer
import packages
import resources
from control_plane import SERVICES, ControlPlane

# A machine that is busy with other things may take its time; nothing waits this long when all is well.
DEADLINE = 30.0


@dataclasses.dataclass
class Case:
    """One test. `needs` are packages; of `relay_only` nothing is left without the relay."""

    name: str
    needs: set[str]
    play: Callable
    relay_only: bool = False


def eventually(what, check):
    """Waits until check() is true; what it was last is part of the failure."""
    end = time.monotonic() + DEADLINE
    while not (last := check()):
        if time.monotonic() > end:
            raise AssertionError(f"never: {what} (last: {last!r})")
        time.sleep(0.05)


class Answer(tuple):
    """Status, body and seconds of an HTTP request; (0, reason, seconds) if nobody answered. True if it was a 200."""

    def __bool__(self):
        return self[0] == 200

    status = property(lambda self: self[0])
    body = property(lambda self: self[1])
    seconds = property(lambda self: self[2])


def get(port, path="/", timeout=10, **headers):
    """GET over loopback. A header's name is written with underscores."""
    start = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    headers = {name.replace("_", "-"): value for name, value in headers.items() if value is not None}
    with contextlib.closing(connection):
        try:
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            status, body = response.status, response.read().decode()
        except (OSError, http.client.HTTPException) as error:
            status, body = 0, str(error)
    return Answer((status, body, time.monotonic() - start))


class Ports:
    """Ports that nobody listens on, none of them given twice, and below those that the kernel gives to connections: one
    of these would take a port before its owner comes to listen on it."""

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


PORTS = Ports()


class Process:
    """A child process with its output in a file, unless its output is wanted."""

    def __init__(self, stage, name, arguments, environment=None, **pipes):
        self.log = stage.directory / f"{name}.log"
        with open(self.log, "wb") as log:
            self.child = subprocess.Popen(
                [str(argument) for argument in arguments],
                cwd=stage.directory,
                env={**os.environ, **(environment or {})},
                **{"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, **pipes},
            )
        stage.callback(self.end)
        stage.witness(f"the end of {self.log.name}", lambda: self.log.read_text(errors="replace")[-4000:])

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
        # A relay starts over nothing but over no file.
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


class Stage(contextlib.ExitStack):
    """All that one case starts. Its witnesses are asked when it fails."""

    def __init__(self, sluice, direct):
        super().__init__()
        self.sluice = sluice
        self.direct = direct
        self.directory = pathlib.Path(self.enter_context(tempfile.TemporaryDirectory()))
        self.witnesses = []

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
        """A control plane, or `files`, with the relay over it; what is put there comes to the peers.

        `kind` is the relay's `api_type`, how it asks the control plane. The peers find their server at `xds` (gRPC) and
        `rest`; if the cases are run without the relay, those are the control plane's own.
        """
        if kind == "files":
            plane = Files(self.directory / "served")
            server = {"server_uri": "file:served"}
        else:
            plane = ControlPlane(PORTS.take(), PORTS.take())
            plane.start()
            self.callback(plane.stop)
            self.witness("the control plane", plane.evidence)
            server = {"server_uri": f"127.0.0.1:{plane.port}", "api_type": kind}
            server["channel_creds"] = [{"type": "insecure"}]
            if kind == "REST":
                server |= {"server_uri": f"http://127.0.0.1:{plane.rest_port}", "refresh_delay": "100ms"}
            # The control plane comes back within the case.
            server["backoff"] = {"initial": "100ms", "max": "500ms"}
        if self.direct:
            self.xds, self.rest = plane.port, plane.rest_port
        else:
            self.xds = self.rest = self.relay(server)
        return plane

    def relay(self, server):
        """Starts the relay; the port that it serves on."""
        xds, self.admin = PORTS.take(), PORTS.take()
        config = {
            "xds_servers": [server],
            "listeners": [{"name": "main", "address": f"127.0.0.1:{xds}"}],
            "admin": {"address": f"127.0.0.1:{self.admin}"},
        }
        (self.directory / "sluice.json").write_text(json.dumps(config))
        relay = Process(self, "sluice", [self.sluice, "serve", "--config", "sluice.json"])
        self.witness("the relay's clients", lambda: get(self.admin, "/clients").body)
        self.witness("the relay's sources", lambda: get(self.admin, "/sources").body)

        def is_ready():
            assert relay.child.poll() is None, f"the relay ended with exit code {relay.child.poll()}"
            return get(self.admin, "/ready")

        eventually("the relay is ready", is_ready)
        return xds

    def sluice_says(self, *arguments):
        """What a command of the relay's prints."""
        command = [self.sluice, *arguments]
        return subprocess.run(command, cwd=self.directory, check=True, capture_output=True, text=True).stdout

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
    """An Envoy that takes its configuration from where the stage says, in one variant of the protocol."""

    # How LDS and CDS are asked for, and with them what the resources refer to: ADS if that is what it is.
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
        command += [*logging, "--admin-address-path", self.admin_address]
        self.process = Process(stage, name, command)

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
        """A page of Envoy's admin, '' before there is one."""
        address = self.admin_address.read_text() if self.admin_address.exists() else ""
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
        """Envoy rejected nothing."""
        rejected = {name: value for name, value in self.stats("update_rejected").items() if value != "0"}
        assert not rejected, f"Envoy rejected {rejected}"

    def holds(self):
        """Its state without the bootstrap, and the stats that tell of discovery."""
        dump = json.loads(self.admin("/config_dump?include_eds") or "{}").get("configs", [])
        dump = [part for part in dump if "bootstrap" not in part]
        telling = "update_|warming|active_clusters|connected_state|vhds|on_demand"
        stats = [f"{name}: {value}" for name, value in self.stats(telling).items() if value.strip('"').strip("0")]
        return "\n".join([json.dumps(dump)[:8000], *(line for line in stats if "_duration" not in line)])


class GrpcClient:
    """A proxyless gRPC client of a target xds:///<name>, in a process of its own; C-core, or grpc-js in Node.js."""

    def __init__(self, stage, target, bootstrap=None, in_node=False, name="client"):
        if bootstrap is None and not stage.direct:
            bootstrap = stage.sluice_says("bootstrap", "grpc", "--config", "sluice.json")
        if bootstrap is None:
            server = {"server_uri": f"127.0.0.1:{stage.xds}", "channel_creds": [{"type": "insecure"}]}
            server["server_features"] = ["xds_v3"]
            node = {"id": name, "cluster": "interop", "locality": {}}
            bootstrap = json.dumps({"xds_servers": [server], "node": node})
        file = stage.directory / f"{name}.json"
        file.write_text(bootstrap)
        environment = {"GRPC_XDS_BOOTSTRAP": str(file)}
        command = [packages.PYTHON, packages.HERE / "grpc_peer.py"]
        if in_node:
            command = ["node", packages.HERE / "grpc_peer.js"]
            environment["NODE_PATH"] = str(packages.NODE / "node_modules")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = Process(stage, name, [*command, "call", f"xds:///{target}"], environment, **pipes)

    def reaches(self, port):
        """Waits until a call reaches this port, or until calls fail if it is `nobody`."""
        child = self.process.child
        child.stdin.write(f"{port}\n")
        child.stdin.flush()
        timer = threading.Timer(DEADLINE, child.kill)
        timer.start()
        line = child.stdout.readline()
        timer.cancel()
        assert line == f"reached {port}\n", f"the client says {line!r} instead of having reached {port}"
