"""Where a server is, as people write it: HOST:PORT for gRPC, or the URL of its HTTP/1.1."""

from __future__ import annotations

import dataclasses
import ipaddress
import urllib.parse

from sheaf.errors import InvalidArgument

# Names of how gRPC finds a server, which no host has before its port.
_GRPC_SCHEMES = ("dns:", "ipv4:", "ipv6:", "unix:", "unix-abstract:")
_PORTS = {"http": 80, "https": 443}
_FORMS = "write HOST:PORT for gRPC, or http://HOST:PORT or https://HOST:PORT for HTTP/1.1"


@dataclasses.dataclass(frozen=True)
class Address:
    """One that was parsed."""

    # "grpc", "http" or "https".
    protocol: str
    # Without the brackets of IPv6. Of gRPC's other targets all that was written, and no port.
    host: str
    port: int | None = None
    # What stands before the names of methods: "" or "/PATH".
    path: str = ""

    @property
    def is_http(self) -> bool:
        return self.protocol != "grpc"

    @property
    def target(self) -> str:
        """HOST:PORT."""
        host = f"[{self.host}]" if ":" in self.host and self.port is not None else self.host
        return host if self.port is None else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """Of HTTP, without a slash at its end."""
        return f"{self.protocol}://{self.target}{self.path}"

    @property
    def is_loopback(self) -> bool:
        """Of this machine: nobody else can be reached by it, or listen on the way."""
        if self.port is None:
            return self.host.startswith(("unix:", "unix-abstract:"))
        if self.host == "localhost":
            return True
        try:
            # Not a name that begins so: anybody may have one.
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_address(text: str) -> Address:
    """InvalidArgument names what is wrong with it."""
    if text.lower().startswith(("http://", "https://")):
        return _parse_url(text)
    if any(text.startswith(scheme) and text != scheme for scheme in _GRPC_SCHEMES):
        return Address("grpc", text)
    scheme, found, _ = text.partition("://")
    if found:
        raise _wrong(text, f"{scheme}:// is neither http:// nor https://")
    host, found, port = text.rpartition(":")
    if not found:
        raise _wrong(text, "it has no port")
    if not host:
        raise _wrong(text, "it has no host")
    if not (port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        raise _wrong(text, f'"{port}" is no port')
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise _wrong(text, "an address of IPv6 stands in brackets, as in [::1]:7433")
    return Address("grpc", host, int(port))


def _parse_url(text: str) -> Address:
    try:
        url = urllib.parse.urlsplit(text)
        host, port = url.hostname, url.port
    except ValueError as error:
        raise _wrong(text, str(error)) from None
    if url.username is not None or url.password is not None:
        raise _wrong(f"{url.scheme}://", "it has a user or a password, which a server does not take: a token is shown with "
                     "token_file")
    if not host or any(each <= " " for each in host):
        raise _wrong(text, "it has no host")
    if "?" in text or "#" in text:
        raise _wrong(text, 'it has a "?" or a "#"')
    return Address(url.scheme, host, _PORTS[url.scheme] if port is None else port, url.path.rstrip("/"))


def _wrong(text: str, what: str) -> InvalidArgument:
    return InvalidArgument(f'"{text}" is no address of a server: {what}; {_FORMS}')
