"""A link to a network namespace by two TUN devices, with a delay, and a NAT whose public address changes.

For kernels without netem. Needs root, ``ip`` and ``/dev/net/tun``.
"""

import asyncio
import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

HERE = "10.88.0.1"
_DEVICE, _PUBLIC = (10, 88, 0, 2), (10, 88, 9)  # what the device has, and what is seen of it here
_SETIFF, _TUN_NO_PI = 0x400454CA, 0x1001
_MTU = 1400
_TCP, _UDP = 6, 17
_CHECKSUMS = {_TCP: 16, _UDP: 6}  # where they are
_SOURCE, _TARGET = 12, 16


def available() -> bool:
    return os.geteuid() == 0 and Path("/dev/net/tun").exists()


@dataclass(slots=True)
class TunLink:
    """``packets`` and ``packet_bytes`` count what either side's kernel sent, of IP and above.

    ``bare_acks`` are those packets of TCP that carry nothing, of this side and of the device's.
    """

    namespace: str
    rtt_s: float
    files: tuple[int, int]  # here, and in the namespace
    address: int = 1  # last byte of the public one
    packets: int = 0
    packet_bytes: int = 0
    bare_acks: list[int] = field(default_factory=lambda: [0, 0])
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    def rebind(self) -> None:
        """Give the device another public address, and tell nobody; what comes for the old one is dropped."""
        self.address = self.address % 250 + 1

    def read(self, side: int) -> None:
        while True:
            try:
                packet = bytearray(os.read(self.files[side], 2 * _MTU))
            except BlockingIOError:
                return
            if packet[0] >> 4 == 4:
                self.packets += 1
                self.packet_bytes += len(packet)
                self.bare_acks[side] += _is_bare_ack(packet)
                if self._translate(packet, from_here=side == 0):
                    self._loop.call_later(self.rtt_s / 2, self._write, 1 - side, bytes(packet))

    def _write(self, side: int, packet: bytes) -> None:
        with suppress(OSError):  # its queue is full, or the link ends
            os.write(self.files[side], packet)

    def _translate(self, packet: bytearray, *, from_here: bool) -> bool:
        """Put the other address in; return False for a packet to one that the device has no more."""
        at = _TARGET if from_here else _SOURCE
        old, public = bytes(packet[at : at + 4]), bytes((*_PUBLIC, self.address))
        if from_here and old != public:
            return False
        new = bytes(_DEVICE) if from_here else public
        packet[at : at + 4] = new
        where = _CHECKSUMS.get(packet[9])
        for start in (10,) if where is None else (10, (packet[0] & 15) * 4 + where):
            changed = _changed(int.from_bytes(packet[start : start + 2], "big"), old, new)
            packet[start : start + 2] = changed.to_bytes(2, "big")
        return True


def _is_bare_ack(packet: bytearray) -> bool:
    start = (packet[0] & 15) * 4
    return packet[9] == _TCP and start + (packet[start + 12] >> 4) * 4 == len(packet)


def _changed(checksum: int, old: bytes, new: bytes) -> int:
    """Return a checksum over other words (RFC 1624, equation 3)."""
    total = ~checksum & 0xFFFF
    for at in range(0, len(old), 2):
        total += (~int.from_bytes(old[at : at + 2], "big") & 0xFFFF) + int.from_bytes(new[at : at + 2], "big")
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


@contextmanager
def linked(rtt_s: float) -> Iterator[TunLink]:
    """Have a namespace at the other end of such a link while the block is open."""
    namespace = f"outrider-{os.getpid()}"
    names = f"tunh{os.getpid()}", f"tund{os.getpid()}"
    _ip("netns", "add", namespace)
    files = list[int]()
    try:
        files = [_tun(name) for name in names]
        _ip("link", "set", names[1], "netns", namespace)
        public, device = f"{'.'.join(map(str, _PUBLIC))}.0/24", ".".join(map(str, _DEVICE))
        for inside, name, own, there in (((), names[0], HERE, public), (("-n", namespace), names[1], device, HERE)):
            _ip(*inside, "addr", "add", f"{own}/32", "dev", name)
            _ip(*inside, "link", "set", name, "up", "mtu", str(_MTU))
            _ip(*inside, "route", "add", there, "dev", name)
        _ip("-n", namespace, "link", "set", "lo", "up")
        link = TunLink(namespace, rtt_s, (files[0], files[1]))
        loop = asyncio.get_running_loop()
        for side, file in enumerate(files):
            loop.add_reader(file, link.read, side)
        yield link
        for file in files:
            loop.remove_reader(file)
    finally:
        for file in files:
            os.close(file)
        _ip("netns", "del", namespace)


def _tun(name: str) -> int:
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(file, _SETIFF, struct.pack("16sH", name.encode(), _TUN_NO_PI))
    return file


def _ip(*arguments: str) -> None:
    subprocess.run(("ip", *arguments), check=True, capture_output=True)  # noqa: S607 (wherever it is)
