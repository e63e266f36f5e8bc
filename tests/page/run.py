#!/usr/bin/env python3
"""The operator's page in a real browser; README.md in this folder describes the stories.

usage: tests/page/run.py [--only PATTERN] [--sluice PATH] [--pictures DIR [--clients N]]

Runs target/debug/sluice. Needs Chromium with its driver (on Debian and Ubuntu installed from here, by root), Python 3.11
with venv, Node.js's npm, and on the first run the package registries; the packages go into target/page. Without a browser
the stories fail if CI=true, and are skipped elsewhere.
"""

import argparse
import functools
import os
import pathlib
import shutil
import subprocess
import sys
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
INSTALLED = TARGET / "page"
AXE = INSTALLED / "node" / "node_modules" / "axe-core" / "axe.min.js"
sys.path.insert(0, str(ROOT / "tests" / "interop"))

import packages  # noqa: E402
import stage  # noqa: E402


def missing():
    """Installs missing packages; the reason of a failure, None for success."""
    return stage.install(INSTALLED, HERE / "requirements.txt") or install_axe() or install_browser()


def install_axe():
    package, stamp = HERE / "package.json", INSTALLED / "node" / "installed"
    if packages.is_stamped(stamp, package):
        return None
    if shutil.which("npm") is None:
        return "there is no npm on this machine"
    (INSTALLED / "node").mkdir(parents=True, exist_ok=True)
    shutil.copy(package, INSTALLED / "node")
    npm = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
    return packages.finish(npm, INSTALLED / "node", stamp, package)


def browser_paths():
    """The browser and its driver, of one version; a hosted runner has them by other names."""
    browsers = [shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome")]
    drivers = [os.environ.get("CHROMEWEBDRIVER", "") and shutil.which("chromedriver", path=os.environ["CHROMEWEBDRIVER"])]
    drivers.append(shutil.which("chromedriver"))
    return next(filter(None, browsers), None), next(filter(None, drivers), None)


def install_browser():
    if all(browser_paths()):
        return None
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return "there is no chromium with chromedriver, and only root can install them, on Debian or Ubuntu"
    apt = ["apt-get", "-q", "-y", "-o", "Acquire::Retries=3"]
    chromium = ["install", "--no-install-recommends", "chromium", "chromium-driver", "fonts-dejavu-core"]
    for step in (["update"], chromium):
        subprocess.run([*apt, *step], check=False, capture_output=True, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    return None if all(browser_paths()) else "chromium and chromium-driver cannot be installed"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="PATTERN", default="", help="stories whose name contains it")
    parser.add_argument("--sluice", type=pathlib.Path, default=TARGET / "debug" / "sluice")
    parser.add_argument("--pictures", type=pathlib.Path, metavar="DIR", help="no stories: a picture of each page, for people")
    parser.add_argument("--clients", type=int, default=0, help="further clients in the pictures; -1: none at all")
    return parser.parse_args()


def take_pictures(browser, directory):
    from browser import NARROW, WIDE
    from stories import pages

    directory.mkdir(parents=True, exist_ok=True)
    # Without a window they would cover the right margin.
    browser.cdp("Emulation.setScrollbarsHidden", hidden=True)
    for page in pages(browser):
        name = "".join(letter if letter.isalnum() else "-" for letter in page) or "overview"
        for theme, size in (("light", WIDE), ("dark", WIDE), ("light", NARROW)):
            browser.theme(theme)
            browser.size(size)
            browser.go(f"/ui/{page}")
            time.sleep(0.3)
            browser.picture(directory / f"{name}-{theme}-{size[0]}.png")


def play(options):
    from browser import WIDE, Browser
    from fleet import Fleet, Stage
    from stories import STORIES

    chosen = [story for story in STORIES if options.only in story.__name__]
    if not chosen:
        sys.exit(f"no story is called {options.only}")
    with Stage(options.sluice.resolve(), direct=False) as peers:
        fleet = Fleet(peers, max(options.clients, 0))
        if options.clients >= 0:
            fleet.assemble()
        profile = peers.directory / "profile"
        browser = Browser(*browser_paths(), profile, peers.admin, AXE.read_text())
        peers.callback(browser.end)
        browser.size(WIDE)
        if options.pictures:
            take_pictures(browser, options.pictures)
            return 0
        checks = [(story.__name__, functools.partial(story, browser, fleet)) for story in chosen]
        return stage.play("page", checks, explain=lambda error: traceback.format_exc() + browser.text("body")[:1500])


def main():
    options = arguments()
    ended = stage.enter("page", INSTALLED, missing(), "THE PAGE IS NOT TESTED IN A BROWSER")
    return play(options) if ended is None else ended


if __name__ == "__main__":
    sys.exit(main())
