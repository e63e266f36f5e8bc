"""Proxyless gRPC below a relay with several control planes: grpc-go's stories of fallback (G1 to G5), psm-interop's
three (P1 to P3), and two of C-core (P4, P6).

The client's only server is the relay. Every control plane leads to a backend of its own, so that the answering backend
shows the origin of the resources; only the listener's name is common to all. The client calls all the time, and the
backends of all calls are compared as a whole: no call may fail after the first success.
"""

import resources
from harness import Case, GrpcCaller, eventually
from resources import CLUSTER, LISTENER, ROUTES

LISTENERS = ("greeter", "mover")


def chain(name, backend):
    """The resources from each listener to a backend, under names of this chain alone."""
    listeners = [resources.api_listener(listener, name) for listener in LISTENERS]
    return [*listeners, resources.routes(name, name), resources.cluster(name), resources.endpoints(name, backend)]


def fill(stage, planes):
    """Sets a chain to a backend of its own at each control plane; returns the backends' ports."""
    backends = [stage.grpc_backend() for _ in planes]
    for number, (plane, backend) in enumerate(zip(planes, backends, strict=True)):
        plane.put(*chain(f"chain-{number}", backend))
    return backends


def serves(stage, plane, clients=1):
    """Waits until this control plane, not the preferred one, serves this number of clients."""
    if not stage.direct:
        assert stage.metric("sluice_fallback_streams", plane) == clients


def is_left(stage, plane):
    """Waits until this control plane has no streams and no connections."""
    eventually("every stream to the other control plane is closed", lambda: plane.live == 0)
    if not stage.direct:
        eventually("so is every connection", lambda: stage.metric("sluice_upstream_connections", plane) == 0)
        serves(stage, plane, clients=0)


def on_startup(stage):
    """No control plane is up; then the second, then the first. Then both go down, without an effect on the client."""
    first, second = planes = stage.upstreams("first", "second")
    one, two = fill(stage, planes)
    client = GrpcCaller(stage, "greeter")
    client.has_reached("nobody")
    second.start()
    client.has_reached("nobody", two)
    serves(stage, second)

    first.start()
    client.has_reached("nobody", two, one)
    is_left(stage, second)

    opened = second.opened
    first.stop()
    if not stage.direct:
        eventually("the relay knows", lambda: stage.metric("sluice_upstream_sources_stale", first) == 1)
    client.goes_on()
    assert second.opened == opened, "everything is cached: there is nothing to ask the second for"
    second.stop()
    client.goes_on()
    if not stage.direct:
        GrpcCaller(stage, "greeter", name="newcomer").has_reached(one)


def mid_update(stage):
    """The first has a new chain, goes down at the request for the cluster, and returns with this chain."""
    first, second = planes = stage.upstreams("first", "second")
    one, two = fill(stage, planes)
    for plane in planes:
        plane.start()
    client = GrpcCaller(stage, "greeter")
    client.has_reached(one)
    client.goes_on()
    assert second.opened == 0, "while the first is there, nobody asks the second"

    three = stage.grpc_backend()
    first.stop_when_asked(CLUSTER, "new")
    first.put(*chain("new", three))
    client.has_reached(one, two)
    serves(stage, second)
    first.start()
    client.has_reached(one, two, three)
    is_left(stage, second)


def mid_startup(stage):
    """The first goes down at the request for its cluster, before any call has succeeded."""
    first, second = planes = stage.upstreams("first", "second")
    one, two = fill(stage, planes)
    first.stop_when_asked(CLUSTER, "chain-0")
    for plane in planes:
        plane.start()
    client = GrpcCaller(stage, "greeter")
    client.has_reached(two)
    serves(stage, second)
    first.start()
    client.has_reached(two, one)
    is_left(stage, second)


def first_call(stage):
    """The first is down at the start; the first call still succeeds."""
    first, second = planes = stage.upstreams("first", "second")
    one, two = fill(stage, planes)
    second.start()
    client = GrpcCaller(stage, "greeter")
    client.has_reached(two)
    first.start()
    client.has_reached(two, one)
    is_left(stage, second)


def three_servers(stage, kind="AGGREGATED_DELTA_GRPC"):
    """The first two have only listeners, and go down at the request for the routes; they return complete, one by
    one."""
    first, second, third = planes = stage.upstreams("first", "second", "third", kind=kind)
    one, two, three = fill(stage, planes)
    for number, plane in enumerate((first, second)):
        del plane.resources[ROUTES, f"chain-{number}"]
        plane.stop_when_asked(ROUTES, f"chain-{number}")
    for plane in planes:
        plane.start()
    client = GrpcCaller(stage, "greeter")
    client.has_reached(three)
    assert (first.opened > 0) and (second.opened > 0)
    serves(stage, third)

    second.put(*chain("chain-1", two))
    second.start()
    client.has_reached(three, two)
    is_left(stage, third)
    serves(stage, second)
    first.put(*chain("chain-0", one))
    first.start()
    client.has_reached(three, two, one)
    is_left(stage, second)


def middle_broken(stage):
    """A control plane that ends every stream at once is skipped."""
    first, second, third = planes = stage.upstreams("first", "second", "third")
    one, _, three = fill(stage, planes)
    second.refuses = True
    for plane in planes:
        plane.start()
    client = GrpcCaller(stage, "greeter")
    client.has_reached(one)
    first.stop_when_asked(CLUSTER, "new")
    first.put(*chain("new", one))
    client.has_reached(one, three)
    serves(stage, third)


def one_moves(stage):
    """The outage of the first control plane moves only the client that lacks a resource."""
    first, second = planes = stage.upstreams("first", "second")
    one, two = fill(stage, planes)
    for plane in planes:
        plane.start()
    stays = GrpcCaller(stage, "greeter", name="stays")
    moves = GrpcCaller(stage, "mover", name="moves")
    stays.has_reached(one)
    moves.has_reached(one)
    three = stage.grpc_backend()
    first.stop_when_asked(CLUSTER, "new")
    below = [part for part in chain("new", three) if part["@type"] != LISTENER]
    first.put(resources.api_listener("mover", "new"), *below)
    moves.has_reached(one, two)
    serves(stage, second)
    stays.goes_on()
    first.start()
    moves.has_reached(one, two, three)
    stays.goes_on()
    stays.has_reached(one)
    is_left(stage, second)


def three_sotw(stage):
    """As three_servers; the relay's control planes pass over names that don't exist."""
    three_servers(stage, "AGGREGATED_GRPC")


CASES = [
    Case("fallback G1 P1 on startup", {"grpc"}, on_startup),
    Case("fallback G2 P3 mid-update", {"grpc"}, mid_update),
    Case("fallback G3 P2 mid-startup", {"grpc"}, mid_startup),
    Case("fallback G4 first call", {"grpc"}, first_call),
    Case("fallback G5 three servers, delta", {"grpc"}, three_servers),
    Case("fallback G5 three servers, sotw", {"grpc"}, three_sotw, relay_only=True),
    Case("fallback P4 the middle one broken", {"grpc"}, middle_broken),
    Case("fallback P6 one moves, one stays", {"grpc"}, one_moves),
]
