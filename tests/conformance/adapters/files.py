#!/usr/bin/env python3
"""An adapter for servers that read their resources from a directory, such as sluice with a file: server.

Each type is one file, a binary DiscoveryResponse with all resources of the type, and changes as a whole: written beside
and renamed into its place. Without input the adapter leaves empty files for the start of the server. Copy this file to
write an adapter for another server: only `commit` differs.
"""

import argparse
import base64
import json
import os
import sys
import time

PREFIX = "type.googleapis.com/envoy.config."
TYPES = [
    "cluster.v3.Cluster", "endpoint.v3.ClusterLoadAssignment", "listener.v3.Listener", "route.v3.RouteConfiguration",
]


def varint(number):
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(tag, value):
    """A length-delimited protobuf field."""
    return varint(tag << 3 | 2) + varint(len(value)) + value


def discovery_response(type_url, resources):
    """envoy.service.discovery.v3.DiscoveryResponse: resources = 2, type_url = 4."""
    url = type_url.encode()
    anys = (field(1, url) + field(2, value) for _, value in sorted(resources.items()))
    return b"".join(field(2, each) for each in anys) + field(4, url)


class Files:
    def __init__(self, directory, settle):
        self.directory, self.settle = directory, settle
        # Type URL to name to bytes. A server may want a file of each type before it starts.
        self.types = {PREFIX + name: {} for name in TYPES}
        self.changed = set(self.types)
        os.makedirs(directory, exist_ok=True)
        self.commit(None)

    def hello(self, _):
        pass

    def clear(self, _):
        # A type keeps its file, empty: a missing file does not remove its resources.
        self.changed.update(url for url, resources in self.types.items() if resources)
        self.types = {url: {} for url in self.types}
        self.commit(None)

    def set(self, line):
        resource = base64.b64decode(line["resource_base64"])
        self.types.setdefault(line["type_url"], {})[line["name"]] = resource
        self.changed.add(line["type_url"])

    def remove(self, line):
        self.types.get(line["type_url"], {}).pop(line["name"], None)
        self.changed.add(line["type_url"])

    def commit(self, _):
        for type_url in sorted(self.changed):
            path = os.path.join(self.directory, type_url.rsplit("/", 1)[-1] + ".pb")
            with open(os.path.join(self.directory, ".next"), "wb") as file:
                file.write(discovery_response(type_url, self.types[type_url]))
            os.rename(file.name, path)
        if self.changed:
            # The server does not report the end of its read.
            time.sleep(self.settle)
        self.changed.clear()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", help="the directory that the server reads")
    parser.add_argument("--settle", type=float, default=0.2, metavar="SECONDS",
                        help="how long the server takes to see a change (default: %(default)s)")
    arguments = parser.parse_args()
    files = Files(arguments.directory, arguments.settle)
    operations = {
        "hello": files.hello, "set": files.set, "remove": files.remove, "clear": files.clear, "commit": files.commit,
    }
    for text in sys.stdin:
        line = json.loads(text)
        operation = operations.get(line["op"])
        if operation is None:
            answer = {"unsupported": True, "error": f"no such operation: {line['op']}"}
        else:
            try:
                operation(line)
                answer = {"ok": True}
            except OSError as error:
                answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
