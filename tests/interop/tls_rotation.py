"""Certificates change under load, in the three shapes of their writers: a swapped link (Kubernetes), a rename, and files
written in place one after the other (spiffe-helper).

`SLUICE_ROTATIONS` is the number of rounds: 20, and 1,000 in the long run of the tests.
"""

import os
import pathlib
import queue
import socket
import ssl
import threading
import time

import grpc
from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2

import resources
from harness import PORTS, Case, eventually, server_entry

ROUNDS = int(os.environ.get("SLUICE_ROTATIONS", "20"))
# CRT-1: a second; the rest is for a busy machine, whose own clients may be late.
SEEN_WITHIN = 10.0


def swap(directory, pair, number):
    """The way of the kubelet: a new directory, and one rename of the link to it."""
    new = directory / f"..{number}"
    new.mkdir()
    for name, text in pair.items():
        (new / name).write_text(text)
    link = directory / "..new"
    link.symlink_to(new.name)
    link.replace(directory / "..data")
    for name in pair:
        if not (directory / name).is_symlink():
            (directory / name).symlink_to(f"..data/{name}")


def rename(directory, pair, _):
    for name, text in pair.items():
        fresh = directory / f".{name}.new"
        fresh.write_text(text)
        fresh.replace(directory / name)


def in_place(directory, pair, number):
    """Key and certificate do not match for a moment, in either order."""
    for name in sorted(pair, reverse=number % 2 == 0):
        (directory / name).write_text(pair[name])
        time.sleep(0.05)


SHAPES = {"swap": swap, "rename": rename, "in_place": in_place}


class Stream:
    """A delta ADS stream of clusters over TLS; the names it was sent, and its end."""

    def __init__(self, port, certs):
        read = lambda name: (certs / name).read_bytes()
        credentials = grpc.ssl_channel_credentials(read("ca.crt"), read("client/tls.key"), read("client/tls.crt"))
        self.channel = grpc.secure_channel(f"localhost:{port}", credentials)
        self.requests, self.names, self.error = queue.Queue(), set(), None
        first = discovery_pb2.DeltaDiscoveryRequest(type_url=resources.CLUSTER, resource_names_subscribe=["*"])
        first.node.id = "rotation"
        self.requests.put(first)
        call = ads_pb2_grpc.AggregatedDiscoveryServiceStub(self.channel).DeltaAggregatedResources
        self.responses = call(iter(self.requests.get, None))
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        try:
            for response in self.responses:
                self.names |= {resource.name for resource in response.resources}
                ack = discovery_pb2.DeltaDiscoveryRequest(type_url=resources.CLUSTER, response_nonce=response.nonce)
                self.requests.put(ack)
        except grpc.RpcError as error:
            self.error = error

    def close(self):
        self.requests.put(None)
        self.channel.close()
        self.thread.join(5)


def shown(port, certs):
    """The certificate that the listener shows to a new connection; None without a handshake."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(certs / "client/tls.crt", certs / "client/tls.key")
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as plain:
            with context.wrap_socket(plain) as tls:
                return ssl.DER_cert_to_PEM_cert(tls.getpeercert(binary_form=True))
    except OSError:
        return None


def story(stage):
    """Each rotation is seen by the next connection, no stream is cut, and no alarm is raised."""
    plane = stage.control_plane("the control plane")
    plane.start()
    stage.sluice_says("dev-certs", "certs", "--keep-authority")
    certs = stage.directory / "certs"

    def issue():
        stage.sluice_says("dev-certs", "certs", "--keep-authority")
        return {name: (certs / "relay" / name).read_text() for name in ("tls.crt", "tls.key")}

    first = {name: (certs / "relay" / name).read_text() for name in ("tls.crt", "tls.key")}
    ports = {shape: PORTS.take() for shape in SHAPES}
    listeners = []
    for shape, write in SHAPES.items():
        (stage.directory / shape).mkdir()
        write(stage.directory / shape, first, 0)
        pair = {"certificate_file": f"{shape}/tls.crt", "private_key_file": f"{shape}/tls.key"}
        tls = {"certificates": [pair], "ca_certificate_file": "certs/ca.crt", "trust_domain": "dev.example"}
        listeners.append({"name": shape, "address": f"127.0.0.1:{ports[shape]}", "tls": tls})
    stage.relay([server_entry(plane, "AGGREGATED_DELTA_GRPC")], listeners=listeners)
    streams = [Stream(port, certs) for port in ports.values() for _ in range(3)]
    slowest = 0.0
    for number in range(1, ROUNDS + 1):
        pair = issue()
        leaf = pair["tls.crt"].strip()
        for shape, write in SHAPES.items():
            write(stage.directory / shape, pair, number)
        written = time.monotonic()
        missing = set(SHAPES)
        while missing:
            missing = {shape for shape in missing if (shown(ports[shape], certs) or "").strip() != leaf}
            took = time.monotonic() - written
            assert took < SEEN_WITHIN, f"round {number}: not seen: {missing}"
        slowest = max(slowest, took)
        failing = [line for line in stage.metrics("sluice_tls_reload_failing{") if not line.endswith(" 0")]
        assert not failing, failing
        if number % 5 == 0:
            plane.put(resources.cluster(f"round-{number}"))
            eventually("all streams follow", lambda: all(f"round-{number}" in stream.names for stream in streams))
    assert not [stream.error for stream in streams if stream.error], "no stream was cut"
    for stream in streams:
        stream.close()
    log = pathlib.Path(stage.directory / "sluice.log").read_text()
    reloads = log.count("reloaded the certificate files")
    assert reloads == ROUNDS * len(SHAPES), f"{reloads} reloads of {ROUNDS * len(SHAPES)} rotations"
    assert "cannot use the new certificate files" not in log
    assert "PRIVATE KEY" not in log
    print(f"    {ROUNDS} rotations in {len(SHAPES)} shapes: the slowest was seen after {slowest:.2f} s", flush=True)


CASES = [Case("tls rotation", {"grpc"}, story, relay_only=True)]
