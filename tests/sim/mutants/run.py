#!/usr/bin/env python3
"""Shows that the simulator finds errors in the machines. README.md beside this file explains the files of the mutants.

usage: tests/sim/mutants/run.py [--list] [--record] [NAME ...]

A mutant is a wrong change of the machines. This program copies the machines and the simulator to target/mutants,
applies all mutants there, each behind a switch, and builds the copy once. Then the simulator runs with each mutant
switched on, and has to find a violation of the invariant that the mutant's file names, in a schedule that violates
none without the mutant. Mutants in the folder `replicas` are for the schedules of replicas (crates/fleet/tests/replicas).

The first attempt is the schedule that the file records. If this schedule does not show the mutant, a search begins at the
first schedule, and goes on in an optimized build. --record searches for all, and writes the results into the files.

Needs Python 3.11 and cargo. A mutant that does not apply, or that the simulator does not find, fails the run.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tomllib
from concurrent import futures

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
COPY = TARGET / "mutants"

# The parts of the tree that the simulator needs.
CRATES = ("xds", "setting", "identity", "engine", "admin-api", "fleet", "wire", "checkpoint", "proof", "load-reports")
PARTS = (*(f"crates/{name}" for name in CRATES), "tests/sim")
SWITCH = """\
use std::sync::LazyLock;

static ON: LazyLock<Option<u32>> = LazyLock::new(|| std::env::var("MUTANT").ok()?.parse().ok());

pub fn is_on(mutant: u32) -> bool {
    *ON == Some(mutant)
}
"""

# The schedules that a search tries at most, and those before it takes an optimized build, which costs minutes.
SEEDS_MAX = 10_000
SEEDS_SLOW = 300

# Invariants that are hard to violate without violating another one first, and those of rollouts. Each has to find at least so many mutants.
HARD = dict.fromkeys(("I2", "I3", "I7b", "I8", "I11", "I14"), 3)
HARD |= {f"I{number}": 3 for number in (*range(21, 30), *range(31, 43), *(f"30{part}" for part in "abcd"))}

# The tests that play schedules, each with its package.
TESTS = {"sim": "sluice-sim", "replicas": "sluice-fleet"}


class Unfit(Exception):
    """A file of a mutant has an error, or does not fit the tree."""


class Block:
    """A change of one file: `find` is replaced by `replace`. Without `find`, a new file."""

    def __init__(self, origin, file, find, replace):
        self.origin, self.file, self.find, self.replace = origin, file, find, replace


class Mutant:
    def __init__(self, path, head, blocks):
        self.path, self.blocks = path, blocks
        self.name = path.relative_to(HERE).with_suffix("").as_posix()
        self.word = path.stem
        self.test = path.parent.name if path.parent.name in TESTS else "sim"
        # A shared file has code that several mutants need, and is no mutant.
        self.is_shared = "shared" in head
        known = {"shared"} if self.is_shared else {"wrong", "caught by", "seeds"}
        if set(head) - {"with", "open"} != known:
            raise Unfit(f"{self.name}: the head has {sorted(head)}, and needs {sorted(known)}")
        self.is_open = "open" in head
        self.caught_by = head.get("caught by", "").replace(",", " ").split()
        # "12", or "12 from 2097152".
        counts = re.fullmatch(r"(\d+)(?: from (\d+))?", head.get("seeds", "0"))
        if not counts:
            raise Unfit(f"{self.name}: seeds are a number, or `NUMBER from SEED`")
        self.seeds, self.first = int(counts[1]), int(counts[2] or 0)

    def record(self, caught_by, seeds):
        """Writes the result of this run into the file."""
        since = f" from {self.first}" if self.first else ""
        head, blocks = self.path.read_text().split("\n\n", 1)
        head = re.sub(r"(?m)^caught by:.*$", f"caught by: {', '.join(caught_by)}", head, count=1)
        head = re.sub(r"(?m)^seeds:.*$", f"seeds: {seeds}{since}", head, count=1)
        # Found again.
        head = re.sub(r"\nopen:.*", "", head)
        self.path.write_text(f"{head}\n\n{blocks}")


def parse(path):
    """Reads a file: a head of `key: value`, then blocks of `file:`, `find:` and `replace:`, or `file:` and `new:`."""
    name = path.relative_to(HERE).with_suffix("").as_posix()
    head, blocks, file, parts, part = {}, [], None, {}, None

    def finish():
        if not parts:
            return
        text = {key: "\n".join(lines).rstrip() for key, lines in parts.items()}
        if set(text) == {"new"}:
            blocks.append(Block(name, file, None, text["new"] + "\n"))
        elif set(text) == {"find", "replace"} and text["find"].strip():
            blocks.append(Block(name, file, text["find"], text["replace"]))
        else:
            raise Unfit(f"{name}: a block for {file} needs `find:` and `replace:`, or `new:`")
        parts.clear()

    for line in path.read_text().splitlines():
        if line.startswith("file: "):
            finish()
            file, part = line.removeprefix("file: ").strip(), None
        elif file and line in ("find:", "new:", "replace:"):
            if line != "replace:":
                finish()
            part = parts.setdefault(line.removesuffix(":"), [])
        elif part is not None:
            part.append(line)
        elif not file and ":" in line:
            key, value = line.split(":", 1)
            head[key.strip()] = value.strip()
        elif line.strip():
            raise Unfit(f"{name}: this line belongs to no block: {line}")
    finish()
    return Mutant(path, head, blocks)


def compact(text):
    """A text without white space, and the place of each character in the text."""
    places = [place for place, character in enumerate(text) if not character.isspace()]
    return "".join(text[place] for place in places), places


def common(one, other):
    """The length of the common beginning."""
    return len(os.path.commonprefix((one, other)))


def place(block, text, squeezed):
    """The edit of a block: begin, end, and the new text. White space does not count in the search. The edit leaves out
    the parts that `find` and `replace` have in common, so that several mutants can change one line."""
    (tight, places), (find, found_at), (replace, replaced_at) = squeezed, compact(block.find), compact(block.replace)
    count = tight.count(find)
    if count != 1:
        first = block.find.strip().splitlines()[0].strip()
        raise Unfit(f"{block.origin}: a block matches {count} times in {block.file}, instead of once: {first}")
    start = tight.index(find)
    before = common(find, replace)
    behind = common(find[before:][::-1], replace[before:][::-1])
    # The white space around the edit is that of the replacement.
    begin = places[start + before - 1] + 1 if before else places[start]
    end = places[start + len(find) - behind] if behind else places[start + len(find) - 1] + 1
    new_begin = replaced_at[before - 1] + 1 if before else 0
    new_end = replaced_at[len(replace) - behind] if behind else len(block.replace)
    return begin, end, block.replace[new_begin:new_end], block.origin


def applied(file, text, blocks, misfits):
    """The text of a file with all its mutants. Adds the errors to `misfits`."""
    squeezed, edits = compact(text), []
    for block in blocks:
        try:
            edits.append(place(block, text, squeezed))
        except Unfit as unfit:
            misfits.append(str(unfit))
    merged = []
    for begin, end, new, origin in sorted(edits):
        if merged and (begin, end) == merged[-1][:2] and not text[begin:end].strip():
            # Two insertions at one place follow one another.
            new = merged.pop()[2] + new
        elif merged and (begin < merged[-1][1] or begin == merged[-1][0]):
            misfits.append(f"{origin}: changes the same code of {file} as {merged[-1][3]}")
        merged.append((begin, end, new, origin))
    for begin, end, new, _ in reversed(merged):
        text = text[:begin] + new + text[end:]
    return text


def manifest():
    """The manifest of the copy's workspace. It has the tree's versions and profiles, so that compiled dependencies serve both.

    Few schedules need no optimization, and the build takes a tenth of the time."""
    text = (ROOT / "Cargo.toml").read_text()
    shared = "".join(re.findall(r"(?ms)^\[workspace\.(?:package|dependencies)\]$.*?(?=^\[)", text))
    members = [*(f"sluice-{name}" for name in CRATES), "sluice-sim"]
    levels = {level: "\n".join(f"{name} = {{ opt-level = {level} }}" for name in members) for level in (0, 2)}
    profiles = "".join(re.findall(r"(?ms)^\[profile\.\w+\]$.*?(?=^\[|\Z)", text))
    dependencies = re.search(r'(?m)^"\*" = .*$', text)[0]
    return f"""\
[workspace]
members = ["crates/*", "tests/sim"]
resolver = "3"

{shared}
[workspace.lints.rust]
unused = "allow"

{profiles}

[profile.dev.package]
{dependencies}
{levels[0]}

[profile.sim.package]
{levels[2]}
"""


SWITCH_MANIFEST = """\
[package]
name = "mutants"
version = "0.0.0"
edition = "2024"
"""


def member(text):
    """The manifest of a crate in the copy: without the dependencies of unit tests, and with the switches."""
    is_simulator = "[[test]]" in text
    if not is_simulator:
        text = re.sub(r"(?ms)^\[dev-dependencies\]$.*?(?=^\[|\Z)", "", text)
    table = "[dev-dependencies]" if is_simulator else "[dependencies]"
    path = "../../crates/mutants" if is_simulator else "../mutants"
    return text.replace(table, f'{table}\nmutants = {{ path = "{path}" }}', 1)


def sources():
    """The Rust files of the parts, by path."""
    paths = [path for part in PARTS for path in sorted((ROOT / part).rglob("*.rs"))]
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}


def mutated(mutants):
    """All files of the copy, by path. Raises one error for all misfits together."""
    numbers = {mutant.word: number for number, mutant in enumerate(mutants, 1) if not mutant.is_shared}
    files, blocks, used, misfits = sources(), collections.defaultdict(list), set(), []
    for mutant in mutants:
        def switch(match, own=mutant):
            word = match[1] or own.word
            if word not in numbers:
                raise Unfit(f"{own.name}: there is no mutant {word}")
            used.add(word)
            return f"mutants::is_on({numbers[word]})"

        for block in mutant.blocks:
            try:
                block.replace = re.sub(r"\bMUTANT\b(?:\((\w+)\))?", switch, block.replace)
                if block.find is None and block.file in files:
                    raise Unfit(f"{mutant.name}: {block.file} is not new")
                if block.find is None:
                    files[block.file] = block.replace
                elif block.file not in files:
                    raise Unfit(f"{mutant.name}: there is no {block.file} in the copy")
                else:
                    blocks[block.file].append(block)
            except Unfit as unfit:
                misfits.append(str(unfit))
    for file, own in blocks.items():
        files[file] = applied(file, files[file], own, misfits)
    misfits += [f"{mutant.name}: no block has its switch" for mutant in mutants if mutant.word in numbers.keys() - used]
    if misfits:
        raise Unfit("\n".join(misfits))
    manifests = {f"{part}/Cargo.toml": member((ROOT / part / "Cargo.toml").read_text()) for part in PARTS}
    switches = {"crates/mutants/src/lib.rs": SWITCH, "crates/mutants/Cargo.toml": SWITCH_MANIFEST}
    return files | manifests | switches | {"Cargo.toml": manifest()}


def write(files):
    """Writes the copy. Files that stay the same are not touched, so that cargo does not compile them again."""
    for old in [path for folder in ("src", "crates", "tests") for path in (COPY / folder).rglob("*.rs")]:
        if old.relative_to(COPY).as_posix() not in files:
            old.unlink()
    files = files | {"Cargo.lock": (ROOT / "Cargo.lock").read_text()}
    for name, text in files.items():
        path = COPY / name
        if not path.is_file() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def build(*options):
    """Builds the tests of the copy; gives their paths."""
    command = ["cargo", "test", "--no-run", "--message-format=json-render-diagnostics"]
    command += [word for test, package in TESTS.items() for word in ("--package", package, "--test", test)]
    command += ["--manifest-path", COPY / "Cargo.toml", "--target-dir", TARGET, *options]
    built = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if built.returncode:
        sys.exit("mutants: the copy does not build")
    messages = map(json.loads, built.stdout.splitlines())
    return {message["target"]["name"]: message["executable"] for message in messages if message.get("executable")}


def simulate(path, number, first, count):
    """Runs schedules until one violates an invariant; gives the invariant, the number of schedules and the text."""
    environment = os.environ | {"MUTANT": str(number)}
    if pathlib.Path(path).name.startswith("replicas"):
        command = [path, "i30_no_schedule_of_replicas_breaks_a_promise", "--exact", "--nocapture"]
        environment |= {"SLUICE_SCHEDULES": str(count), "SLUICE_FIRST": str(first), "SLUICE_FAILURES": "1"}
    else:
        command = [path, "--seeds", str(count), "--first", str(first), "--threads", "1", "--brief"]
    output = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout
    found = re.search(r"(?m)^(I\w+) seed (\d+): (.*)$", output)
    if found:
        return found[1], int(found[2]) - first + 1, found[3]
    if not re.search(r"(?m)^0 seeds fail$", output):
        return "no result", count, output
    return None, count, ""


class Simulator:
    """The built tests, and what they say of schedules without a mutant: many mutants have one schedule."""

    def __init__(self, *options):
        self.paths, self.without = build(*options), {}

    def violated(self, test, seed):
        """The invariant that a schedule violates without a mutant, if there is one, and the text."""
        if (test, seed) not in self.without:
            invariant, _, text = simulate(self.paths[test], 0, seed, 1)
            self.without[test, seed] = invariant, text
        return self.without[test, seed]

    def show(self, test, number, first, count):
        """As `simulate`, without the schedules that violate an invariant without the mutant, too."""
        begin = first
        while True:
            invariant, seeds, text = simulate(self.paths[test], number, begin, first + count - begin)
            if invariant is None or invariant == "no result":
                return invariant, count, text
            seed = begin + seeds - 1
            if self.violated(test, seed)[0] is None:
                return invariant, seed - first + 1, text
            begin = seed + 1
            if begin == first + count:
                return None, count, ""


class Report:
    """What passed and failed, and the invariants that found mutants."""

    def __init__(self):
        self.passed = self.failed = 0
        self.caught = collections.Counter()

    def ok(self, name, text):
        self.passed += 1
        print(f"ok {name}: {text}", flush=True)

    def fail(self, name, text):
        self.failed += 1
        print(f"FAILED {name}: {text}", flush=True)


def repeat(pool, simulator, mutants, report):
    """Runs each mutant with the schedule that its file records, and each schedule without a mutant; gives the mutants to search for."""
    runs = [
        (number, mutant, pool.submit(simulator.show, mutant.test, number, mutant.first + mutant.seeds - 1, 1))
        for number, mutant in mutants
        if mutant.seeds
    ]
    left = [(number, mutant) for number, mutant in mutants if not mutant.seeds]
    for number, mutant, done in runs:
        invariant, _, _ = done.result()
        if invariant in mutant.caught_by:
            report.caught[invariant] += 1
            report.ok(mutant.name, f"{invariant} after {mutant.seeds} schedules")
        elif mutant.is_open:
            print(f"open {mutant.name}: its schedule shows nothing any more", flush=True)
        else:
            left.append((number, mutant))
    violated = {key: found for key, found in simulator.without.items() if found[0]}
    for (test, seed), (invariant, text) in violated.items():
        report.fail("without a mutant", f"{invariant} in schedule {seed} of {test}: {text}")
    if not violated:
        report.ok("without a mutant", f"nothing found in {len(simulator.without)} schedules")
    return left


def search(pool, simulator, mutants, report, record, most):
    """Runs each mutant until an invariant is violated, in so many schedules at most; gives the mutants that are not found."""
    print(f"searching for {len(mutants)} mutants in {most} schedules", flush=True)
    runs = [
        (number, mutant, pool.submit(simulator.show, mutant.test, number, mutant.first, most))
        for number, mutant in mutants
    ]
    left = []
    for number, mutant, done in runs:
        invariant, seeds, _ = done.result()
        is_as_written = invariant in mutant.caught_by
        if invariant is None:
            left.append((number, mutant))
            continue
        report.caught[invariant] += 1
        if is_as_written or record:
            advice = "" if record else "; --record writes that into the file"
            report.ok(mutant.name, f"{invariant} after {seeds} schedules{advice}")
        else:
            report.fail(mutant.name, f"{invariant} after {seeds} schedules, instead of {', '.join(mutant.caught_by)}")
        if record:
            mutant.record(mutant.caught_by if is_as_written else [invariant], seeds)
    return left


def play(pool, mutants, report):
    """Runs each mutant with its recorded schedule, and searches for those that this schedule does not show any more."""
    simulator = Simulator()
    left = repeat(pool, simulator, mutants, report)
    return search(pool, simulator, left, report, False, SEEDS_SLOW) if left else []


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these mutants, as --list prints them")
    parser.add_argument("--list", action="store_true", help="print the names of the mutants and run none")
    parser.add_argument("--record", action="store_true", help="search, and write the results into the files")
    return parser.parse_args()


def chosen_of(mutants, names):
    """The mutants to run, each with the number of its switch."""
    numbered = [(number, mutant) for number, mutant in enumerate(mutants, 1) if not mutant.is_shared]
    unknown = set(names) - {mutant.name for _, mutant in numbered}
    if unknown:
        raise Unfit(f"no mutant is called {', '.join(sorted(unknown))}; --list prints the names")
    return [(number, mutant) for number, mutant in numbered if not names or mutant.name in names]


def main():
    options = arguments()
    try:
        mutants = [parse(path) for path in sorted(HERE.rglob("*.txt"))]
        words = collections.Counter(mutant.word for mutant in mutants)
        twice = [word for word, count in words.items() if count > 1]
        if twice:
            raise Unfit(f"two files have one name: {', '.join(twice)}")
        chosen = chosen_of(mutants, options.names)
        if options.list:
            print("\n".join(mutant.name for _, mutant in chosen))
            return 0
        write(mutated(mutants))
    except Unfit as unfit:
        errors = str(unfit).splitlines()
        print("\n".join(f"FAILED {error}" for error in errors))
        print(f"mutants: 0 passed, {len(errors)} failed")
        return 1
    report = Report()
    with futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        left = chosen if options.record else play(pool, chosen, report)
        if left:
            left = search(pool, Simulator("--profile", "sim"), left, report, options.record, SEEDS_MAX)
    for _, mutant in left:
        report.fail(mutant.name, f"not found in {SEEDS_MAX} schedules")
    for invariant, least in {} if options.names else HARD.items():
        if report.caught[invariant] < least:
            report.fail(invariant, f"found {report.caught[invariant]} mutants, instead of at least {least}")
    print(f"mutants: {report.passed} passed, {report.failed} failed")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
