#!/usr/bin/env python3
"""The chart, the image and the units of deploy/; README.md in this folder says how.

usage: tests/deploy/run.py [--only PATTERN | --without PATTERN] [--sluice PATH] [--chart DIR] [--update]

Runs target/debug/sluice. Needs Python 3.11 with venv, and on the first run the package registry; the packages go into
target/deploy. Without them the checks fail if CI=true, and are skipped elsewhere.
"""

import argparse
import functools
import os
import pathlib
import sys
import traceback

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
INSTALLED = TARGET / "deploy"
sys.path.insert(0, str(ROOT / "tests" / "interop"))

import stage  # noqa: E402


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="PATTERN", default="", help="checks whose name contains it")
    parser.add_argument("--without", metavar="PATTERN", help="checks whose name does not contain it")
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
    chosen = [(name, check) for name, check in checks if options.only in name and not (options.without and options.without in name)]
    if not chosen:
        sys.exit(f"no check is called {options.only}")
    with context:
        return stage.play(
            "deploy",
            [(name, functools.partial(check, context)) for name, check in chosen],
            skip=Skip,
            explain=lambda error: str(error) if isinstance(error, AssertionError) else traceback.format_exc(),
        )


def main():
    options = arguments()
    reason = stage.install(INSTALLED, HERE / "requirements.txt")
    ended = stage.enter("deploy", INSTALLED, reason, "DEPLOY IS NOT TESTED")
    return play(options) if ended is None else ended


if __name__ == "__main__":
    sys.exit(main())
