"""A plan with `mode: enforce`: channels of gRPC that open a target in the middle of a push.

A new channel shares the stream of its process, whose seat is known. Its names are answered at once, although the step of the push
lasts for an hour: names that other clients have asked for with the content of the seat, and all others with the newest content.
"""

import itertools
import subprocess
from typing import ClassVar

import resources
from harness import Case, GrpcClient, eventually
from rollout_moves import Lists, bootstrap


class Opener(GrpcClient):
    """A C-core client that opens more and more targets, and calls them all the time."""

    MODE = "open"
    PIPES: ClassVar = {"stdin": subprocess.PIPE, "text": True}

    def opens(self, target):
        self.process.child.stdin.write(f"xds:///{target}\n")
        self.process.child.stdin.flush()

    def has_reached(self, target, *wanted):
        """Waits until the last of these ports is reached by calls to a target, which have reached these and nothing else, in this order.
        A call that takes 5 s has reached `nobody`."""
        wanted = [str(port) for port in wanted]
        eventually(f"calls to {target} reach {wanted[-1]}", lambda: self.calls(target)[-1:] == wanted[-1:])
        reached = [port for port, _ in itertools.groupby(self.calls(target))]
        assert reached == wanted, f"calls to {target} reached {reached} instead of {wanted}"

    def calls(self, target):
        """The result of each call, a port or `nobody`."""
        lines = self.process.log.read_text(errors="replace").splitlines()
        return [line.split()[2] for line in lines if line.startswith(f"xds:///{target} reached ")]


def story(stage):
    lists = Lists(stage, "caller-2")
    red, green = stage.grpc_backend(), stage.grpc_backend()
    chain = lambda name, port: (
        resources.routes("main", name),
        resources.cluster(name),
        resources.endpoints(name, port),
    )
    listeners = [resources.api_listener(name, "main") for name in ("greeter", "known", "unknown")]
    lists.first.put(*listeners, *chain("red", red))
    lists.start()
    other, seated, third = [Opener(stage, target, bootstrap=bootstrap(stage, name), name=name) for target, name in PEERS]
    for client, target in ((other, "greeter"), (seated, "greeter"), (third, "known")):
        client.has_reached(target, red)
    lists.assert_seats()

    # The push changes routes and a listener that clients have, and adds a listener with routes of its own.
    fresh = [resources.api_listener(name, "fresh") for name in ("known", "fresh")]
    lists.push(*chain("green", green), *fresh, resources.routes("fresh", "green"), removed=["red"])
    seated.has_reached("greeter", red, green)
    for client in (other, seated):
        for target in ("known", "unknown", "fresh"):
            client.opens(target)
    for target in ("known", "unknown", "fresh"):
        seated.has_reached(target, green)
    for target in ("known", "unknown"):
        other.has_reached(target, red)
    # Nothing of this target was known before, so nobody has another content to keep.
    other.has_reached("fresh", green)
    lists.reaches("waving")

    other.has_reached("greeter", red)
    third.has_reached("known", red)
    lists.orders("promote edge --push 1 --all")
    for client, target in ((other, "greeter"), (other, "known"), (other, "unknown"), (third, "known")):
        client.has_reached(target, red, green)
    for client, target in ((other, "fresh"), (seated, "fresh"), (seated, "known"), (seated, "unknown")):
        client.has_reached(target, green)


# The targets and the names of the clients. The first step has caller-2.
PEERS = [("greeter", "caller-1"), ("greeter", "caller-2"), ("known", "caller-5")]

CASES = [Case("rollout new targets", {"grpc"}, story, relay_only=True)]
