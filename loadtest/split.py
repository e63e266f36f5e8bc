#!/usr/bin/env python3
"""A rule of the control plane that the node classes do not have: is it told, and undone, in time? (PRF-23, PRF-27)

    cargo build --profile dist --workspace --bins
    python3 loadtest/split.py                  # 10,000 clients of 40 classes: some three minutes
    python3 loadtest/split.py --clients 400 --classes 8 --rate 1 --seconds 80 --binaries target/debug
    python3 loadtest/split.py --policy warn    # the counter-proof: it is told, and fails, because nobody moves

The control plane has other content for each value of a label, by which the relay's node classes split. In the middle of the run it
begins to look at a second label as well: a quarter of the clients of one class get another first cluster. Changes of other
clusters go on all the time. The pace of the proof is quick, so that its witnesses hold each value when the rule comes; the bounds of a
difference are the defaults. What must hold then:

- the relay tells the divergence within 10 s of the push: one resource, explained by the second label, and nothing before the push;
- within 20 s of it, each client that the rule selects has its content, and nobody ever has another client's;
- no resource is taken from a client, and no stream of a client ends.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from figures import ROOT, ControlPlane, Relay

# The values of the labels beside the one that makes the classes, and what the rule selects.
TEAMS, ZONES = 4, 3
RULE = "app=0,team=1"
# The path of the field that the rule looks at.
FIELD = "metadata.team"
TOLD_S, UNDONE_S = 10.0, 20.0


def configuration(options):
    return (
        f"proof: {{ policy: {options.policy}, streams: 32, per_minute: 1200, standing: {options.classes * (TEAMS + 1)} }}\n"
        "node_classes: [ { split_by: { metadata: [ app ] }, upstream_node: member } ]\n"
    )


class Watch:
    """What the relay tells of its classes, and when."""

    def __init__(self, relay):
        self.relay, self.divergences, self.uncovered, self.streams, self.classes = relay, {}, [], 0, 0

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.relay.admin}{path}", timeout=30) as answer:
            return json.load(answer)

    def look(self):
        now = time.monotonic_ns()
        for divergence in self.get("/classes/divergences?limit=1000")["divergences"]:
            self.divergences.setdefault((divergence["class"], divergence["type"], divergence["name"]), (now, divergence))

    def look_at_classes(self):
        """A walk over all classes: not each time."""
        now = time.monotonic_ns()
        classes = self.get("/classes?limit=1000")["classes"]
        self.classes = len(classes)
        proof = self.relay.metric("sluice_proof_streams{")
        self.streams = max(self.streams, self.relay.metric("sluice_upstream_streams{") + proof)
        proofs = [item["proof"] for item in classes if item.get("proof")]
        values = [value for proof in proofs for value in proof["uncovered"] if value.startswith(f"{FIELD}=")]
        self.uncovered.append((now, len(values)))

    def until_end(self, process):
        looks = 0
        while process.poll() is None:
            self.look()
            if looks % 10 == 0:
                self.look_at_classes()
            looks += 1
            time.sleep(0.5)
        self.look_at_classes()


def run(options):
    sluice, tool = (options.binaries / name for name in ("sluice", "sluice-load"))
    function = ["--labels", f"app={options.classes},team={TEAMS},zone={ZONES}", "--rule", RULE]
    extra = configuration(options)
    with ControlPlane(tool, 100, 500, function) as plane, Relay(sluice, plane.listen, extra) as relay, tempfile.NamedTemporaryFile() as file:
        command = [tool, "run", "--target", f"127.0.0.1:{relay.port}", "--pid", str(relay.process.pid), "--json", file.name, *function]
        command += ["--remote-control-plane", f"127.0.0.1:{plane.commands}", "--clients", str(options.clients), "--mode", "delta"]
        command += ["--scenario", "rule", "--rate", str(options.rate), "--rotate", "--duration", str(options.seconds), "--timeout-s", "30"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        watch = Watch(relay)
        watch.until_end(process)
        output = process.stdout.read().decode()
        figures = json.loads(Path(file.name).read_text() or "null")
        if figures is None or figures["rule_at_ns"] is None:
            raise SystemExit(f"the tool failed: {' '.join(map(str, command))}\n{output[-2000:]}")
        log = Path(relay.log.name).read_text()
    return figures, watch, log


def judge(options, figures, watch):
    """Each condition in words, with whether it holds."""
    at = figures["rule_at_ns"]
    early = [divergence for seen, divergence in watch.divergences.values() if seen < at]
    after = {key: (seen - at) / 1e9 for key, (seen, _) in watch.divergences.items() if seen >= at}
    names = sorted({name for _, _, name in after})
    explained = {field for _, divergence in watch.divergences.values() for field in divergence["explained_by"]}
    rule = figures["rule_ms"]
    uncovered = [count for seen, count in watch.uncovered if seen < at][-1]
    yield f"before the rule each value of {FIELD} has a witness: {uncovered} have none", uncovered == 0
    yield f"nothing is told before the rule: {len(early)} divergences", not early
    yield f"the one resource is told, in one class: {names} in {len(after)}", names == ["load-000000"] and len(after) == 1
    told = min(after.values(), default=None)
    yield f"told within {TOLD_S:.0f} s of the push: " + ("never" if told is None else f"{told:.1f} s"), told is not None and told <= TOLD_S
    yield f"explained by {FIELD}: {sorted(explained)}", explained == {FIELD}
    selected = sum(client % options.classes == 0 and client // options.classes % TEAMS == 1 for client in range(options.clients))
    counted, undone = (rule["count"], rule["max"] / 1e3) if rule else (0, float("inf"))
    yield f"the rule selects {selected} clients: {counted}", counted == selected
    yield f"all of them have their content within {UNDONE_S:.0f} s: {undone:.1f} s", undone <= UNDONE_S
    yield f"no client has another's content: {figures['misplaced']} resources", figures["misplaced"] == 0
    yield f"no resource is taken away: {figures['removals']}", figures["removals"] == 0
    yield f"no stream ends: {figures['streams_ended']}", figures["streams_ended"] == 0
    yield f"no error: {figures['error_messages']}", not figures["error_messages"]
    yield f"one class more: {watch.classes} of {options.classes + 1}", watch.classes == options.classes + 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--classes", type=int, default=40)
    parser.add_argument("--rate", type=float, default=2.0, help="changes a second; each is one of another cluster, of 100")
    parser.add_argument("--seconds", type=int, default=120, help="the rule comes in the middle, and should not meet a change of the first cluster")
    parser.add_argument("--policy", choices=["warn", "split"], default="split")
    parser.add_argument("--binaries", type=Path, default=ROOT / "target" / "dist", help="the folder of sluice and sluice-load")
    options = parser.parse_args()
    figures, watch, log = run(options)
    failed = 0
    verdicts = list(judge(options, figures, watch))
    for words, holds in verdicts:
        print(f"{'holds' if holds else 'FAILS'}: {words}")
        failed += not holds
    print(f"at most {watch.streams:.0f} upstream streams for {options.clients:,} clients")
    if failed:
        told = [line for line in log.splitlines() if " INFO " not in line or "::proof::" in line]
        print("the log of the relay:\n" + "".join(line + "\n" for line in told[-30:]))
    print(f"split: {len(verdicts) - failed} passed, {failed} failed, 0 skipped")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
