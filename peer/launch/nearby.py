"""Meshes of this network, found without a link: `shoal serve --nearby` announces one by multicast DNS (RFC 6762, 6763).

The announcement has the server's address, the founder's name, the model's name, and the invite link sealed with a code:
scrypt makes an AES-GCM key of the code's 60 random bits. The code is shown on the founder's terminal and never sent, so
who only listens learns no secret of the invite, and who announces a mesh of their own cannot pass it off as this one.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import os
import re
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from peer.errors import BadCommand, CannotServe
from peer.state.display_names import plain

SERVICE: Final = "_shoal._tcp.local."
CODE_CHARS: Final = 12
LOOK_S: Final = 3.0
MOST_FOUND: Final = 20  # anybody on the network may announce
MOST_SEALED: Final = 2048  # bytes
MOST_SHOWN: Final = 48  # characters of a name
_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"  # without i, l, o and u, which people misread
_MISREAD: Final = str.maketrans("ilo", "110")
_SALT_BYTES: Final = 16
_NONCE_BYTES: Final = 12
_PART_BYTES: Final = 200  # of a TXT string, which holds 255 with its key
_MISSING: Final = "zeroconf is not installed: install the extra, pip install 'shoal-mesh[nearby]'"


@dataclass(frozen=True, slots=True)
class Nearby:
    """An announced mesh. Everything in it is whatever somebody on the network says."""

    name: str
    model: str
    server: str
    sealed: bytes

    def __str__(self) -> str:
        return f"{self.name}: {self.model}, at {self.server}"


def new_code() -> str:
    """A code such as "4f7k-2m9x-h3wd"."""
    letters = "".join(secrets.choice(_ALPHABET) for _ in range(CODE_CHARS))
    return "-".join(letters[at : at + 4] for at in range(0, CODE_CHARS, 4))


def seal(link: str, code: str) -> bytes:
    """The link, readable with the code alone: salt, nonce, and what AES-GCM makes of it."""
    salt, nonce = os.urandom(_SALT_BYTES), os.urandom(_NONCE_BYTES)
    return salt + nonce + AESGCM(_key(code, salt)).encrypt(nonce, link.encode(), SERVICE.encode())


def unseal(found: Nearby, code: str) -> str:
    """The link. Raises BadCommand when it was not sealed with this code."""
    salt, rest = found.sealed[:_SALT_BYTES], found.sealed[_SALT_BYTES:]
    nonce, body = rest[:_NONCE_BYTES], rest[_NONCE_BYTES:]
    try:
        return AESGCM(_key(code, salt)).decrypt(nonce, body, SERVICE.encode()).decode()
    except (InvalidTag, ValueError):
        raise BadCommand(
            f"this is not the code of {found.name}: it stands on the terminal where shoal serve --nearby runs"
        ) from None


def _key(code: str, salt: bytes) -> bytes:
    letters = re.sub(r"[\s-]", "", code.lower()).translate(_MISREAD)
    return Scrypt(salt=salt, length=32, n=1 << 15, r=8, p=1).derive(letters.encode("utf-8", "replace"))


@asynccontextmanager
async def announced(link: str, name: str, model: str, interfaces: Sequence[str] = ()) -> AsyncIterator[str]:
    """Announces the mesh of `link` while the block runs and yields the code. `interfaces`: addresses to announce on,
    none: all. Raises BadCommand for a server that only this machine reaches, and CannotServe.
    """
    server = link.partition("/#")[0]
    parts = urlsplit(server)
    if not interfaces and _only_here(parts.hostname or ""):
        raise BadCommand(
            f"--nearby announces {server} to the network, where nobody reaches it: give --host with an address of this "
            "machine, or --host 0.0.0.0"
        )
    zeroconf, info = _zeroconf()
    code = new_code()
    sealed = base64.b64encode(await asyncio.to_thread(seal, link, code))
    pieces = [sealed[at : at + _PART_BYTES] for at in range(0, len(sealed), _PART_BYTES)]
    facts = {"server": server, "name": name, "model": model}
    properties = {key: value.encode()[:_PART_BYTES] for key, value in facts.items()}
    properties |= {f"link{number}": piece for number, piece in enumerate(pieces)}
    service = info.AsyncServiceInfo(
        SERVICE,
        f"{secrets.token_hex(8)}.{SERVICE}",
        port=parts.port or (443 if parts.scheme == "https" else 80),
        properties=properties,
        server=f"shoal-{secrets.token_hex(4)}.local.",
        parsed_addresses=_addresses(parts.hostname or "", interfaces),
    )
    try:
        async with info.AsyncZeroconf(interfaces=list(interfaces) or zeroconf.InterfaceChoice.All) as sending:
            await (await sending.async_register_service(service))
            try:
                yield code
            finally:
                await (await sending.async_unregister_service(service))
    except OSError as error:
        raise CannotServe(
            f"cannot announce on this network ({error.strerror}): leave --nearby out"
        ) from error


async def look(within_s: float = LOOK_S, interfaces: Sequence[str] = (), enough: int = 0) -> list[Nearby]:
    """The meshes that are announced, after `within_s`, or once there are `enough`. Raises CannotServe."""
    zeroconf, info = _zeroconf()
    found: dict[str, Nearby] = {}
    done = asyncio.Event()

    async def ask(source: object, name: str) -> None:
        service = info.AsyncServiceInfo(SERVICE, name)
        if await service.async_request(source, within_s * 1000) and len(found) < MOST_FOUND:
            told = told_by(service.properties)
            if told is not None:
                found[name] = told
                if enough and len(found) >= enough:
                    done.set()

    try:
        async with (
            info.AsyncZeroconf(interfaces=list(interfaces) or zeroconf.InterfaceChoice.All) as listening,
            asyncio.TaskGroup() as asking,
        ):
            asked: set[str] = set()

            def changed(name: str, state_change: object, **_: object) -> None:
                if (
                    state_change is zeroconf.ServiceStateChange.Added
                    and len(asked) < MOST_FOUND
                    and name not in asked
                ):
                    asked.add(name)
                    asking.create_task(ask(listening.zeroconf, name))

            browser = info.AsyncServiceBrowser(listening.zeroconf, SERVICE, handlers=[changed])
            try:
                async with asyncio.timeout(within_s):
                    await done.wait()
            except TimeoutError:
                pass
            finally:
                await browser.async_cancel()
    except OSError as error:
        raise CannotServe(f"cannot look around in this network ({error.strerror}): use a link") from error
    return sorted(found.values(), key=str)


def told_by(properties: dict[bytes, bytes | None]) -> Nearby | None:
    """What an announcement says; None for one that is none of ours."""
    try:
        facts = [(properties[key] or b"").decode() for key in (b"name", b"model", b"server")]
        pieces = [properties[f"link{at}".encode()] or b"" for at in range(len(properties) - len(facts))]
        sealed = base64.b64decode(b"".join(pieces), validate=True)
    except (KeyError, ValueError):
        return None
    if not _SALT_BYTES + _NONCE_BYTES < len(sealed) <= MOST_SEALED:
        return None
    name, model, server = (plain(fact)[:MOST_SHOWN] for fact in facts)
    return Nearby(name, model, server, sealed)


def _only_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _addresses(host: str, interfaces: Sequence[str]) -> list[str]:
    try:
        return [str(ipaddress.ip_address(host))]
    except ValueError:
        return list(interfaces)


def _zeroconf() -> tuple[Any, Any]:
    try:
        import zeroconf
        import zeroconf.asyncio
    except ImportError:
        raise CannotServe(_MISSING) from None
    return zeroconf, zeroconf.asyncio
