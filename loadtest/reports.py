#!/usr/bin/env python3
"""Load reports of many clients through the relay: are they counted to the request, and at what cost? (LRS-16, LRS-19, LRS-20)

    cargo build --profile dist --workspace --bins
    python3 loadtest/reports.py                # 10,000 clients, 100 clusters of 3 localities, every 10 s: some four minutes
    python3 loadtest/reports.py --clients 200 --interval 1 --seconds 10 --exact-only --binaries target/debug

Two relays in turn have the same clients at rest; those of the second report their load. What must hold then:

- the control plane has the sums of the clients, to the request, and their requests in progress, by one stream;
- no client is asked again, and each is asked for an interval of at most a tenth less than the control plane's;
- the reports cost at most 0.2 of a core and 64 MiB, the differences of the two relays (not with --exact-only).
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import ROOT, ControlPlane, Relay

CORES, MIB = 0.2, 64.0
# The tool's wait between the last connect and the scenario.
SETTLE_S = 3


def run(options, clusters):
    """One relay: the figures of the tool, the share of a core that the relay took, and its largest RSS in MiB."""
    sluice, tool = (options.binaries / name for name in ("sluice", "sluice-load"))
    wish = ["--load-interval", str(options.interval)]
    with ControlPlane(tool, 100, 500, wish) as plane, Relay(sluice, plane.listen, server=", lrs: aggregate") as relay, tempfile.NamedTemporaryFile() as file:
        command = [tool, "run", "--target", f"127.0.0.1:{relay.port}", "--pid", str(relay.process.pid), "--json", file.name, *wish]
        command += ["--remote-control-plane", f"127.0.0.1:{plane.commands}", "--clients", str(options.clients), "--mode", "delta"]
        # The first interval is not measured.
        command += ["--scenario", "steady", "--rate", "0", "--duration", str(options.seconds + options.interval + 1)]
        command += ["--load-clusters", str(clusters), "--load-localities", str(options.localities)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        while process.poll() is None and relay.metric("sluice_downstream_streams{") < options.clients:
            time.sleep(0.2)
        time.sleep(SETTLE_S + options.interval)
        begin, cpu, peak = time.monotonic(), relay.cpu_s(), relay.rss()
        while process.poll() is None and time.monotonic() < begin + options.seconds:
            peak = max(peak, relay.rss())
            time.sleep(0.2)
        core = (relay.cpu_s() - cpu) / (time.monotonic() - begin)
        output = process.communicate()[0].decode()
        log = Path(relay.log.name).read_text()
        figures = json.loads(Path(file.name).read_text() or "null")
        if figures is None:
            raise SystemExit(f"the tool failed: {' '.join(map(str, command))}\n{output[-2000:]}")
    return figures, core, peak / (1 << 20), log


def judge(options, quiet, reporting):
    """Each condition in words, with whether it holds."""
    figures, core, rss, _ = reporting
    load = figures["load"]
    sums, received = load["sums"], load["received"]
    wished = options.interval * 1000
    yield f"no error: {figures['error_messages'] + quiet[0]['error_messages']}", not figures["errors"] + quiet[0]["errors"]
    counted = f"{received['sums']['issued']:,} of {sums['issued']:,} requests in {load['reports']:,} reports"
    yield f"counted to the request: {counted}", load["agreed_after_ms"] is not None and received["sums"] == sums
    yield f"in progress, by weight: {received['in_progress']:,} of {load['in_progress']:,}", received["in_progress"] == load["in_progress"]
    yield f"by one stream: {received['streams']} with {received['messages']} messages", received["streams"] == 1
    yield f"each client is answered once: {load['answers']} of {options.clients}", load["answers"] == options.clients
    shortest, longest = load["shortest_interval_ms"], load["longest_interval_ms"]
    yield f"asked for {shortest:.0f} to {longest:.0f} ms of {wished:.0f}", 0.9 * wished - 1 <= shortest and longest <= wished
    if not options.exact_only:
        more_core, more_rss = core - quiet[1], rss - quiet[2]
        yield f"at most {CORES} of a core: {more_core:.3f} ({quiet[1]:.3f} without reports)", more_core <= CORES
        yield f"at most {MIB:.0f} MiB: {more_rss:.1f} ({quiet[2]:.1f} without reports)", more_rss <= MIB


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--clusters", type=int, default=100)
    parser.add_argument("--localities", type=int, default=3)
    parser.add_argument("--interval", type=float, default=10.0, help="seconds between two reports of a client")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the cost is measured")
    parser.add_argument("--exact-only", action="store_true", help="without the bounds of the cost, which only an optimized relay keeps")
    parser.add_argument("--binaries", type=Path, default=ROOT / "target" / "dist", help="the folder of sluice and sluice-load")
    options = parser.parse_args()
    quiet, reporting = (run(options, clusters) for clusters in (0, options.clusters))
    verdicts = list(judge(options, quiet, reporting))
    for words, holds in verdicts:
        print(f"{'holds' if holds else 'FAILS'}: {words}")
    failed = sum(not holds for _, holds in verdicts)
    if reporting[0]["tool_was_bottleneck"]:
        print("the tool was the bottleneck")
    if failed:
        print("the log of the relay:\n" + "".join(f"{line}\n" for line in reporting[3].splitlines()[-30:]))
    print(f"reports: {len(verdicts) - failed} passed, {failed} failed, 0 skipped")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
