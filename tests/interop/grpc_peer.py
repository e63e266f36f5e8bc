"""A gRPC backend that answers its port, and a client that calls until each port was reached in turn.

usage: grpc_peer.py serve PORT
       grpc_peer.py call TARGET [PORT...]
       grpc_peer.py watch TARGET
       grpc_peer.py open TARGET

Without ports the client reads them from its input, one per line. The port `nobody` stands for calls that fail at once.
With `watch` the client calls until killed, and prints the result of each call. With `open` it calls
further targets beside, which it reads from its input, one per line. All targets share the stream of xDS.
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


def watch(target):
    with grpc.insecure_channel(target) as channel:
        while True:
            print("reached {}{}".format(*reach(channel)), flush=True)
            time.sleep(0.02)


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


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        backend(sys.argv[2]).wait_for_termination()
    elif sys.argv[1] == "watch":
        watch(sys.argv[2])
    elif sys.argv[1] == "open":
        watch_more(sys.argv[2], sys.stdin)
    else:
        call(sys.argv[2], sys.argv[3:] or sys.stdin)
