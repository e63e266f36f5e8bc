"""Proxyless gRPC over a unix socket, and over connections that end all the time."""

import grpc

import resources
from harness import PORTS, Case, GrpcCaller, eventually, server_entry
from packages import LANGUAGES


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
    client = GrpcCaller(stage, "greeter", language=language)
    client.begins()
    client.has_reached(first)
    plane.put(resources.endpoints("one", second))
    client.has_reached(first, second)


# grpc-js-xds takes the end of a stream for an error of the names without an answer so far, although the stream had other answers
# (`receivedAnyResponse` in xds-client.ts is never set).
TELLS_ENDS = {"Node.js"}


def connection_age(stage):
    """The relay ends each connection after a second: no client loses a call, and each follows the changes. The end of a stream is no
    error of a cluster that the client still waits for."""
    plane = stage.control_plane("the control plane")
    plane.start()
    ports = [stage.grpc_backend(), stage.grpc_backend()]
    plane.put(
        resources.cluster("one"),
        resources.endpoints("one", ports[0]),
        *(resources.api_listener(name, name) for name in ("greeter", "lost")),
        resources.routes("greeter", "one"),
        resources.routes("lost", "nowhere"),
    )
    limits = {"connection_age": "1s", "connection_age_grace": "200ms"}
    stage.relay([server_entry(plane, "AGGREGATED_DELTA_GRPC")], limits=limits)
    clients = {language: GrpcCaller(stage, "greeter", beside=["lost"], language=language, name=language) for language in LANGUAGES}
    for client in clients.values():
        client.begins()
    reached = ports[:1]

    def aged():
        return sum(float(line.split()[-1]) for line in stage.metrics("sluice_downstream_goaways_total{reason=\"age\"}"))

    for port in (ports[1], ports[0]):
        for client in clients.values():
            client.has_reached(*reached)
        # grpc-go has two connections, the others one. Ages vary by a fifth, so each of the five is among ten that end.
        before = aged()
        eventually("all connections end", lambda: aged() >= before + 10)
        plane.put(resources.endpoints("one", port))
        reached.append(port)
    for language, client in clients.items():
        client.has_reached(*reached)
        ends = {call.text for call in client.results() if "maximum age" in call.text}
        assert bool(ends) == (language in TELLS_ENDS), f"{language}: {ends}"
    assert not plane.nacks, plane.nacks


# Routes that are worth a compression.
HOSTS = 600


def compressed(stage):
    """A listener that compresses for all who read gzip: the clients of each language follow, and their routes take a small part of the bytes."""
    plane = stage.control_plane("the control plane")
    # The relay reads what C-core compresses.
    plane.compression = grpc.Compression.Gzip
    plane.start()
    first, second = stage.grpc_backend(), stage.grpc_backend()
    hosts = [
        {"name": f"host-{number}", "domains": [f"service-{number}.example.test"], "routes": [{"match": {"prefix": ""}, "route": {"cluster": "one"}}]}
        for number in range(HOSTS)
    ]
    hosts.append({"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": ""}, "route": {"cluster": "one"}}]})
    plane.put(
        resources.cluster("one"),
        resources.endpoints("one", first),
        resources.api_listener("greeter", "main"),
        {"@type": resources.ROUTES, "name": "main", "virtual_hosts": hosts},
    )
    listeners = [{"name": "main", "address": f"127.0.0.1:{PORTS.take()}", "compression": "all"}]
    stage.relay([server_entry(plane, "AGGREGATED_DELTA_GRPC")], listeners=listeners)

    def written():
        return sum(float(line.split()[-1]) for line in stage.metrics('sluice_downstream_response_bytes_total{type="RouteConfiguration"}'))

    clients = []
    for language in LANGUAGES:
        before = written()
        clients.append(GrpcCaller(stage, "greeter", language=language, name=language))
        clients[-1].begins()
        clients[-1].has_reached(first)
        took = written() - before
        assert 0 < took < HOSTS * 20, f"{language} took {took:.0f} bytes for {HOSTS} hosts"
    plane.put(resources.endpoints("one", second))
    for client in clients:
        client.has_reached(first, second)
    assert not plane.nacks, plane.nacks
    # A stream for each class asks for the routes, and each answer would be 30 KB.
    received = sum(float(line.split()[-1]) for line in stage.metrics("sluice_upstream_received_bytes_total"))
    assert received < len(LANGUAGES) * HOSTS * 30, f"{received:.0f} bytes from the control plane"


CASES = [
    Case(f"grpc {name}, unix socket", {LANGUAGES[name]}, lambda stage, name=name: over_unix(stage, name), relay_only=True)
    for name in ("C-core", "Node.js", "Go")
]
CASES.append(Case("grpc compressed", set(LANGUAGES.values()), compressed, relay_only=True))
CASES.append(Case("grpc connection age", set(LANGUAGES.values()), connection_age, relay_only=True))
