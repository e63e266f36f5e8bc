#!/usr/bin/env python3
"""Takes the figures of `loadtest/results.md`: each row a fresh relay, several runs, medians.

    cargo build --profile dist --workspace --bins
    python3 loadtest/figures.py                      # all rows, five runs each; about an hour on two quiet cores
    python3 loadtest/figures.py --runs 1 rss cpu     # rows with these prefixes
    python3 loadtest/figures.py --reach rss-100      # and exits 1 if a median misses its aim
    python3 loadtest/figures.py --against OLD rss    # rows with an older relay beside, in pairs, and the ratios
    python3 loadtest/figures.py --growth             # the curves instead, one run for each point
    python3 loadtest/figures.py --tiers              # a relay behind a relay instead
    python3 loadtest/figures.py --classes            # many node classes with equal sets instead
    python3 loadtest/figures.py --tls none,tls,mtls  # the rows of TLS, with a column for each, and the differences to the first
    python3 loadtest/figures.py --tls none,mtls rss  # any other rows in this way
    python3 loadtest/figures.py --tls mtls,mtls-classic tls-1k  # the hybrid key exchange against X25519
    python3 loadtest/figures.py --beside mtls        # updates while 10,000 connect, in pairs with connects to another relay

Prints Markdown tables; `--json FILE` keeps every figure of every run. Rows are interleaved over the runs, so that a drift
of the machine affects all rows. Needs only the two binaries and Python's standard library; all traffic stays on
loopback. A run needs as many file descriptors as it has clients (`ulimit -Hn`).
"""

import argparse
import json
import os
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KIB = 1024.0


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# The options of the clients, and whether the relay asks them for certificates.
TRANSPORTS = {
    "none": None,
    "tls": ("--identities 0", False),
    "tls-classic": ("--identities 0 --key-exchange classic", False),
    "mtls": ("--identities 100", True),
    "mtls-classic": ("--identities 100 --key-exchange classic", True),
}


class Transport:
    """The transport between clients and relay, with the certificates of `sluice-load certs` unless it is plaintext."""

    def __init__(self, name, certificates):
        self.listener, self.options = "", []
        if TRANSPORTS[name] is None:
            return
        options, is_mutual = TRANSPORTS[name]
        pair = f"certificate_file: {certificates}/relay/tls.crt, private_key_file: {certificates}/relay/tls.key"
        clients = f", ca_certificate_file: {certificates}/ca.crt, trust_domain: load.example" if is_mutual else ""
        self.listener = f", tls: {{ certificates: [ {{ {pair} }} ]{clients} }}"
        self.options = ["--tls", certificates, *shlex.split(options)]


PLAINTEXT = Transport("none", None)


class Relay:
    """A fresh relay with one control plane; `server` has further keys of that."""

    def __init__(self, sluice, upstream, extra="", transport=PLAINTEXT, server=""):
        self.directory = tempfile.TemporaryDirectory(prefix="sluice-figures-")
        self.port, self.admin = free_port(), free_port()
        config = Path(self.directory.name, "sluice.yaml")
        config.write_text(
            f'xds_servers: [ {{ server_uri: "127.0.0.1:{upstream}", channel_creds: [ {{ type: insecure }} ]{server} }} ]\n'
            f'listeners: [ {{ name: main, address: "127.0.0.1:{self.port}"{transport.listener} }} ]\n'
            f'admin: {{ address: "127.0.0.1:{self.admin}" }}\n{extra}'
        )
        self.config = config
        self.log = open(Path(self.directory.name, "log"), "w")
        self.process = subprocess.Popen(self.command(sluice), stdout=self.log, stderr=self.log)

    def command(self, sluice):
        return [sluice, "serve", "--config", self.config]

    def __enter__(self):
        for _ in range(600):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/ready", timeout=1) as answer:
                    if answer.status == 200:
                        return self
            except OSError:
                time.sleep(0.05)
        raise SystemExit(f"a relay did not become ready: {Path(self.log.name).read_text()[-2000:]}")

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)

    def __exit__(self, *_):
        self.stop()
        self.log.close()
        self.directory.cleanup()

    def metric(self, name):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))

    def cpu_s(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss(self):
        """Resident memory without the pages of files, as the tool reads it."""
        fields = Path(f"/proc/{self.process.pid}/statm").read_text().split()
        return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")


class ControlPlane:
    """The tool's control plane as a separate process, so that its CPU time is apart from the clients'."""

    def __init__(self, tool, resources, size, options=()):
        self.listen, self.commands = free_port(), free_port()
        self.process = subprocess.Popen(
            [tool, "control-plane", "--listen", f"127.0.0.1:{self.listen}", "--commands", f"127.0.0.1:{self.commands}"]
            + ["--resources", str(resources), "--size", str(size), *options],
            stdout=subprocess.PIPE,
        )

    def __enter__(self):
        self.process.stdout.readline()
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def overflows():
    """The number of connects that met a full accept queue and had to be retried, on the whole machine."""
    names, values = [line.split() for line in Path("/proc/net/netstat").read_text().splitlines() if line.startswith("TcpExt:")]
    return int(values[names.index("ListenOverflows")])


def value_of(arguments, option, default):
    words = shlex.split(arguments)
    return words[words.index(option) + 1] if option in words else default


def measure(binaries, arguments, probes=(), transport=PLAINTEXT):
    """One run of the tool on a fresh relay: its figures, and the relay's own metrics of `probes`."""
    sluice, tool = binaries
    turned_away = overflows()
    resources, size = value_of(arguments, "--resources", 100), value_of(arguments, "--size", 500)
    with ControlPlane(tool, resources, size) as plane, Relay(sluice, plane.listen, transport=transport) as relay:
        with tempfile.NamedTemporaryFile() as file:
            command = [tool, "run", "--target", f"127.0.0.1:{relay.port}", "--pid", str(relay.process.pid)]
            command += ["--remote-control-plane", f"127.0.0.1:{plane.commands}", "--json", file.name, *transport.options]
            # A watcher reads the relay's metrics while the clients are connected.
            process = subprocess.Popen(command + shlex.split(arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            seen, peak = {name: 0.0 for name in probes}, relay.rss()
            while process.poll() is None:
                peak = max(peak, relay.rss())
                for name in probes:
                    seen[name] = max(seen[name], relay.metric(name))
                time.sleep(0.5)
            output = process.stdout.read().decode()
            if process.returncode not in (0, 1) or os.path.getsize(file.name) == 0:
                raise SystemExit(f"the tool failed: {' '.join(map(str, command))} {arguments}\n{output[-2000:]}")
            figures = json.load(open(file.name))
    figures["probes"], figures["peak_rss"], figures["overflows"] = seen, peak, overflows() - turned_away
    return figures


def kib(key):
    return lambda figures: figures[key] / KIB


def plain(key):
    return lambda figures: figures[key]


def inside(key, part):
    return lambda figures: figures[key][part]


def last_p99(figures):
    return [phase for phase in figures["phases"] if phase["update_ms"]][-1]["update_ms"]["p99"]


def growth_mib(figures):
    return (figures["peak_rss"] - figures["rss"]["all_clients"]) / KIB / KIB


def stuck_kib(figures):
    """The growth for each client that stopped reading; the few others are left out of account."""
    rss = figures["rss"]
    return (rss["after_changes"] - rss["all_clients"]) / figures["clients"] / KIB


US = ("server CPU, us per client and update", plain("server_cpu_us_per_update"))
CLIENT_US = ("clients' CPU, us", plain("client_cpu_us_per_update"))
LAST = ("last client, ms", plain("last_client_ms_p50"))
RSS = ("RSS per client, KiB", kib("rss_bytes_per_client"))
RSS_AFTER = ("after the changes, KiB", kib("rss_bytes_per_client_after_changes"))
SERVED = ("all served, ms", plain("connect_ms"))
BASE = ("RSS with one client, MiB", lambda figures: figures["rss"]["one_client"] / KIB / KIB)
CONNECT_US = ("server CPU, us per connect", plain("server_cpu_us_per_connect"))
UPDATES = ("updates, p99 ms", inside("update_ms", "p99"))
STREAMS = ("upstream streams", lambda figures: figures["probes"]["sluice_upstream_streams"])

# name: (arguments, [(column, figure, target or None)], probes)
ROWS = {
    "rss-100": ("--clients 5000 --mode delta --resources 100 --changes 50 --pause-ms 50", [(*RSS, 20.2), (*RSS_AFTER, 24.3), (*BASE, None)], ()),
    "rss-1000": ("--clients 5000 --mode delta --resources 1000 --changes 50 --pause-ms 50", [(*RSS, 20.2), (*RSS_AFTER, 24.3), (*BASE, None)], ()),
    "rss-10000": ("--clients 3000 --mode delta --resources 10000 --changes 50 --pause-ms 50", [(*RSS, 24), (*RSS_AFTER, 24), (*BASE, None)], ()),
    "rss-reconnect": ("--scenario storm --clients 5000 --mode delta --duration 12", [(*RSS, 24), (*RSS_AFTER, 24)], ()),
    "rss-envoy": ("--clients 5000 --mode delta --node-bytes 61000", [(*RSS, 40), (*RSS_AFTER, 40), (*US, None)], ()),
    "rss-envoy-acks": ("--clients 5000 --mode delta --node-bytes 61000 --node-every-request --size 1024 --changes 20", [(*RSS, 48), (*RSS_AFTER, 48), (*US, 40)], ()),
    "cpu-delta-100": ("--clients 5000 --mode delta --resources 100", [(*US, 20), (*CLIENT_US, None), (*LAST, 100)], ()),
    "cpu-delta-1000": ("--clients 5000 --mode delta --resources 1000", [(*US, 20), (*CLIENT_US, None), (*LAST, 100)], ()),
    "cpu-sotw-50k": ("--clients 5000 --mode sotw --resources 100", [(*US, 45), (*CLIENT_US, None), (*LAST, 200)], ()),
    "last-1k": ("--clients 10000 --mode delta --size 1024", [(*LAST, 200), (*US, None), (*STREAMS, 1)], ("sluice_upstream_streams",)),
    "last-100k": ("--clients 10000 --mode delta --resources 2 --size 102400", [(*LAST, 500), (*US, None)], ()),
    "last-1m": ("--clients 10000 --mode delta --resources 2 --size 1048576 --changes 3", [(*LAST, 2500), (*US, None)], ()),
    "few-of-many": ("--clients 10000 --mode delta --resources 10000 --named eds --names 3 --names-step 1 --rotate --changes 20 --pause-ms 100", [(*LAST, None), (*US, None)], ()),
    "few-of-few": ("--clients 3 --mode delta --resources 10000 --named eds --names 3 --names-step 0 --changes 20 --pause-ms 100", [(*LAST, None), (*US, None)], ()),
    "storm-100k": (
        "--clients 10000 --mode sotw --resources 200 --in-flight 10000 --changes 0 --leave",
        [(*SERVED, 1500), ("connections that the kernel turned away for a while", plain("overflows"), 0), ("RSS per departed client, KiB", kib("rss_bytes_per_departed_client"), 3)],
        (),
    ),
    "stuck": (
        "--scenario stuck --clients 5100 --share 98 --mode sotw --resources 2 --size 2097152 --rate 1 --duration 120",
        [("RSS grows by, MiB", growth_mib, 400), ("p99 of the 102 that read, ms", last_p99, None)],
        (),
    ),
    # The same readers alone: runs are interleaved, so that the two make a pair.
    "stuck-none": (
        "--scenario steady --clients 102 --mode sotw --resources 2 --size 2097152 --rate 1 --duration 60",
        [("p99 of the 102 that read, ms", last_p99, None)],
        (),
    ),
    "big-source": (
        "--scenario steady --mode delta --clients 1000 --resources 100000 --touch 1000 --rotate --named eds --names 500 --names-step 97 --duration 30",
        [("p99, ms", inside("update_ms", "p99"), None), (*US, None), (*RSS, None), (*RSS_AFTER, None)],
        (),
    ),
    "churn": (
        "--scenario churn --mode delta --clients 1000 --resources 10000 --names 50 --churn-rate 1 --churn-names 10 --duration 30",
        [("new names, p99 ms", inside("subscribe_ms", "p99"), None), ("updates, p99 ms", inside("update_ms", "p99"), None), (*RSS_AFTER, None)],
        (),
    ),
    "own-names": ("--clients 10000 --mode delta --resources 10000 --named eds --names 100 --names-step 1 --changes 10", [(*RSS, None), (*SERVED, None), (*US, None)], ()),
    "big-first": ("--clients 4000 --mode delta --resources 10000 --size 480 --changes 0", [(*RSS, None), (*SERVED, None), (*CONNECT_US, None)], ()),
    "node-each-time": ("--clients 2000 --mode delta --node-bytes 61000 --node-every-request --size 1024 --changes 20", [(*RSS, None), (*US, None)], ()),
    "multiplexed": ("--clients 10000 --mode delta --clients-per-connection 100", [(*RSS, None), (*US, None), (*LAST, None)], ()),
}

# The rows of `--tls`, in the same form; a fleet of 100 identities.
TLS_ROWS = {
    "tls-1k": ("--clients 3000 --mode delta --size 1024 --changes 15", [(*RSS, None), (*RSS_AFTER, None), (*CONNECT_US, None), (*US, None), (*CLIENT_US, None)], ()),
    "tls-100k": ("--clients 1000 --mode delta --resources 2 --size 102400 --changes 15", [(*US, None), (*CLIENT_US, None)], ()),
    "tls-connect": ("--clients 10000 --mode delta --in-flight 10000 --changes 0", [(*SERVED, None), (*CONNECT_US, None)], ()),
    "tls-storm": ("--scenario storm --clients 9500 --mode delta --duration 20", [("all served again, ms", plain("recovery_ms"), None), (*UPDATES, None)], ()),
    "tls-stuck": (
        "--scenario stuck --clients 500 --share 98 --mode sotw --resources 2 --size 262144 --rate 1 --duration 12",
        [("RSS per client grows by, KiB", stuck_kib, None), ("peak over all clients, MiB", growth_mib, None)],
        (),
    ),
}

# axis: [(x, arguments)]
GROWTH = {
    "clients (delta, one of 100 clusters)": [(n, f"--mode delta --clients {n}") for n in (100, 1000, 5000, 10000, 19000)],
    "clients (SotW, 50 KB)": [(n, f"--mode sotw --clients {n}") for n in (100, 1000, 5000, 10000)],
    "resources (100 delta clients, wildcard)": [
        (n, f"--mode delta --clients 100 --resources {n}") for n in (100, 1000, 10000, 100000)
    ],
    "names of each client (1,000 delta clients)": [
        (n, f"--mode delta --clients 1000 --resources 10000 --named eds --names {n} --names-step 0")
        for n in (10, 100, 1000)
    ],
    "bytes of the update (1,000 delta clients)": [
        (n, f"--mode delta --clients 1000 --resources 2 --size {n}") for n in (1024, 10240, 102400, 1048576)
    ],
    "changes a second (1,000 delta clients, 20 s)": [
        (n, f"--scenario steady --mode delta --clients 1000 --rate {n} --duration 20") for n in (1, 10, 40)
    ],
}


def table(header, lines):
    print("\n| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    for line in lines:
        print("| " + " | ".join(line) + " |")
    sys.stdout.flush()


def number(value):
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"


def rows(binaries, known, chosen, runs, kept):
    taken = {name: [] for name in chosen}
    for run in range(runs):
        for name in chosen:
            arguments, _, probes = known[name]
            figures = measure(binaries, arguments, probes)
            taken[name].append(figures)
            kept.append({"row": name, "figures": figures})
            print(f"run {run + 1} of {name}: errors {figures['errors']}", file=sys.stderr)
    lines, verdicts = [], []
    for name in chosen:
        for column, of, aim in known[name][1]:
            middle, span = summary([of(figures) for figures in taken[name]])
            verdict = "" if aim is None or middle is None else ("yes" if middle <= aim else "NO")
            verdicts.append(verdict)
            lines.append([name, column, number(middle), span, "" if aim is None else number(aim), verdict])
        errors = sum(figures["errors"] for figures in taken[name])
        busy = max(figures["client_thread_busy"] or 0 for figures in taken[name])
        lines.append([name, "errors; clients' thread busy, %", f"{errors}; {busy * 100:.0f}", "", "", ""])
    table(["row", "figure", "median", "range", "aim", "reached"], lines)
    commands(known, chosen)
    return verdicts.count("yes"), verdicts.count("NO")


def summary(values):
    """The median, and the range in words."""
    values = [value for value in values if value is not None]
    if not values:
        return None, "-"
    return statistics.median(values), f"{number(min(values))} to {number(max(values))}"


def commands(known, chosen):
    table(["row", "`sluice-load run --target ... --pid ...` with"], [[name, f"`{known[name][0]}`"] for name in chosen])


def make_certificates(binaries, directory):
    subprocess.run([binaries[1], "certs", directory, "--identities", "100"], check=True)


def conditions(known, chosen, compared, runs, kept, by_ratio=False):
    """Rows under several conditions, pairs of binaries and transport: in each run one after the other, in turns of their order.
    Compares each condition with the first, by difference or by ratio."""
    names = list(compared)
    taken = {(row, name): [] for row in chosen for name in names}
    for run in range(runs):
        for row in chosen:
            arguments, _, probes = known[row]
            for name in names[run % len(names) :] + names[: run % len(names)]:
                binaries, transport = compared[name]
                figures = measure(binaries, arguments, probes, transport)
                taken[row, name].append(figures)
                kept.append({"row": row, "condition": name, "figures": figures})
                told = ", ".join(f"{column} {number(of(figures))}" for column, of, _ in known[row][1])
                print(f"run {run + 1} of {row}, {name}: {told}, errors {figures['errors']}", file=sys.stderr)
    first, others, lines = names[0], names[1:], []
    for row in chosen:
        for column, of, _ in known[row][1]:
            values = {name: [of(figures) for figures in taken[row, name]] for name in names}
            cells = ["{} ({})".format(number(middle), span) for middle, span in (summary(values[name]) for name in names)]
            for name in others:
                pairs = [(a, b) for a, b in zip(values[first], values[name]) if a is not None and b is not None]
                if by_ratio:
                    ratios = [b / a for a, b in pairs if a]
                    cells.append(f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})" if ratios else "-")
                else:
                    middle, span = summary([b - a for a, b in pairs])
                    cells.append(f"{number(middle)} ({span})")
            lines.append([row, column, *cells])
        errors = [sum(figures["errors"] for figures in taken[row, name]) for name in names]
        busy = [max(figures["client_thread_busy"] or 0 for figures in taken[row, name]) for name in names]
        cells = [f"{count}; {share * 100:.0f}" for count, share in zip(errors, busy)]
        lines.append([row, "errors; clients' thread busy, %", *cells, *("" for _ in others)])
    sign = "÷" if by_ratio else "−"
    table(["row", "figure", *names, *(f"{name} {sign} {first}, in pairs" for name in others)], lines)
    commands(known, chosen)


def growth(binaries, kept):
    for axis, points in GROWTH.items():
        lines = []
        for x, arguments in points:
            figures = measure(binaries, arguments)
            kept.append({"axis": axis, "x": x, "figures": figures})
            update = figures["update_ms"] or {}
            lines.append(
                [f"{x:,}", number(figures["rss"]["all_clients"] / KIB / KIB), number(figures["rss_bytes_per_client"] / KIB)]
                + [number(figures["server_cpu_us_per_update"]), number(figures["bytes_per_update"])]
                + [number(figures["last_client_ms_p50"] if "rounds" in figures["scenario"] else None), number(update.get("p99"))]
                + [number(figures["client_thread_busy"] * 100), str(figures["errors"])]
            )
        header = ["RSS, MiB", "RSS per client, KiB", "CPU, us per client and update", "bytes of it", "last client, ms"]
        table([axis, *header, "p99, ms", "tool busy, %", "errors"], lines)


def tiers(binaries, kept, clients=4000, leaves=2):
    """A root relay, leaves below it, clients below the leaves; one set of clients orders the changes, all count them."""
    sluice, tool = binaries
    with ControlPlane(tool, 100, 500) as plane, Relay(sluice, plane.listen) as root:
        relays = [Relay(sluice, root.port).__enter__() for _ in range(leaves)]
        files = [tempfile.NamedTemporaryFile() for _ in relays]
        base, before = root.rss(), root.cpu_s()
        tools = []
        for number_of, (leaf, file) in enumerate(zip(relays, files)):
            command = [tool, "run", "--target", f"127.0.0.1:{leaf.port}", "--pid", str(leaf.process.pid), "--mode", "delta"]
            command += ["--clients", str(clients), "--scenario", "steady", "--duration", "30", "--json", file.name]
            orders = ["--remote-control-plane", f"127.0.0.1:{plane.commands}", "--rate", "2"]
            tools.append(subprocess.Popen(command + (orders if number_of == 0 else ["--no-control-plane"]), stdout=subprocess.DEVNULL))
        for process in tools:
            process.wait()
        lines = []
        for index, (leaf, file) in enumerate(zip(relays, files)):
            figures = json.load(open(file.name))
            kept.append({"tier": "leaf", "figures": figures})
            update = figures["update_ms"] or {}
            lines.append([f"leaf {index + 1}", str(clients), number(figures["rss_bytes_per_client"] / KIB)]
                         + [number(figures["server_cpu_us_per_update"]), number(update.get("p50")), number(update.get("p99")), number(update.get("max"))])
        changes = 60
        used = (root.cpu_s() - before) * 1e6 / changes / leaves
        lines.append(["root", str(leaves), number((root.rss() - base) / KIB / leaves), number(used), "", "", ""])
        kept.append({"tier": "root", "cpu_us_per_change_and_leaf": used, "rss": root.rss(), "streams": root.metric("sluice_downstream_streams")})
        table(["relay", "clients", "RSS per client, KiB", "CPU, us per client and update", "p50, ms", "p99, ms", "max, ms"], lines)
        for leaf in relays:
            leaf.__exit__()


def classes(binaries, kept, most=480, names=1000, size=480):
    """Node classes with equal sets, each with one client: the resident memory that each further class adds, for each of its names, beside
    what its client would add to a class that is there. Returns the most bytes of the larger number of classes."""
    sluice, tool = binaries
    split = "node_classes: [ { split_by: { id: true } } ]\n"
    lines, worst = [], 0
    for wanted in ("--wildcard cds", f"--named eds --names {names} --names-step 0"):
        rss = {}
        for extra, count in [*((split, count) for count in (1, most // 8, most)), *(("", count) for count in (1, most // 8, most))]:
            with ControlPlane(tool, names, size) as plane, Relay(sluice, plane.listen, extra) as relay:
                command = [tool, "run", "--target", f"127.0.0.1:{relay.port}", "--pid", str(relay.process.pid), "--mode", "delta"]
                command += ["--remote-control-plane", f"127.0.0.1:{plane.commands}", "--resources", str(names), "--size", str(size)]
                command += ["--clients", str(count), "--scenario", "steady", "--rate", "2", "--duration", "40", *shlex.split(wanted)]
                process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
                # By then no client is connecting, unused encodings are dropped, and the allocator has returned spare pages.
                time.sleep(35)
                rss[extra, count] = relay.rss()
                process.wait()
        for count in (most // 8, most):
            each, client = ((rss[extra, count] - rss[extra, 1]) / (count - 1) for extra in (split, ""))
            bytes_a_name = (each - client) / names
            # With few classes, some 3 MiB that do not grow with the classes weigh in.
            worst = max(worst, bytes_a_name if count == most else 0)
            lines.append([wanted.split()[0][2:], f"{count:,}", number(rss[split, count] / KIB / KIB), number(each / KIB), number(client / KIB), number(bytes_a_name)])
            kept.append({"classes": count, "wanted": wanted, "rss": rss[split, count], "rss_of_one_class": rss["", count], "bytes_a_name": bytes_a_name})
    table(["asked", "classes", "RSS, MiB", "KiB for each further class", "KiB for each client of one class", "bytes a name and class"], lines)
    return worst


def beside(binaries, transport, runs, kept, clients=10000):
    """Updates for 200 clients of a relay while others connect, to the same relay or, as the control, to another one."""
    sluice, tool = binaries
    lines, taken = [], {"the same relay": [], "another relay": []}
    for run in range(runs):
        for place in sorted(taken, reverse=run % 2):
            with ControlPlane(tool, 100, 500) as plane, ExitStack() as stack:
                relays = [stack.enter_context(Relay(sluice, plane.listen, transport=transport)) for _ in taken]
                files = [stack.enter_context(tempfile.NamedTemporaryFile()) for _ in relays]
                target = relays[0] if place == "the same relay" else relays[1]

                def start(relay, file, arguments):
                    command = [tool, "run", "--target", f"127.0.0.1:{relay.port}", "--mode", "delta", "--json", file.name]
                    return subprocess.Popen([*command, *transport.options, *shlex.split(arguments)], stdout=subprocess.DEVNULL)

                orders = f"--remote-control-plane 127.0.0.1:{plane.commands} --rate 20"
                updates = start(relays[0], files[0], f"--clients 200 --scenario steady --duration 16 {orders}")
                time.sleep(4)
                connects = f"--clients {clients} --in-flight {clients} --wildcard eds --changes 0 --no-control-plane"
                start(target, files[1], connects).wait()
                updates.wait()
                seen, connected = (json.load(open(file.name)) for file in files)
            kept.append({"connects": place, "updates": seen, "figures": connected})
            taken[place].append((connected["connect_ms"], seen["update_ms"]["p90"], seen["update_ms"]["p99"], seen["errors"] + connected["errors"]))
            print(f"run {run + 1}, connects to {place}: {taken[place][-1]}", file=sys.stderr)
    for index, figure in enumerate(["all served, ms", "updates, p90 ms", "updates, p99 ms", "errors"]):
        cells = ["{} ({})".format(number(middle), span) for middle, span in (summary([of[index] for of in figures]) for figures in taken.values())]
        lines.append([figure, *cells])
    table([f"{clients:,} connect to", *taken], lines)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("rows", nargs="*", help="beginnings of the names of rows; all without any")
    arguments.add_argument("--sluice", type=Path, default=ROOT / "target/dist/sluice")
    arguments.add_argument("--tool", type=Path, default=ROOT / "target/dist/sluice-load")
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("--reach", action="store_true", help="exit with 1 if a median misses its aim")
    arguments.add_argument("--growth", action="store_true", help="the curves instead")
    arguments.add_argument("--classes", action="store_true", help="many node classes with equal sets instead")
    arguments.add_argument("--most", type=float, metavar="BYTES", help="fail if a name and class of --classes takes more")
    arguments.add_argument("--tiers", action="store_true", help="a relay behind a relay instead")
    arguments.add_argument(
        "--tls", default="none", metavar="TRANSPORTS", help=f"transports to compare, with commas: {', '.join(TRANSPORTS)}"
    )
    arguments.add_argument("--beside", choices=TRANSPORTS, help="updates while 10,000 clients connect")
    arguments.add_argument("--against", type=Path, metavar="SLUICE", help="an older relay: each row with both, and the ratios new to old")
    arguments.add_argument("--json", type=Path, help="keep every figure of every run in this file")
    given = arguments.parse_args()
    binaries, kept = (given.sluice, given.tool), []
    for binary in [*binaries, *([given.against] if given.against else [])]:
        if not binary.exists():
            raise SystemExit(f"{binary} is not there: cargo build --profile dist --workspace --bins")
    names = given.tls.split(",")
    if unknown := [name for name in names if name not in TRANSPORTS]:
        raise SystemExit(f"--tls: {', '.join(unknown)} is none of {', '.join(TRANSPORTS)}")
    if names != ["none"] and (given.growth or given.tiers or given.classes):
        raise SystemExit("--growth, --tiers and --classes measure plaintext only")
    known = {**ROWS, **TLS_ROWS}
    own = ROWS if names == ["none"] else TLS_ROWS
    chosen = [name for name in known if any(name.startswith(row) for row in given.rows)] if given.rows else list(own)
    if not chosen:
        raise SystemExit(f"no row begins so; there are {', '.join(known)}")
    if given.most is not None and not given.classes:
        raise SystemExit("--most goes with --classes")
    if given.reach and (given.growth or given.tiers or given.classes or given.beside or given.against or names != ["none"]):
        raise SystemExit("--reach goes with rows of one relay in plaintext")
    try:
        if given.growth:
            growth(binaries, kept)
        elif given.tiers:
            tiers(binaries, kept)
        elif given.classes:
            worst = classes(binaries, kept)
            if given.most is not None:
                print(f"classes: {int(worst <= given.most)} passed, {int(worst > given.most)} failed, 0 skipped")
                if worst > given.most:
                    raise SystemExit(f"a name and class takes {worst:.0f} bytes, at most {given.most:.0f}")
        elif given.beside:
            with tempfile.TemporaryDirectory(prefix="sluice-certs-") as certificates:
                make_certificates(binaries, certificates)
                beside(binaries, Transport(given.beside, certificates), given.runs, kept)
        elif given.against:
            compared = {"old": ((given.against, given.tool), PLAINTEXT), "new": (binaries, PLAINTEXT)}
            conditions(known, chosen, compared, given.runs, kept, by_ratio=True)
        elif names == ["none"]:
            reached, missed = rows(binaries, known, chosen, given.runs, kept)
            if given.reach:
                print(f"figures: {reached} passed, {missed} failed, 0 skipped")
                if missed:
                    raise SystemExit(f"{missed} figures miss their aims")
        else:
            with tempfile.TemporaryDirectory(prefix="sluice-certs-") as certificates:
                make_certificates(binaries, certificates)
                compared = {name: (binaries, Transport(name, certificates)) for name in names}
                conditions(known, chosen, compared, given.runs, kept)
    finally:
        if given.json:
            given.json.write_text(json.dumps(kept, indent=1))


if __name__ == "__main__":
    main()
