"""Three replicas with one plan and one etcd: a listener that one Envoy rejects is halted at all of them, steps need the
evidence of all, and nobody new is admitted without etcd (LDG-3 to LDG-7). With a crowd at each of them, nobody without a seat
is ever given what the clients of one replica reject."""

import json
import pathlib
import shutil
import tempfile
import time

import packages
import resources
from harness import PORTS, Case, Envoy, Process, eventually, get, server_entry
from resources import LISTENER
from rollouts import ENVOY_SAYS
from simulated import Crowd

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
# The simulated clients of each replica, and the percents of the first step among them: no Envoy has a seat in it.
CROWD, CROWD_STEP = 700, 5


class Etcd:
    """An etcd with one member. `network`: the namespace that it is in, instead of that of the case."""

    def __init__(self, stage, *options, network=None):
        self.stage, self.port, self.starts = stage, PORTS.take(), 0
        self.host = network.address(0) if network else "127.0.0.1"
        everywhere = "0.0.0.0" if network else self.host
        listens, client, peer = (f"http://{where}" for where in (f"{everywhere}:{self.port}", f"{self.host}:{self.port}", f"127.0.0.1:{PORTS.take()}"))
        # In memory where there is such a place: the disk of a busy machine is no part of the case.
        place = "/dev/shm" if pathlib.Path("/dev/shm").is_dir() else stage.directory
        self.data = pathlib.Path(stage.enter_context(tempfile.TemporaryDirectory(dir=place)), "etcd")
        self.command = [*(network.inside if network else ()), packages.etcd(), "--data-dir", self.data]
        self.command += ["--listen-client-urls", listens, "--advertise-client-urls", client, *options]
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
    """A relay, which reaches etcd at an address."""

    def __init__(self, stage, number, plane, etcd, plan, lease):
        self.stage, self.number = stage, number
        self.xds, self.admin = PORTS.take(), PORTS.take()
        config = {
            "xds_servers": [server_entry(plane, "AGGREGATED_DELTA_GRPC")],
            "listeners": [{"name": "main", "address": f"127.0.0.1:{self.xds}"}],
            "admin": {"address": f"127.0.0.1:{self.admin}"},
            "rollouts": [plan],
            "node_classes": [{"split_by": {"cluster": True}}],
            "checkpoint": {"directory": f"checkpoint-{number}", "interval": "100ms"},
            "ledger": {"replica": f"relay-{number}", "lease": f"{lease}s", "etcd": {"endpoints": [etcd]}},
        }
        self.config = config
        self.write()
        self.starts = 0
        stage.witness(f"the plan of relay-{number}", lambda: json.dumps(self.plan()))
        stage.witness(f"the ledger of relay-{number}", lambda: get(self.admin, "/ledger").body)
        self.start()

    def write(self):
        (self.stage.directory / f"sluice-{self.number}.json").write_text(json.dumps(self.config))

    def reload(self, plan):
        self.config["rollouts"] = [plan]
        self.write()
        answer = get(self.admin, "/reload", method="POST")
        assert answer.status == 200, answer

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


class EnvoyReplica(Replica):
    """A relay with an Envoy of its own."""

    def __init__(self, stage, number, *more):
        super().__init__(stage, number, *more)
        stage.xds = stage.rest = self.xds
        node = {"id": f"envoy-{number}", "cluster": "interop"}
        self.envoy = Envoy(stage, "delta-ads", f"envoy-{number}", node=node)

    def has(self, prefix):
        return f'"stat_prefix": "{prefix}"' in self.envoy.admin("/config_dump?resource=dynamic_listeners")

    def rejected(self):
        return sum(int(count) for count in self.envoy.stats("listener_manager.lds.update_rejected").values())

    def taken(self):
        return sum(int(count) for count in self.envoy.stats("listener_manager.lds.update_success").values())


class Relays:
    """Three relays with one plan and one etcd. `ways`: the address at which each of them reaches etcd."""

    KIND = Replica

    def __init__(self, stage, plan=PLAN, etcd=None, ways=None, lease=LEASE):
        self.stage, self.port, self.lease = stage, PORTS.take(), lease
        self.etcd, self.plane = etcd or Etcd(stage), stage.control_plane("the control plane")
        self.plane.start()
        self.plane.put(
            resources.cluster("backend"),
            resources.endpoints("backend", stage.backend("red")),
            self.listener("first"),
            resources.routes("main", "backend"),
        )
        direct = f"{self.etcd.host}:{self.etcd.port}"
        self.replicas = {number: self.KIND(stage, number, self.plane, (ways or {}).get(number, direct), plan, lease) for number in (1, 2, 3)}

    def await_ledger(self):
        for number, replica in self.replicas.items():
            is_here = lambda replica=replica: replica.shared()["fault"] is None and len(replica.shared()["replicas"]) == 3
            eventually(f"relay-{number} acts on the ledger", is_here, seconds=12 * self.lease)

    def listener(self, prefix):
        listener = resources.listener("http", self.port, routes="main")
        listener["filter_chains"][0]["filters"][0]["typed_config"]["stat_prefix"] = prefix
        return listener

    def push(self, prefix):
        self.plane.put(self.listener(prefix))

    def await_all(self, what, is_so, seconds=30):
        for number, replica in self.replicas.items():
            eventually(f"{what} at relay-{number}", lambda replica=replica: is_so(replica), seconds=seconds)

    def await_states(self, state, **more):
        self.await_all(f"the plan is {state}", lambda replica: replica.state() == state, **more)


class Fleet(Relays):
    """Three relays, each with an Envoy."""

    KIND = EnvoyReplica

    def __init__(self, stage, plan=PLAN):
        super().__init__(stage, plan)
        for number, replica in self.replicas.items():
            eventually(f"envoy-{number} has the listener", lambda replica=replica: replica.has("first"))
        self.await_ledger()

    def bad_listener(self):
        listener = self.listener("bad")
        listener["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"][0] = {"name": ENVOY_SAYS}
        return listener

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
    assert answer.status == 503, answer
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


def crowds(stage):
    """The clients of one replica reject, of 700 at each. Clients without a seat in the first step never see the content."""
    fleet = Fleet(stage, {**PLAN, "steps": [{"percent": CROWD_STEP, "bake": f"{BAKE}s"}]})
    crowds, first = {}, set()
    for number, replica in fleet.replicas.items():
        stage.xds = replica.xds
        crowds[number] = Crowd(stage, CROWD, {"bad"} if number == 3 else (), name=f"replica-{number}")
    for number, crowd in crowds.items():
        eventually(f"the crowd of relay-{number} has its content", lambda crowd=crowd: crowd.have(LISTENER, "first"))
        clients = json.loads(get(fleet.replicas[number].admin, "/clients?limit=all").body)["clients"]
        seated = {one["node"] for one in clients if one["seats"][0]["percent"] < CROWD_STEP}
        assert seated, f"nobody has a seat in the first step at relay-{number}"
        first |= seated

    fleet.push("bad")
    fleet.await_states("halted")
    halted = time.monotonic()
    begun = min(at for client in crowds[3].clients.values() for at in client.rejections)
    assert halted - begun < HALT, f"halted everywhere {halted - begun:.2f} s after the first rejection"
    for number, crowd in crowds.items():
        given = crowd.given(LISTENER, "bad")
        assert given.keys() <= first, f"relay-{number} gave the content to {sorted(given.keys() - first)}, who have no seat"
        eventually(f"the crowd of relay-{number} is back", lambda crowd=crowd: crowd.have(LISTENER, "first"))

    fleet.push("second")
    for number, crowd in crowds.items():
        eventually(f"the crowd of relay-{number} has the fix", lambda crowd=crowd: crowd.have(LISTENER, "second"))
    fleet.await_states("open")
    given = [item for crowd in crowds.values() for item in crowd.given(LISTENER, "second").items()]
    last, rest = max(at for node, at in given if node in first), min(at for node, at in given if node not in first)
    assert last < rest, f"somebody had the fix {last - rest:.2f} s before the end of the first step"

    # The seats of one replica are other ones now. It gives the push to nobody until the others are through.
    fleet.replicas[1].reload({**fleet.replicas[1].config["rollouts"][0], "salt": "other"})
    fleet.push("third")
    eventually("the crowd of relay-1 has the push", lambda: crowds[1].have(LISTENER, "third"))
    apart = min(crowds[1].given(LISTENER, "third").values())
    last = max(at for number in (2, 3) for at in crowds[number].given(LISTENER, "third").values())
    assert all(crowds[number].have(LISTENER, "third") for number in (2, 3)) and last < apart, "a replica with other seats took part"
    faults = [fault for crowd in crowds.values() for client in crowd.clients.values() for fault in client.faults]
    assert not faults, faults[:3]


CASES = [
    Case("replicas", {"envoy", "etcd"}, story, relay_only=True),
    Case("replicas of a crowd", {"envoy", "etcd"}, crowds, relay_only=True),
]
