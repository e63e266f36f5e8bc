"""Three replicas with one plan and one etcd: a listener that one Envoy rejects is halted at all of them, steps need the
evidence of all, and nobody new is admitted without etcd (LDG-3 to LDG-7)."""

import json
import pathlib
import shutil
import tempfile
import time

import packages
import resources
from harness import PORTS, Case, Envoy, Process, eventually, get, server_entry
from rollouts import ENVOY_SAYS

LEASE = 5
BAKE = 1
# By their ids and the name of the plan: envoy-2 at 34.64 %, envoy-1 at 41.23 %, envoy-3 at 70.59 % (`rollouts.py`). Each is at
# the replica of its number.
STEPS = {2: 35, 1: 60}
PLAN = {
    "name": "edge",
    "mode": "enforce",
    "gather": {"quiet": "100ms", "max": "1s"},
    "steps": [{"percent": percent, "bake": f"{BAKE}s"} for percent in STEPS.values()],
    "final_bake": "1s",
    "halt_on": {"rejected_percent": 0},
}
# From the first rejection at any replica to the halt at each.
HALT = 1.5


class Etcd:
    def __init__(self, stage):
        self.stage, self.port, self.starts = stage, PORTS.take(), 0
        peers = PORTS.take()
        client, peer = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{peers}"
        # In memory where there is such a place: the disk of a busy machine is no part of the case.
        place = "/dev/shm" if pathlib.Path("/dev/shm").is_dir() else stage.directory
        self.data = pathlib.Path(stage.enter_context(tempfile.TemporaryDirectory(dir=place)), "etcd")
        self.command = [packages.etcd(), "--data-dir", self.data, "--listen-client-urls", client, "--advertise-client-urls", client]
        self.command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"]
        self.start()

    def start(self):
        self.starts += 1
        # Some builds of etcd want to be told that the machine's kind is known.
        self.process = Process(self.stage, f"etcd-{self.starts}", self.command, {"ETCD_LOG_LEVEL": "warn"})

    def kill(self):
        self.process.child.kill()
        self.process.child.wait()


class Replica:
    """A relay with an Envoy of its own."""

    def __init__(self, stage, number, plane, etcd):
        self.stage, self.number = stage, number
        self.xds, self.admin = PORTS.take(), PORTS.take()
        config = {
            "xds_servers": [server_entry(plane, "AGGREGATED_DELTA_GRPC")],
            "listeners": [{"name": "main", "address": f"127.0.0.1:{self.xds}"}],
            "admin": {"address": f"127.0.0.1:{self.admin}"},
            "rollouts": [PLAN],
            "node_classes": [{"split_by": {"cluster": True}}],
            "checkpoint": {"directory": f"checkpoint-{number}"},
            "ledger": {
                "replica": f"relay-{number}",
                "lease": f"{LEASE}s",
                "etcd": {"endpoints": [f"127.0.0.1:{etcd.port}"]},
            },
        }
        (stage.directory / f"sluice-{number}.json").write_text(json.dumps(config))
        self.starts = 0
        stage.witness(f"the plan of relay-{number}", lambda: json.dumps(self.plan()))
        stage.witness(f"the ledger of relay-{number}", lambda: get(self.admin, "/ledger").body)
        self.start()
        stage.xds = stage.rest = self.xds
        node = {"id": f"envoy-{number}", "cluster": "interop"}
        self.envoy = Envoy(stage, "delta-ads", f"envoy-{number}", node=node)

    def start(self):
        self.starts += 1
        command = [self.stage.sluice, "serve", "--config", f"sluice-{self.number}.json"]
        self.process = Process(self.stage, f"relay-{self.number}-{self.starts}", command)
        eventually(f"relay-{self.number} is ready", lambda: get(self.admin, "/ready"))

    def kill(self):
        self.process.child.kill()
        self.process.child.wait()

    def plan(self):
        return json.loads(get(self.admin, "/rollouts/edge").body)

    def state(self):
        return self.plan()["state"]

    def shared(self):
        return self.plan()["ledger"]

    def order(self, word, **parameters):
        query = "&".join(f"{key}={value}" for key, value in parameters.items())
        return get(self.admin, f"/rollouts/edge/{word}?{query}", method="POST")

    def has(self, prefix):
        return f'"stat_prefix": "{prefix}"' in self.envoy.admin("/config_dump?resource=dynamic_listeners")

    def rejected(self):
        return sum(int(count) for count in self.envoy.stats("listener_manager.lds.update_rejected").values())

    def taken(self):
        return sum(int(count) for count in self.envoy.stats("listener_manager.lds.update_success").values())


class Fleet:
    def __init__(self, stage):
        self.stage, self.port = stage, PORTS.take()
        self.etcd, self.plane = Etcd(stage), stage.control_plane("the control plane")
        self.plane.start()
        self.plane.put(
            resources.cluster("backend"),
            resources.endpoints("backend", stage.backend("red")),
            self.listener("first"),
            resources.routes("main", "backend"),
        )
        self.replicas = {number: Replica(stage, number, self.plane, self.etcd) for number in (1, 2, 3)}
        for number, replica in self.replicas.items():
            eventually(f"envoy-{number} has the listener", lambda replica=replica: replica.has("first"))
        self.await_ledger()

    def await_ledger(self):
        for number, replica in self.replicas.items():
            is_here = lambda replica=replica: replica.shared()["fault"] is None and len(replica.shared()["replicas"]) == 3
            eventually(f"relay-{number} acts on the ledger", is_here, seconds=12 * LEASE)

    def listener(self, prefix):
        listener = resources.listener("http", self.port, routes="main")
        listener["filter_chains"][0]["filters"][0]["typed_config"]["stat_prefix"] = prefix
        return listener

    def bad_listener(self):
        listener = self.listener("bad")
        listener["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"][0] = {"name": ENVOY_SAYS}
        return listener

    def push(self, prefix):
        self.plane.put(self.listener(prefix))

    def await_all(self, what, is_so, seconds=30):
        for number, replica in self.replicas.items():
            eventually(f"{what} at relay-{number}", lambda replica=replica: is_so(replica), seconds=seconds)

    def await_states(self, state, **more):
        self.await_all(f"the plan is {state}", lambda replica: replica.state() == state, **more)

    def having(self, prefix):
        return {number for number, replica in self.replicas.items() if replica.has(prefix)}


def halts(fleet):
    one, two, three = (fleet.replicas[number] for number in (1, 2, 3))
    fleet.plane.put(fleet.bad_listener())
    eventually("the Envoy of the first step rejects", lambda: two.rejected() == 1)
    begun = time.monotonic()
    fleet.await_states("halted")
    took = time.monotonic() - begun
    assert took < HALT, f"halted everywhere {took:.2f} s after the first rejection"
    assert "relay-2 halted it: 1 of 1 clients rejected it" in one.plan()["why"], one.plan()["why"]
    assert {replica.plan()["push"] for replica in (one, two, three)} == {1}, "a push has one number"
    # The mended listener goes by steps, from replica to replica.
    fleet.push("second")
    eventually("the Envoy of the first step has the fix", lambda: two.has("second"))
    assert fleet.having("second") == {2}, fleet.having("second")
    eventually("the Envoy of the second step has the fix", lambda: one.has("second"))
    assert fleet.having("second") == {1, 2}, fleet.having("second")
    fleet.await_states("open")
    assert fleet.having("second") == {1, 2, 3}
    assert [one.rejected(), three.rejected()] == [0, 0], "nobody else was given the bad listener"
    assert [one.taken(), three.taken()] == [2, 2]


def obeys(fleet):
    """Orders to one replica act on all."""
    one, two, three = (fleet.replicas[number] for number in (1, 2, 3))
    fleet.push("third")
    eventually("the Envoy of the first step has the push", lambda: two.has("third"))
    number = one.plan()["push"]
    assert one.order("pause", push=number).status == 200
    fleet.await_states("paused", seconds=5)
    time.sleep(2 * BAKE)
    assert fleet.having("third") == {2}, "a paused push admits nobody"
    assert three.order("abort", push=number).status == 200
    fleet.await_states("halted", seconds=5)
    eventually("the Envoy of the first step has gone back", lambda: two.has("second"))
    assert two.order("promote", push=number, all=1).status == 200
    fleet.await_states("open")
    assert fleet.having("third") == {1, 2, 3}


def fails_static(fleet):
    """Without etcd nobody new is admitted, and orders say so; a relay that dies is not waited for."""
    one, two, three = (fleet.replicas[number] for number in (1, 2, 3))
    fleet.etcd.kill()
    fleet.await_all("the ledger is away", lambda replica: replica.shared()["fault"], seconds=12 * LEASE)
    fleet.push("fourth")
    time.sleep(3 * BAKE)
    assert fleet.having("fourth") == set(), "nothing begins without the ledger"
    answer = get(one.admin, "/freeze?for=1h", method="POST")
    assert answer.status == 409 or answer.status == 503, answer
    # Endpoints flow.
    fleet.plane.put(resources.endpoints("backend", fleet.stage.backend("blue")))
    eventually("endpoints flow", lambda: all(get(fleet.port).body == "blue" for _ in range(8)))
    fleet.etcd.start()
    fleet.await_ledger()
    eventually("the push begins", lambda: two.has("fourth"))
    three.kill()
    eventually("the others go on", lambda: one.has("fourth"), seconds=12 * LEASE)
    for replica in (one, two):
        eventually("the push is over", lambda replica=replica: replica.state() == "open", seconds=12 * LEASE)
    assert three.has("third"), "the Envoy of the dead relay keeps what it has"
    three.start()
    eventually("the relay that was away has nothing to roll", lambda: three.has("fourth"), seconds=12 * LEASE)


def remembers(fleet):
    """A ledger that lost its data is not believed, and a halted push stays halted over it."""
    one, two, three = (fleet.replicas[number] for number in (1, 2, 3))
    fleet.await_ledger()
    fleet.plane.put(fleet.bad_listener())
    fleet.await_states("halted")
    fleet.etcd.kill()
    shutil.rmtree(fleet.etcd.data)
    fleet.etcd.start()
    fleet.await_all("the ledger is not believed", lambda replica: "has lost its data" in (replica.shared()["fault"] or ""), seconds=12 * LEASE)
    for replica in (one, two, three):
        assert get(replica.admin, "/ledger/init", method="POST").status == 200
    fleet.await_ledger()
    fleet.await_states("halted")
    assert [one.rejected(), three.rejected()] == [0, 0], "nobody else was given the bad listener"
    fleet.push("fifth")
    fleet.await_all("the fix is there", lambda replica: replica.has("fifth"), seconds=12 * LEASE)


def story(stage):
    fleet = Fleet(stage)
    halts(fleet)
    obeys(fleet)
    fails_static(fleet)
    remembers(fleet)


CASES = [Case("replicas", {"envoy", "etcd"}, story, relay_only=True, long=True)]
