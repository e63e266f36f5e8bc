"""A plan with `mode: enforce`: a listener that Envoy rejects reaches the clients of the first step only.

By delta the plan has three Envoys beside 2,000 simulated clients, and begins with 1 %. By SotW it has the Envoys alone.
"""

import json
import time

import resources
import simulated
from harness import PORTS, Case, Envoy, eventually, get, server_entry
from resources import CLUSTER, LISTENER
from simulated import Crowd

CROWD = 2_000
# The first step's percentage without a crowd and with one.
ALONE, AMONG_MANY = 35, 1
# The seats of nodes are fixed by their ids and the name of the plan: envoy-2 at 34.64 %, envoy-1 at 41.23 %, envoy-3 at
# 70.59 %.
IDS = {number: f"envoy-{number}" for number in (1, 2, 3, 4)}
PLAN = {
    "name": "edge",
    "mode": "enforce",
    "gather": {"quiet": "100ms", "max": "1s"},
    "final_bake": "1s",
    "halt_on": {"rejected_percent": 0},
}
BAKE = 1
# In the words of Envoy's rejection.
ENVOY_SAYS = "no.such.filter"
# The longest time between lost streams and the halt: a tally a second, 0.2 s, and the pace of the tests.
HALT = 1.7
# The same for a rejection, which wakes the plan.
HALT_BY_REJECTION = 1.2


class Fleet:
    """Envoys that share a port by SO_REUSEPORT, and a crowd of simulated clients, behind a relay with the plan.

    Of the first three Envoys, only number 2 has a seat in the first step. Number 4 comes later, with a crowd also from a
    seat in the first step.
    """

    def __init__(self, stage, variant, count, cluster, **rule):
        self.stage, self.variant, self.port, self.envoys = stage, variant, PORTS.take(), {}
        self.percent = AMONG_MANY if count else ALONE
        self.plane = stage.control_plane("the control plane")
        self.plane.start()
        servers = [server_entry(self.plane, "AGGREGATED_DELTA_GRPC")]
        plan = {**PLAN, "steps": [{"percent": self.percent, "bake": f"{BAKE}s"}]}
        # All clients have one source.
        classes = [{"split_by": {"cluster": True}}]
        stage.xds = stage.rest = stage.relay(servers, rollouts=[plan], node_classes=classes)
        stage.witness("the plan", lambda: get(stage.admin, "/rollouts/edge").body)
        self.plane.put(
            cluster,
            resources.endpoints("backend", stage.backend("red")),
            self.listener("first"),
            resources.routes("main", "backend"),
        )
        self.crowd = Crowd(stage, count + len(IDS) if count else 0, **rule)
        self.ids = self.choose() if count else IDS
        for number in (1, 2, 3):
            self.add(number)
        for number in (1, 2, 3):
            eventually(f"envoy-{number} has the listener", lambda number=number: self.has(number, "first"))
        eventually("the fleet serves", lambda: get(self.port).body == "red")
        # The nodes with a seat in the first step, and all others.
        seats = self.seats()
        self.first = {node for node, percent in seats.items() if percent < self.percent}
        self.others = seats.keys() - self.first
        assert self.first & {self.ids[number] for number in (1, 2, 3)} == {self.ids[2]}, self.first

    def choose(self):
        """The ids of Envoys by number, those of simulated clients, which leave."""
        eventually("the crowd has its content", lambda: self.crowd.have(LISTENER, "first"))
        seats = self.seats()
        by_seat = sorted(seats, key=seats.get)
        first = [node for node in by_seat if seats[node] < self.percent]
        assert len(first) > 2, f"too few clients have a seat in the first step: {first}"
        chosen = {1: by_seat[len(first)], 2: first[0], 3: by_seat[-1], 4: first[-1]}
        self.crowd.leave(list(chosen.values()))
        eventually("the simulated clients have left", lambda: not set(chosen.values()) & set(self.seats()))
        return chosen

    def seats(self):
        """The seats of the connected nodes, in percent."""
        clients = json.loads(get(self.stage.admin, "/clients?limit=all").body)["clients"]
        return {one["node"]: one["seats"][0]["percent"] for one in clients}

    def add(self, number):
        node = {"id": self.ids[number], "cluster": "interop"}
        self.envoys[number] = Envoy(self.stage, self.variant, f"envoy-{number}", node=node)

    def listener(self, prefix):
        listener = resources.listener("http", self.port, routes="main")
        listener["filter_chains"][0]["filters"][0]["typed_config"]["stat_prefix"] = prefix
        return listener

    def bad_listener(self):
        listener = self.listener("bad")
        listener["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"][0] = {"name": ENVOY_SAYS}
        return listener

    def plan(self):
        return json.loads(get(self.stage.admin, "/rollouts/edge").body)

    def has(self, number, prefix):
        """Whether this Envoy serves with the listener of this prefix."""
        return f'"stat_prefix": "{prefix}"' in self.envoys[number].admin("/config_dump?resource=dynamic_listeners")

    def rejected(self, number):
        return self.count(number, "listener_manager.lds.update_rejected")

    def taken(self, number):
        """The number of answers with listeners that this Envoy took."""
        return self.count(number, "listener_manager.lds.update_success")

    def count(self, number, name):
        return sum(int(count) for count in self.envoys[number].stats(name).values())

    def assert_first_step_first(self, type_url, mark):
        """Asserts that the first step of the crowd was given this content before all others."""
        times = self.crowd.given(type_url, mark)
        others = min((at for node, at in times.items() if node not in self.first), default=0)
        early = {node for node, at in times.items() if at < others}
        assert early == self.first & set(self.crowd.clients), early


def story(stage, variant, count):
    """`count` simulated clients reject the listener as well."""
    fleet = Fleet(stage, variant, count, resources.cluster("backend"), rejects={"bad"})
    crowd = fleet.crowd

    fleet.plane.put(fleet.bad_listener())
    eventually("the Envoy of the first step rejects", lambda: fleet.rejected(2) == 1)
    begun = time.monotonic()
    eventually("the plan is halted", lambda: fleet.plan()["state"] == "halted")
    halted = time.monotonic()
    begun = min([begun, *(at for client in crowd.clients.values() for at in client.rejections)])
    assert halted - begun < HALT_BY_REJECTION, f"halted {halted - begun:.2f} s after the first rejection"
    assert fleet.plan()["units"] == 1, "the crowd and the Envoys have one source"
    # The plan has the words of the clients that had rejected the listener before the halt, and the change has those of all.
    words = [ENVOY_SAYS, *([simulated.WORDS] if count else [])]
    eventually("the plan has a client's words", lambda: any(word in json.dumps(fleet.plan()) for word in words))
    eventually("the change has the words of Envoy", lambda: ENVOY_SAYS in get(stage.admin, "/changes?limit=all").body)

    # Who comes now starts with the listener of the others, whatever its seat.
    fleet.add(4)
    eventually("the new Envoy has the good listener", lambda: fleet.has(4, "first"))
    eventually("the crowd is back", lambda: crowd.have(LISTENER, "first"))
    assert [fleet.rejected(number) for number in (1, 3, 4)] == [0, 0, 0], "nobody else was given the bad listener"
    assert [fleet.taken(number) for number in (1, 3, 4)] == [1, 1, 1], "nobody else was given another listener"
    given = {fleet.ids[2], *crowd.given(LISTENER, "bad")}
    assert given == fleet.first, f"{sorted(given)} were given the bad listener, and the first step is {sorted(fleet.first)}"
    assert fleet.has(2, "first") and get(fleet.port).body == "red"

    # Endpoints flow meanwhile.
    fleet.plane.put(resources.endpoints("backend", stage.backend("blue")))
    eventually("endpoints flow", lambda: all(get(fleet.port).body == "blue" for _ in range(8)))
    crowd.assert_given(LISTENER, lambda node: ["first", "bad", "first"] if node in given else ["first"])

    fleet.plane.put(fleet.listener("second"))
    eventually("the fix begins with the first step", lambda: fleet.has(2, "second"))
    for number in (1, 3, 4):
        eventually(f"envoy-{number} has the fix", lambda number=number: fleet.has(number, "second"))
    eventually("the crowd has the fix", lambda: crowd.have(LISTENER, "second"))
    eventually("the plan is open again", lambda: fleet.plan()["state"] == "open")
    fleet.assert_first_step_first(LISTENER, "second")
    assert get(fleet.port).body == "blue"
    assert [fleet.rejected(number) for number in (1, 2, 3, 4)] == [0, 1, 0, 0]
    assert [fleet.taken(number) for number in (1, 3, 4)] == [2, 2, 2]
    crowd.assert_given(LISTENER, lambda node: ["first", *(["bad", "first"] if node in given else []), "second"])
    crowd.assert_given(CLUSTER, lambda _: [None])


CASES = [
    Case("rollout delta-ads", {"envoy"}, lambda stage: story(stage, "delta-ads", CROWD), relay_only=True),
    Case("rollout sotw-ads", {"envoy"}, lambda stage: story(stage, "sotw-ads", 0), relay_only=True),
]
