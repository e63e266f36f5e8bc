"""Load reports judge a push (LRS-24): three Envoys send real requests through a route that the push breaks, and accept it."""

import json
import math
import threading
import time

import resources
from harness import PORTS, Case, Envoy, eventually, get, server_entry
from load_server import LoadServer
from loads import FAILS, HttpBackend, assignment

# The interval of the reports.
SECONDS = 3
# The requests of a second, at most. At this rate each of three Envoys has 100 of them in an interval; a busy machine needs more intervals.
RATE = 150
# The requests of each group that a verdict needs (LRS-24), and the seconds for them on a machine that is busy otherwise.
NEEDED, JUDGED = 100, 240
PLAN = {
    "name": "edge",
    "mode": "enforce",
    "gather": {"quiet": "100ms", "max": "1s"},
    # Until a verdict stands, whatever the machine has to do beside.
    "steps": [{"percent": 35, "bake": "10m"}],
    "final_bake": "1s",
    "halt_on": {"error_points": 5},
}
# By its id and the name of the plan, envoy-2 alone has a seat in the first step: 34.64 % (`rollouts.py`).
FIRST, OTHERS = 2, (1, 3)
# A tally a second, and the pace of the tests.
TALLY = 1.7


class Traffic:
    """Requests at a rate, each on a connection of its own, so that the kernel spreads them over the Envoys of a port."""

    def __init__(self, stage, port):
        self.port, self.is_over, self.failed = port, threading.Event(), 0
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        stage.callback(self.end)

    def run(self):
        due = time.monotonic()
        while not self.is_over.is_set():
            answer = get(self.port, number="0")
            self.failed += answer.status != 200
            due = max(due + 1 / RATE, time.monotonic() - 1)
            self.is_over.wait(max(0, due - time.monotonic()))

    def end(self):
        self.is_over.set()
        self.thread.join()


class Fleet:
    """Three Envoys that share a port, behind a relay with the plan."""

    def __init__(self, stage):
        self.stage, self.port, self.envoys = stage, PORTS.take(), {}
        self.server, self.plane = LoadServer(SECONDS), stage.control_plane("the control plane")
        self.plane.beside.append(self.server)
        self.plane.start()
        entry = {**server_entry(self.plane, "AGGREGATED_DELTA_GRPC"), "lrs": "aggregate"}
        stage.xds = stage.rest = stage.relay([entry], rollouts=[PLAN], node_classes=[{"split_by": {"cluster": True}}])
        stage.witness("the plan", lambda: get(stage.admin, "/rollouts/edge").body)
        stage.witness("the load", lambda: get(stage.admin, "/load").body)
        backend = HttpBackend(stage)
        self.plane.put(
            resources.listener("http", self.port, routes="main"),
            self.routes(),
            resources.cluster("backend"),
            assignment("backend", {"east": backend}),
        )
        for number in (FIRST, *OTHERS):
            node = {"id": f"envoy-{number}", "cluster": "interop"}
            load_stats = resources.source("GRPC")["api_config_source"]
            more = {"node": node, "cluster_manager": {"load_stats_config": load_stats}}
            self.envoys[number] = Envoy(stage, "delta-ads", f"envoy-{number}", **more)
        for number in self.envoys:
            eventually(f"envoy-{number} has its routes", lambda number=number: self.routed(number) == 1)
        self.traffic = Traffic(stage, self.port)
        eventually("all Envoys report", lambda: len(self.server.streams) and self.reporters() == 3)

    def reporters(self):
        """The Envoys that have reported to the relay."""
        sent = lambda envoy: int(envoy.stats("load_reporter.requests").get("load_reporter.requests", 0))
        return sum(sent(envoy) > 0 for envoy in self.envoys.values())

    def routes(self, **action):
        """All requests go to the backend, with this header if there is one."""
        added = [
            {"header": {"key": key, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}
            for key, value in action.items()
        ]
        route = {"match": {"prefix": ""}, "route": {"cluster": "backend"}, "request_headers_to_add": added}
        host = {"name": "all", "domains": ["*"], "routes": [route]}
        return {"@type": resources.ROUTES, "name": "main", "virtual_hosts": [host]}

    def routed(self, number):
        """The number of answers with routes that the Envoy took."""
        return sum(int(count) for count in self.envoys[number].stats("rds.main.update_success").values())

    def given(self):
        return [self.routed(number) for number in OTHERS]

    def answered(self):
        """The requests that the Envoy of the first step has answered, and those of the others."""
        stat = "cluster.backend.upstream_rq_completed"
        own, *others = (int(self.envoys[number].stats(stat)[stat]) for number in (FIRST, *OTHERS))
        return own, sum(others)

    def bakes(self, bake):
        """Another bake for the steps of later pushes."""
        file = self.stage.directory / "sluice.json"
        config = json.loads(file.read_text())
        config["rollouts"][0]["steps"][0]["bake"] = bake
        file.write_text(json.dumps(config))
        answer = get(self.stage.admin, "/reload", method="POST")
        assert answer.status == 200, answer

    def promote(self, number):
        """Goes on to the last step of a push."""
        answer = get(self.stage.admin, f"/rollouts/edge/promote?push={number}&step=2", method="POST")
        assert answer.status == 200, answer

    def plan(self):
        return json.loads(get(self.stage.admin, "/rollouts/edge").body)

    def push(self, **action):
        """Puts other routes, and waits until the Envoy of the first step has them."""
        before = self.routed(FIRST)
        self.plane.put(self.routes(**action))
        eventually("the Envoy of the first step has the routes", lambda: self.routed(FIRST) > before)

    def outcome(self, number):
        """How a push ended, if it has, and the word of load reports about its first step; nothing before the push."""
        answer = get(self.stage.admin, f"/rollouts/edge/pushes/{number}")
        push = json.loads(answer.body) if answer else {"outcome": None, "way": [{"load": None}]}
        return push["outcome"], push["way"][0]["load"] or {"verdict": None}


def story(stage):
    fleet = Fleet(stage)
    before = fleet.given()
    fleet.push(number=FAILS)
    begun, answered = time.monotonic(), fleet.answered()
    eventually("the plan is halted", lambda: fleet.plan()["state"] == "halted", JUDGED)
    took = time.monotonic() - begun
    # Whole intervals with the requests that a verdict needs, and the one in which the step began.
    in_interval = SECONDS / took * min(now - before for now, before in zip(fleet.answered(), answered))
    intervals = 1 + math.ceil(NEEDED / in_interval)
    assert took < intervals * SECONDS + TALLY, f"halted {took:.1f} s after the first Envoy had the routes, with {in_interval:.0f} requests in an interval"
    why = fleet.plan()["why"]
    assert 'requests to "backend" fail with the push, and 0.0% of ' in why, why
    eventually("the Envoy of the first step has gone back", lambda: fleet.routed(FIRST) == 3)
    failed = fleet.traffic.failed
    assert failed > 0
    assert fleet.given() == before, "nobody else was given the routes"

    # The mended routes: the step is compared, and all have them.
    fleet.push(mended="yes")
    eventually("the step is compared", lambda: fleet.outcome(2)[1]["verdict"] == "equal", JUDGED)
    fleet.promote(2)
    eventually("the push is over", lambda: fleet.plan()["state"] == "open")
    outcome, load = fleet.outcome(2)
    assert (outcome, load["verdict"]) == ("finished", "equal"), (outcome, load)
    assert fleet.given() == [count + 1 for count in before]

    # Without traffic nobody can tell, and the plan goes on by what Envoys accept.
    fleet.traffic.end()
    fleet.bakes("7s")
    fleet.push(mended="again")
    eventually("the push is over", lambda: fleet.plan()["state"] == "open")
    outcome, load = fleet.outcome(3)
    assert (outcome, load["verdict"]) == ("finished", "cannot_tell"), (outcome, load)
    assert "no cluster has 100 requests of both groups of clients" in load["why"], load
    # A request may have been on its way when the routes changed.
    assert fleet.traffic.failed - failed <= 3, f"{fleet.traffic.failed - failed} requests failed after the halt"


CASES = [Case("load judges", {"envoy"}, story, relay_only=True)]
