"""The ledger on a real etcd and in a real API server of Kubernetes: the ignored tests of the binary `client`, which start and end
the programs themselves."""

import os
import subprocess

import packages
from harness import Case

# Three times what the tests take on a busy machine.
SECONDS = 120


def test_binary():
    """The newest build of the test binary."""
    built = [path for path in (packages.TARGET / "debug" / "deps").glob("client-*") if not path.suffix]
    if not built:
        raise AssertionError("there is no test binary `client`: `cargo test --no-run` makes it")
    return max(built, key=lambda path: path.stat().st_mtime)


def play(stage, name, tests, programs):
    command = [test_binary(), f"{name}::ldg", "--ignored", "--nocapture"]
    environment = {**os.environ, **{key: str(path) for key, path in programs.items()}}
    done = subprocess.run(command, cwd=stage.directory, env=environment, timeout=SECONDS, capture_output=True, text=True)
    stage.witness("the tests", lambda: done.stdout[-4000:] + done.stderr[-4000:])
    assert done.returncode == 0, "a test has failed"
    assert f"test result: ok. {tests} passed" in done.stdout, done.stdout[-400:]


def etcd(stage):
    play(stage, "ledger_etcd", 4, {"SLUICE_ETCD": packages.etcd()})


def kubernetes(stage):
    reason = packages.install_apiserver()
    assert reason is None, reason
    play(stage, "ledger_apiserver", 1, {"SLUICE_ETCD": packages.etcd(), "SLUICE_KUBE_APISERVER": packages.APISERVER})


CASES = [
    Case("ledger etcd", {"grpc", "etcd"}, etcd, relay_only=True),
    # The API server is large, and takes long to build.
    Case("ledger kubernetes", {"grpc", "etcd"}, kubernetes, relay_only=True, long=True),
]
