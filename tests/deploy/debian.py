"""The Debian package: its files, and its scripts in the life of an installation (PKG-6)."""

import os
import pathlib
import shutil
import subprocess
import sys
import tomllib

# What happens, as dpkg calls the scripts; and the calls of other programs that follow, for a relay that runs or not.
RELOAD = "systemctl --system daemon-reload"
ACTIVE = "deb-systemd-invoke is-active sluice.service"
RESTART = "deb-systemd-invoke try-restart sluice.service"
STOP = "deb-systemd-invoke stop sluice.service sluice.socket"
PURGE = "deb-systemd-helper purge sluice.service sluice.socket"
LIFE = [
    # words of the story, script and arguments, what runs and works, the calls
    ("a first installation starts nothing", "postinst configure", {}, [RELOAD]),
    ("an update before which none ran", "postinst configure 0.1.0", {}, [RELOAD, ACTIVE]),
    ("an update hands over", "postinst configure 0.1.0", {"ACTIVE": "1", "UPGRADE": "1"}, [RELOAD, ACTIVE, "sluice upgrade"]),
    ("or restarts", "postinst configure 0.1.0", {"ACTIVE": "1"}, [RELOAD, ACTIVE, "sluice upgrade", RESTART]),
    ("a failed update", "postinst abort-upgrade 0.2.0", {"ACTIVE": "1", "UPGRADE": "1"}, [RELOAD, ACTIVE, "sluice upgrade"]),
    ("an update keeps the relay until the new one is there", "prerm upgrade 0.2.0", {"ACTIVE": "1"}, []),
    ("a removal stops it", "prerm remove", {"ACTIVE": "1"}, [STOP]),
    ("and tells systemd", "postrm remove", {}, [RELOAD]),
    ("an update's other scripts do nothing", "postrm upgrade 0.2.0", {}, []),
    ("a purge leaves nothing", "postrm purge", {}, [RELOAD, PURGE]),
    ("the administrator forbids it", "postinst configure 0.1.0", {"ACTIVE": "1", "POLICY": "101"}, []),
    ("a machine without systemd", "postinst configure 0.1.0", {"ACTIVE": "1", "SYSTEMD": ""}, []),
]


def scripts_do_this_in_the_life_of_an_installation(context):
    """Each program of the host is a stand-in that notes its call."""
    bin, log = context.directory / "bin", context.directory / "calls"
    bin.mkdir()
    stand_in = '#!/bin/sh\necho "${0##*/} $*" >> "$CALLS"\ncase "${0##*/} $1" in\n'
    stand_in += '"deb-systemd-invoke is-active") [ "$ACTIVE" ];;\n"sluice upgrade") [ "$UPGRADE" ];;\nesac\n'
    for name in ("systemctl", "deb-systemd-invoke", "deb-systemd-helper", "sluice"):
        (bin / name).write_text(stand_in)
        (bin / name).chmod(0o755)
    faults = []
    for story, call, state, wanted in LIFE:
        root = fresh_root(context.directory / "root", state)
        script, *words = call.split()
        text = (context.root / "deploy" / "debian" / script).read_text()
        for path in ("/run/systemd", "/usr/sbin/policy-rc.d", "/usr/bin/deb-systemd-helper", "/var/lib"):
            text = text.replace(path, f"{root}{path}")
        log.write_text("")
        environment = {"PATH": f"{bin}:{os.environ['PATH']}", "CALLS": str(log)} | state
        done = subprocess.run(["sh", "-s", *words], input=text, check=False, capture_output=True, text=True, env=environment)
        calls = log.read_text().splitlines()
        faults.extend([] if done.returncode == 0 else [f"{story}: exit {done.returncode} {done.stderr}"])
        faults.extend([] if calls == wanted else [f"{story}: {calls}, not {wanted}"])
        kept = (root / "var/lib/private/sluice/checkpoint").exists()
        faults.extend([] if kept == ("purge" not in call) else [f"{story}: the checkpoint is {'there' if kept else 'gone'}"])
    assert not faults, "\n".join(faults)


def fresh_root(root, state):
    shutil.rmtree(root, ignore_errors=True)
    (root / "var/lib/private/sluice/checkpoint").mkdir(parents=True)
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/sbin").mkdir()
    helper = root / "usr/bin/deb-systemd-helper"
    helper.write_text("")
    helper.chmod(0o755)
    if state.get("SYSTEMD", "1"):
        (root / "run/systemd/system").mkdir(parents=True)
    if "POLICY" in state:
        (root / "usr/sbin/policy-rc.d").write_text(f"#!/bin/sh\nexit {state['POLICY']}\n")
        (root / "usr/sbin/policy-rc.d").chmod(0o755)
    return root


def scripts_are_clean(context):
    files = [context.root / "deploy" / "debian" / name for name in ("postinst", "prerm", "postrm", "build")]
    done = subprocess.run([pathlib.Path(sys.prefix) / "bin" / "shellcheck", *files], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def package_has_these_files(context):
    """Each asset exists, or the build script makes it; the configuration is a conffile that the relay accepts."""
    deb = tomllib.loads((context.root / "Cargo.toml").read_text())["package"]["metadata"]["deb"]
    for source, _, mode in deb["assets"]:
        is_made = source.startswith("target/package/")
        assert is_made or list(context.root.glob(source)), f"{source} is missing"
        assert mode == ("755" if source.endswith("/sluice") else "644"), source
    targets = {target for _, target, _ in deb["assets"]}
    assert {"usr/bin/", "etc/sluice/", "lib/systemd/system/", "usr/share/man/man1/"} <= targets
    assert deb["conf-files"] == ["/etc/sluice/sluice.yaml"]
    text = (context.root / "deploy" / "debian" / "sluice.yaml").read_text()
    text = text.replace("/usr/share/sluice/quickstart", str(context.root / "config" / "quickstart"))
    done = context.check(text)
    assert done.returncode == 0 and not done.stderr, done.stderr


CHECKS = [scripts_do_this_in_the_life_of_an_installation, scripts_are_clean, package_has_these_files]
