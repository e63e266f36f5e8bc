#!/usr/bin/env python3
"""Takes ratios of interleaved pairs: what collectors of traces, people who look, plans, load reports, and the proof of the
node classes cost the clients (OBS-6, ADM-6, TRU-2, LRS-15, PRF-19).

    cargo build --profile dist --workspace --bins
    python3 loadtest/pairs.py collector              # no traces; an absent collector; one that accepts and hangs. One worker
    python3 loadtest/pairs.py viewers                # 0 and 8 viewers, at 10,000 clients
    python3 loadtest/pairs.py plan                   # no plan, and one that observes all clients
    python3 loadtest/pairs.py reports                # 500 clients with updates, beside 10,000 at rest and 10,000 with load reports: 100
                                                     # clusters of 3 localities each, every 10 s
    python3 loadtest/pairs.py proof                  # no proof, and `proof: warn` at its defaults; delta, with changes and at rest
    python3 loadtest/pairs.py viewers --clients 200 --pairs 1 --seconds 5 --binaries target/debug

Each run has a fresh relay. A viewer does as the operator's page does: holds /events, asks for /overview each second, and turns
to the next 200 of /clients every two seconds. In a pair the conditions follow each other, in turns of their order, so that a
drift of the machine affects both alike. Prints each pair, and the medians of the ratios with their bounds; exits 1 if a median
is beyond its bound. Only a quiet machine with release binaries judges: on another one, the spread of the pairs says so.
"""

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from figures import ROOT, ControlPlane, Relay, free_port

MIB = float(1 << 20)


class Viewers:
    """People with the page open, in threads of their own."""

    def __init__(self, admin, count):
        self.base, self.count, self.stopped = f"http://127.0.0.1:{admin}", count, threading.Event()
        self.asked = 0
        self.places = threading.local()

    def __enter__(self):
        for act in (self.hold, self.poll, self.page):
            for _ in range(self.count):
                threading.Thread(target=self.until_stopped, args=(act,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.stopped.set()

    def until_stopped(self, act):
        while not self.stopped.is_set():
            try:
                act()
            except OSError:
                time.sleep(0.2)

    def get(self, path, **headers):
        self.asked += 1
        return urllib.request.urlopen(urllib.request.Request(self.base + path, headers=headers), timeout=30)

    def hold(self):
        with self.get("/events", Accept="text/event-stream") as events:
            while not self.stopped.is_set() and events.readline():
                pass

    def poll(self):
        with self.get("/overview") as overview:
            overview.read()
        self.stopped.wait(1)

    def page(self):
        place = getattr(self.places, "after", None)
        with self.get("/clients?limit=200" + (f"&after={place}" if place else "")) as page:
            self.places.after = json.load(page)["next"]
        self.stopped.wait(2)


# The clients whose updates are measured, beside others.
MEASURED = 500


@contextlib.contextmanager
def others(relay, plane, target, arguments, options):
    """Clients that ask for one name each, and never get an update: a tool with both kinds would measure its own reports."""
    if arguments is None:
        yield
        return
    command = [*target, "--remote-control-plane", f"127.0.0.1:{plane.commands}", "--clients", str(options.clients), "--rate", "0"]
    command += ["--named", "eds", "--names", "1", "--names-step", "0", "--duration", "3600", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        while relay.metric("sluice_downstream_streams{") < options.clients:
            if process.poll() is not None:
                raise SystemExit(f"the tool failed: {' '.join(map(str, command))}")
            time.sleep(0.2)
        yield
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def hanging_collector():
    """A port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=16) as listener:
        taken = []

        def accept():
            with contextlib.suppress(OSError):
                while True:
                    taken.append(listener.accept())

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]


def measure(options, extra="", viewers=0, server="", beside=None):
    """One run: the 99th percentile of updates in ms, the largest RSS in MiB, and the lost spans. `beside`: further clients, of a tool of
    their own, that get no update."""
    sluice, tool = (options.binaries / name for name in ("sluice", "sluice-load"))
    with ControlPlane(tool, 100, 500) as plane, Relay(sluice, plane.listen, extra, server=server) as relay, tempfile.NamedTemporaryFile() as file:
        target = [tool, "run", "--target", f"127.0.0.1:{relay.port}", "--pid", str(relay.process.pid), "--scenario", "steady"]
        command = [*target, "--json", file.name, "--remote-control-plane", f"127.0.0.1:{plane.commands}"]
        command += ["--clients", str(options.clients if beside is None else MEASURED)]
        command += ["--duration", str(options.seconds), "--rate", str(options.rate)]
        with Viewers(relay.admin, viewers) as looking, others(relay, plane, target, beside, options):
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            peak = relay.rss()
            while process.poll() is None:
                peak = max(peak, relay.rss())
                time.sleep(0.2)
            output = process.stdout.read().decode()
            if process.returncode != 0 or os.path.getsize(file.name) == 0:
                raise SystemExit(f"the tool failed: {' '.join(map(str, command))}\n{output[-2000:]}")
            if viewers and not looking.asked:
                raise SystemExit("the viewers saw nothing")
        run = json.load(open(file.name))
        begin = time.monotonic()
        lost = relay.metric("sluice_telemetry_spans_dropped_total")
        relay.process.terminate()
        relay.process.wait(20)
        end = time.monotonic() - begin
    return {"p99": run["update_ms"]["p99"], "rss": peak / MIB, "lost": lost, "end": end, "busy": run["tool_was_bottleneck"]}


def traces(port):
    return f"traces: {{ endpoint: 'http://127.0.0.1:{port}', slow: 0s, per_second: 1000 }}\ndrain: 0s\n"


def collector(options):
    os.environ["TOKIO_WORKER_THREADS"] = "1"
    with hanging_collector() as hanging:
        conditions = {
            "no traces": lambda: measure(options, "drain: 0s\n"),
            "absent": lambda: measure(options, traces(free_port())),
            "hanging": lambda: measure(options, traces(hanging)),
        }
        runs = take(conditions, options.pairs)
    is_good = judge(runs, "no traces", {"absent": (1.02, None), "hanging": (1.02, None)})
    for name in ("absent", "hanging"):
        lost, longest = [run["lost"] for run in runs[name]], max(run["end"] for run in runs[name])
        print(f"{name}: spans lost {lost}, the end took at most {longest:.2f} s")
        is_good &= all(lost)
    return is_good


def viewers(options):
    conditions = {"0 viewers": lambda: measure(options), "8 viewers": lambda: measure(options, viewers=8)}
    return judge(take(conditions, options.pairs), "0 viewers", {"8 viewers": (1.05, 16.0)})


def plan(options):
    watched = "rollouts: [{ name: all, mode: observe }]\n"
    conditions = {"no plan": lambda: measure(options), "a plan": lambda: measure(options, watched)}
    return judge(take(conditions, options.pairs), "no plan", {"a plan": (1.05, 16.0)})


def reports(options):
    conditions = {
        "no reports": lambda: measure(options, server=", lrs: aggregate", beside=[]),
        "reports": lambda: measure(options, server=", lrs: aggregate", beside=["--load-clusters", "100"]),
    }
    return judge(take(conditions, options.pairs), "no reports", {"reports": (1.05, 64.0)})


# 40 classes, with 12 different nodes each.
LABELS = ["--labels", "app=40,team=4,zone=3"]
CLASSES = "node_classes: [ { split_by: { metadata: [ app ] }, upstream_node: member } ]\n"
CHANGING, AT_REST = "with changes", "at rest"


def cost(options, extra, rate):
    """One run of delta clients: CPU per update in us, RSS per client in KiB, and the share of a core after all are connected."""
    sluice, tool = (options.binaries / name for name in ("sluice", "sluice-load"))
    with ControlPlane(tool, 100, 500, LABELS) as plane, Relay(sluice, plane.listen, CLASSES + extra) as relay:
        with tempfile.NamedTemporaryFile() as file:
            command = [tool, "run", "--target", f"127.0.0.1:{relay.port}", "--pid", str(relay.process.pid), "--json", file.name, *LABELS]
            command += ["--remote-control-plane", f"127.0.0.1:{plane.commands}", "--clients", str(options.clients), "--mode", "delta"]
            # The tool settles for 3 s before and after the changes.
            command += ["--scenario", "steady", "--duration", str(options.seconds), "--rate", str(rate)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            begin = None
            while process.poll() is None:
                if begin is None and relay.metric("sluice_downstream_streams{") >= options.clients:
                    # The first answers, and what they leave to do.
                    time.sleep(5)
                    begin = time.monotonic(), relay.cpu_s()
                if begin is not None:
                    end = time.monotonic(), relay.cpu_s()
                time.sleep(0.5)
            if process.returncode != 0 or begin is None:
                raise SystemExit(f"the tool failed: {' '.join(map(str, command))}\n{process.stdout.read().decode()[-2000:]}")
            run = json.load(open(file.name))
        samples = relay.metric("sluice_proof_samples_total")
    return {
        "cpu": run["server_cpu_us_per_update"],
        "rss": run["rss_bytes_per_client_after_changes"] / 1024.0,
        "core": (end[1] - begin[1]) / (end[0] - begin[0]) * 100,
        "samples": samples,
        "busy": run["tool_was_bottleneck"],
    }


def proof(options):
    """PRF: CPU per update and memory per client within 2 %, and at most 1 % of a core."""
    taken, is_good = {}, True
    for place, rate in ((CHANGING, options.rate), (AT_REST, 0)):
        conditions = {"no proof": lambda: cost(options, "", rate), "proof": lambda: cost(options, "proof: { policy: warn }\n", rate)}
        taken[place] = take(conditions, options.pairs, lambda run: ", ".join(f"{key} {run[key] or 0:.2f}" for key in ("cpu", "rss", "core", "samples")))
        if not all(run["samples"] for run in taken[place]["proof"]):
            print(f"{place}: nobody was asked")
            is_good = False
    figures = [
        (CHANGING, "cpu", "CPU per update", lambda base, run: run / base, 1.02),
        (CHANGING, "rss", "RSS per client", lambda base, run: run / base, 1.02),
        (AT_REST, "core", "% of a core more", lambda base, run: run - base, 1.0),
    ]
    for place, key, words, compare, bound in figures:
        found = [compare(base[key], run[key]) for base, run in zip(taken[place]["no proof"], taken[place]["proof"])]
        middle = statistics.median(found)
        print(f"{place}: {words}: {middle:.3f} ({min(found):.3f} to {max(found):.3f}; bound {bound})")
        is_good &= middle <= bound
    return is_good


def take(conditions, pairs, words=None):
    """All runs by condition. Every other round has the opposite order."""
    runs = {name: [] for name in conditions}
    for number in range(pairs):
        for name in list(conditions)[:: 1 if number % 2 == 0 else -1]:
            run = conditions[name]()
            runs[name].append(run)
            busy = "; the tool was the bottleneck" if run["busy"] else ""
            figures = words(run) if words else f"p99 {run['p99']:.2f} ms, RSS {run['rss']:.1f} MiB"
            print(f"pair {number + 1}, {name}: {figures}{busy}", flush=True)
    return runs


def judge(runs, base, bounds):
    """Prints the medians of the ratios. `bounds`: of the ratio, and of the growth of RSS in MiB."""
    is_good = True
    for name, (ratio_max, growth_max) in bounds.items():
        pairs = list(zip(runs[base], runs[name]))
        ratios = [other["p99"] / first["p99"] for first, other in pairs]
        growths = [other["rss"] - first["rss"] for first, other in pairs]
        ratio, growth = statistics.median(ratios), statistics.median(growths)
        spread = f"{min(ratios):.3f} to {max(ratios):.3f}"
        print(f"{name} against {base}: p99 ratio {ratio:.3f} ({spread}; bound {ratio_max}), RSS {growth:+.1f} MiB (bound {growth_max})")
        is_good &= ratio <= ratio_max and (growth_max is None or growth <= growth_max)
    return is_good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["collector", "viewers", "plan", "reports", "proof"])
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--rate", type=float, default=2.0, help="changes a second")
    parser.add_argument("--binaries", type=Path, default=ROOT / "target" / "release", help="the folder of sluice and sluice-load")
    options = parser.parse_args()
    return int(not {"collector": collector, "viewers": viewers, "plan": plan, "reports": reports, "proof": proof}[options.what](options))


if __name__ == "__main__":
    sys.exit(main())
