"""The proxy that stands between us and a server, as the environment says it to every program.

docs/guides/behind-a-proxy.md has the rules; C++ clients have the same.
"""

from __future__ import annotations

import base64
import dataclasses
import ipaddress
import re
import urllib.parse
from collections.abc import Mapping

from sheaf.address import Address
from sheaf.errors import InvalidArgument

_PORT = 1080


@dataclasses.dataclass(frozen=True)
class HttpProxy:
    """One that is used."""

    host: str
    port: int
    # What it is shown: the value of `proxy-authorization`, or "".
    authorization: str
    # Without the user and the password.
    name: str
    # Which variable named it.
    variable: str


def proxy_for(server: Address, environment: Mapping[str, str]) -> HttpProxy | None:
    """InvalidArgument, naming the variable, if it does not hold the URL of a proxy."""
    # Two processes of one machine need nobody between them, and a proxy elsewhere would look for the server there.
    if not server.is_http or server.is_loopback:
        return None
    variable, url = _first(environment, f"{server.protocol}_proxy", f"{server.protocol}_proxy".upper(), "all_proxy", "ALL_PROXY")
    if not url or _is_exempt(_first(environment, "no_proxy", "NO_PROXY")[1], server.host):
        return None
    try:
        parts = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or parts.scheme != "http":
        raise InvalidArgument(f"{variable} is no proxy that this package can use: write http://HOST:PORT, or "
                              "http://USER:PASSWORD@HOST:PORT")
    authorization = ""
    if parts.username is not None:
        secret = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(secret.encode()).decode()
    name = "http://" + parts.netloc.rpartition("@")[2]
    return HttpProxy(host, _PORT if port is None else port, authorization, name, variable)


def _first(environment: Mapping[str, str], *names: str) -> tuple[str, str]:
    """Of variables that are set, and not empty."""
    return next(((name, value) for name in names if (value := environment.get(name, ""))), ("", ""))


def _is_exempt(entries: str, host: str) -> bool:
    return any(_is_about(entry.lower(), host) for entry in re.split(r"[, \t]+", entries) if entry)


def _is_about(entry: str, host: str) -> bool:
    """Whether an entry of NO_PROXY is about a host: "*", a name that it has or lies below, an address, or a network."""
    if entry == "*":
        return True
    if entry.startswith("[") and entry.endswith("]"):
        entry = entry[1:-1]
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        pass
    name = entry.lstrip("*.")
    return bool(name) and (host == name or host.endswith("." + name))
