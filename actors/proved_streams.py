"""Streams between two processes of a service that prove to each other that they know the listening one's secret.

The secret is told over Ray. Nothing is encrypted, as between Ray's processes.
"""

import asyncio
import hmac
import os

from outrider.contracts.errors import MessageError

_NONCE_BYTES, _PROOF_BYTES, _VERSION = 32, 32, 1
_HELLO_S = 5.0


async def prove_to_listener(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: bytes) -> None:
    """Begin a coordinator's side of a stream; a ``MessageError``: the other side does not know the secret."""
    async with asyncio.timeout(_HELLO_S):
        theirs, ours = await reader.readexactly(_NONCE_BYTES), os.urandom(_NONCE_BYTES)
        writer.write(bytes([_VERSION]) + ours + _proof(secret, b"coordinator", theirs, ours))
        if not hmac.compare_digest(await reader.readexactly(_PROOF_BYTES), _proof(secret, b"gateway", theirs, ours)):
            raise MessageError("needs a listener that knows its secret, found another process at its address")


async def prove_to_coordinator(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: bytes) -> None:
    """Begin the listener's side of a stream; a ``MessageError``: the other side is no coordinator."""
    async with asyncio.timeout(_HELLO_S):
        writer.write(ours := os.urandom(_NONCE_BYTES))
        version, theirs = (await reader.readexactly(1))[0], await reader.readexactly(_NONCE_BYTES)
        proof = await reader.readexactly(_PROOF_BYTES)
        if version != _VERSION:
            raise MessageError(f"needs version {_VERSION} of frames, found {version}")
        if not hmac.compare_digest(proof, _proof(secret, b"coordinator", ours, theirs)):
            raise MessageError("needs a coordinator that knows the secret, found another process")
        writer.write(_proof(secret, b"gateway", ours, theirs))


def _proof(secret: bytes, who: bytes, listeners: bytes, coordinators: bytes) -> bytes:
    return hmac.digest(secret, who + b"\0" + listeners + coordinators, "sha256")
