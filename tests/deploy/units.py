"""The units of systemd."""

import re
import shutil
import subprocess

import yaml

UNITS = ["sluice.service", "sluice.socket"]

# PKG-5, beyond the score.
SERVICE = {
    "Type": "notify",
    "NotifyAccess": "all",
    "ExecReload": "/usr/bin/sluice reload",
    "DynamicUser": "yes",
    "StateDirectory": "sluice",
    "RuntimeDirectory": "sluice",
    "ProtectSystem": "strict",
    "ProcSubset": "pid",
    "MemoryDenyWriteExecute": "yes",
    "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX",
    "LimitNOFILE": "1048576",
    "LimitCORE": "0",
    "CapabilityBoundingSet": "",
    "RestartPreventExitStatus": "64",
}


def keys(context, unit):
    text = (context.root / "deploy" / "systemd" / unit).read_text()
    return dict(re.findall(r"^(\w+)=(.*)$", text, re.M))


def service_is_hardened(context):
    """Exposure by systemd's own table: at most 1.5 of 10."""
    said = keys(context, "sluice.service")
    assert SERVICE.items() <= said.items(), SERVICE.items() - said.items()
    filters = re.findall(r"^SystemCallFilter=(.*)$", (context.root / "deploy/systemd/sluice.service").read_text(), re.M)
    assert filters == ["@system-service", "~@privileged"], filters
    if shutil.which("systemd-analyze"):
        unit = context.root / "deploy" / "systemd" / "sluice.service"
        call = ["systemd-analyze", "security", "--offline=true", "--threshold=15", "--no-pager", unit]
        done = subprocess.run(call, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-300:] + done.stderr


def units_are_valid(context):
    """systemd reads the units without a word. The executable is not installed here: any other stands in."""
    if not shutil.which("systemd-analyze"):
        return
    for unit in UNITS:
        text = (context.root / "deploy" / "systemd" / unit).read_text()
        (context.directory / unit).write_text(text.replace("/usr/bin/sluice", shutil.which("true")))
    call = ["systemd-analyze", "verify", "--man=no", *(context.directory / unit for unit in UNITS)]
    done = subprocess.run(call, check=False, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr


def service_waits_for_the_drain(context):
    """The longest default drain fits, with the 15 s of HND-8."""
    defaults = yaml.safe_load((context.root / "config" / "example.yaml").read_text())
    seconds = sum(int(defaults.get(key, "0s").removesuffix("s")) for key in ("drain", "drain_delay"))
    assert int(keys(context, "sluice.service")["TimeoutStopSec"].removesuffix("s")) >= seconds + 15


def socket_is_that_of_the_packaged_listener(context):
    said = keys(context, "sluice.socket")
    config = yaml.safe_load((context.root / "deploy" / "debian" / "sluice.yaml").read_text())
    addresses = {listener["name"]: listener["address"] for listener in config["listeners"]}
    assert addresses[said["FileDescriptorName"]] == said["ListenStream"]
    assert said["Service"] == "sluice.service"


CHECKS = [service_is_hardened, units_are_valid, service_waits_for_the_drain, socket_is_that_of_the_packaged_listener]
