"""The ledger on a real etcd: the ignored tests of the binary `client`, which start and end etcd themselves."""

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


def etcd(stage):
    command = [test_binary(), "ledger_etcd::ldg", "--ignored", "--nocapture"]
    environment = {**os.environ, "SLUICE_ETCD": str(packages.etcd())}
    done = subprocess.run(command, cwd=stage.directory, env=environment, timeout=SECONDS, capture_output=True, text=True)
    stage.witness("the tests", lambda: done.stdout[-4000:] + done.stderr[-4000:])
    assert done.returncode == 0, "a test has failed"
    assert "test result: ok. 4 passed" in done.stdout, done.stdout[-400:]


CASES = [Case("ledger etcd", {"grpc", "etcd"}, etcd, relay_only=True)]
