"""The Debian package: its files, and its scripts in the life of an installation (PKG-6)."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib

from context import Skip

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
        (bin / "policy-rc.d").unlink(missing_ok=True)
        if "POLICY" in state:
            (bin / "policy-rc.d").write_text(f"#!/bin/sh\nexit {state['POLICY']}\n")
            (bin / "policy-rc.d").chmod(0o755)
        script, *words = call.split()
        text = (context.root / "deploy" / "debian" / script).read_text()
        for path in ("/run/systemd", "/var/lib"):
            text = text.replace(path, f"{root}{path}")
        log.write_text("")
        # Without the programs of administrators: a container has a policy of its own.
        environment = {"PATH": f"{bin}:/usr/bin:/bin", "CALLS": str(log)} | state
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
    if state.get("SYSTEMD", "1"):
        (root / "run/systemd/system").mkdir(parents=True)
    return root


def scripts_are_clean(context):
    files = [context.root / "deploy" / "debian" / name for name in ("postinst", "prerm", "postrm", "build", "get-cargo-deb")]
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


# What a package installation sees: programs that note their calls in place of systemd's and of the relay's own upgrade.
STAND_IN = """#!/bin/sh
echo "${0##*/} $*" >> /calls
case "${0##*/} $1" in
"deb-systemd-invoke is-active") [ "$ACTIVE" ];;
"sluice upgrade") [ "$UPGRADE" ];;
esac
"""
CONFFILE = "etc/sluice/sluice.yaml"


def package_is_built_and_clean(context):
    """cargo-deb builds it, from a binary of the dev profile here, and lintian finds no fault."""
    package = build(context)
    if not shutil.which("lintian"):
        raise Skip("lintian is missing (Debian has it): the package is built, and not linted")
    done = subprocess.run(["lintian", "--allow-root", "--fail-on", "error,warning", package], check=False, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stdout.strip(), done.stdout + done.stderr


def package_lives_in_an_empty_system(context):
    """dpkg installs, updates, removes and purges the real package in a folder of its own, by its real scripts."""
    if os.geteuid() != 0 or not shutil.which("dpkg"):
        raise Skip("only root has dpkg install into a folder")
    first = build(context)
    second = with_version(context, first, "99.0.0-1")
    root = empty_system(context.directory / "system", context.root / "target" / "tested" / "sluice")
    before = files(root)
    steps = [
        ("a first installation starts nothing", ["--install", first], {}, [RELOAD]),
        ("an update starts nothing that did not run", ["--install", second], {}, [RELOAD, ACTIVE]),
        ("an update hands over", ["--install", first], {"ACTIVE": "1", "UPGRADE": "1"}, [RELOAD, ACTIVE, "sluice upgrade"]),
        ("or restarts", ["--install", second], {"ACTIVE": "1"}, [RELOAD, ACTIVE, "sluice upgrade", RESTART]),
        ("a removal stops it", ["--remove", "sluice"], {"ACTIVE": "1"}, [STOP, RELOAD]),
        ("a purge forgets it", ["--purge", "sluice"], {}, [RELOAD, PURGE]),
    ]
    for story, call, state, wanted in steps:
        calls = dpkg(root, call, state)
        assert calls == wanted, f"{story}: {calls}, not {wanted}"
        if call[1] == first and not state:
            said = subprocess.run(["chroot", root, "/usr/bin/sluice", "check", "--config", f"/{CONFFILE}"], check=False, capture_output=True, text=True)
            assert said.returncode == 0, said.stderr
            assert (root / "usr/share/man/man1/sluice.1.gz").exists() and (root / "lib/systemd/system/sluice.service").exists()
            with open(root / CONFFILE, "a") as conffile:
                conffile.write("# of the operator\n")
        has_conffile = (root / CONFFILE).exists() and "# of the operator" in (root / CONFFILE).read_text()
        assert has_conffile == ("--purge" not in call), f"{story}: the operator's file is {'there' if has_conffile else 'gone'}"
        if call[0] == "--remove":
            assert files(root) - before == {CONFFILE}, "a removal keeps the configuration only"
    assert files(root) == before, "a purge leaves nothing"


def build(context):
    """The package, once for all checks."""
    if context.package:
        return context.package
    tools = context.root / "target" / "tools" / "bin"
    path = f"{tools}:{os.environ['PATH']}"
    if not shutil.which("cargo-deb", path=path) or not shutil.which("dpkg-deb") or not shutil.which("strip"):
        missing = "cargo-deb, dpkg-deb or strip is missing: deploy/debian/get-cargo-deb"
        assert os.environ.get("CI") != "true", missing
        raise Skip(missing)
    if context.root / "target" not in context.sluice.parents:
        raise Skip(f"{context.sluice} is outside of target: the package is built in place only")
    # Without its symbols, a binary of the dev profile is not much longer than one of a release.
    stripped = context.root / "target" / "tested" / "sluice"
    stripped.parent.mkdir(exist_ok=True)
    subprocess.run(["strip", "-o", stripped, context.sluice], check=True)
    call = [context.root / "deploy" / "debian" / "build", "--no-build", "tested", "--fast"]
    done = subprocess.run(call, check=False, capture_output=True, text=True, env=os.environ | {"PATH": path})
    assert done.returncode == 0, done.stdout + done.stderr
    context.package = pathlib.Path(done.stdout.splitlines()[-1])
    return context.package


def with_version(context, package, version):
    """The same files as another version."""
    tree, other = context.directory / "tree", context.directory / "other.deb"
    subprocess.run(["dpkg-deb", "--raw-extract", package, tree], check=True)
    control = tree / "DEBIAN" / "control"
    control.write_text(re.sub(r"^Version: .*$", f"Version: {version}", control.read_text(), flags=re.M))
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", "-Znone", tree, other], check=True, capture_output=True)
    return other


def empty_system(root, sluice):
    """A shell, what the package's binary needs, and stand-ins; systemd seems to run."""
    for directory in ("var/lib/dpkg/info", "var/lib/dpkg/updates", "run/systemd/system", "usr/bin", "usr/local/bin", "bin", "tmp"):
        (root / directory).mkdir(parents=True)
    (root / "var/lib/dpkg/status").write_text("")
    for name in ("sh", "rm", "cat"):
        add_program(root, shutil.which(name), f"bin/{name}")
    add_program(root, sluice, None)
    for name in ("usr/bin/systemctl", "usr/bin/deb-systemd-invoke", "usr/bin/deb-systemd-helper", "usr/local/bin/sluice"):
        (root / name).write_text(STAND_IN)
        (root / name).chmod(0o755)
    for name in ("calls", "dev/null"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("")
    return root


def add_program(root, program, name):
    """Copies a program, and the libraries that it needs; without a name, the libraries alone."""
    if name:
        shutil.copy(program, root / name)
    told = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    for library in re.findall(r"(/\S+) \(0x", told):
        copy = root / library.removeprefix("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, copy)


def files(root):
    # dpkg's own records, and backups of them, are not of the package.
    found = (str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir())
    return {path for path in found if not path.startswith(("var/lib/dpkg", "var/log"))}


def dpkg(root, call, state):
    """The calls that dpkg's scripts make."""
    (root / "calls").write_text("")
    environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"} | state
    command = ["dpkg", f"--root={root}", "--force-depends", "--force-downgrade", *call]
    done = subprocess.run(command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return (root / "calls").read_text().splitlines()


CHECKS = [scripts_do_this_in_the_life_of_an_installation, scripts_are_clean, package_has_these_files, package_is_built_and_clean, package_lives_in_an_empty_system]
