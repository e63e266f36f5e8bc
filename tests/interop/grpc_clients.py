"""Proxyless gRPC: a client follows its chain of resources, through an outage of the control plane, to the end."""

import resources
from harness import Case, GrpcClient, server_entry
from packages import LANGUAGES
from resources import LISTENER


def story(stage, language):
    """LDS to RDS to CDS to EDS, an update of each, an outage, and the removal of a listener."""
    plane = stage.upstream()
    first, second, third, fourth = (stage.grpc_backend() for _ in range(4))
    plane.put(
        resources.cluster("one"),
        resources.endpoints("one", first),
        resources.api_listener("greeter", "main"),
        resources.routes("main", "one"),
    )
    client = GrpcClient(stage, "greeter", language=language)
    client.reaches(first)

    plane.put(resources.endpoints("one", second))
    client.reaches(second)

    plane.put(resources.cluster("two"), resources.endpoints("two", third), resources.routes("main", "two"))
    client.reaches(third)

    plane.stop()
    client.reaches(third)
    if not stage.direct:
        newcomer = GrpcClient(stage, "greeter", language=language, name="newcomer")
        newcomer.reaches(third)
    # The control plane returns with changes.
    plane.put(resources.endpoints("two", fourth))
    plane.start()
    client.reaches(fourth)
    if not stage.direct:
        newcomer.reaches(fourth)

    # The listener changes, too: to the routes of another.
    plane.put(resources.api_listener("greeter", "other"), resources.routes("other", "one"))
    plane.put(resources.cluster("one"), resources.endpoints("one", first))
    client.reaches(first)

    plane.remove(LISTENER, "greeter")
    client.reaches("nobody")
    plane.put(resources.api_listener("greeter", "main"))
    client.reaches(fourth)
    assert not plane.nacks, plane.nacks


def over_unix(stage, language):
    """A client that reaches the relay by the absolute path of a unix socket: C-core sends that path as `:authority`."""
    plane = stage.control_plane("the control plane")
    plane.start()
    first, second = stage.grpc_backend(), stage.grpc_backend()
    plane.put(
        resources.cluster("one"),
        resources.endpoints("one", first),
        resources.api_listener("greeter", "main"),
        resources.routes("main", "one"),
    )
    listeners = [{"name": "main", "address": "unix:xds.sock"}]
    stage.relay([server_entry(plane, "AGGREGATED_DELTA_GRPC")], listeners=listeners)
    client = GrpcClient(stage, "greeter", language=language)
    client.reaches(first)
    plane.put(resources.endpoints("one", second))
    client.reaches(second)


ON_UNIX = ("C-core", "Node.js", "Go")

CASES = [
    *(Case(f"grpc {name}", {package}, lambda stage, name=name: story(stage, name)) for name, package in LANGUAGES.items()),
    *(Case(f"grpc {name}, unix socket", {LANGUAGES[name]}, lambda stage, name=name: over_unix(stage, name), relay_only=True) for name in ON_UNIX),
]
