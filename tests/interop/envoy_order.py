"""Order: routes after the endpoints of new clusters, updates in several messages, and a rejection that waits as the stream ends."""

import http.client
import json
import threading

import resources
from harness import PORTS, Case, Envoy, eventually, get
from resources import CLUSTER, ENDPOINTS, LISTENER

ROUNDS = 20
# More than a message of the relay, so that each listener with it has a message of its own.
LARGE = "x" * (2 << 20)


class Caller(threading.Thread):
    """Asks a port without a pause over one connection; the answers that were no 200."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.failed, self.count = port, [], 0
        self.ended = threading.Event()
        self.start()

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        while not self.ended.is_set():
            try:
                connection.request("GET", "/")
                response = connection.getresponse()
                text = response.read().decode()
                if response.status != 200:
                    self.failed.append(f"{response.status} {text}")
            except (OSError, http.client.HTTPException) as error:
                self.failed.append(str(error))
                connection.close()
            self.count += 1
        connection.close()

    def end(self):
        self.ended.set()
        self.join()


def new_endpoints(stage, variant):
    """Each route goes to a new cluster, whose endpoints Envoy has to ask for. No request fails."""
    plane = stage.upstream()
    port, backend = PORTS.take(), stage.backend("here")

    def content(number):
        name = f"cluster-{number}"
        return resources.cluster(name), resources.endpoints(name, backend), resources.routes("main", name)

    plane.put(*content(0), resources.listener("http", port, routes="main"))
    envoy = Envoy(stage, variant)
    eventually("Envoy serves", lambda: get(port))
    caller = Caller(port)
    for number in range(1, ROUNDS + 1):
        plane.put(*content(number))
        eventually("the route is followed", lambda number=number: f'"cluster-{number}"' in envoy.routes())
        before = caller.count
        eventually("requests go on", lambda before=before: caller.count > before + 5)
        if number > 1:
            plane.remove(CLUSTER, f"cluster-{number - 2}")
            plane.remove(ENDPOINTS, f"cluster-{number - 2}")
    caller.end()
    assert not caller.failed, f"{len(caller.failed)} of {caller.count} requests failed: {caller.failed[:3]}"
    envoy.assert_content()


def large(config):
    return {**config, "metadata": {"filter_metadata": {"padding": {"text": LARGE}}}}


def answers(port, text):
    return lambda: get(port).body == text


def colours(plane, stage):
    for colour in ("red", "blue"):
        plane.put(resources.static_cluster(colour, stage.backend(colour)), resources.routes(colour, colour))


def renamed(stage):
    """A listener comes under another name on its address, in an update of several messages."""
    plane = stage.upstream()
    colours(plane, stage)
    port, others = PORTS.take(), [PORTS.take() for _ in range(4)]
    plane.put(resources.listener("zz-old", port, routes="red"))
    plane.put(*(resources.listener(f"m-{other}", other, routes="red") for other in others))
    envoy = Envoy(stage, "delta-ads")
    eventually("Envoy serves", answers(port, "red"))
    eventually("all listeners serve", lambda: all(get(other) for other in others))
    with plane.changed:
        plane.put(resources.listener("aa-new", port, routes="blue"), *(large(resources.listener(f"m-{other}", other, routes="blue")) for other in others))
        plane.remove(LISTENER, "zz-old")
    eventually("the renamed listener serves", answers(port, "blue"))
    eventually("the other listeners serve", lambda: all(get(other).body == "blue" for other in others))
    eventually("the former one is gone", lambda: "zz-old" not in envoy.admin("/listeners"))
    envoy.assert_content()


def swapped(stage):
    """A listener takes over the address of another, which moves away in a later message of the update."""
    plane = stage.upstream()
    colours(plane, stage)
    first, second, third = (PORTS.take() for _ in range(3))
    plane.put(resources.listener("a", first, routes="red"), resources.listener("z", second, routes="blue"))
    envoy = Envoy(stage, "delta-ads")
    eventually("Envoy serves", lambda: get(first).body == "red" and get(second).body == "blue")
    plane.put(large(resources.listener("a", second, routes="red")), large(resources.listener("z", third, routes="blue")))
    eventually("the second moves away", answers(third, "blue"))
    eventually("the first takes its address over", answers(second, "red"))
    assert len(envoy.stats("lds.update_rejected")) == 1


class Limited(Envoy):
    """An Envoy that sends a request in two seconds."""

    def bootstrap(self, variant, more):
        bootstrap = super().bootstrap(variant, more)
        bootstrap["dynamic_resources"]["ads_config"]["rate_limit_settings"] = {"max_tokens": 1, "fill_rate": 0.5}
        return bootstrap


def streams(stage, query=""):
    return json.loads(get(stage.admin, f"/clients{query}").body)["clients"]


def end(stage, stream):
    connection = http.client.HTTPConnection("127.0.0.1", stage.admin, timeout=10)
    connection.request("POST", f"/clients/{stream}/end")
    assert connection.getresponse().status == 200
    connection.close()


def waiting_nack(stage):
    """A rejection of routes waits in Envoy until its stream has ended, and the next stream begins with it."""
    plane = stage.upstream()
    colours(plane, stage)
    port = PORTS.take()
    plane.put(resources.listener("http", port, routes="main"), resources.routes("main", "red"))
    envoy = Limited(stage, "sotw-ads")
    eventually("Envoy serves", answers(port, "red"))
    eventually("Envoy has answered all", lambda: streams(stage) and not streams(stage, "?state=STALE"))
    bad = resources.routes("main", "red")
    bad["virtual_hosts"][0]["routes"][0]["match"] = {"safe_regex": {"regex": "*"}}
    # The answer for the clusters leaves no room for that for the routes.
    plane.put(resources.static_cluster("more", port), bad)
    eventually("Envoy rejects", lambda: "1" in envoy.stats("rds.main.update_rejected").values())
    (before,) = streams(stage)
    assert not any(of["nack"] for of in before["types"]), "the rejection waits in Envoy"
    end(stage, before["id"])
    eventually("Envoy comes again", lambda: [one for one in streams(stage) if one["id"] != before["id"]])
    plane.put(resources.routes("main", "blue"))
    eventually("Envoy gets routes on its next stream", answers(port, "blue"))


CASES = [
    *(Case(f"order {variant}", {"envoy"}, lambda stage, variant=variant: new_endpoints(stage, variant), relay_only=True) for variant in Envoy.ADS),
    Case("order of a renamed listener", {"envoy"}, renamed),
    Case("order of swapped addresses", {"envoy"}, swapped, relay_only=True),
    Case("order of a waiting nack", {"envoy"}, waiting_nack, relay_only=True),
]
