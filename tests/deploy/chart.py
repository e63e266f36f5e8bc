"""The chart as a package: its values, its objects as Kubernetes reads them, and its files."""

import functools
import json
import re
import shutil
import subprocess
import tomllib

import helm_python
import jsonschema
import kubernetes_validate
import kubernetes_validate.utils
import yaml
from context import HERE, RELEASE, SETS, configuration, find, parse

VERSIONS = [f"1.{minor}" for minor in range(29, 38)]

HELM = shutil.which("helm")

# Maps that the chart passes on as they are.
FREE = {
    "global",
    "config",
    "affinity",
    "podSecurityContext",
    "securityContext",
    "monitoring.endpoint",
}

# Values that the schema refuses, and a word of the message.
REFUSED = [
    ({"controlPlan": "cp:1"}, "controlPlan"),
    ({"controlPlane": "http://cp:1"}, "controlPlane"),
    ({"controlPlane": "cp"}, "controlPlane"),
    ({"mode": "daemon"}, "mode"),
    ({"admin": {"ports": 1}}, "ports"),
    ({"admin": {"public": ["metrics"]}}, "public"),
    ({"admin": {"public": ["health", "ready", "act"]}}, "public"),
    ({"replicas": "2"}, "replicas"),
    ({"sizing": {"changesPerSecond": 0}}, "changesPerSecond"),
    ({"image": {"digest": "sha256:abc"}}, "digest"),
    ({"strategy": {"maxSurge": "all"}}, "maxSurge"),
    ({"certificates": {"source": "vault"}}, "source"),
    ({"certificates": {"certManager": {"issuer": {"nam": "x"}}}}, "nam"),
    ({"autoscaling": {"metric": "memory"}}, "metric"),
    ({"monitoring": {"rules": {"enable": True}}}, "enable"),
    ({"podLabels": {"a": 1}}, "podLabels"),
]

# Values that the templates refuse, and words of the message.
CONTRADICTIONS = [
    ({}, "set controlPlane to HOST:PORT"),
    ({"certificates": {"source": "spire"}}, "set trustDomain"),
    ({"certificates": {"source": "secret", "trustDomain": "a"}}, "certificates.secretName"),
    ({"certificates": {"source": "cert-manager", "trustDomain": "a"}}, "issuer.name"),
    ({"admin": {"tls": True}}, "admin.tls: needs certificates.source"),
    ({"admin": {"tokensSecret": "a", "tokens": [{"name": "a", "key": "a", "roles": ["view"]}]}}, "admin.tokens: needs admin.tls"),
    ({"config": {"admin": {"address": "127.0.0.1:19000"}}}, "the probes of the kubelet"),
    ({"config": {"admin": {"address": "unix:a"}}}, "the probes of the kubelet"),
    ({"checkpoint": {"existingClaim": "a"}}, "set config.node.id"),
    ({"checkpoint": {"existingClaim": "a"}, "replicas": 2, "config": {"node": {"id": "a"}}}, "a claim is for one relay"),
    ({"checkpoint": {"existingClaim": "a"}, "autoscaling": {"enabled": True}}, "a claim is for one relay"),
    ({"resources": {"limits": {"memory": "1 GB"}}}, "is no quantity of memory"),
    ({"resources": {"limits": {"memory": "64Mi"}}}, "has no room for a set"),
    ({"config": {"drain": "1 minute"}}, "is no duration"),
    ({"mode": "sidecar", "config": {"facts": {"key": "id", "kubernetes": {}}}}, "would watch the whole cluster"),
    ({"serviceAccount": {"create": False}, "config": {"facts": {"key": "id", "kubernetes": {}}}}, "set serviceAccount.name"),
    ({"mode": "sidecar", "config": {"ledger": {"kubernetes": {}}}}, "config.ledger.kubernetes: each application's account"),
    ({"serviceAccount": {"create": False}, "config": {"ledger": {"kubernetes": {}}}}, "set serviceAccount.name"),
    ({"config": {"listeners": [{"name": "a.b", "address": "[::]:1"}, {"name": "a-b", "address": "[::]:2"}]}}, "the same port name"),
]


def lint_is_silent(context):
    for name in SETS:
        report = helm_python.lint(context.chart, context.values(name), strict=True, namespace="relays", kube_version="v1.29.0")
        loud = [message for message in report["messages"] if message["severity"] > 1]
        assert not loud and not report["errors"], f"{name}: {loud} {report['errors']}"


def schema_takes_every_set_and_refuses_mistakes(context):
    for name in SETS:
        context.loaded.validate_schema(context.values(name))
    for mistake, word in REFUSED:
        refusal = refused(context, {"controlPlane": "cp:1"} | mistake)
        assert refusal and word in refusal, f"{mistake}: {refusal}"


def refused(context, values):
    try:
        context.loaded.validate_schema(values)
    except helm_python.HelmError as error:
        return str(error)
    return None


def schema_knows_the_values_and_no_others(context):
    """PKG-1: strict at every level but `global`, which a parent chart owns, and maps that are passed on."""
    schema = json.loads((context.chart / "values.schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    values = yaml.safe_load((context.chart / "values.yaml").read_text())
    faults = []

    def walk(part, values, path):
        part = schema["definitions"][part["$ref"].rsplit("/", 1)[1]] if "$ref" in part else part
        if part.get("type") == "array":
            walk(part["items"], None, f"{path}[]")
        if part.get("type") != "object":
            return
        if "properties" not in part:
            is_typed = isinstance(part.get("additionalProperties"), dict)
            faults.extend([] if path in FREE or path.endswith("[]") or is_typed else [f"{path}: any key is allowed"])
            return
        faults.extend([] if part.get("additionalProperties") is False else [f"{path}: unknown keys are allowed"])
        known = set(part["properties"]) - {"global"}
        if values is not None and not path.endswith("resources"):
            faults.extend(f"{path}.{key}: in one of schema and values only" for key in known ^ set(values))
        for key, inner in part["properties"].items():
            walk(inner, (values or {}).get(key), f"{path}.{key}".strip("."))

    walk(schema, values, "")
    assert not faults, "\n".join(faults)


def contradictions_are_told(context):
    for values, words in CONTRADICTIONS:
        values = ({"controlPlane": "cp:1"} | values) if values else {}
        try:
            context.texts(values)
        except helm_python.HelmError as error:
            assert words in str(error), f"{values}: {error}"
        else:
            raise AssertionError(f"{values} is rendered")


def manifests_are_the_golden_ones(context):
    """Files of ops/ are shortened: another check compares them. `--update` writes the files."""
    faults = []
    for name in SETS:
        documents = [shortened(item) for item in context.set(name)]
        text = yaml.dump_all(documents, Dumper=Readable, width=120)
        file = HERE / "golden" / f"{name}.yaml"
        if context.is_update:
            file.write_text(text)
        elif not file.exists() or file.read_text() != text:
            faults.append(f"{name}: differs from {file.relative_to(context.root)}{difference(file, text)}")
    if not context.is_update:
        left = {path.stem for path in (HERE / "golden").glob("*.yaml")} - set(SETS)
        assert not left, f"golden files without values: {left}"
    assert not faults, "\n".join(faults) + "\nif this is meant: tests/deploy/run.py --only golden --update"


class Readable(yaml.SafeDumper):
    """Texts of several lines stay texts of several lines."""


def text(dumper, value):
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


Readable.add_representer(str, text)


def difference(file, text):
    done = subprocess.run(["diff", "-u", file, "-"], input=text, check=False, capture_output=True, text=True)
    return "\n" + "\n".join(done.stdout.splitlines()[2:40])


def shortened(item):
    if item["kind"] == "PrometheusRule":
        return item | {"spec": {"groups": [group["name"] for group in item["spec"]["groups"]]}}
    if item["kind"] == "ConfigMap" and item["metadata"]["name"].endswith("-dashboards"):
        return item | {"data": {name: json.loads(text)["title"] for name, text in item["data"].items()}}
    return item


def kubernetes_takes_the_manifests(context):
    """Strict schemas of each minor version for the built-in kinds; schemas of ours for the others."""
    kubernetes_validate.utils.schema_contents = functools.cache(kubernetes_validate.utils.schema_contents)
    crds = json.loads((HERE / "crds.json").read_text())
    seen, faults = set(), []
    apps = [context.sidecar(context.values(name)) for name in SETS if name.startswith("sidecar")]
    for item in [item for name in SETS for item in context.set(name)] + apps:
        text = json.dumps(item, sort_keys=True)
        if text in seen:
            continue
        seen.add(text)
        kind, group = item["kind"], item["apiVersion"].split("/")[0]
        if kind in crds:
            found = jsonschema.Draft7Validator(crds[kind]).iter_errors(item)
            faults.extend(f"{kind}: {error.json_path}: {error.message}" for error in found)
            continue
        assert not group.endswith((".io", ".com")) or group.endswith(".k8s.io"), f"{kind}: no schema"
        for version in VERSIONS:
            try:
                assert kubernetes_validate.validate(item, version, strict=True) == version
            except kubernetes_validate.ValidationError as error:
                faults.append(f"{version} {kind} {item['metadata']['name']}: {error.message}")
    assert not faults, "\n".join(faults)


def all_kinds_are_there(context):
    """PKG-2: the objects of a tier with everything."""
    kinds = {item["kind"] for name in SETS for item in context.set(name)}
    wanted = "Deployment Service ConfigMap ServiceAccount PodDisruptionBudget HorizontalPodAutoscaler NetworkPolicy Certificate"
    wanted += " ClusterRole ClusterRoleBinding Role RoleBinding"
    assert kinds == {*wanted.split(), "PodMonitor", "ServiceMonitor", "PrometheusRule"}, kinds
    minimal = sorted(item["kind"] for item in context.set("minimal"))
    wanted = "ConfigMap Deployment NetworkPolicy PodDisruptionBudget Service Service ServiceAccount"
    assert minimal == wanted.split(), minimal
    assert {item["kind"] for item in context.set("sidecar-spire")} == {"ConfigMap"}


def files_of_ops_are_taken_as_they_are(context):
    """OBS-11, OBS-12: one copy of alerts and dashboards."""
    ops = context.root / "ops"
    objects = context.set("monitored")
    base = context.values("monitored")["monitoring"]["rules"]["runbookBase"]
    groups = []
    for file in ("recording", "alerts"):
        text = (ops / "prometheus" / f"{file}.yaml").read_text()
        groups += yaml.safe_load(text.replace("runbook_url: docs/", f"runbook_url: {base}docs/"))["groups"]
    assert find(objects, "PrometheusRule")["spec"]["groups"] == groups
    boards = find(objects, "ConfigMap", "sluice-dashboards")["data"]
    assert {name: json.loads(text) for name, text in boards.items()} == {
        f"sluice-{path.stem}.json": json.loads(path.read_text()) for path in (ops / "grafana").glob("*.json")
    }
    copies = [path for path in (context.chart / "files").iterdir() if not path.is_symlink()]
    assert not copies, f"no links into ops/: {copies}"


def every_configuration_passes_the_relay(context):
    """`sluice check` of the configuration of each set, with certificates for trying out in place of mounted ones."""
    faults = []
    for name in SETS:
        values = context.values(name)
        objects = context.set(name)
        done = context.check(configuration(objects))
        faults.extend([] if done.returncode == 0 else [f"{name}: exit {done.returncode}\n{done.stderr}"])
        own = yaml.safe_load(configuration(objects))
        lost = [key for key, value in values.get("config", {}).items() if not holds(own.get(key), value)]
        faults.extend(f"{name}: config.{key} is not passed through" for key in lost)
    broken = context.check(configuration(context.objects({"controlPlane": "cp:1", "config": {"drian": "1s"}})))
    assert broken.returncode == 64 and "drian" in broken.stderr, broken.stderr
    assert not faults, "\n".join(faults)


def documented_values_pass_the_relay(context):
    """Each block of values in docs/kubernetes.md."""
    text = (context.root / "docs" / "kubernetes.md").read_text()
    known = set(yaml.safe_load((context.chart / "values.yaml").read_text()))
    blocks = re.findall(r"^ *```yaml\n(.*?)^ *```", text, re.S | re.M)
    values = [yaml.safe_load(block) for block in blocks if "{{" not in block and "<<" not in block]
    values = [block for block in values if set(block) <= known]
    assert len(values) >= 6, f"only {len(values)} blocks"
    for block in values:
        assert find(context.objects({"controlPlane": "cp:1"} | block), "Deployment")
        done = context.check(configuration(context.objects({"controlPlane": "cp:1"} | block)))
        assert done.returncode == 0, f"{block}: {done.stderr}"


def the_recipe_for_istiod_is_one(context):
    """Values and page repeat `config/istio-kubernetes.yaml`, which is tried before the real istiod."""
    recipe = yaml.safe_load((context.root / "config" / "istio-kubernetes.yaml").read_text())
    text = (context.root / "docs" / "kubernetes.md").read_text()
    blocks = [yaml.safe_load(block) for block in re.findall(r"^ *```yaml\n(.*?)^ *```", text, re.S | re.M) if "kubernetes: {}" in block]
    copies = [context.values("facts"), *blocks]
    assert len(copies) == 2, copies
    for copy in copies:
        for key in ("facts", "node_classes", "limits"):
            assert copy["config"][key] == recipe[key], f"{key}: {copy['config'][key]}"


def holds(whole, part):
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(holds(whole.get(key), value) for key, value in part.items())
    return whole == part


def a_changed_configuration_keeps_the_pods(context):
    """PKG-3: only keys that need a new process replace pods."""

    def pod(config, **more):
        objects = context.objects({"controlPlane": "cp:1", "config": config, **more})
        return find(objects, "Deployment")["spec"]["template"], configuration(objects)

    before = pod({})
    for config in ({"log": {"level": "debug"}}, {"limits": {"connections": 5}}, {"linger": "1m"}, {"node_classes": []}):
        after = pod(config)
        assert after[1] != before[1] and after[0] == before[0], f"{config} replaces the pods"
    assert pod({}, controlPlane="other:1")[0] == before[0], "another control plane replaces the pods"
    for config in ({"node": {"cluster": "a"}}, {"checkpoint": {"directory": "/var/lib/sluice/b"}}, {"admin": {"address": "0.0.0.0:19001"}}):
        assert pod(config)[0] != before[0], f"{config} needs new pods"


def version_is_that_of_the_relay(context):
    package = tomllib.loads((context.root / "Cargo.toml").read_text())["workspace"]["package"]
    chart = yaml.safe_load((context.chart / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == package["version"]


def helm_itself_gives_equal_manifests(context):
    """The library is Helm's own; a `helm` in the PATH must agree."""
    for name in SETS:
        call = [HELM, "template", RELEASE["name"], context.chart, "--namespace", RELEASE["namespace"], "--values", HERE / "values" / f"{name}.yaml"]
        done = subprocess.run(call, check=True, capture_output=True, text=True)
        ordered = [sorted(map(json.dumps, objects)) for objects in (parse({".yaml": done.stdout}), context.set(name))]
        assert ordered[0] == ordered[1], name


def package_holds_the_linked_files(context):
    """An archive has no links."""
    archive = helm_python.package(context.chart, destination=context.directory)
    with helm_python.Chart.load(archive) as packed:
        rendered = packed.render(context.values("monitored"), **RELEASE)
        assert parse(rendered) == context.set("monitored")
        names = {file["name"] for file in packed.files}
        assert {f"files/{name}" for name in ("alerts.yaml", "recording.yaml", "fleet.json")} <= names, names


CHECKS = [
    lint_is_silent,
    schema_takes_every_set_and_refuses_mistakes,
    schema_knows_the_values_and_no_others,
    contradictions_are_told,
    manifests_are_the_golden_ones,
    kubernetes_takes_the_manifests,
    all_kinds_are_there,
    files_of_ops_are_taken_as_they_are,
    every_configuration_passes_the_relay,
    documented_values_pass_the_relay,
    the_recipe_for_istiod_is_one,
    a_changed_configuration_keeps_the_pods,
    version_is_that_of_the_relay,
    *([helm_itself_gives_equal_manifests] if HELM else []),
    package_holds_the_linked_files,
]
