"""The Dockerfile, as text: no engine for containers is needed."""

import json
import re
import subprocess
import sys
import tomllib

import yaml

# PKG-7: the layers of the image, and nothing that runs a command of its own.
FINAL = ["FROM", "ARG", "ARG", "LABEL", "COPY", "COPY", "WORKDIR", "USER", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"]


def stages(context):
    """The instructions of each stage: word and rest."""
    text = (context.root / "Dockerfile").read_text()
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    instructions = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    starts = [index for index, (word, _) in enumerate(instructions) if word == "FROM"]
    return [instructions[start:end] for start, end in zip(starts, [*starts[1:], None])]


def hadolint_is_silent(context):
    hadolint = [sys.prefix + "/bin/hadolint", "--failure-threshold", "style", context.root / "Dockerfile"]
    done = subprocess.run(hadolint, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def image_has_these_layers(context):
    build, final = stages(context)
    for stage in (build, final):
        assert re.search(r"@sha256:[0-9a-f]{64}( AS |$)", stage[0][1]), f"no digest: {stage[0][1]}"
    assert [word for word, _ in final] == FINAL, [word for word, _ in final]
    assert "gcr.io/distroless/cc-debian12:nonroot" in final[0][1], "a static binary would look up names otherwise"
    rust = tomllib.loads((context.root / "Cargo.toml").read_text())["workspace"]["package"]["rust-version"]
    assert build[0][1].startswith(f"rust:{rust}-bookworm@"), "glibc of the build is that of the image"
    assert any("--locked" in rest for word, rest in build if word == "RUN")
    said = dict(final)
    assert re.fullmatch(r"[1-9][0-9]*:[1-9][0-9]*", said["USER"]), "Kubernetes must see a number"
    for word in ("ENTRYPOINT", "CMD"):
        assert isinstance(json.loads(said[word]), list), "there is no shell"
    assert json.loads(said["HEALTHCHECK"].split("CMD ")[1]) == ["/app/sluice", "status", "--ready"]
    version = tomllib.loads((context.root / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    assert ["ARG", f"VERSION={version}"] in final


def image_listens_where_it_says(context):
    """EXPOSE, the default command and its configuration."""
    final = stages(context)[1]
    command = json.loads(dict(final)["CMD"])
    copied = [rest.split() for word, rest in final if word == "COPY"]
    source = next(source for source, target in (words[-2:] for words in copied) if command[-1].startswith(f"{target}/"))
    config = yaml.safe_load((context.root / source / command[-1].rsplit("/", 1)[1]).read_text())
    ports = {listener["address"].rsplit(":", 1)[1] for listener in config["listeners"]}
    assert ports == set(dict(final)["EXPOSE"].split()), ports
    assert all(listener["address"].startswith("0.0.0.0:") for listener in config["listeners"])
    # The health check asks the default address of the commands.
    assert config["admin"]["address"] == "127.0.0.1:19000"


CHECKS = [hadolint_is_silent, image_has_these_layers, image_listens_where_it_says]
