"""Three relays with one plan, a crowd at each, and an etcd on its bad days (LDG-4, LDG-5): a relay is cut off in the middle of a
push, etcd answers late, or has no space. Relays that are killed in each state of a push, and records that others change. A judge reads the record of the plan
all the time: nobody has a content before the record admits the seat, or once it says that the push is halted.

Beside, what a fleet costs an etcd, at rest and in a push."""

import base64
import contextlib
import http.client
import json
import os
import pathlib
import re
import threading
import time

import networks
from harness import Case, eventually, get
from replicas import HALT, LEASE, PLAN, Etcd, Relays
from resources import LISTENER
from simulated import Crowd

# The clients of each relay, and the percents of the first step among them.
COUNT, STEP = 60, 25
# The shares of a plan are counted in so many parts.
BUCKETS = 10_000
RECORD = "/sluice/plan/edge"
# The clients that come in the middle of a push.
LATE = 40


def plan(bake, final_bake=1, **more):
    return {**PLAN, "steps": [{"percent": STEP, "bake": f"{bake}s"}], "final_bake": f"{final_bake}s", **more}


def encoded(text):
    return base64.b64encode(text.encode()).decode()


def ask(etcd, path, timeout=10, **question):
    """Asks etcd's gateway: the status and the answer."""
    connection = http.client.HTTPConnection(etcd.host, etcd.port, timeout=timeout)
    with contextlib.closing(connection):
        connection.request("POST", path, json.dumps(question))
        response = connection.getresponse()
        return response.status, json.loads(response.read() or "{}")


def read(etcd, key):
    """A value, and the revision of all of etcd."""
    _, answer = ask(etcd, "/v3/kv/range", key=encoded(key))
    values = [json.loads(base64.b64decode(one["value"])) for one in answer.get("kvs", [])]
    return (values or [None])[0], int(answer["header"]["revision"])


def counted(etcd, pattern):
    """The sum of etcd's metrics whose lines begin so."""
    connection = http.client.HTTPConnection(etcd.host, etcd.port, timeout=10)
    with contextlib.closing(connection):
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
    found = [float(line.rpartition(" ")[2]) for line in lines if re.match(pattern, line)]
    assert found, f"etcd has no metric {pattern}"
    return sum(found)


class Judge:
    """The record of the plan, with the times before and after each look."""

    def __init__(self, fleet):
        self.etcd, self.looks, self.stopped = fleet.etcd, [], threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        fleet.stage.callback(self.stop)
        fleet.stage.witness("the records", self.tell)
        self.thread.start()

    def run(self):
        while not self.stopped.wait(0.05):
            begun = time.monotonic()
            with contextlib.suppress(OSError, http.client.HTTPException, KeyError):
                record, _ = read(self.etcd, RECORD)
                if record:
                    self.looks.append((begun, time.monotonic(), record))

    def stop(self):
        self.stopped.set()
        self.thread.join()

    def tell(self):
        words, known = [], None
        for begun, _, record in self.looks:
            facts = {key: record[key] for key in ("push", "state", "step", "threshold")}
            if facts != known:
                words.append(f"{begun:.2f} {facts} {record['orders']}")
                known = facts
        return "\n".join(words)

    def look(self):
        """The record as it is after the call."""
        begun = time.monotonic()
        eventually("the judge has looked", lambda: self.looks and self.looks[-1][0] > begun)
        return self.looks[-1][2]

    def admitted(self, push, at):
        """The admitted share of the pushes after a number, by the first look that began after a time. None: there is no such look."""
        share = 0
        for begun, _, record in self.looks:
            if record["push"] > push:
                share = max(share, BUCKETS if record["state"] == "over" else record["threshold"])
            if begun > at:
                return share
        return None

    def halted(self, push):
        """When a look had told that a push after the number is halted; None: none did."""
        times = (ended for _, ended, record in self.looks if record["push"] > push and record["state"] == "halted")
        return next(times, None)


class Crowds(Relays):
    """Three relays, a crowd at each, and the judge. `rejects`: the marks that the clients of a relay reject."""

    def __init__(self, stage, plan, rejects=None, **more):
        super().__init__(stage, plan, **more)
        self.crowds, self.late, self.seats, self.before = {}, [], {}, 0
        for number, replica in self.replicas.items():
            stage.xds = replica.xds
            self.crowds[number] = Crowd(stage, COUNT, (rejects or {}).get(number, ()), name=f"replica-{number}")
        self.await_content("first")
        self.await_ledger()
        self.judge = Judge(self)
        self.read_seats()
        self.first = {node for node, percent in self.seats.items() if percent < STEP}
        for number in self.crowds:
            assert 0 < len(self.seated(number)) < COUNT, f"the first step has {len(self.seated(number))} clients at relay-{number}"

    def read_seats(self):
        for replica in self.replicas.values():
            clients = json.loads(get(replica.admin, "/clients?limit=all").body)["clients"]
            self.seats |= {one["node"]: one["seats"][0]["percent"] for one in clients}

    def seated(self, number):
        return self.first & self.crowds[number].clients.keys()

    def await_content(self, mark, relays=(1, 2, 3), **more):
        for number in relays:
            eventually(f"the crowd of relay-{number} has {mark}", lambda crowd=self.crowds[number]: crowd.have(LISTENER, mark), **more)

    def begin(self, mark):
        """Changes the listener, for the next push."""
        record, _ = read(self.etcd, RECORD)
        self.before = record["push"] if record else 0
        self.push(mark)

    def await_first_step(self, mark, relays=(1, 2, 3), **more):
        for number in relays:
            have = lambda number=number: all(self.crowds[number].clients[node].latest.get(LISTENER) == mark for node in self.seated(number))
            eventually(f"the first step at relay-{number} has {mark}", have, **more)

    def given(self, mark, number=None):
        """Each time at which a client of a relay was given this content."""
        crowds = [self.crowds[number]] if number else [*self.crowds.values(), *self.late]
        return [(node, at) for crowd in crowds for node, client in crowd.clients.items() for at, one in client.given[LISTENER] if one == mark]

    def comes_late(self, number, mark):
        """Clients that come in the middle of a push, and reject it if they have a seat."""
        self.stage.xds = self.replicas[number].xds
        crowd = Crowd(self.stage, LATE, {mark}, name=f"late-{mark}")
        self.late.append(crowd)
        eventually("the late ones have an answer", lambda: all(LISTENER in client.latest for client in crowd.clients.values()))
        self.read_seats()

    def assert_admitted(self, mark, halts_by=HALT):
        """Nobody was given the content before a step admitted the seat, nor `halts_by` seconds after the halt."""
        self.judge.look()
        for node, at in self.given(mark):
            share = self.judge.admitted(self.before, at)
            assert share is not None and self.seats[node] * BUCKETS < share * 100, f"{node} at {self.seats[node]} % was given {mark}, and {share} of {BUCKETS} were admitted"
        halted = self.judge.halted(self.before)
        after = [node for node, at in self.given(mark) if halted and at > halted + halts_by]
        assert not after, f"{after} were given {mark} after its halt"

    def assert_held(self, mark, seconds):
        """Nobody without a seat in the first step is given the content meanwhile."""
        time.sleep(seconds)
        beyond = {node for node, _ in self.given(mark) if self.seats[node] >= STEP}
        assert not beyond, f"{beyond} have no seat, and were given {mark}"

    def faults(self):
        return [fault for crowd in (*self.crowds.values(), *self.late) for client in crowd.clients.values() for fault in client.faults]


def cut_off(fleet, ways):
    """Relay 3 is cut off twice: first it only waits, then its clients reject."""
    others, three = (1, 2), fleet.replicas[3]
    fleet.begin("second")
    fleet.await_first_step("second")
    ways.cut(3)
    # The others go on once its lease is over.
    fleet.await_content("second", others, seconds=12 * LEASE)
    eventually("relay-3 says that it is cut off", lambda: three.shared()["fault"])
    assert {node for node, _ in fleet.given("second", 3)} == fleet.seated(3), "a relay that is cut off admits nobody, and keeps whom it has"
    assert three.order("resume", push=three.plan()["push"]).status == 503, "an order needs the ledger"
    ways.mend(3)
    fleet.await_content("second", seconds=12 * LEASE)
    fleet.await_states("open", seconds=12 * LEASE)
    fleet.assert_admitted("second")

    fleet.begin("third")
    fleet.await_first_step("third")
    ways.cut(3)
    fleet.comes_late(3, "third")
    eventually("relay-3 halts at once", lambda: three.state() == "halted", seconds=HALT + 1)
    fleet.await_first_step("second", (3,))
    assert [fleet.replicas[number].state() for number in others] == ["waving", "waving"], "the others cannot know it"
    eventually("relay-3 says that it is cut off", lambda: three.shared()["fault"])
    ways.mend(3)
    fleet.await_states("halted", seconds=12 * LEASE)
    assert "relay-3 halted it" in fleet.replicas[1].plan()["why"], fleet.replicas[1].plan()["why"]
    fleet.await_content("second")
    fleet.assert_admitted("third")
    assert not fleet.faults(), fleet.faults()[:3]


# Long enough for a relay that is cut off to notice it in the middle of the step.
CUT_PLAN = plan(3 * LEASE, final_bake=LEASE)


def partitioned(stage):
    network = networks.Network(stage)
    etcd = Etcd(stage, network=network)
    ways = {number: f"{network.address(number)}:{etcd.port}" for number in (1, 2, 3)}
    cut_off(Crowds(stage, CUT_PLAN, etcd=etcd, ways=ways), network)


def behind_proxies(stage, plan, **more):
    etcd = Etcd(stage)
    proxies = networks.Proxies(stage, etcd.port)
    ways = {number: f"127.0.0.1:{proxy.port}" for number, proxy in proxies.by_relay.items()}
    return proxies, lambda: Crowds(stage, plan, etcd=etcd, ways=ways, **more)


def silenced(stage):
    proxies, fleet = behind_proxies(stage, CUT_PLAN)
    cut_off(fleet(), proxies)


# Etcd's answers come so late, in each direction.
LATER = 2
# The lease of the default configuration.
LONG_LEASE = 15


def slow(stage):
    """With the default lease a late etcd is no absent one."""
    proxies, fleet = behind_proxies(stage, plan(1), rejects={3: {"bad"}}, lease=LONG_LEASE)
    for proxy in proxies.by_relay.values():
        proxy.delay = LATER
    fleet = fleet()
    lost = [metric(replica, "sluice_ledger_lost_total") for replica in fleet.replicas.values()]
    fleet.begin("bad")
    fleet.await_states("halted", seconds=60)
    first = min(at for client in fleet.crowds[3].clients.values() for at in client.rejections)
    # A write that is under way comes first, then the halt, and its event.
    assert time.monotonic() - first < 4 * LATER + HALT, f"{time.monotonic() - first:.1f} s from the first rejection to the halt everywhere"
    fleet.await_content("first")
    fleet.assert_admitted("bad", halts_by=LATER + HALT)
    fleet.begin("second")
    fleet.await_content("second", seconds=120)
    fleet.await_states("open", seconds=60)
    fleet.assert_admitted("second")
    assert lost == [metric(replica, "sluice_ledger_lost_total") for replica in fleet.replicas.values()], "a late answer is no loss"
    assert not fleet.faults(), fleet.faults()[:3]


def metric(replica, name):
    """The sum of a metric's series; the name may have labels."""
    lines = get(replica.admin, "/metrics").body.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


QUOTA = 16 << 20
NO_SPACE = "mvcc: database space exceeded"
REFUSED = 'sluice_ledger_writes_total{kind="etcd",result="refused"}'


def fill(etcd, pieces):
    """Writes beside the ledger. Returns whether etcd has taken all pieces, each of a sixteenth of its space."""
    for number in pieces:
        status, answer = ask(etcd, "/v3/kv/put", key=encoded(f"/filler/{number}"), value=encoded("x" * (QUOTA // 16)))
        if status != 200:
            assert NO_SPACE in str(answer), answer
            return False
    return True


def make_room(etcd):
    """As the operator of an etcd does: deletes, compacts, defragments, and ends the alarm."""
    _, deleted = ask(etcd, "/v3/kv/deleterange", key=encoded("/filler/"), range_end=encoded("/filler0"))
    revision = deleted["header"]["revision"]
    for path, question in (("kv/compaction", {"revision": revision, "physical": True}), ("maintenance/defragment", {})):
        status, answer = ask(etcd, f"/v3/{path}", **question)
        assert status == 200, answer
    member = deleted["header"]["member_id"]
    status, answer = ask(etcd, "/v3/maintenance/alarm", action="DEACTIVATE", memberID=member, alarm="NOSPACE")
    assert status == 200, answer


def no_space(stage):
    fleet = Crowds(stage, plan(2 * LEASE), etcd=Etcd(stage, f"--quota-backend-bytes={QUOTA}"))
    assert fill(fleet.etcd, range(5)), "etcd takes less than its quota"
    one, two, three = (fleet.replicas[number] for number in (1, 2, 3))
    fleet.begin("second")
    fleet.await_first_step("second")
    assert not fill(fleet.etcd, range(5, 40)), "etcd takes more than its quota"
    refused, since = metric(three, REFUSED), time.monotonic()
    fleet.assert_held("second", 3 * LEASE)
    assert fleet.judge.look()["step"] == 1, "no step goes on that cannot be written"
    fleet.comes_late(3, "second")
    eventually("relay-3 halts here", lambda: three.state() == "halted", seconds=HALT + 1)
    fleet.await_first_step("first", (3,))
    assert one.state() != "halted", "nobody could write it"
    # It reads, so it is here. Yet everybody who looks sees the fault by its name.
    assert three.shared()["fault"] is None, three.shared()
    said = fleet.stage.sluice_says("ledger", "show", "--relay", f"127.0.0.1:{three.admin}")
    assert NO_SPACE in said and "AWAY" not in said, said
    told = three.process.log.read_text().count(NO_SPACE)
    assert 0 < told < 30, f"the log says it {told} times"
    pace = (metric(three, REFUSED) - refused) / (time.monotonic() - since)
    assert 0 < pace < 3, f"{pace:.1f} writes a second are refused"

    # A relay that begins now gets no lease, so it takes no part. It gives its clients what they had.
    two.kill()
    two.start()
    eventually("relay-2 says why it takes no part", lambda: NO_SPACE in (two.shared()["fault"] or ""), seconds=12 * LEASE)
    fleet.assert_held("second", LEASE)

    make_room(fleet.etcd)
    fleet.await_states("halted", seconds=12 * LEASE)
    fleet.await_content("first", seconds=12 * LEASE)
    fleet.assert_admitted("second", halts_by=HALT + LEASE)
    said = fleet.stage.sluice_says("ledger", "show", "--relay", f"127.0.0.1:{three.admin}")
    assert NO_SPACE not in said, said
    fleet.await_ledger()
    fleet.begin("third")
    fleet.await_content("third", seconds=12 * LEASE)
    fleet.assert_admitted("third")


KILLED_BAKE = 2


def killed(stage):
    """SIGKILL in each state of a push; each relay comes back with its checkpoint."""
    gather = {"quiet": "1s", "max": "3s"}
    fleet = Crowds(stage, plan(KILLED_BAKE, KILLED_BAKE, gather=gather), rejects={3: {"bad"}})
    replicas = fleet.replicas

    def kill(*numbers):
        for number in numbers:
            replicas[number].kill()
        for number in numbers:
            replicas[number].start()

    def is_on_disk(replica, mark):
        # A file may go meanwhile.
        with contextlib.suppress(FileNotFoundError):
            return any(mark.encode() in file.read_bytes() for file in (stage.directory / f"checkpoint-{replica.number}").iterdir())

    def await_disk(mark):
        # A relay that is killed before serves the content of before, which its clients had a moment ago.
        fleet.await_all(f"{mark} is on disk", lambda replica: is_on_disk(replica, mark))

    def ends(mark):
        fleet.await_content(mark, seconds=12 * LEASE)
        fleet.await_states("open", seconds=12 * LEASE)
        fleet.assert_admitted(mark)
        await_disk(mark)

    await_disk("first")
    fleet.begin("second")
    eventually("relay-1 gathers", lambda: replicas[1].state() == "gathering")
    kill(1)
    ends("second")

    fleet.await_ledger()
    fleet.begin("third")
    fleet.await_first_step("third")
    kill(2)
    ends("third")

    fleet.await_ledger()
    fleet.begin("fourth")
    fleet.await_first_step("fourth")
    number = replicas[1].plan()["push"]
    assert replicas[1].order("pause", push=number).status == 200
    fleet.await_states("paused")
    fleet.await_all("the pause is on disk", lambda replica: not replica.plan()["unsaved"])
    kill(3)
    fleet.assert_held("fourth", LEASE + KILLED_BAKE + 1)
    fleet.await_states("paused", seconds=12 * LEASE)
    assert replicas[3].order("resume", push=number).status == 200
    ends("fourth")

    fleet.await_ledger()
    fleet.begin("bad")
    fleet.await_states("halted")
    kill(1, 2, 3)
    fleet.await_states("halted", seconds=12 * LEASE)
    fleet.assert_held("bad", LEASE + KILLED_BAKE + 1)
    fleet.await_states("halted")
    fleet.await_content("fourth")
    fleet.assert_admitted("bad")
    fleet.begin("fifth")
    eventually("relay-1 settles", lambda: replicas[1].state() == "settling", seconds=12 * LEASE)
    kill(1)
    ends("fifth")


def put(etcd, key, change):
    """Changes a value, as another process that compares and puts."""
    while True:
        _, answer = ask(etcd, "/v3/kv/range", key=encoded(key))
        found = answer["kvs"][0]
        value = json.loads(base64.b64decode(found["value"]))
        change(value)
        is_same = {"key": encoded(key), "target": "MOD", "modRevision": found["mod_revision"]}
        write = {"requestPut": {"key": encoded(key), "value": encoded(json.dumps(value))}}
        status, answer = ask(etcd, "/v3/kv/txn", compare=[is_same], success=[write])
        assert status == 200, answer
        if answer.get("succeeded"):
            return


def foreign(stage):
    """Records of a later build, and a person who deletes one (LDG-6)."""
    fleet = Crowds(stage, plan(KILLED_BAKE), rejects={3: {"bad"}})
    replicas = fleet.replicas
    fault = lambda replica: replica.shared()["fault"] or ""

    fleet.begin("second")
    fleet.await_first_step("second")
    put(fleet.etcd, RECORD, lambda record: (record.update(later={"by": 2}), record["orders"].update(later=[1])))
    fleet.await_content("second")
    fleet.await_states("open")
    record = fleet.judge.look()
    assert (record["state"], record["later"], record["orders"]) == ("over", {"by": 2}, {"later": [1]}), record
    fleet.assert_admitted("second")

    put(fleet.etcd, RECORD, lambda record: record.update(version=2, state="of a later build"))
    fleet.await_all("a record of a later build is not acted on", lambda replica: "version 2, and this build reads up to 1" in fault(replica))
    fleet.push("third")
    fleet.await_all("the push waits", lambda replica: replica.state() == "gathering")
    assert replicas[1].order("unpin").status == 503, "an order needs the ledger"
    time.sleep(LEASE)
    assert not fleet.given("third"), "nothing begins"
    put(fleet.etcd, RECORD, lambda record: record.update(version=1, state="over"))
    fleet.await_content("third")
    fleet.await_states("open")

    fleet.begin("bad")
    fleet.await_states("halted")
    fleet.await_content("third")
    status, answer = ask(fleet.etcd, "/v3/kv/deleterange", key=encoded(RECORD))
    assert (status, answer.get("deleted")) == (200, "1"), answer
    is_lost = lambda replica: f'has lost its data: its entry "plan/edge" is gone; see `sluice ledger init`' in fault(replica)
    fleet.await_all("the deleted record is a loss", is_lost)
    replicas[2].kill()
    replicas[2].start()
    fleet.await_all("it is one for a relay that begins anew, too", is_lost)
    for replica in replicas.values():
        assert get(replica.admin, "/ledger/init", method="POST").status == 200
    fleet.await_ledger()
    fleet.await_states("halted")
    fleet.assert_held("bad", LEASE + KILLED_BAKE)
    fleet.await_states("halted")
    fleet.await_content("third")
    fleet.push("fourth")
    fleet.await_content("fourth", seconds=12 * LEASE)


KEPT = 'grpc_server_msg_received_total{grpc_method="LeaseKeepAlive"'
RECEIVED, SENT = "etcd_network_client_grpc_received_bytes_total", "etcd_network_client_grpc_sent_bytes_total"
IN_USE = "etcd_mvcc_db_total_size_in_use_in_bytes"
# So long the fleet is at rest.
REST = 4 * LEASE


# The share of a core of an unoptimized relay with a crowd at rest.
IDLE_CPU = 0.1


def cpu_seconds(fleet):
    """The CPU time of all relays."""
    stats = [pathlib.Path(f"/proc/{replica.process.child.pid}/stat").read_text() for replica in fleet.replicas.values()]
    ticks = [stat.rpartition(")")[2].split()[11:13] for stat in stats]
    return sum(int(count) for counts in ticks for count in counts) / os.sysconf("SC_CLK_TCK")


class Bill:
    """What etcd had to do since the last bill."""

    def __init__(self, etcd):
        self.etcd, self.since = etcd, time.monotonic()
        self.counts = self.count()

    def count(self):
        metrics = [counted(self.etcd, pattern) for pattern in (re.escape(KEPT), RECEIVED, SENT, IN_USE)]
        return [read(self.etcd, RECORD)[1], *metrics]

    def take(self):
        """Seconds, writes, renewed leases, bytes to and from etcd, and bytes that its store grew by."""
        now, counts = time.monotonic(), self.count()
        bill = [now - self.since, *(count - before for count, before in zip(counts, self.counts, strict=True))]
        self.since, self.counts = now, counts
        return bill


def costs(stage):
    fleet = Crowds(stage, {**plan(LEASE), "steps": [{"percent": percent, "bake": f"{LEASE}s"} for percent in (5, STEP)]})
    # The looks of the judge would be on the bill.
    fleet.judge.stop()
    time.sleep(LEASE)
    bill, busy = Bill(fleet.etcd), cpu_seconds(fleet)
    time.sleep(REST)
    seconds, writes, kept, to, back, _ = bill.take()
    busy = (cpu_seconds(fleet) - busy) / seconds / len(fleet.replicas)
    wanted = 3 * len(fleet.replicas) * seconds / LEASE
    print(f"replicas costs: at rest {seconds:.1f} s: {writes} writes, {kept:.0f} leases kept, {to / seconds:.0f} and {back / seconds:.0f} bytes a second, {busy:.3f} of a core for a relay", flush=True)
    assert busy < IDLE_CPU, f"a relay at rest takes {busy:.2f} of a core"
    assert writes == 0, "a fleet at rest writes nothing"
    assert 0.7 * wanted < kept < 1.2 * wanted, f"{kept} leases were kept, and {wanted:.0f} should be"

    fleet.push("second")
    fleet.await_content("second", seconds=12 * LEASE)
    fleet.await_states("open", seconds=12 * LEASE)
    seconds, writes, _, to, back, grown = bill.take()
    state = json.loads(get(fleet.replicas[1].admin, "/ledger").body)
    print(f"replicas costs: a push of {seconds:.1f} s: {writes} writes, {writes / seconds:.2f} a second, {to / seconds:.0f} and {back / seconds:.0f} bytes a second, {grown:.0f} bytes more in etcd, ledger {state}", flush=True)
    # Begin, two steps, all, done and over; a tally of each replica for each of these, and one every half second in which it changes.
    assert writes <= 2 * len(fleet.replicas) * seconds / 2, f"{writes} writes in {seconds:.1f} s"
    assert state["bytes"] < 8 << 10, state


CASES = [
    Case("replicas killed", {"etcd"}, killed, relay_only=True),
    Case("replicas partitioned", {"etcd", "namespaces"}, partitioned, relay_only=True),
    Case("replicas behind a silent proxy", {"etcd"}, silenced, relay_only=True),
    Case("replicas with foreign entries", {"etcd"}, foreign, relay_only=True),
    # These take one to two minutes each.
    Case("replicas with a late etcd", {"etcd"}, slow, relay_only=True, long=True),
    Case("replicas without space", {"etcd"}, no_space, relay_only=True, long=True),
    Case("replicas costs", {"etcd"}, costs, relay_only=True, long=True),
]
