"""Completion scripts, manual pages, and the name of a host whose /proc is hidden."""

import os
import shutil
import subprocess

import yaml


def completions_are_scripts(context):
    """PKG-9: each shell reads its script, as far as the shell is there; and bash completes a command and a flag by it."""
    for shell in ("bash", "zsh", "fish"):
        file = context.directory / shell
        file.write_text(context.run("completion", shell))
        if shutil.which(shell):
            subprocess.run([shell, "-n", file], check=True)
    asked = "COMP_WORDS=(sluice {}); COMP_CWORD={}; _sluice sluice '{}' ''; echo ${{COMPREPLY[@]}}"
    for words, last, wanted in (("ser", "ser", "serve"), ("check --con", "--con", "--config"), ("get cli", "cli", "clients")):
        script = f". {context.directory / 'bash'}; " + asked.format(words, len(words.split()), last)
        done = subprocess.run(["bash", "-c", script], check=True, capture_output=True, text=True)
        assert wanted in done.stdout.split(), f"{words}: {done.stdout} {done.stderr}"
    refused = subprocess.run([context.sluice, "completion", "csh"], check=False, capture_output=True, text=True)
    assert refused.returncode == 64 and "bash, zsh, fish" in refused.stderr, refused.stderr


def manual_has_a_page_for_each_command(context):
    """PKG-9: the pages are those of `--help`, and mandoc finds no fault."""
    directory = context.directory / "man"
    told = context.run("man", directory).split()
    pages = sorted(directory.iterdir())
    assert sorted(told) == [str(page) for page in pages]
    names = {page.stem for page in pages}
    assert {"sluice", "sluice-serve", "sluice-get-clients", "sluice-bootstrap-envoy"} <= names, names
    helped = context.run("--help").split("Commands:")[1].split("Options:")[0]
    commands = [line.split()[0] for line in helped.splitlines() if line.startswith("  ") and line[2] != " "]
    assert {f"sluice-{command}" for command in commands if command != "help"} <= names
    if shutil.which("mandoc"):
        done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", *pages], check=False, capture_output=True, text=True)
        # The pages have no date, so that they do not depend on the day of their making; the rest is only superfluous space.
        harmless = ("missing date", "skipping paragraph macro")
        faults = [line for line in done.stdout.splitlines() if not any(word in line for word in harmless)]
        assert not faults, "\n".join(faults)


def host_has_its_name_without_proc(context):
    """PKG-5: `ProcSubset=pid` hides the kernel's files. Only root can play this, in namespaces of its own."""
    config = context.root / "config" / "sluice.yaml"
    hidden = f"hostname probe-host && mount -t tmpfs none /proc && exec {context.sluice} bootstrap envoy --config {config}"
    call = ["unshare", "--mount", "--uts", "sh", "-c", hidden]
    can_play = os.geteuid() == 0 and shutil.which("unshare") and shutil.which("hostname")
    if not can_play or subprocess.run([*call[:3], "true"], check=False, capture_output=True).returncode != 0:
        return
    environment = {key: value for key, value in os.environ.items() if key != "HOSTNAME"}
    done = subprocess.run(call, check=True, capture_output=True, text=True, env=environment)
    assert yaml.safe_load(done.stdout)["node"]["id"] == "probe-host", done.stdout[:200]


CHECKS = [completions_are_scripts, manual_has_a_page_for_each_command, host_has_its_name_without_proc]
