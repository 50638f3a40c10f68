"""Where this process may send what others told it to send: the decisions, without IO (S7).

A URL comes from outside, and the machine that follows it stands inside: beside databases, control planes and the cloud's
metadata. So a target is named in one spelling only, its name is resolved once, all its addresses have to be public, and
the connection goes to an address that was looked at, not to the name again: between two answers of a DNS server
an attacker changes his mind. What the deployment itself names in its allow list may be anywhere.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from heliograph.errors import Rejected, safe_repr

URL_CHARACTERS_MAX = 2000
_PORTS = {"https": 443, "http": 80}
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_PRINTABLE = re.compile(r"[!-~]+")  # ASCII without spaces: a URL has nothing else in it
# Not all of these are outside of what Python calls global, and what it calls so changes from version to version.
_NEVER = tuple(ipaddress.ip_network(each) for each in (
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
    "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
    "224.0.0.0/4", "240.0.0.0/4",
    "168.63.129.16/32",  # public by its number, and the inside of Azure
    "::/96", "::ffff:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16",
    "3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
))  # fmt: skip
_PUBLIC_V6 = ipaddress.ip_network("2000::/3")


class EgressRejected(Rejected):
    """This process does not send anything there."""

    default_code = "egress_rejected"


@dataclass(frozen=True, slots=True)
class Target:
    """A URL that may be followed, as far as it can be told without asking who its host is. path: with its query."""

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
        """What the header Host says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class EgressPolicy:
    """allowed: origins that may be reached whatever they are, such as http://127.0.0.1:9000. ports: those of all others.

    variable: where whoever runs the workers allows one, for the error.
    """

    allowed: frozenset[str] = frozenset()
    ports: frozenset[int] = frozenset({443})
    variable: str = "HELIOGRAPH_EGRESS_ALLOW"

    def target(self, url: str) -> Target:
        """The target of a URL. Raises EgressRejected with what is wrong and what would be right."""
        target = parse(url)
        if target.origin in self.allowed:
            return target
        if target.scheme != "https":
            raise EgressRejected(f"{safe_repr(target.origin)}: only https is sent to; {self._hint}")
        if target.port not in self.ports:
            ports = ", ".join(map(str, sorted(self.ports)))
            raise EgressRejected(f"{safe_repr(target.origin)}: only port {ports} is sent to; {self._hint}")
        if _is_address(target.host):
            self.check(target, [target.host])
        return target

    def check(self, target: Target, addresses: Sequence[str]) -> list[str]:
        """The addresses to connect to, as they were given: all of them, or none where a single one is not public.

        Raises EgressRejected.
        """
        if not addresses:
            raise EgressRejected(f"{safe_repr(target.host)} has no address")
        if target.origin not in self.allowed and not all(is_public(address) for address in addresses):
            raise EgressRejected(f"{safe_repr(target.host)} is not on the public internet; {self._hint}")
        return list(addresses)

    @property
    def _hint(self) -> str:
        return f"whoever runs the workers can allow an origin by {self.variable}"


def server_policy(allow: str = "") -> EgressPolicy:
    """Where servers of tools may be: `allow` has origins, divided by spaces or commas. Raises Rejected (`egress_rejected`).

    It is no part of what callbacks may reach, which whoever asks for a run can name.
    """
    entries = _entries(allow)
    if owned := [entry for entry in entries if "=" in entry]:
        raise EgressRejected(f"HELIOGRAPH_MCP_ALLOW: {safe_repr(owned[0])} is meant for one project, and a server is shared by all that a "
                            "worker serves: write the origin alone")  # fmt: skip
    return EgressPolicy(frozenset(map(_origin, entries)), variable="HELIOGRAPH_MCP_ALLOW")


def read_allowed(text: str, project: str) -> frozenset[str]:
    """Origins divided by spaces or commas; `name=origin` is meant for the project of that name alone.

    Raises Rejected (`egress_rejected`) for what is no origin.
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
        raise EgressRejected(f"{safe_repr(entry)} is no origin: write it as https://host or https://host:port")
    return target.origin


def parse(url: str) -> Target:
    """A URL in the one spelling that everybody reads alike. Raises EgressRejected."""
    if (
        not isinstance(url, str)
        or not 0 < len(url) <= URL_CHARACTERS_MAX
        or not _PRINTABLE.fullmatch(url)
        or "\\" in url
    ):
        raise EgressRejected(f"a URL has 1 to {URL_CHARACTERS_MAX} printable ASCII characters, no space and no backslash, "
                            f"not {safe_repr(url)}")  # fmt: skip
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise EgressRejected(f"{safe_repr(url)} is no URL") from None
    scheme = parts.scheme
    if scheme not in _PORTS:
        raise EgressRejected(f"{safe_repr(url)}: only https is sent to, not {safe_repr(scheme) or 'a path'}")
    if "@" in parts.netloc:
        raise EgressRejected("a URL names no user: what stands before an @ looks like the host and is not")
    if parts.fragment or "%" in parts.netloc or port == 0:
        raise EgressRejected(f"{safe_repr(url)}: a URL to send to has a plain host and port, and no fragment")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(scheme, _host(parts.hostname or "", parts.netloc), port or _PORTS[scheme], path)


def _host(host: str, netloc: str) -> str:
    if netloc.startswith("["):
        try:
            return str(ipaddress.IPv6Address(host))
        except ValueError:
            raise EgressRejected(f"{safe_repr(netloc)} is no IPv6 address") from None
    labels = host.split(".")
    if re.fullmatch(r"[0-9]+|0x[0-9a-f]*", labels[-1] or labels[-2:][0]):
        try:  # a number at its end makes it an address; 127.1, 0x7f.1 and 2130706433 are addresses to some and names to others
            return str(ipaddress.IPv4Address(host))
        except ValueError:
            raise EgressRejected(
                f"{safe_repr(host)} looks like an address and is not written as one, such as 192.0.2.1"
            ) from None
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise EgressRejected(f"{safe_repr(host) or 'an empty host'} is no name of a host: it has labels of a-z, 0-9 and '-', divided by "
                            "dots, and none at its end")  # fmt: skip
    return host


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_public(address: str) -> bool:
    """Whether an address is of the public internet. What holds another address within it, is not: it leads elsewhere."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False  # also one with a zone, fe80::1%eth0
    if ip.version == 6 and (ip.scope_id is not None or ip not in _PUBLIC_V6):
        return False
    return ip.is_global and not any(ip.version == net.version and ip in net for net in _NEVER)
