"""Decide which URLs from outside this process may send requests to, without IO.

A URL comes from outside the trust boundary, but workers run inside: beside databases, control planes and the cloud's metadata
service. So a URL must have one unambiguous spelling, its host is resolved once, and all its addresses must be public. The connection
goes to a checked address, not to the name: an attacker's DNS server may give another answer the second time. Origins in the
deployment's own allow list may have any address.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from heliograph.error_text import safe_repr
from heliograph.errors import EGRESS_REJECTED, Rejected

URL_CHARACTERS_MAX = 2000
_PORTS = {"https": 443, "http": 80}
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_PRINTABLE = re.compile(r"[!-~]+")  # ASCII without spaces
# `is_global` does not exclude all of these networks, and its answers change between versions of Python.
_NEVER = tuple(ipaddress.ip_network(each) for each in (
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
    "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
    "224.0.0.0/4", "240.0.0.0/4",
    "168.63.129.16/32",  # a public address that leads to Azure's internal services
    "::/96", "::ffff:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16",
    "3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
))  # fmt: skip
_PUBLIC_V6 = ipaddress.ip_network("2000::/3")


class EgressRejected(Rejected):
    """The egress policy forbids requests to this target."""

    default_code = EGRESS_REJECTED


@dataclass(frozen=True, slots=True)
class Target:
    """A URL in its parts. path: includes the query."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def url(self) -> str:
        return self.origin + self.path

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.authority}"

    @property
    def authority(self) -> str:
        """The value of the header Host."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class EgressPolicy:
    """Which targets requests may be sent to.

    allowed: origins that need no public address, such as http://127.0.0.1:9000. ports: the allowed ports of all other origins.
    variable: the environment variable with the allow list, for the error message.
    """

    allowed: frozenset[str] = frozenset()
    ports: frozenset[int] = frozenset({443})
    variable: str = "HELIOGRAPH_EGRESS_ALLOW"

    def target(self, url: str) -> Target:
        """Parse a URL and check everything except the addresses of its host name. Raises EgressRejected."""
        target = parse(url)
        if target.origin in self.allowed:
            return target
        if target.scheme != "https":
            raise EgressRejected(f"{safe_repr(target.origin)}: requests are sent over https only; {self._hint}")
        if target.port not in self.ports:
            ports = ", ".join(map(str, sorted(self.ports)))
            raise EgressRejected(f"{safe_repr(target.origin)}: requests are sent to port {ports} only; {self._hint}")
        if _is_address(target.host):
            self.check(target, [target.host])
        return target

    def check(self, target: Target, addresses: Sequence[str]) -> list[str]:
        """Return the addresses unchanged if the policy allows all of them.

        Raises EgressRejected if there is no address, or if one of them is not public and the origin is not in the allow list.
        """
        if not addresses:
            raise EgressRejected(f"{safe_repr(target.host)} has no address; check the name")
        if target.origin not in self.allowed and not all(is_public(address) for address in addresses):
            raise EgressRejected(f"{safe_repr(target.host)} is not on the public internet; {self._hint}")
        return list(addresses)

    @property
    def _hint(self) -> str:
        return f"to allow this origin, add it to {self.variable} in the environment of the workers"


def server_policy(allow: str = "") -> EgressPolicy:
    """Return the policy for MCP servers. allow: origins separated by spaces or commas. Raises Rejected (`egress_rejected`).

    Its allow list is separate from that of callbacks, because every caller that starts a run may name a callback URL.
    """
    entries = _entries(allow)
    if owned := [entry for entry in entries if "=" in entry]:
        raise EgressRejected(f"HELIOGRAPH_MCP_ALLOW: {safe_repr(owned[0])} names a project, but all projects of a worker share its "
                            "MCP servers: write the origin alone")  # fmt: skip
    return EgressPolicy(frozenset(map(_origin, entries)), variable="HELIOGRAPH_MCP_ALLOW")


def read_allowed(text: str, project: str) -> frozenset[str]:
    """Read an allow list of origins, separated by spaces or commas. An entry `name=origin` counts for the project of that name only.

    Raises Rejected (`egress_rejected`) for an entry that is not an origin.
    """
    allowed = set()
    for entry in _entries(text):
        owner, is_owned, rest = entry.partition("=")
        origin = _origin(rest if is_owned else entry)
        if not is_owned or owner == project:
            allowed.add(origin)
    return frozenset(allowed)


def _entries(text: str) -> list[str]:
    return text.replace(",", " ").split()


def _origin(entry: str) -> str:
    target = parse(entry)
    if target.path != "/":
        raise EgressRejected(f"{safe_repr(entry)} is not an origin: write it as https://host or https://host:port")
    return target.origin


def parse(url: str) -> Target:
    """Parse a URL; reject every spelling that two programs could read differently. Raises EgressRejected."""
    if (
        not isinstance(url, str)
        or not 0 < len(url) <= URL_CHARACTERS_MAX
        or not _PRINTABLE.fullmatch(url)
        or "\\" in url
    ):
        raise EgressRejected(f"a URL must have 1 to {URL_CHARACTERS_MAX} printable ASCII characters without spaces and backslashes, "
                            f"not {safe_repr(url)}")  # fmt: skip
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise EgressRejected(f"{safe_repr(url)} is not a URL; write it as https://host/path") from None
    scheme = parts.scheme
    if scheme not in _PORTS:
        raise EgressRejected(
            f"{safe_repr(url)}: requests are sent over https only, not to {safe_repr(scheme) or 'a path'}"
        )
    if "@" in parts.netloc:
        raise EgressRejected(
            "the URL contains a user name, which could be mistaken for the host; remove everything up to the @"
        )
    if parts.fragment or "%" in parts.netloc or port == 0:
        raise EgressRejected(f"{safe_repr(url)}: a URL must have a plain host and port, and no fragment")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(scheme, _host(parts.hostname or "", parts.netloc), port or _PORTS[scheme], path)


def _host(host: str, netloc: str) -> str:
    if netloc.startswith("["):
        try:
            return str(ipaddress.IPv6Address(host))
        except ValueError:
            raise EgressRejected(f"{safe_repr(netloc)} is not an IPv6 address; write it as [2001:db8::1]") from None
    labels = host.split(".")
    if re.fullmatch(r"[0-9]+|0x[0-9a-f]*", labels[-1] or labels[-2:][0]):
        try:  # a host that ends with a number is an address; programs disagree about 127.1, 0x7f.1 and 2130706433
            return str(ipaddress.IPv4Address(host))
        except ValueError:
            raise EgressRejected(f"{safe_repr(host)} is not a complete IPv4 address; write it as 192.0.2.1") from None
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise EgressRejected(f"{safe_repr(host) or 'an empty text'} is not a host name: write labels of a-z, 0-9 and '-', separated by "
                            "dots, without a dot at the end")  # fmt: skip
    return host


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_public(address: str) -> bool:
    """Whether an address is on the public internet. Addresses that embed another address are not: they lead elsewhere."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    if ip.version == 6 and (ip.scope_id is not None or ip not in _PUBLIC_V6):
        return False
    return ip.is_global and not any(ip.version == net.version and ip in net for net in _NEVER)
