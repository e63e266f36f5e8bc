"""The pods of the chart: their security, their references, and a relay that starts with their configuration."""

import contextlib
import http.client
import os
import re
import socket
import subprocess
import time

import yaml
from context import SETS, configuration, find

# The restricted Pod Security Standard, and the chart's own promises (PKG-4): a name, and the test of a pod or of each container.
POD_RULES = {
    "no host namespaces": lambda pod: not any(pod.get(key) for key in ("hostNetwork", "hostPID", "hostIPC")),
    "volumes": lambda pod: all(set(volume) - {"name"} <= VOLUMES for volume in pod["volumes"]),
    "runAsNonRoot": lambda pod: pod["securityContext"]["runAsNonRoot"] is True,
    "runAsUser is a number": lambda pod: pod["securityContext"]["runAsUser"] == 65532,
    "seccomp": lambda pod: pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"},
    "no sysctls": lambda pod: not pod["securityContext"].get("sysctls"),
}
VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
CONTAINER_RULES = {
    "allowPrivilegeEscalation": lambda security: security["allowPrivilegeEscalation"] is False,
    "capabilities": lambda security: security["capabilities"] == {"drop": ["ALL"]},
    "readOnlyRootFilesystem": lambda security: security["readOnlyRootFilesystem"] is True,
    "not privileged": lambda security: not security.get("privileged"),
    "no root of its own": lambda security: security.get("runAsUser") != 0 and security.get("runAsNonRoot") is not False,
    "no seccomp of its own": lambda security: "seccompProfile" not in security,
    "no procMount": lambda security: "procMount" not in security,
}


def templates(context):
    """The pod of each set: of the tier, or of an application with the sidecar."""
    for name in SETS:
        values = context.values(name)
        sidecar = values.get("mode") == "sidecar"
        deployment = context.sidecar(values) if sidecar else find(context.set(name), "Deployment")
        yield name, deployment["spec"]["template"]
    plain = context.values("sidecar") | {"sidecar": {"native": False}}
    yield "sidecar, not native", context.sidecar(plain)["spec"]["template"]


def containers(pod):
    return [*(pod.get("initContainers") or []), *pod["containers"]]


def relay(pod):
    return next(container for container in containers(pod) if container["name"] == "sluice")


def pods_are_restricted(context):
    faults = []
    for name, template in templates(context):
        pod = template["spec"]
        faults.extend(f"{name}: {rule}" for rule, holds in POD_RULES.items() if not holds(pod))
        # The sets with `facts.kubernetes` and `ledger.kubernetes`.
        faults.extend([] if pod["automountServiceAccountToken"] is (name in ("facts", "replicas")) else [f"{name}: token"])
        for container in containers(pod):
            rules = CONTAINER_RULES.items()
            faults.extend(f"{name}/{container['name']}: {rule}" for rule, holds in rules if not holds(container["securityContext"]))
            ports = container.get("ports", [])
            faults.extend(f"{name}/{container['name']}: hostPort" for port in ports if "hostPort" in port)
    assert not faults, "\n".join(faults)


def the_relay_reads_pods_and_nodes_and_nothing_else(context):
    """The rights of `facts.kubernetes` are those that it needs, for the account of the pods."""

    def rights(kubernetes, **more):
        facts = {"facts": {"key": "id", "kubernetes": kubernetes}}
        objects = context.objects({"controlPlane": "cp:1", "config": facts, **more})
        kinds = [item for item in objects if item["kind"].startswith("ClusterRole")]
        pod = find(objects, "Deployment")["spec"]["template"]["spec"]
        return kinds, pod

    def rule(*resources):
        return [{"apiGroups": [""], "resources": list(resources), "verbs": ["list", "watch"]}]

    for kubernetes, rules in (({}, rule("pods", "nodes")), ({"nodes": True}, rule("pods", "nodes")), ({"nodes": False}, rule("pods"))):
        (role, binding), pod = rights(kubernetes)
        assert role["rules"] == rules and pod["automountServiceAccountToken"] is True, f"{kubernetes}: {role}"
        assert binding["roleRef"]["name"] == role["metadata"]["name"], binding
        assert [subject["name"] for subject in binding["subjects"]] == [pod["serviceAccountName"]], binding
    none, pod = rights({"kubeconfig": "/etc/other"})
    assert not none and pod["automountServiceAccountToken"] is False, "another cluster is asked with its own file"
    none, pod = rights({}, rbac={"create": False})
    assert not none and pod["automountServiceAccountToken"] is True, "somebody else gives the right"


def the_rights_of_the_ledger_are_those_of_the_page(context):
    """The Role of `ledger.kubernetes` is the one of docs/replicas.md, in the namespace of the ledger."""

    def rights(ledger, **more):
        objects = context.objects({"controlPlane": "cp:1", "config": {"ledger": ledger}, **more})
        pod = find(objects, "Deployment")["spec"]["template"]["spec"]
        return [item for item in objects if item["kind"] in ("Role", "RoleBinding")], pod

    text = (context.root / "docs" / "replicas.md").read_text()
    block = next(block for block in re.findall(r"^```yaml\n(.*?)^```", text, re.S | re.M) if "kind: Role\n" in block)
    page, page_binding = yaml.safe_load_all(block)
    for kubernetes, namespace in (({}, "relays"), ({"namespace": "infra"}, "infra")):
        (role, binding), pod = rights({"kubernetes": kubernetes})
        assert role["rules"] == page["rules"], role
        assert binding["roleRef"] == page_binding["roleRef"] == {**binding["roleRef"], "name": role["metadata"]["name"]}, binding
        assert {item["metadata"]["namespace"] for item in (role, binding)} == {namespace}
        (subject,) = binding["subjects"]
        assert (subject["name"], subject["namespace"]) == (pod["serviceAccountName"], "relays"), binding
        assert pod["automountServiceAccountToken"] is True
    for ledger in ("local", {"etcd": {"endpoints": ["etcd:2379"]}}, {"kubernetes": {"kubeconfig": "/etc/other"}}):
        none, pod = rights(ledger)
        assert not none and pod["automountServiceAccountToken"] is False, ledger
    none, pod = rights({"kubernetes": {}}, rbac={"create": False})
    assert not none and pod["automountServiceAccountToken"] is True, "somebody else gives the right"


def names_refer_to_each_other(context):
    faults = []
    for name, template in templates(context):
        pod = template["spec"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        mounted = {mount["name"] for container in containers(pod) for mount in container.get("volumeMounts", [])}
        faults.extend([] if volumes == mounted else [f"{name}: volumes {volumes}, mounts {mounted}"])
        mounts = [mount for container in containers(pod) for mount in container.get("volumeMounts", [])]
        faults.extend(f"{name}: {mount['name']} by subPath never changes" for mount in mounts if "subPath" in mount)
        config = next(volume for volume in pod["volumes"] if volume["name"] == "sluice-config")["configMap"]["name"]
        labels = template["metadata"]["labels"]
        if name not in SETS:
            continue
        objects = context.set(name)
        find(objects, "ConfigMap", config)
        ports = {port["name"] for port in relay(pod)["ports"]}
        for item in objects:
            faults.extend(f"{name}: {fault}" for fault in loose_ends(item, labels, ports, objects))
    assert not faults, "\n".join(faults)


def loose_ends(item, labels, ports, objects):
    """Selectors that miss the pods, and ports that the pods do not have."""
    kind, spec = item["kind"], item.get("spec", {})
    selector, named = {}, []
    if kind == "Service":
        selector, named = spec["selector"], [port["targetPort"] for port in spec["ports"]]
    elif kind in ("Deployment", "PodDisruptionBudget", "PodMonitor"):
        selector = spec["selector"]["matchLabels"]
        named = [endpoint["port"] for endpoint in spec.get("podMetricsEndpoints", [])]
    elif kind == "NetworkPolicy":
        selector, named = spec["podSelector"]["matchLabels"], [port["port"] for rule in spec["ingress"] for port in rule["ports"]]
    elif kind == "ServiceMonitor":
        labels = find(objects, "Service", f"{item['metadata']['name']}-headless")["metadata"]["labels"]
        selector, named = spec["selector"]["matchLabels"], [endpoint["port"] for endpoint in spec["endpoints"]]
    elif kind == "HorizontalPodAutoscaler":
        find(objects, spec["scaleTargetRef"]["kind"], spec["scaleTargetRef"]["name"])
    if not selector.items() <= labels.items():
        yield f"{kind}: {selector} misses {labels}"
    for port in named:
        if port not in ports:
            yield f"{kind}: no port {port} in {ports}"


def ports_are_those_of_the_listeners(context):
    """Loopback and unix sockets are not for other pods; EXPOSE and probes follow the configuration."""
    pod = find(context.set("second-tier"), "Deployment")["spec"]["template"]["spec"]
    ports = {port["name"]: port["containerPort"] for port in relay(pod)["ports"]}
    assert ports == {"xds-main": 18000, "xds-edge-eu-1": 18002, "admin": 19000}, ports
    headless = find(context.set("second-tier"), "Service", "sluice-headless")["spec"]
    assert headless["clusterIP"] == "None" and {port["port"] for port in headless["ports"]} == {18000, 18002, 19000}
    pod = find(context.set("dns-and-tokens"), "Deployment")["spec"]["template"]["spec"]
    schemes = {relay(pod)[f"{kind}Probe"]["httpGet"].get("scheme") for kind in ("startup", "readiness", "liveness")}
    assert schemes == {"HTTPS"}, schemes


def pods_are_spread_and_replaced_at_once(context):
    """HND-8, PKG-2."""
    deployment = find(context.set("minimal"), "Deployment")["spec"]
    assert deployment["strategy"]["rollingUpdate"] == {"maxSurge": "100%", "maxUnavailable": 0}
    assert deployment["minReadySeconds"] == 5
    pod = deployment["template"]["spec"]
    assert "lifecycle" not in relay(pod), "the image has no shell for a preStop"
    spread = pod["topologySpreadConstraints"]
    assert [rule["topologyKey"] for rule in spread] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    assert all(rule["matchLabelKeys"] == ["pod-template-hash"] for rule in spread)
    budget = find(context.set("minimal"), "PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == 1 and "minAvailable" not in budget
    assert find(context.set("claim"), "Deployment")["spec"]["strategy"] == {"type": "Recreate"}
    paths = [relay(pod)[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness", "liveness")]
    assert paths == ["/ready", "/ready", "/healthz"], paths
    patient = relay(find(context.set("closed"), "Deployment")["spec"]["template"]["spec"])
    assert patient["startupProbe"]["httpGet"]["path"] == "/healthz", "without its control plane, the pod would be killed"


def autoscaler_has_a_metric_of_the_relay(context):
    """PKG-2: the number of replicas is the autoscaler's."""
    assert "replicas" not in find(context.set("autoscaled"), "Deployment")["spec"]
    scaler = find(context.set("autoscaled"), "HorizontalPodAutoscaler")["spec"]
    name = scaler["metrics"][0]["pods"]["metric"]["name"]
    assert f"| `{name}` | gauge |" in (context.root / "docs" / "metrics.md").read_text(), name
    assert scaler["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 1800, "connection_age"
    assert f"- seriesQuery: {name}" in (context.root / "docs" / "kubernetes.md").read_text()


def documented_sidecar_is_the_rendered_one(context):
    """The snippet for pods without Helm in docs/kubernetes.md."""
    text = (context.root / "docs" / "kubernetes.md").read_text()
    block = re.search(r"<!-- sidecar -->\n```yaml\n(.*?)```", text, re.S).group(1)
    documented = yaml.safe_load(block)
    pod = context.sidecar(context.values("sidecar"))["spec"]["template"]["spec"]
    wanted = {"initContainers": pod["initContainers"], "volumes": pod["volumes"]}
    assert documented == wanted, f"docs/kubernetes.md should say:\n{yaml.safe_dump(wanted, sort_keys=False, width=140)}"
    native = pod["initContainers"][-1]
    assert native["name"] == "sluice" and native["restartPolicy"] == "Always"
    plain = context.sidecar(context.values("sidecar") | {"sidecar": {"native": False}})["spec"]["template"]["spec"]
    assert plain["containers"][0] == {key: value for key, value in native.items() if key != "restartPolicy"}


def relay_answers_the_probes_of_the_kubelet(context):
    """The real relay with the chart's configuration: probes by address, metrics for everybody, and nothing else (ADM-2)."""
    with running(context, {}) as port:
        for path, status in (("/ready", 200), ("/healthz", 200), ("/metrics", 200), ("/clients", 401)):
            for host in (f"10.1.2.3:{port}", f"[fd00::1]:{port}"):
                assert ask(port, path, host) == status, f"{path} {host}: {ask(port, path, host)}"
        assert ask(port, "/ready", f"sluice-headless.relays.svc:{port}") == 421
    with running(context, {"admin": {"public": ["health", "ready"]}}) as port:
        assert ask(port, "/ready", "10.1.2.3") == 200
        assert ask(port, "/metrics", "10.1.2.3") == 401


@contextlib.contextmanager
def running(context, values):
    """A relay with the chart's configuration, on ports of this host's loopback; gives the admin port."""
    ports = free_ports(2)
    text = configuration(context.objects({"controlPlane": "127.0.0.1:9"} | values))
    text = text.replace("0.0.0.0:18000", f"127.0.0.1:{ports[0]}").replace("0.0.0.0:19000", f"127.0.0.1:{ports[1]}")
    file = context.directory / "running.yaml"
    file.write_text(context.on_this_host(text))
    environment = os.environ | {"POD_NAME": "sluice-0"}
    log = open(context.directory / "log", "w+")
    with log, subprocess.Popen([context.sluice, "serve", "--config", file], stdout=log, stderr=log, env=environment) as process:
        try:
            deadline = time.monotonic() + 20
            while ask(ports[1], "/ready", "127.0.0.1") != 200:
                log.seek(0)
                assert process.poll() is None and time.monotonic() < deadline, log.read()
                time.sleep(0.05)
            yield ports[1]
        finally:
            process.kill()


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def ask(port, path, host):
    """The status of an answer; None without an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path, headers={"Host": host})
        return connection.getresponse().status
    except OSError:
        return None
    finally:
        connection.close()


CHECKS = [
    pods_are_restricted,
    the_relay_reads_pods_and_nodes_and_nothing_else,
    the_rights_of_the_ledger_are_those_of_the_page,
    names_refer_to_each_other,
    ports_are_those_of_the_listeners,
    pods_are_spread_and_replaced_at_once,
    autoscaler_has_a_metric_of_the_relay,
    documented_sidecar_is_the_rendered_one,
    relay_answers_the_probes_of_the_kubelet,
]
