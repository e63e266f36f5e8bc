"""A stage of tests/run with packages of its own: its start, its checks one by one, and its result."""

import collections
import os
import pathlib
import subprocess
import sys
import time
import traceback
import venv

import packages


def install(directory, requirements):
    """A virtual environment in `directory`/venv; the reason of a failure, None for success."""
    environment = directory / "venv"
    stamp = environment / "installed"
    if packages.is_stamped(stamp, requirements):
        return None
    try:
        venv.create(environment, with_pip=True, clear=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no virtual environment can be made (Debian has it in python3-venv): {error}"
    pip = [environment / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    return packages.finish([*pip, "--requirement", requirements], directory, stamp, requirements)


def enter(stage, directory, reason, warning):
    """Goes on in the virtual environment of `directory`. With a reason not to, the stage fails if CI=true, and is skipped
    elsewhere; its exit code then, None otherwise."""
    if reason:
        in_ci = os.environ.get("CI") == "true"
        print(f"\n!!! {warning}: {reason}\n")
        print(f"{stage}: 0 passed, {int(in_ci)} failed, {int(not in_ci)} skipped")
        return int(in_ci)
    environment = directory / "venv"
    if pathlib.Path(sys.prefix).resolve() != environment.resolve():
        python = environment / "bin" / "python"
        os.execv(python, [python, *sys.argv])
    return None


def play(stage, checks, skip=(), explain=lambda error: traceback.format_exc()):
    """Runs checks by name; `skip`: the exception of a check that cannot run. The exit code."""
    counts = collections.Counter()
    for name, check in checks:
        start = time.monotonic()
        try:
            check()
        except skip as reason:
            counts["skipped"] += 1
            print(f"SKIPPED {name}: {reason}", flush=True)
        except Exception as error:
            counts["failed"] += 1
            print(f"FAILED {name}\n{explain(error)}\n", flush=True)
        else:
            counts["passed"] += 1
            print(f"ok {name} ({time.monotonic() - start:.1f} s)", flush=True)
    print(f"{stage}: {', '.join(f'{counts[word]} {word}' for word in ('passed', 'failed', 'skipped'))}")
    return int(counts["failed"] > 0)
