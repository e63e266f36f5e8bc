"""A gRPC backend that answers its port, and a client that calls until each port was reached in turn.

usage: grpc_peer.py serve PORT
       grpc_peer.py call TARGET [PORT...]
       grpc_peer.py open TARGET
       grpc_peer.py loop CHANNEL...
       grpc_peer.py many TARGET COUNT
       grpc_peer.py each TARGET COUNT

Without ports the client reads them from its input, one per line. The port `nobody` stands for calls that fail at once.
With `open` the client calls a target until killed, and prints the result of each call. It calls
further targets beside, which it reads from its input, one per line. All targets share the stream of xDS.

With `loop` the client calls on several channels at once until killed, and prints each result: the name of the channel, and a port or the
number of a status code. A channel is NAME,TARGET,METHOD,AUTHORITY; the authority may be empty, and calls have the name in the header `name`.

With `many` the client opens that many targets at once, named after the first with a number, and calls each until it is answered. With
`each` one channel makes that many calls, each with another number in the header `number`. Both print the count of answers and the
seconds until the last. Both keep their channels until the end of their input, because a client that ends takes its last load report along.
"""

import itertools
import sys
import threading
import time
from concurrent import futures

import grpc

METHOD = "/kit.Which/Port"


def backend(port):
    """A running server."""
    answer = grpc.unary_unary_rpc_method_handler(lambda _request, _context: str(port).encode())
    service = grpc.method_handlers_generic_handler("kit.Which", {"Port": answer})
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
    server.add_generic_rpc_handlers((service,))
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    return server


def reach(channel):
    """One call: the reached port, or `nobody` and the reason."""
    try:
        return channel.unary_unary(METHOD)(b"", timeout=5).decode(), ""
    except grpc.RpcError as error:
        return "nobody", f" ({error.code()} {error.details()})"


def call(target, ports):
    with grpc.insecure_channel(target) as channel:
        for port in map(str.strip, ports):
            end = time.monotonic() + 25
            while True:
                reached, reason = reach(channel)
                if reached == port:
                    print(f"reached {port}", flush=True)
                    break
                if time.monotonic() > end:
                    sys.exit(f"reached {reached}{reason}, not {port}")
                time.sleep(0.1)


def watch_more(first, further):
    for target in itertools.chain([first], map(str.strip, further)):
        threading.Thread(target=watch_beside, args=(target,), daemon=True).start()
    threading.Event().wait()


def watch_beside(target):
    with grpc.insecure_channel(target) as channel:
        while True:
            # One write: the threads share the output.
            sys.stdout.write("{} reached {}{}\n".format(target, *reach(channel)))
            sys.stdout.flush()
            time.sleep(0.02)


def loop(channels):
    for channel in channels:
        threading.Thread(target=loop_one, args=channel.split(","), daemon=True).start()
    threading.Event().wait()


def loop_one(name, target, method, authority):
    options = [("grpc.default_authority", authority)] if authority else []
    with grpc.insecure_channel(target, options) as channel:
        call = channel.unary_unary(f"/kit.Which/{method}")
        while True:
            try:
                reached = call(b"", timeout=5, metadata=(("name", name),)).decode()
            except grpc.RpcError as error:
                reached = f"{error.code().value[0]} {error.details()}"
            sys.stdout.write(f"{name} {reached}\n")
            sys.stdout.flush()
            time.sleep(0.02)


def answered(calls):
    """Waits for all calls; prints how many were answered, and the time. A call waits for its resources."""
    begun = time.monotonic()
    pending = [call() for call in calls]
    count = 0
    for one in pending:
        try:
            one.result()
            count += 1
        except grpc.RpcError as error:
            print(f"{error.code()} {error.details()}", file=sys.stderr)
    print(f"answered {count} in {time.monotonic() - begun:.3f}", flush=True)
    sys.stdin.read()


def call_of(channel, **more):
    return lambda: channel.unary_unary(METHOD).future(b"", timeout=60, wait_for_ready=True, **more)


def many(target, count):
    channels = [grpc.insecure_channel(f"{target}-{number}") for number in range(count)]
    answered([call_of(channel) for channel in channels])


def each(target, count):
    with grpc.insecure_channel(target) as channel:
        answered([call_of(channel, metadata=(("number", str(number)),)) for number in range(count)])


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        backend(sys.argv[2]).wait_for_termination()
    elif sys.argv[1] == "many":
        many(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1] == "each":
        each(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1] == "loop":
        loop(sys.argv[2:])
    elif sys.argv[1] == "open":
        watch_more(sys.argv[2], sys.stdin)
    else:
        call(sys.argv[2], sys.argv[3:] or sys.stdin)
