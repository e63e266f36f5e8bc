"""A plan with `mode: enforce`: a listener that Envoy rejects reaches the Envoys of the first step only."""

import json
import time

import resources
from harness import PORTS, Case, Envoy, eventually, get, server_entry

# The seats of nodes are fixed by their ids and the name of the plan: envoy-2 at 34.64 %, envoy-1 at 41.23 %, envoy-3 at
# 70.59 %.
PLAN = {
    "name": "edge",
    "mode": "enforce",
    "gather": {"quiet": "100ms", "max": "1s"},
    "steps": [{"percent": 35, "bake": "1s"}],
    "final_bake": "1s",
    "halt_on": {"rejected_percent": 0},
}


class Fleet:
    """Envoys that share a port by SO_REUSEPORT, behind a relay with the plan."""

    def __init__(self, stage, variant):
        self.stage, self.variant, self.port, self.envoys = stage, variant, PORTS.take(), {}
        self.plane = stage.control_plane("the control plane")
        self.plane.start()
        servers = [server_entry(self.plane, "AGGREGATED_DELTA_GRPC")]
        stage.xds = stage.rest = stage.relay(servers, rollouts=[PLAN])
        stage.witness("the plan", lambda: get(stage.admin, "/rollouts/edge").body)

    def add(self, number):
        name = f"envoy-{number}"
        self.envoys[number] = Envoy(self.stage, self.variant, name, node={"id": name, "cluster": "interop"})

    def listener(self, prefix):
        listener = resources.listener("http", self.port, routes="main")
        listener["filter_chains"][0]["filters"][0]["typed_config"]["stat_prefix"] = prefix
        return listener

    def bad_listener(self):
        listener = self.listener("bad")
        listener["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"][0] = {"name": "no.such.filter"}
        return listener

    def plan(self):
        return json.loads(get(self.stage.admin, "/rollouts/edge").body)

    def has(self, number, prefix):
        """Whether this Envoy serves with the listener of this prefix."""
        return f'"stat_prefix": "{prefix}"' in self.envoys[number].admin("/config_dump?resource=dynamic_listeners")

    def rejected(self, number):
        counts = self.envoys[number].stats("listener_manager.lds.update_rejected").values()
        return sum(int(count) for count in counts)


def story(stage, variant):
    fleet = Fleet(stage, variant)
    fleet.plane.put(
        resources.cluster("backend"),
        resources.endpoints("backend", stage.backend("red")),
        fleet.listener("first"),
        resources.routes("main", "backend"),
    )
    for number in (1, 2, 3):
        fleet.add(number)
    for number in (1, 2, 3):
        eventually(f"envoy-{number} has the listener", lambda number=number: fleet.has(number, "first"))
    eventually("the fleet serves", lambda: get(fleet.port).body == "red")

    fleet.plane.put(fleet.bad_listener())
    eventually("the Envoy of the first step rejects", lambda: fleet.rejected(2) == 1)
    begun = time.monotonic()
    eventually("the plan is halted", lambda: fleet.plan()["state"] == "halted")
    assert time.monotonic() - begun < 1.7, "a tally a second, and the pace of this test"
    assert "no.such.filter" in json.dumps(fleet.plan()), "the words of Envoy"

    # Who comes now starts with the listener of the others.
    fleet.add(4)
    eventually("the new Envoy has the good listener", lambda: fleet.has(4, "first"))
    assert [fleet.rejected(number) for number in (1, 3, 4)] == [0, 0, 0], "nobody else was given the bad listener"
    assert fleet.has(2, "first") and get(fleet.port).body == "red"

    # Endpoints flow meanwhile.
    fleet.plane.put(resources.endpoints("backend", stage.backend("blue")))
    eventually("endpoints flow", lambda: all(get(fleet.port).body == "blue" for _ in range(8)))

    fleet.plane.put(fleet.listener("second"))
    eventually("the fix begins with the first step", lambda: fleet.has(2, "second"))
    for number in (1, 3, 4):
        eventually(f"envoy-{number} has the fix", lambda number=number: fleet.has(number, "second"))
    eventually("the plan is open again", lambda: fleet.plan()["state"] == "open")
    assert get(fleet.port).body == "blue"
    assert [fleet.rejected(number) for number in (1, 2, 3, 4)] == [0, 1, 0, 0]


CASES = [
    Case("rollout delta-ads", {"envoy"}, lambda stage: story(stage, "delta-ads"), relay_only=True),
    Case("rollout sotw-ads", {"envoy"}, lambda stage: story(stage, "sotw-ads"), relay_only=True),
]
