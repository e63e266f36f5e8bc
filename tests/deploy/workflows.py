"""The workflows of the public forge, and what releases promise."""

import re
import subprocess
import sys

import yaml


def workflows(context):
    for path in sorted((context.root / ".github" / "workflows").glob("*.yml")):
        yield path.stem, yaml.safe_load(path.read_text()), path.read_text()


def workflows_ask_for_little(context):
    """Read rights by default, a time limit for each job, and a fixed version of each action."""
    for name, workflow, text in workflows(context):
        assert workflow["permissions"] == {"contents": "read"}, name
        for job, content in workflow["jobs"].items():
            assert content["timeout-minutes"] <= 355, f"{name}/{job}"
        loose = [use for use in re.findall(r"uses: (\S+)", text) if not re.search(r"@v\d+", use)]
        assert not loose, f"{name}: {loose}"


def builds_are_locked(context):
    """No build of a release or of a check may take other versions than Cargo.lock has."""
    scripts = [*context.root.glob(".github/workflows/*.yml"), context.root / "Dockerfile", context.root / "tests" / "run"]
    scripts += [path for path in (context.root / "deploy" / "debian").iterdir() if path.is_file()]
    for path in scripts:
        for line in re.sub(r"\\\n\s*", " ", path.read_text()).splitlines():
            if re.search(r"cargo (build|test|install|run|deb) (-|cargo-)", line) and not line.lstrip().startswith("#"):
                assert "--locked" in line or "--no-build" in line, f"{path.name}: {line.strip()}"


def release_has_all_parts(context):
    """Two architectures, checksums, an SBOM, provenance, the image of the Dockerfile's build stage."""
    release = next(text for name, _, text in workflows(context) if name == "release")
    for part in ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "sha256sum", "cyclonedx", "attest-build-provenance", "sbom: true"):
        assert part in release, part
    build = re.search(r"^FROM (rust:\S+)", (context.root / "Dockerfile").read_text(), re.M).group(1)
    assert f"container: {build}" in release, "one build image"
    audit = next(workflow for name, workflow, _ in workflows(context) if name == "audit")
    # YAML 1.1 reads `on` as a boolean.
    assert audit[True]["schedule"], "advisories appear without a change of ours"


def yaml_is_tidy(context):
    rules = "{extends: relaxed, rules: {line-length: disable}}"
    files = [*context.root.glob(".github/workflows/*.yml"), *context.root.glob("tests/deploy/values/*.yaml")]
    files += [context.chart / name for name in ("Chart.yaml", "values.yaml")]
    done = subprocess.run([sys.prefix + "/bin/yamllint", "-s", "-d", rules, *files], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


CHECKS = [workflows_ask_for_little, builds_are_locked, release_has_all_parts, yaml_is_tidy]
