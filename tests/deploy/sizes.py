"""The chart's arithmetic: times, memory, replicas."""

import math
import re

import yaml
from context import SETS, configuration, find
from pods import relay

MIB = 1 << 20


def seconds(text):
    number, unit = re.fullmatch(r"([0-9.]+)(ms|s|m|h)", text).groups()
    return float(number) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600}[unit]


def time_to_end_is_delay_drain_and_15_s(context):
    """HND-8, for the chart's own times, those of each set, and odd ones."""
    sets = [(context.set(name), name) for name in SETS if not name.startswith("sidecar")]
    for drain in ("0s", "1ms", "1500ms", "0.5s", "90s", "2m", "1h"):
        sets.append((context.objects({"controlPlane": "cp:1", "config": {"drain": drain}}), drain))
    for objects, name in sets:
        config = yaml.safe_load(configuration(objects))
        wanted = math.ceil(seconds(config.get("drain_delay", "0s"))) + math.ceil(seconds(config["drain"])) + 15
        pod = find(objects, "Deployment")["spec"]["template"]["spec"]
        assert pod["terminationGracePeriodSeconds"] == wanted, f"{name}: {pod['terminationGracePeriodSeconds']}, not {wanted}"


def relay_stops_before_the_limit_of_its_memory(context):
    """PKG-4: limits.memory_bytes is 85 % of the container's limit, for every way to write it."""
    quantities = {"1Gi": 1 << 30, "512Mi": 512 * MIB, "1.5Gi": 3 << 29, "1G": 10**9, "1500M": 15 * 10**8, 1073741824: 1 << 30, "2Ti": 2 << 40}
    for text, size in quantities.items():
        objects = context.objects({"controlPlane": "cp:1", "resources": {"limits": {"memory": text}}})
        said = yaml.safe_load(configuration(objects))["limits"]["memory_bytes"]
        share = int(said.removesuffix("KiB")) * 1024 / size
        assert 0.8499 < share <= 0.85, f"{text}: {said}"
        container = relay(find(objects, "Deployment")["spec"]["template"]["spec"])
        assert container["resources"]["limits"]["memory"] == text
    none = context.objects({"controlPlane": "cp:1", "resources": {"limits": None}})
    assert "limits" not in yaml.safe_load(configuration(none)), "without a limit there is no share"
    own = context.objects({"controlPlane": "cp:1", "config": {"limits": {"memory_bytes": "1MiB"}}})
    assert yaml.safe_load(configuration(own))["limits"] == {"memory_bytes": "1MiB"}


def clients_of_a_replica(memory, cores, set_mib, changes):
    """The formula of docs/scale.md at half of the capacity."""
    by_memory = (memory // 2 - (64 + 2 * set_mib) * MIB) // 32768
    by_cores = math.floor(cores * 1_000_000 / 20 / 2 / changes + 1e-9)
    return min(by_memory, by_cores, 20_000)


def replicas_follow_from_the_measured_slopes(context):
    slopes = (context.root / "docs" / "scale.md").read_text()
    assert "**Memory**: 64 MiB + the set twice + 32 KiB × clients" in slopes and "clients × changes a second × 20 µs" in slopes
    assert "runs at half of its capacity, with one replica to spare" in slopes and "Beyond some 20,000 clients" in slopes
    plans = [
        # clients, memory, cores, MiB of the set, changes a second
        (10_000, "1Gi", 2, 0, 1),
        (100_000, "2Gi", 2, 0, 1),
        (1_000_000, "2Gi", 2, 0, 1),
        (50_000, "4Gi", "500m", 200, 5),
        (20_000, "1Gi", 4, 16, 0.1),
        (20_001, "2Gi", 2, 16, 1),
        (1, "1Gi", 1, 16, 1),
        (30_000, "8Gi", 8, 1000, 25),
    ]
    for clients, memory, cores, size, changes in plans:
        resources = {"requests": {"cpu": cores, "memory": memory}, "limits": {"memory": memory}}
        sizing = {"clients": clients, "setMiB": size, "changesPerSecond": changes}
        values = {"controlPlane": "cp:1", "resources": resources, "sizing": sizing}
        count = int(cores[:-1]) / 1000 if isinstance(cores, str) else cores
        each = clients_of_a_replica(int(memory[:-2]) << 30, count, size, changes)
        replicas = math.ceil(clients / each) + 1
        assert find(context.objects(values), "Deployment")["spec"]["replicas"] == replicas, (values, replicas)
        notes = context.notes(values)
        assert f"serves {each} clients" in notes and f"With {replicas} replicas, and one of them lost: {(replicas - 1) * each} clients" in notes, notes
    target = find(context.set("autoscaled"), "HorizontalPodAutoscaler")["spec"]["metrics"][0]["pods"]["target"]["averageValue"]
    assert int(target) == clients_of_a_replica(1 << 30, 1, 16, 1) * 7 // 10, target


def plan_of_scale_md_is_the_chart_s(context):
    """The leaves in the table `A plan` of docs/scale.md."""
    text = (context.root / "docs" / "scale.md").read_text()
    heads = re.search(r"^\| \| ([0-9, |a-z]+) \|$", text, re.M).group(1)
    clients = [int(head.split()[0].replace(",", "")) for head in heads.split("|")]
    leaves = [int(cell) for cell in re.search(r"^\| leaves \| (.*) \|$", text, re.M).group(1).split("|")]
    assert clients == [10_000, 100_000, 1_000_000]
    for count, wanted in zip(clients, leaves, strict=True):
        resources = {"requests": {"cpu": 2}, "limits": {"memory": "2Gi"}}
        values = {"controlPlane": "cp:1", "resources": resources, "sizing": {"clients": count, "setMiB": 1}}
        assert find(context.objects(values), "Deployment")["spec"]["replicas"] == wanted


def table_of_kubernetes_md_is_the_formula(context):
    """Each row of the table of replicas in docs/kubernetes.md, by the chart itself."""
    text = (context.root / "docs" / "kubernetes.md").read_text()
    rows = re.findall(r"^\| ([0-9,]+) \| ([0-9]+) MiB \| ([0-9.]+) \| ([0-9]+) \| ([0-9]+)Gi \| ([0-9,]+) \| ([0-9,]+) \|$", text, re.M)
    assert len(rows) >= 5, rows
    for row in rows:
        clients, size, changes, cores, memory, each, replicas = (float(cell.replace(",", "")) for cell in row)
        assert clients_of_a_replica(int(memory) << 30, cores, int(size), changes) == each, row
        resources = {"requests": {"cpu": int(cores)}, "limits": {"memory": f"{int(memory)}Gi"}}
        sizing = {"clients": int(clients), "setMiB": int(size), "changesPerSecond": changes}
        objects = context.objects({"controlPlane": "cp:1", "resources": resources, "sizing": sizing})
        assert find(objects, "Deployment")["spec"]["replicas"] == replicas, row


def times_of_the_documents_are_those_of_the_files(context):
    """HND-8: every time of an end that a document names, computed from the files that it speaks of."""
    kubernetes, operations, systemd = ((context.root / "docs" / f"{name}.md").read_text() for name in ("kubernetes", "operations", "systemd"))

    def found(text, pattern):
        told = re.search(pattern, " ".join(text.split()))
        assert told, f"no text has {pattern}"
        return [float(number) for number in told.groups()]

    delays, drains = found(kubernetes, r"`drain_delay` \| (\d+) s; (\d+) s in a sidecar"), found(kubernetes, r"`drain` \| (\d+) s; (\d+) s in a sidecar")
    ends = found(kubernetes, r"`drain_delay`, `drain` and 15 s, computed from the configuration: (\d+) s by default, and (\d+) s for a sidecar, whose pod has (\d+) s")
    assert ends[:2] == [delay + drain + 15 for delay, drain in zip(delays, drains, strict=True)], ends
    tier, sidecar = context.objects({"controlPlane": "cp:1"}), context.set("sidecar")
    for objects, delay, drain in ((tier, delays[0], drains[0]), (sidecar, delays[1], drains[1])):
        config = yaml.safe_load(configuration(objects))
        assert (seconds(config["drain_delay"]), seconds(config["drain"])) == (delay, drain), config
    assert find(tier, "Deployment")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == ends[0]
    pod = context.sidecar(context.values("sidecar"))["spec"]["template"]["spec"]
    assert pod.get("terminationGracePeriodSeconds", ends[2]) >= ends[1] and ends[2] == 30, "30 s is Kubernetes' own default"

    defaults = yaml.safe_load((context.root / "config" / "example.yaml").read_text())
    said = found(operations, r"For `drain_delay` \((\d+) s\)") + found(operations, r"four fifths of `drain` \((\d+) s\)")
    assert said == [seconds(defaults["drain_delay"]), seconds(defaults["drain"])], said
    assert found(operations, r"Before SIGKILL, give the process `drain_delay`, `drain` and (\d+) s") == [15]
    assert found(operations, r"`TimeoutStopSec` is at least `drain_delay` plus `drain` plus (\d+) s") == [15]
    assert found(systemd, r"above `drain_delay` and `drain` together, with (\d+) s more") == [15]


def moves_in_an_update_are_computed(context):
    """Finding of HND-8: one pod after the other, whose clients go evenly to those that are there."""
    text = " ".join((context.root / "docs" / "kubernetes.md").read_text().split())
    moves, replicas, ratio = re.search(r"− 1 times, ([0-9.]+) times for (\d+) replicas, and the first new pod ends with (\d+) times the clients", text).groups()
    count = int(replicas)
    old, new, moved = [1.0] * count, [], 0.0
    while old:
        new.append(0.0)
        leaving = old.pop()
        moved += leaving
        old, new = ([load + leaving / count for load in loads] for loads in (old, new))
    assert (round(moved / count, 2), round(new[0] / new[-1])) == (float(moves), int(ratio)), (moved / count, new)


CHECKS = [
    times_of_the_documents_are_those_of_the_files,
    moves_in_an_update_are_computed,
    time_to_end_is_delay_drain_and_15_s,
    relay_stops_before_the_limit_of_its_memory,
    replicas_follow_from_the_measured_slopes,
    plan_of_scale_md_is_the_chart_s,
    table_of_kubernetes_md_is_the_formula,
]
