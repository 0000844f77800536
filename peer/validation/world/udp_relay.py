"""The way of datagrams between peers under validation: a process that delays, loses, reorders and cuts them.

Edge. Each peer tells its UDP ports here and offers others the relay's instead, so that every datagram comes by. Started
as `python -m peer.validation.world.udp_relay SOCKET SEED`; ends when its standard input does, and with it all of its
sockets.
"""

from __future__ import annotations

import heapq
import json
import os
import random
import selectors
import socket
import sys
import time
from collections.abc import Callable
from itertools import count
from typing import Any, Final

from peer.validation.scenarios.link_conditions import CLEAR, Conditions, Direction

HOST: Final = "127.0.0.1"
MAX_DATAGRAM: Final = 65536
IDLE_S: Final = 120.0  # a port that carried nothing for so long belongs to a peer that is gone
SWEEP_S: Final = 30.0
BUFFER_BYTES: Final = 4 << 20  # a burst must not be lost here unless the seed says so
Address = tuple[str, int]


class Relay:
    """All ports and links. One thread, one selector."""

    def __init__(self, path: str, seed: str) -> None:
        self._seed = seed
        self._selector = selectors.DefaultSelector()
        self._names: dict[Address, str] = {}  # whose socket an address is
        self._backs: dict[tuple[socket.socket, Address], socket.socket] = {}
        self._used: dict[socket.socket, float] = {}
        self._links: dict[tuple[str, str], tuple[Conditions, float]] = {}  # each way by itself
        self._everywhere: tuple[Conditions, float] = (CLEAR, 0.0)
        self._directions: dict[tuple[str, str], Direction] = {}
        self._waiting: list[tuple[float, int, socket.socket, bytes, Address]] = []
        self._numbers = count()
        self._counts = {"passed": 0, "lost": 0}
        self._bytes: dict[tuple[str, str], int] = {}  # of datagrams that passed, each way
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._door.bind(path)
        os.chmod(path, 0o600)
        self._door.listen()
        self._watch(self._door, self._welcome)

    def run(self, until: int) -> None:
        """Relays until file descriptor `until` ends."""
        self._selector.register(until, selectors.EVENT_READ, None)
        swept = time.monotonic()
        while True:
            now = time.monotonic()
            timeout = max(0.0, self._waiting[0][0] - now) if self._waiting else SWEEP_S
            for key, _ in self._selector.select(timeout):
                if key.data is None:
                    return
                key.data()
            self._deliver(time.monotonic())
            if now - swept > SWEEP_S:
                swept = now
                self._sweep(now)

    def close(self) -> None:
        """Closes every socket."""
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()

    def _watch(self, made: socket.socket, step: Callable[[], None]) -> None:
        made.setblocking(False)
        self._selector.register(made, selectors.EVENT_READ, step)

    # --- orders

    def _welcome(self) -> None:
        client, _ = self._door.accept()
        heard = bytearray()

        def hear() -> None:
            try:
                data = client.recv(MAX_DATAGRAM)
            except OSError:
                data = b""
            if not data:
                self._selector.unregister(client)
                client.close()
                return
            heard.extend(data)
            while b"\n" in heard:
                line, _, rest = bytes(heard).partition(b"\n")
                heard[:] = rest
                client.sendall(json.dumps(self._obey(json.loads(line))).encode() + b"\n")

        self._watch(client, hear)

    def _obey(self, order: dict[str, Any]) -> dict[str, Any]:
        match order["do"]:
            case "register":
                return {"port": self._register(order["name"], (order["host"], order["port"]))}
            case "conditions":
                given = dict(order["conditions"])
                cuts = tuple((float(a), float(b)) for a, b in given.pop("cuts", ()))
                set_to = (Conditions(**given, cuts=cuts), time.monotonic())
                if order["links"] is None:
                    self._everywhere = set_to
                    self._links.clear()
                for src, dst in order["links"] or ():
                    self._links[src, dst] = set_to
                    if not order.get("one_way", False):
                        self._links[dst, src] = set_to
                return dict(self._counts)
            case "bytes":
                return {f"{src}>{dst}": count for (src, dst), count in self._bytes.items()}
            case _:
                return dict(self._counts)

    def _register(self, name: str, target: Address) -> int:
        self._names[target] = name
        front = self._port()

        def receive() -> None:
            for data, source in _datagrams(front):
                self._used[front] = time.monotonic()
                back = self._back(front, source, target)
                self._send(self._names.get(source, "?"), name, back, data, target)

        self._watch(front, receive)
        return int(front.getsockname()[1])

    def _back(self, front: socket.socket, source: Address, target: Address) -> socket.socket:
        """The port by which `target` sees `source`."""
        back = self._backs.get((front, source))
        if back is None:
            back = self._backs[front, source] = self._port()

            def receive() -> None:
                for data, _ in _datagrams(back):
                    self._used[back] = self._used[front] = time.monotonic()
                    # Looked up each time: a peer may send before it has told its port.
                    ends = self._names.get(target, "?"), self._names.get(source, "?")
                    self._send(*ends, front, data, source)

            self._watch(back, receive)
        self._used[back] = time.monotonic()
        return back

    def _port(self) -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.bind((HOST, 0))
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            made.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
        self._used[made] = time.monotonic()
        return made

    # --- datagrams

    def _send(self, src: str, dst: str, by: socket.socket, data: bytes, to: Address) -> None:
        direction = self._directions.get((src, dst))
        if direction is None:
            draw = random.Random(f"{self._seed}/{src}/{dst}").random
            direction = self._directions[src, dst] = Direction(draw)
        now = time.monotonic()
        conditions, since = self._links.get((src, dst), self._everywhere)
        due = direction.due(now, since, conditions)
        if due is None:
            self._counts["lost"] += 1
            return
        self._bytes[src, dst] = self._bytes.get((src, dst), 0) + len(data)
        if due <= now:
            self._pass(by, data, to)
        else:
            heapq.heappush(self._waiting, (due, next(self._numbers), by, data, to))

    def _deliver(self, now: float) -> None:
        while self._waiting and self._waiting[0][0] <= now:
            _, _, by, data, to = heapq.heappop(self._waiting)
            self._pass(by, data, to)

    def _pass(self, by: socket.socket, data: bytes, to: Address) -> None:
        try:
            by.sendto(data, to)
            self._counts["passed"] += 1
        except OSError:  # closed by a sweep, or the other end is gone
            self._counts["lost"] += 1

    def _sweep(self, now: float) -> None:
        for idle in [made for made, at in self._used.items() if now - at > IDLE_S]:
            del self._used[idle]
            self._backs = {key: back for key, back in self._backs.items() if idle not in (key[0], back)}
            self._selector.unregister(idle)
            idle.close()


def _datagrams(made: socket.socket) -> list[tuple[bytes, Address]]:
    found = []
    while True:
        try:
            found.append(made.recvfrom(MAX_DATAGRAM))
        except BlockingIOError:
            return found
        except OSError:  # nobody listens there any more: the next datagram may be another's
            continue


if __name__ == "__main__":
    relaying = Relay(sys.argv[1], sys.argv[2])
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    try:
        relaying.run(sys.stdin.fileno())
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    finally:
        relaying.close()
