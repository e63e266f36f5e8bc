#!/usr/bin/env python3
"""Counts what an update costs the relay outside the kernel: instructions, and misses of simulated caches, by valgrind.

    cargo build --profile dist --workspace --bins
    python3 loadtest/counted.py                 # compares with loadtest/counted.json; exits 1 beyond the tolerances
    python3 loadtest/counted.py --update        # rewrites that file
    python3 loadtest/counted.py --against OLD   # with an older relay beside, and the ratios
    python3 loadtest/counted.py --functions     # and the functions with most

The whole relay runs, with its connections, under valgrind's cachegrind, once with 10 changes and once with 50. The difference
belongs to the changes. It hardly depends on the machine, nor on what else runs there: repeated counts differ by a half percent.
Each client's part of the memory falls out of a first level of 32 KiB and a last level of 512 KiB between two changes, as it falls
out of the caches of a real machine with thousands of clients. A miss of the last level costs as much time as some hundred
instructions, so that an update can get cheaper by the one figure and slower by the other: both are compared.
The kernel's part of an update is not counted.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from figures import ROOT, Relay, free_port, table

BASELINE = ROOT / "loadtest" / "counted.json"
CLIENTS = 300
CHANGES = (10, 50)
# In percent over the baseline, beyond what repeated counts differ by.
TOLERANCES = {"instructions": 3.0, "misses of the last level": 4.0}
CACHES = ["--cache-sim=yes", "--I1=32768,8,64", "--D1=32768,8,64", "--LL=524288,16,64"]

ROWS = {
    "delta": "--mode delta",
    "delta 1000": "--mode delta --resources 1000",
    "sotw": "--mode sotw",
    # So few clients that each sends as fast as one which the relay does not cut frames for, on a slow machine too.
    "node each time": "--clients 60 --mode delta --node-bytes 61000 --node-every-request --size 1024",
    "by name": "--mode delta --resources 1000 --named eds --names 100 --names-step 0",
}
# The events of cachegrind that make a figure.
FIGURES = {
    "instructions": ("Ir",),
    "misses of code": ("I1mr",),
    "misses of data": ("D1mr", "D1mw"),
    "misses of the last level": ("ILmr", "DLmr", "DLmw"),
}


class Counted(Relay):
    """A fresh relay under valgrind."""

    def command(self, sluice):
        self.out = Path(self.directory.name, "counts")
        options = ["--tool=cachegrind", *CACHES, f"--cachegrind-out-file={self.out}"]
        return ["valgrind", *options, *super().command(sluice)]


def events(binaries, arguments, changes):
    """The events of one run, by function, and the number of updates that clients got."""
    sluice, tool = binaries
    upstream = free_port()
    with tempfile.NamedTemporaryFile() as kept:
        relay = Counted(sluice, upstream)
        with relay:
            command = [tool, "run", "--target", f"127.0.0.1:{relay.port}", "--control-plane", f"127.0.0.1:{upstream}"]
            clients = [] if "--clients" in arguments else ["--clients", str(CLIENTS)]
            command += [*clients, "--changes", str(changes), "--timeout-s", "300", *arguments.split()]
            subprocess.run([*command, "--json", kept.name], stdout=subprocess.DEVNULL, check=True)
            relay.stop()
            return read(relay.out), json.load(open(kept.name))["updates"]


def read(path):
    names, function, found = [], None, {}
    for line in path.read_text(errors="replace").splitlines():
        if line.startswith("events:"):
            names = line.split()[1:]
        elif line.startswith("fn="):
            function = found.setdefault(line[3:], defaultdict(int))
        elif line[:1].isdigit() and function is not None:
            for name, count in zip(names, line.split()[1:]):
                function[name] += int(count)
    return found


def count(binaries, arguments):
    """What one update of one client costs: the figures, by function."""
    (few, before), (many, after) = (events(binaries, arguments, changes) for changes in CHANGES)
    updates = after - before

    def of(function, parts):
        return sum(many.get(function, {}).get(part, 0) - few.get(function, {}).get(part, 0) for part in parts) / updates

    return {function: {figure: of(function, parts) for figure, parts in FIGURES.items()} for function in {*few, *many}}


def total(functions, figure):
    return round(sum(of[figure] for of in functions.values()), 1)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("rows", nargs="*", help="beginnings of the names of rows; all without any")
    arguments.add_argument("--sluice", type=Path, default=ROOT / "target/dist/sluice")
    arguments.add_argument("--tool", type=Path, default=ROOT / "target/dist/sluice-load")
    arguments.add_argument("--against", type=Path, metavar="SLUICE", help="an older relay: each row with both, and the ratios new to old")
    arguments.add_argument("--functions", action="store_true", help="the functions with most instructions, too")
    arguments.add_argument("--update", action="store_true", help="keep the counts as the baseline")
    given = arguments.parse_args()
    chosen = [name for name in ROWS if not given.rows or any(name.startswith(row) for row in given.rows)]
    if not chosen:
        raise SystemExit(f"no row begins so; there are {', '.join(ROWS)}")
    baseline = json.loads(BASELINE.read_text()) if BASELINE.exists() and not given.against else {}
    lines, counts, failed = [], {}, []
    for row in chosen:
        functions = count((given.sluice, given.tool), ROWS[row])
        counts[row] = {figure: total(functions, figure) for figure in FIGURES}
        if given.against:
            older = count((given.against, given.tool), ROWS[row])
            known = {figure: total(older, figure) for figure in FIGURES}
        else:
            known = baseline.get(row, {})
        for figure, now in counts[row].items():
            before = known.get(figure)
            ratio = now / before if before else None
            lines.append([row, figure, f"{before:,.0f}" if before else "-", f"{now:,.0f}", f"{ratio:.3f}" if ratio else "-"])
            tolerance = None if given.against or given.update else TOLERANCES.get(figure)
            if tolerance is not None and (ratio is None or ratio > 1 + tolerance / 100):
                failed.append(f"{row}: {figure} are more than {tolerance:g} % over loadtest/counted.json")
        if given.functions:
            for function, of in sorted(functions.items(), key=lambda item: -item[1]["instructions"])[:40]:
                print(" ".join(f"{of[figure]:9.1f}" for figure in FIGURES), function[:110])
    table(["row", "for each client and update", "before", "now", "ratio"], lines)
    if given.update:
        BASELINE.write_text(json.dumps({**baseline, **counts}, indent=2) + "\n")
    checks = len(chosen) * len(TOLERANCES)
    print(f"\ncounted: {checks - len(failed)} passed, {len(failed)} failed, 0 skipped")
    for words in failed:
        print(f"{words}; if it must be so, --update", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
