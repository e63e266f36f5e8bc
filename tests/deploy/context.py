"""The rendered chart, and the relay's binary, for all checks."""

import functools
import os
import pathlib
import shutil
import subprocess
import tempfile

import helm_python
import yaml

HERE = pathlib.Path(__file__).resolve().parent
SETS = sorted(path.stem for path in (HERE / "values").glob("*.yaml"))
RELEASE = {"name": "sluice", "namespace": "relays"}


class Skip(Exception):
    """A check that lacks a tool."""


class Context:
    def __init__(self, root, chart, sluice, is_update):
        self.root, self.chart, self.sluice, self.is_update = root, chart, sluice, is_update
        # The Debian package, once it is built.
        self.package = None

    def __enter__(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="sluice-deploy-"))
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.directory)

    @functools.cached_property
    def loaded(self):
        return helm_python.Chart.load(self.chart)

    def values(self, name):
        return yaml.safe_load((HERE / "values" / f"{name}.yaml").read_text())

    def texts(self, values):
        """Each template with its rendered text."""
        return self.loaded.render(values, **RELEASE)

    def objects(self, values):
        return parse(self.texts(values))

    @functools.cache
    def set(self, name):
        """The objects of a set of values."""
        return self.objects(self.values(name))

    def notes(self, values):
        return next(text for path, text in self.texts(values).items() if path.endswith("NOTES.txt"))

    @functools.cached_property
    def with_parent(self):
        """A copy of the chart `parent`, with the chart under test as its dependency."""
        copy = self.directory / "parent"
        shutil.copytree(HERE / "parent", copy, symlinks=True)
        (copy / "charts" / "sluice").unlink()
        (copy / "charts" / "sluice").symlink_to(self.chart)
        return helm_python.Chart.load(copy)

    def sidecar(self, values):
        """The Deployment of an application with the sidecar."""
        rendered = self.with_parent.render({"sluice": values}, **RELEASE)
        return find(parse(rendered), "Deployment")

    @functools.cached_property
    def certificates(self):
        """The folders that pods mount, with certificates and tokens for trying out."""
        certificates, tokens = self.directory / "certs", self.directory / "tokens"
        self.run("dev-certs", self.directory / "made")
        certificates.mkdir()
        tokens.mkdir()
        for file in ("tls.crt", "tls.key"):
            shutil.copy(self.directory / "made" / "relay" / file, certificates)
        shutil.copy(self.directory / "made" / "ca.crt", certificates)
        for name in ("scraper", "on-call"):
            (tokens / name).write_text(name * 8 + "\n")
        return self.directory

    def on_this_host(self, text):
        """A configuration of a pod, with the paths of this host."""
        for mount in ("/certs/", "/tokens/", "/var/lib/sluice/"):
            text = text.replace(mount, f"{self.certificates}/{mount.strip('/')}/")
        return text

    def check(self, text, name="sluice.yaml"):
        """`sluice check` of a configuration, with the environment of a pod."""
        file = self.directory / name
        file.write_text(self.on_this_host(text))
        environment = os.environ | {"POD_NAME": "sluice-0", "POD_NAMESPACE": "relays"}
        return subprocess.run([self.sluice, "check", "--config", file], check=False, capture_output=True, text=True, env=environment)

    def run(self, *words):
        return subprocess.run([self.sluice, *words], check=True, capture_output=True, text=True).stdout


def parse(texts):
    """The objects of rendered templates."""
    documents = [document for path, text in texts.items() if path.endswith(".yaml") for document in yaml.safe_load_all(text)]
    return [document for document in documents if document]


def find(objects, kind, name=None):
    found = [item for item in objects if item["kind"] == kind and name in (None, item["metadata"]["name"])]
    assert len(found) == 1, f"{len(found)} objects are {kind} {name or ''}"
    return found[0]


def configuration(objects):
    """The relay's configuration among the objects, as text."""
    maps = [item for item in objects if item["kind"] == "ConfigMap" and "sluice.yaml" in item["data"]]
    assert len(maps) == 1, f"{len(maps)} configurations"
    return maps[0]["data"]["sluice.yaml"]
