"""Messages of a device that dials in and its gateway: what is written is read, anything else is a ``MessageError``."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.errors import MessageError
from outrider.versions import DIAL_VERSIONS, VERSIONS, VersionRange, Versions
from outrider.wire.calls import MOST_CALL_BYTES, write_call
from outrider.wire.dialling import (
    Bye,
    DeviceReady,
    FromDevice,
    FromGateway,
    Hello,
    MoveTo,
    NumberedCall,
    NumberedReply,
    RefusalCode,
    Refused,
    Welcome,
    read_from_device,
    read_from_gateway,
    write_dialled,
)

UINTS, LONGS = st.integers(0, 2**32 - 1), st.integers(0, 2**63 - 1)
NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", max_size=64)
SHOWN = st.text(st.characters(categories=["L", "N", "P"]), max_size=32)
RANGES = st.builds(VersionRange, UINTS, UINTS)
HOSTS = st.from_regex(r"[a-z0-9-]{1,60}(\.[a-z0-9-]{1,60})?|\[[0-9a-f:]{2,30}\]", fullmatch=True)
ADDRESSES = st.builds("{}:{}".format, HOSTS, st.integers(1, 2**16 - 1))
DIGESTS = st.binary(min_size=32, max_size=32)
SECONDS = st.floats(0.0, 3600.0, exclude_min=True)
HELLO = Hello(DIAL_VERSIONS, VERSIONS, "0.1.0", b"process.", 1)
WELCOME = Welcome(1, "edge/3", 7, bytes(32), 27_000_000, 15.0, 10.0, ("gateway-1:8443", "[::1]:8443"))
REASONED = Refused(RefusalCode.BUSY, "needs fewer dials", 5)
DEVICE = st.one_of(
    st.builds(
        Hello,
        dial_versions=RANGES,
        versions=st.builds(Versions, RANGES, RANGES, RANGES),
        release=SHOWN,
        process=st.binary(min_size=8, max_size=8),
        dial=UINTS,
        name=NAMES,
        engines=st.lists(NAMES, max_size=16).map(tuple),
        cached=st.none() | DIGESTS,
        threads=UINTS,
    ),
    st.builds(DeviceReady, st.binary(max_size=99)),
    st.builds(NumberedReply, UINTS, st.binary(max_size=99)),
    st.just(Bye()),
)
GATEWAY = st.one_of(
    st.builds(
        Welcome,
        version=UINTS,
        device=SHOWN,
        incarnation=LONGS,
        file=DIGESTS,
        file_bytes=LONGS,
        ping_s=SECONDS,
        grace_s=SECONDS,
        others=st.lists(ADDRESSES, max_size=16).map(tuple),
    ),
    st.builds(Refused, code=st.sampled_from(RefusalCode), reason=SHOWN, retry_after_s=UINTS),
    st.builds(NumberedCall, UINTS, st.binary(max_size=99)),
    st.builds(MoveTo, address=ADDRESSES, reason=SHOWN),
)
READERS = (read_from_device, read_from_gateway)


@given(DEVICE)
def test_what_a_device_writes_its_gateway_reads(message: FromDevice) -> None:
    data = write_dialled(message)
    assert read_from_device(data) == message
    with pytest.raises(MessageError, match="needs one of Welcome, Refused, NumberedCall, MoveTo"):
        read_from_gateway(data)


@given(GATEWAY)
def test_what_a_gateway_writes_its_device_reads(message: FromGateway) -> None:
    data = write_dialled(message)
    assert read_from_gateway(data) == message
    with pytest.raises(MessageError, match="needs one of Hello, DeviceReady, NumberedReply, Bye"):
        read_from_device(data)


@given(
    message=DEVICE | GATEWAY, place=st.integers(0), flipped=st.integers(1, 255), cut=st.integers(0, 8), more=st.binary()
)
def test_damaged_bytes_are_another_message_or_refused(
    message: FromDevice | FromGateway, place: int, flipped: int, cut: int, more: bytes
) -> None:
    data = bytearray(write_dialled(message))
    data[place % len(data)] ^= flipped
    for read in READERS:
        try:
            found = read(bytes(data[: len(data) - cut]) + more)
        except MessageError:
            continue
        write_dialled(found)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=3)
)


@given(kind=st.integers(0, 9), message=st.sampled_from([HELLO, WELCOME, REASONED]), data=st.data(), value=JSON)
def test_fields_of_other_forms_are_refused(
    kind: int, message: Hello | Welcome | Refused, data: st.DataObject, value: object
) -> None:
    told = json.loads(write_dialled(message)[1:])
    told[data.draw(st.sampled_from(sorted(told)))] = value
    for read in READERS:
        try:
            found = read(bytes([kind]) + json.dumps(told).encode())
        except MessageError:
            continue
        write_dialled(found)


def test_fields_of_later_releases_are_skipped() -> None:
    data = write_dialled(HELLO)
    told = json.loads(data[1:]) | {"new": [1]}
    assert read_from_device(data[:1] + json.dumps(told).encode()) == HELLO


@pytest.mark.parametrize(
    ("message", "needed"),
    [
        (replace(HELLO, name="a" * 65), "needs a Hello"),
        (replace(HELLO, name="UPPER"), "needs a Hello"),
        (replace(HELLO, process=bytes(7)), "needs a Hello"),
        (replace(HELLO, release="\x1b[2J"), "needs a Hello"),
        (replace(HELLO, release="a" * 10_000), "needs a Hello of at most 8192 bytes, found 10"),
        (replace(WELCOME, ping_s=0.0), "needs a Welcome"),
        (replace(WELCOME, ping_s=float("nan")), "needs a Welcome"),
        (replace(WELCOME, others=("a:1",) * 17), "needs a Welcome"),
        (replace(WELCOME, others=("host/path:1",)), "needs a Welcome"),
        (replace(WELCOME, file_bytes=-1), "needs a Welcome"),
        (MoveTo("wss://a:1", ""), "needs a MoveTo"),
        (MoveTo("a..b:1", ""), "needs a MoveTo"),
        (MoveTo("a" * 64 + ":1", ""), "needs a MoveTo"),
        (MoveTo("a:65536", ""), "needs a MoveTo"),
        (DeviceReady(bytes(2**16 + 1)), "needs a DeviceReady of at most 65537 bytes, found 65538; it was not read"),
        (NumberedCall(2**32, b""), "needs a number of 32 bits, found 4294967296"),
        (NumberedCall(1, bytes(MOST_CALL_BYTES + 1)), "needs a NumberedCall of at most"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_no_reader_takes_is_not_written(message: FromDevice | FromGateway, needed: str) -> None:
    with pytest.raises(MessageError, match=needed):
        write_dialled(message)


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"\x04\x00", b"\x07\x00", b"\x00" + b"[" * 8000, b"\x00[]", b"\x00" + b"9" * 8000]
)
def test_what_is_no_message_is_told(data: bytes) -> None:
    for read in READERS:
        with pytest.raises(MessageError, match="needs"):
            read(data)


def test_a_reason_is_cut_and_moves_no_cursor() -> None:
    told = read_from_gateway(write_dialled(replace(REASONED, reason="\x1b[2J\n" + "a" * 1000)))
    assert isinstance(told, Refused)
    assert told.reason == " [2J " + "a" * 195


def test_the_largest_call_fits() -> None:
    call = write_call("probe", bytes(MOST_CALL_BYTES - 6), 0)
    assert read_from_gateway(write_dialled(NumberedCall(1, call))) == NumberedCall(1, call)
