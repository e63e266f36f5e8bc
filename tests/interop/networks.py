"""Ways from relays to an etcd that a case can cut: a network of its own for etcd, or a proxy for each relay."""

import asyncio
import subprocess

import simulated
from harness import PORTS

# One link for each relay, and one for the case.
LINKS = 4


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


class Network:
    """A namespace of the network, with a link to each relay. Addresses are those for benchmarks of networks (RFC 2544)."""

    def __init__(self, stage):
        self.number = PORTS.take()
        self.name = f"sluice-{self.number}"
        self.inside = ("ip", "netns", "exec", self.name)
        ip("netns", "add", self.name)
        stage.callback(lambda: ip("netns", "delete", self.name))
        ip("-n", self.name, "link", "set", "lo", "up")
        for link in range(LINKS):
            outside, inside = f"sl{self.number}-{link}", f"way-{link}"
            ip("link", "add", outside, "type", "veth", "peer", "name", inside, "netns", self.name)
            ip("address", "add", f"{self.address(link, 1)}/30", "dev", outside)
            ip("link", "set", outside, "up")
            ip("-n", self.name, "address", "add", f"{self.address(link)}/30", "dev", inside)
            ip("-n", self.name, "link", "set", inside, "up")

    def address(self, link, end=2):
        """The address of etcd on a link, or with 1 that of the relay."""
        place = ((self.number - PORTS.FIRST) * LINKS + link) * 4 + end
        return f"198.{18 + (place >> 16)}.{place >> 8 & 255}.{place & 255}"

    def cut(self, link):
        ip("-n", self.name, "link", "set", f"way-{link}", "down")

    def mend(self, link):
        ip("-n", self.name, "link", "set", f"way-{link}", "up")


class Proxies:
    """A proxy for each relay, without root."""

    def __init__(self, stage, target):
        self.by_relay = {number: Proxy(stage, target) for number in range(1, LINKS)}

    def cut(self, number):
        simulated.loop().call_soon_threadsafe(self.by_relay[number].goes.clear)

    def mend(self, number):
        simulated.loop().call_soon_threadsafe(self.by_relay[number].goes.set)


class Proxy:
    """Forwards TCP, each piece after a delay, and nothing while it is cut. All connections stay open meanwhile, new ones too."""

    def __init__(self, stage, target):
        self.port, self.target, self.delay, self.tasks = PORTS.take(), target, 0, set()
        simulated.in_loop(self.start())
        stage.callback(lambda: simulated.in_loop(self.stop()))

    async def start(self):
        self.goes = asyncio.Event()
        self.goes.set()
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", self.port)

    async def stop(self):
        self.server.close()
        for task in self.tasks:
            task.cancel()

    async def serve(self, reader, writer):
        task = asyncio.current_task()
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        try:
            await self.goes.wait()
            from_etcd, to_etcd = await asyncio.open_connection("127.0.0.1", self.target)
            await asyncio.gather(self.forward(reader, to_etcd), self.forward(from_etcd, writer))
            to_etcd.close()
        except OSError:
            # One side is gone, so the other one loses its connection, too.
            pass
        except asyncio.CancelledError:
            pass
        writer.close()

    async def forward(self, reader, writer):
        pieces, clock = asyncio.Queue(), asyncio.get_running_loop().time

        async def read():
            while piece := await reader.read(1 << 16):
                pieces.put_nowait((clock() + self.delay, piece))
            pieces.put_nowait((clock() + self.delay, b""))

        async def write():
            while True:
                due, piece = await pieces.get()
                await asyncio.sleep(due - clock())
                await self.goes.wait()
                if not piece:
                    return writer.write_eof()
                writer.write(piece)
                await writer.drain()

        await asyncio.gather(read(), write())
