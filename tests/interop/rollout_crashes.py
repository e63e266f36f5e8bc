"""A plan with `mode: enforce`: clients that die of a cluster's content die at the first step only, and live again.

Nothing in a cluster makes Envoy crash on demand. So a supervisor ends an Envoy by SIGKILL as soon as the Envoy uses the
deadly cluster, and starts it again at once, as a node does whose pod crashes.
"""

import itertools
import re
import threading
import time

import resources
from harness import Case, eventually, get
from resources import CLUSTER
from rollouts import CROWD, HALT, Fleet

# The cluster's maximum number of connections marks its content.
GOOD, DEADLY, MENDED = 101, 666, 102


def cluster(limit):
    return resources.cluster("backend", circuit_breakers={"thresholds": [{"max_connections": limit}]})


class Supervisor:
    """Ends Envoys that use the deadly cluster, and starts them again."""

    def __init__(self, stage, fleet):
        self.fleet, self.stopped = fleet, threading.Event()
        # The times of the deaths, and the contents since the last start.
        self.deaths = {number: [] for number in fleet.ids}
        self.limits = {number: [] for number in fleet.ids}
        self.thread = threading.Thread(target=self.run, daemon=True)
        stage.callback(self.stop)
        stage.witness("the supervisor", lambda: f"deaths {self.deaths}, contents {self.limits}")
        self.thread.start()

    def run(self):
        while not self.stopped.wait(0.01):
            for number, envoy in list(self.fleet.envoys.items()):
                limit = limit_of(envoy)
                if limit and self.limits[number][-1:] != [limit]:
                    self.limits[number].append(limit)
                if limit == DEADLY:
                    self.deaths[number].append(time.monotonic())
                    self.limits[number] = []
                    envoy.crash()

    def stop(self):
        self.stopped.set()
        self.thread.join()


def limit_of(envoy):
    """The content of the cluster that an Envoy uses; `None` before it has one."""
    mark = "backend::default_priority::max_connections::"
    marks = [line.removeprefix(mark) for line in envoy.admin("/clusters").splitlines() if line.startswith(mark)]
    return int(marks[0]) if marks else None


def story(stage, variant, count):
    """`count` simulated clients die of the cluster as well."""
    fleet = Fleet(stage, variant, count, cluster(GOOD), dies_of={DEADLY})
    crowd = fleet.crowd
    have = lambda limit: all(limit_of(envoy) == limit for envoy in fleet.envoys.values())
    have_all = lambda limit: have(limit) and crowd.have(CLUSTER, limit)
    eventually("all have the cluster", lambda: have_all(GOOD))

    supervisor = Supervisor(stage, fleet)
    fleet.plane.put(cluster(DEADLY))
    eventually("the plan is halted", lambda: fleet.plan()["state"] == "halted")
    halted = time.monotonic()
    assert "ended within a minute of the push" in fleet.plan()["why"], fleet.plan()["why"]
    assert fleet.plan()["units"] == 1, "the crowd and the Envoys have one source"

    # Who comes now starts with the cluster of the others, whatever its seat.
    fleet.add(4)
    eventually("all live again, with the good cluster", lambda: have_all(GOOD))
    # An Envoy with the deadly cluster would be dead by now.
    eventually("the fleet serves", lambda: all(get(fleet.port).body == "red" for _ in range(8)))
    assert fleet.plan()["state"] == "halted"
    assert not any(supervisor.deaths[number] for number in (1, 3, 4)), "only the first step loses any"
    assert supervisor.limits[2][0] == GOOD, "the Envoy that died starts with the good cluster"
    deaths = {node: crowd.clients[node].deaths for node in crowd.given(CLUSTER, DEADLY)}
    assert deaths or not count, "no simulated client was given the deadly cluster"
    assert deaths.keys() <= fleet.first, f"{sorted(deaths.keys() - fleet.first)} have no seat in the first step"
    # More than a tenth of the first step, and two at least.
    all_deaths = sorted([*supervisor.deaths[2], *itertools.chain(*deaths.values())])
    enough = all_deaths[max(1, len(fleet.first) // 10)]
    assert halted - enough < HALT, f"halted {halted - enough:.2f} s after the deaths"
    assert [updates(fleet.envoys[number]) for number in (1, 3, 4)] == [1, 1, 1], "nobody else was given another cluster"
    back = lambda node: [GOOD, *[DEADLY for _ in deaths[node]], GOOD] if node in deaths else [GOOD]
    crowd.assert_given(CLUSTER, back)
    if count:
        assert fleet.plan()["percent"] == fleet.percent, "a halt admits nobody in the place of the dead"
        # The relay compares the lost streams with those of all who lack the push.
        compared = re.search(r", and 0 of (\d+) without it", fleet.plan()["why"])
        assert compared and int(compared[1]) >= len(fleet.others), f"{len(fleet.others)} lack it: {fleet.plan()['why']}"

    fleet.plane.put(cluster(MENDED))
    eventually("all have the mended cluster", lambda: have_all(MENDED))
    eventually("the plan is open again", lambda: fleet.plan()["state"] == "open")
    fleet.assert_first_step_first(CLUSTER, MENDED)
    assert get(fleet.port).body == "red"
    crowd.assert_given(CLUSTER, lambda node: [*back(node), MENDED])


def updates(envoy):
    """The number of contents that an Envoy was given for its clusters."""
    stats = envoy.stats("cluster_manager.cluster_(added|modified)")
    return int(stats["cluster_manager.cluster_modified"]) + int(stats["cluster_manager.cluster_added"]) - len(STATIC)


# The clusters of the bootstrap.
STATIC = ("xds", "xds-rest")

CASES = [
    Case("rollout crash delta-ads", {"envoy"}, lambda stage: story(stage, "delta-ads", CROWD), relay_only=True),
    Case("rollout crash sotw-ads", {"envoy"}, lambda stage: story(stage, "sotw-ads", 0), relay_only=True),
]
