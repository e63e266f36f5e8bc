#!/usr/bin/env python3
"""Real Envoy and real gRPC through the relay, over a copy of the quickstart, as the README tells a reader to do it.

usage: tests/interop/run.py [--sluice PATH]

Needs Python 3.11 and, on the first run, a package registry; the packages go into target/interop-venv. A peer that
can't be installed is skipped with a loud line. Everything listens on loopback, on ports of its own.
"""

import argparse
import contextlib
import hashlib
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.error
import urllib.request
import venv

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
VENV = ROOT / "target" / "interop-venv"
DEADLINE = 60.0


def installed(name):
    """Installs requirements-<name>.txt once; None if that works, else why not."""
    python = VENV / "bin" / "python"
    if not python.exists():
        venv.create(VENV, with_pip=True)
    requirements = HERE / f"requirements-{name}.txt"
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()
    stamp = VENV / f"{name}.installed"
    if stamp.exists() and stamp.read_text() == digest:
        return None
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", requirements]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        return done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "pip failed"
    stamp.write_text(digest)
    return None


def free_ports(count):
    """Distinct ports that nobody listens on now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def http(port, path="/", host=None):
    """GET over loopback: status and body; (0, reason) if nobody answers."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Host": host} if host else {})
    try:
        with urllib.request.urlopen(request, timeout=5) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def eventually(what, check):
    """Waits until check() is true."""
    end = time.monotonic() + DEADLINE
    while not check():
        if time.monotonic() > end:
            raise AssertionError(f"never: {what}")
        time.sleep(0.05)


class Process:
    """A child process with its log in a file; ended with the block."""

    def __init__(self, arguments, directory, name, **environment):
        self.log = pathlib.Path(directory) / f"{name}.log"
        with open(self.log, "wb") as log:
            self.child = subprocess.Popen(
                [str(argument) for argument in arguments],
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **environment},
            )

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.child.terminate()
        try:
            self.child.wait(10)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        if kind is not None:
            tail = self.log.read_text(errors="replace")[-4000:]
            print(f"--- the end of {self.log.name} ---\n{tail}")


class Quickstart:
    """A copy of config/ with ports of its own, and a relay over it started without arguments, as in the README."""

    def __init__(self, sluice, stack):
        self.sluice = sluice
        self.directory = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        shutil.copytree(ROOT / "config", self.directory / "config")
        self.xds, self.admin, self.http, self.backend, self.canary, self.envoy_admin = free_ports(6)
        self.ports = {
            "18000": self.xds,
            "19000": self.admin,
            "10000": self.http,
            "50051": self.backend,
            "50052": self.canary,
        }
        for file in [self.directory / "config" / "sluice.yaml", *self.files().iterdir()]:
            text = file.read_text()
            for old, new in self.ports.items():
                text = text.replace(old, str(new))
            file.write_text(text)
        self.relay = stack.enter_context(Process([sluice, "serve"], self.directory, "sluice"))
        eventually("the relay is ready", lambda: http(self.admin, "/ready")[0] == 200)

    def files(self):
        return self.directory / "config" / "quickstart"

    def bootstrap(self, *arguments):
        command = [self.sluice, "bootstrap", *arguments]
        return subprocess.run(command, cwd=self.directory, check=True, capture_output=True, text=True).stdout

    def edit(self, name, old, new, rename):
        """Replaces text in a file: by a rename over it, or in place."""
        path = self.files() / name
        text = path.read_text()
        assert old in text, f"{name} has no {old!r}; the quickstart changed"
        if rename:
            fresh = path.with_name(f".{name}.new")
            fresh.write_text(text.replace(old, new))
            fresh.replace(path)
        else:
            path.write_text(text.replace(old, new))


FRESH_CLUSTER = """
  - "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
    name: fresh
    type: EDS
    eds_cluster_config:
      eds_config: { resource_api_version: V3, ads: {} }
    connect_timeout: 1s
"""

FRESH_ENDPOINTS = """
  - "@type": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment
    cluster_name: fresh
    endpoints:
      - locality: { region: here }
        load_balancing_weight: 1
        lb_endpoints:
          - endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: PORT } } }
"""


def envoy_follows(sluice, variant):
    """Envoy serves by configuration that came through the relay, and follows its files."""
    with contextlib.ExitStack() as stack:
        quickstart = Quickstart(sluice, stack)
        flags = ["--sotw"] if variant == "sotw" else []
        text = quickstart.bootstrap("envoy", "--admin-port", str(quickstart.envoy_admin), *flags)
        assert ("api_type: GRPC" if flags else "api_type: DELTA_GRPC") in text, text
        (quickstart.directory / "envoy.yaml").write_text(text)
        binary = next(VENV.glob("lib/python*/site-packages/envoy/_bin/envoy"))
        command = [binary, "-c", "envoy.yaml", "--concurrency", "1", "--use-dynamic-base-id"]
        stack.enter_context(Process(command, quickstart.directory, "envoy"))

        def says(text, path="/", host=None):
            status, body = http(quickstart.http, path, host)
            return status == 200 and text in body

        eventually("Envoy answers by itself", lambda: says("Hello from sluice"))
        eventually("a route to a cluster", lambda: says("ok", "/healthz", "relay.example"))

        quickstart.edit("routes.yaml", "Hello from sluice", "Saved in place, says sluice", rename=False)
        eventually("Envoy follows a save in place", lambda: says("Saved in place"))
        quickstart.edit("routes.yaml", "Saved in place", "Renamed over", rename=True)
        eventually("Envoy follows a rename", lambda: says("Renamed over"))

        # A cluster, its endpoints and a route to it: make before break.
        for name, text in [("clusters.yaml", FRESH_CLUSTER), ("endpoints.yaml", FRESH_ENDPOINTS)]:
            path = quickstart.files() / name
            path.write_text(path.read_text().rstrip() + "\n" + text.replace("PORT", str(quickstart.admin)))
        route = '- match: { prefix: "/healthz" }\n            route: { cluster: relay-admin }'
        fresh = route.replace('"/healthz"', '"/ready"').replace("relay-admin", "fresh")
        quickstart.edit("routes.yaml", route, f"{fresh}\n          {route}", rename=True)
        eventually("a new cluster warms", lambda: http(quickstart.http, "/ready", "relay.example")[0] == 200)

        # A changed cluster warms again only if its endpoints are sent again (ORD-5).
        quickstart.edit("clusters.yaml", "name: fresh", "name: fresh\n    alt_stat_name: again", rename=True)
        stats = lambda name: http(quickstart.envoy_admin, f"/stats?filter={name}")[1]
        eventually("the changed cluster is used", lambda: "cluster.again.membership_healthy: 1" in stats("again"))
        assert says("", "/ready", "relay.example")
        assert "warming_clusters: 0" in stats("warming_clusters"), stats("warming_clusters")

        rejected = [line for line in stats("update_rejected").splitlines() if not line.endswith(": 0")]
        assert not rejected, rejected
        assert "control_plane.connected_state: 1" in stats("connected_state")

        # The relay ends; what Envoy has, it keeps.
        quickstart.relay.child.terminate()
        assert quickstart.relay.child.wait(90) == 0, "the relay drains with exit code 0"
        assert says("Renamed over")


def grpc_follows(sluice):
    """A proxyless gRPC client finds its backend through the relay, and follows it to another one."""
    with contextlib.ExitStack() as stack:
        quickstart = Quickstart(sluice, stack)
        (quickstart.directory / "grpc.json").write_text(quickstart.bootstrap("grpc"))
        python = VENV / "bin" / "python"
        for port in (quickstart.backend, quickstart.canary):
            backend = [python, HERE / "grpc_peer.py", "serve", port]
            stack.enter_context(Process(backend, quickstart.directory, f"backend-{port}"))

        def client(*arguments):
            command = [python, HERE / "grpc_peer.py", "call", "xds:///quickstart", *map(str, arguments)]
            environment = {**os.environ, "GRPC_XDS_BOOTSTRAP": str(quickstart.directory / "grpc.json")}
            return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

        with client(quickstart.backend, quickstart.canary) as caller:
            try:
                assert caller.stdout.readline() == f"reached {quickstart.backend}\n"
                # Both clusters' endpoints change places.
                text = (quickstart.files() / "endpoints.yaml").read_text()
                first, second = str(quickstart.backend), str(quickstart.canary)
                swapped = text.replace(first, "PORT").replace(second, first).replace("PORT", second)
                quickstart.edit("endpoints.yaml", text, swapped, rename=True)
                assert caller.stdout.readline() == f"reached {quickstart.canary}\n"
                assert caller.wait(30) == 0
            finally:
                caller.kill()


CASES = [
    ("envoy", "Envoy, delta", lambda sluice: envoy_follows(sluice, "delta")),
    ("envoy", "Envoy, SotW", lambda sluice: envoy_follows(sluice, "sotw")),
    ("grpc", "gRPC", grpc_follows),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", type=pathlib.Path, default=ROOT / "target" / "debug" / "sluice")
    sluice = parser.parse_args().sluice.resolve()
    missing = {package: installed(package) for package in ("envoy", "grpc")}
    passed = failed = skipped = 0
    for package, name, case in CASES:
        if missing[package]:
            skipped += 1
            print(f"!!!!!!!! SKIPPED {name}: {package} can't be installed: {missing[package]}", flush=True)
            continue
        start = time.monotonic()
        try:
            case(sluice)
        except Exception:
            failed += 1
            print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
        else:
            passed += 1
            print(f"ok {name} ({time.monotonic() - start:.1f} s)", flush=True)
    print(f"interop: {passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
