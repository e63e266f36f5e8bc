#!/usr/bin/env python3
"""The chart, the image and the units of deploy/; README.md in this folder says how.

usage: tests/deploy/run.py [--only PATTERN] [--sluice PATH] [--chart DIR] [--update]

Runs target/debug/sluice. Needs Python 3.11 with venv, and on the first run the package registry; the packages go into
target/deploy. Without them the checks fail if CI=true, and are skipped elsewhere.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import time
import traceback
import venv

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
INSTALLED = TARGET / "deploy"
PYTHON = INSTALLED / "venv" / "bin" / "python"
sys.path.insert(0, str(ROOT / "tests" / "interop"))

import packages  # noqa: E402


def missing():
    """Installs missing packages; the reason of a failure, None for success."""
    requirements, stamp = HERE / "requirements.txt", INSTALLED / "venv" / "installed"
    if packages.is_stamped(stamp, requirements):
        return None
    try:
        venv.create(INSTALLED / "venv", with_pip=True, clear=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no virtual environment can be made (Debian has it in python3-venv): {error}"
    pip = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement", requirements]
    return packages.finish(pip, INSTALLED, stamp, requirements)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="PATTERN", default="", help="checks whose name contains it")
    parser.add_argument("--sluice", type=pathlib.Path, default=TARGET / "debug" / "sluice")
    parser.add_argument("--chart", type=pathlib.Path, default=ROOT / "deploy" / "helm" / "sluice")
    parser.add_argument("--update", action="store_true", help="write the golden files anew")
    return parser.parse_args()


def play(options):
    from context import Context, Skip
    import chart
    import commands
    import debian
    import image
    import pods
    import schema
    import sizes
    import units
    import workflows

    # Helm's library tells each linked file of the chart, at each load.
    os.dup2(os.open(INSTALLED / "helm.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    context = Context(ROOT, options.chart.resolve(), options.sluice.resolve(), options.update)
    checks = [(f"{module.__name__}: {check.__name__}", check) for module in (chart, schema, pods, sizes, commands, debian, image, units, workflows) for check in module.CHECKS]
    chosen = [(name, check) for name, check in checks if options.only in name]
    if not chosen:
        sys.exit(f"no check is called {options.only}")
    passed = failed = skipped = 0
    with context:
        for name, check in chosen:
            start = time.monotonic()
            try:
                check(context)
            except Skip as reason:
                skipped += 1
                print(f"SKIPPED {name}: {reason}", flush=True)
            except Exception as error:
                failed += 1
                shown = str(error) if isinstance(error, AssertionError) else traceback.format_exc()
                print(f"FAILED {name}\n{shown}\n", flush=True)
            else:
                passed += 1
                print(f"ok {name} ({time.monotonic() - start:.1f} s)", flush=True)
    print(f"deploy: {passed} passed, {failed} failed, {skipped} skipped")
    return int(failed > 0)


def main():
    options = arguments()
    reason = missing()
    if reason:
        in_ci = os.environ.get("CI") == "true"
        print(f"\n!!! DEPLOY IS NOT TESTED: {reason}\n")
        print(f"deploy: 0 passed, {int(in_ci)} failed, {int(not in_ci)} skipped")
        return int(in_ci)
    if pathlib.Path(sys.prefix).resolve() != (INSTALLED / "venv").resolve():
        os.execv(PYTHON, [PYTHON, *sys.argv])
    return play(options)


if __name__ == "__main__":
    sys.exit(main())
