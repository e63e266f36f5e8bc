"""The peers and their drivers, installed once under target/interop: two virtual environments, node_modules, a program of Go, the
jars of Java, and etcd of Debian. Namespaces of the network are no package: who is root has them.

Envoy and the control plane's messages have environments of their own, because both packages call themselves `envoy`.
Needs the package registries on the first run only.
"""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import time
import venv
from concurrent import futures

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
INSTALLED = TARGET / "interop"
PYTHON = INSTALLED / "grpc" / "bin" / "python"
NODE = INSTALLED / "node"
GO = INSTALLED / "go"
GO_PEER = GO / "peer"
JAVA = INSTALLED / "java"
ETCD = INSTALLED / "etcd"
APISERVER = INSTALLED / "apiserver" / "kube-apiserver"
# Looks for the lists of packages, and the seconds between two.
APT_ATTEMPTS, APT_PAUSE = 12, 10
# The package of each gRPC client.
LANGUAGES = {"C-core": "grpc", "Node.js": "node", "Go": "go", "Java": "java"}


def missing():
    """Installs missing packages; returns by package the reason of a failure, None for success."""
    installs = {name: lambda name=name: install_python(name) for name in ("grpc", "envoy")}
    installs |= {"node": install_node, "go": install_go, "java": install_java, "etcd": install_etcd, "namespaces": look_for_namespaces}
    with futures.ThreadPoolExecutor() as pool:
        under_way = {name: pool.submit(install) for name, install in installs.items()}
        return {name: done.result() for name, done in under_way.items()}


def grpc_client(language):
    """The command of the gRPC client in a language, and its environment."""
    if language == "Node.js":
        return ["node", HERE / "grpc_peer.js"], {"NODE_PATH": str(NODE / "node_modules")}
    jars = f"{JAVA / 'classes'}:{JAVA / 'jars'}/*"
    commands = {
        "C-core": [PYTHON, HERE / "grpc_peer.py"],
        "Go": [GO_PEER],
        # A short life: the quick compiler is enough.
        "Java": ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", jars, "GrpcPeer"],
    }
    return commands[language], {}


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


def install_go():
    """The client of grpc-go and a control plane, with the modules of go.mod; None on success, else the reason."""
    if shutil.which("go") is None:
        return "there is no go on this machine"
    sources = sorted((HERE / "go").iterdir())
    stamp = GO / "installed"
    if is_stamped(stamp, *sources):
        return None
    GO.mkdir(parents=True, exist_ok=True)
    print(f"building {HERE / 'go'} into {GO}", flush=True)
    return finish(["go", "build", "-C", HERE / "go", "-buildvcs=false", "-o", GO_PEER, "."], GO, stamp, *sources)


def install_java():
    """The client of grpc-java, and the jars of pom.xml; None on success, else the reason."""
    for program in ("mvn", "javac"):
        if shutil.which(program) is None:
            return f"there is no {program} on this machine"
    pom, client = sources = [HERE / "java" / name for name in ("pom.xml", "GrpcPeer.java")]
    stamp = JAVA / "installed"
    if is_stamped(stamp, *sources):
        return None
    shutil.rmtree(JAVA, ignore_errors=True)
    JAVA.mkdir(parents=True)
    print(f"installing pom.xml into {JAVA}", flush=True)
    maven = ["mvn", "--batch-mode", "--file", pom, "dependency:copy-dependencies", f"-DoutputDirectory={JAVA / 'jars'}"]
    reason = run(maven, JAVA)
    if reason:
        return reason
    return finish(["javac", "-cp", f"{JAVA / 'jars'}/*", "-d", JAVA / "classes", client], JAVA, stamp, *sources)


def etcd():
    """The program of etcd: the machine's, or the installed one."""
    return shutil.which("etcd") or ETCD / "usr" / "bin" / "etcd"


def install_etcd():
    """Debian's etcd-server, unpacked, if the machine has none; None on success, else the reason."""
    if pathlib.Path(etcd()).exists():
        return None
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            return f"there is neither etcd nor {program} on this machine"
    shutil.rmtree(ETCD, ignore_errors=True)
    ETCD.mkdir(parents=True)
    print(f"installing etcd-server into {ETCD}", flush=True)
    download = ["apt-get", "-o", "Acquire::Retries=3", "download", "etcd-server"]
    reason = run(download, ETCD)
    # A fresh machine has no lists of packages, and another stage may be reading them at the same time.
    for _ in range(APT_ATTEMPTS):
        if reason is None:
            break
        time.sleep(APT_PAUSE)
        run(["apt-get", "-o", "Acquire::Retries=3", "update"], ETCD)
        reason = run(download, ETCD)
    return reason or run(["dpkg-deb", "--extract", *ETCD.glob("etcd-server_*.deb"), "."], ETCD)


def look_for_namespaces():
    """None if this user can make namespaces of the network, else the reason."""
    if shutil.which("ip") is None:
        return "there is no program ip on this machine"
    name = f"sluice-look-{os.getpid()}"
    return run(["ip", "netns", "add", name], HERE) or run(["ip", "netns", "delete", name], HERE)


def is_stamped(stamp, *requirements):
    return stamp.exists() and stamp.read_text() == digest(*requirements)


def digest(*requirements):
    """A mark of the installed packages and the Python: an environment does not outlive its Python."""
    return hashlib.sha256(b"".join(file.read_bytes() for file in requirements) + sys.version.encode()).hexdigest()


def install_apiserver():
    """kube-apiserver, with the modules of go.mod; None on success, else the reason. Takes some twenty minutes at first."""
    if shutil.which("go") is None:
        return "there is no go on this machine"
    sources = sorted((HERE / "apiserver").iterdir())
    stamp = APISERVER.parent / "installed"
    if is_stamped(stamp, *sources):
        return None
    APISERVER.parent.mkdir(parents=True, exist_ok=True)
    print(f"building {HERE / 'apiserver'} into {APISERVER.parent}", flush=True)
    build = ["go", "build", "-C", HERE / "apiserver", "-buildvcs=false", "-o", APISERVER, "."]
    return finish(build, APISERVER.parent, stamp, *sources)


def finish(command, directory, stamp, *requirements):
    reason = run(command, directory)
    if reason is None:
        stamp.write_text(digest(*requirements))
    return reason


def run(command, directory):
    """Runs a command; the last line of its errors if it fails, None for success."""
    done = subprocess.run(command, cwd=directory, check=False, capture_output=True, text=True)
    if done.returncode == 0:
        return None
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return lines[-1] if lines else f"{command[0]} failed"
