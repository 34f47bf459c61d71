"""How a program proves who it is, and checks who the server is."""

from __future__ import annotations

import dataclasses
import functools
import os
import ssl
import stat
import time
from collections.abc import Mapping

from sheaf.address import Address, parse_address
from sheaf.errors import Error, FailedPrecondition, InvalidArgument, NotFound, PermissionDenied

_TOKEN_BYTES_MAX = 1024
_LOOK_SECONDS = 1.0
_DEFAULT_ADDRESS = "127.0.0.1:7433"


@dataclasses.dataclass(frozen=True)
class Security:
    """Where the server is, and the files of this machine that the connection needs. As `sheaf`'s global options."""

    address: str
    tls_ca: str
    tls_cert: str
    tls_key: str
    token_file: str
    insecure: bool
    population: str

    @classmethod
    def of(cls, environment: Mapping[str, str], address: str | None, tls_ca: str | os.PathLike[str] | None,
           tls_cert: str | os.PathLike[str] | None, tls_key: str | os.PathLike[str] | None,
           token_file: str | os.PathLike[str] | None, insecure: bool | None, population: str | None) -> Security:
        """Arguments take precedence over variables (SHEAF_SERVER and so on), these over defaults; an empty one is not set."""

        def choose(argument: str | os.PathLike[str] | None, variable: str, default: str = "") -> str:
            return os.fspath(argument) if argument is not None else environment.get(variable) or default

        if insecure is None:
            said = environment.get("SHEAF_INSECURE", "")
            if said not in ("", "true", "false"):
                raise InvalidArgument(f"SHEAF_INSECURE: {said!r} is neither true nor false")
            insecure = said == "true"
        made = cls(
            address=choose(address, "SHEAF_SERVER", _DEFAULT_ADDRESS), tls_ca=choose(tls_ca, "SHEAF_TLS_CA"),
            tls_cert=choose(tls_cert, "SHEAF_TLS_CERT"), tls_key=choose(tls_key, "SHEAF_TLS_KEY"),
            token_file=choose(token_file, "SHEAF_TOKEN_FILE"), insecure=insecure,
            population=choose(population, "SHEAF_POPULATION", "default"),
        )
        made._check()
        return made

    def check_certificates(self) -> None:
        """gRPC takes any bytes, and then never connects."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self.tls_ca not in ("", "system"):
            try:
                context.load_verify_locations(cadata=read_file(self.tls_ca).decode("ascii"))
            except (ssl.SSLError, UnicodeDecodeError):
                raise InvalidArgument(f"the file {self.tls_ca} holds no certificates in PEM form") from None
        if self.tls_key:
            read_file(self.tls_cert), read_file(self.tls_key)
            _check_secret(self.tls_key)
            try:
                context.load_cert_chain(self.tls_cert, self.tls_key, password=lambda: b"")
            except ssl.SSLError:
                raise InvalidArgument(f"{self.tls_cert} and {self.tls_key} are no certificate and its key, in PEM form and "
                                      "without a passphrase") from None

    @functools.cached_property
    def server(self) -> Address:
        """The address, parsed."""
        return parse_address(self.address)

    @property
    def uses_tls(self) -> bool:
        return self.server.protocol == "https" if self.server.is_http else bool(self.tls_ca)

    @property
    def is_loopback(self) -> bool:
        """An address of this machine that no other can reach."""
        return self.server.is_loopback

    def context(self) -> ssl.SSLContext:
        """Of HTTPS, as the files are now. Errors name the file."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        if self.tls_ca in ("", "system"):
            context.load_default_certs()
        else:
            context.load_verify_locations(cadata=read_file(self.tls_ca).decode("ascii"))
        if self.tls_cert:
            context.load_cert_chain(self.tls_cert, self.tls_key, password=lambda: b"")
        return context

    def authorities(self) -> bytes | None:
        """Those that may have signed the server's certificate. None: gRPC's own choice."""
        path = self.tls_ca
        if path == "system":
            path = ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt"
            if not os.path.exists(path):
                return None
        return read_file(path)

    def _check(self) -> None:
        if self.server.protocol == "http" and (self.tls_ca or self.tls_cert or self.tls_key):
            raise InvalidArgument(f"{self.address} is without TLS: write https://, or leave out the certificates (tls_ca, tls_cert, "
                                  "tls_key)")
        if not self.uses_tls and (self.tls_cert or self.tls_key):
            raise InvalidArgument("a client certificate needs TLS: name the authorities of the server's certificate with tls_ca "
                                  '(a file, or "system")')
        if bool(self.tls_cert) != bool(self.tls_key):
            raise InvalidArgument("a client certificate needs its key, and a key its certificate: give tls_cert and tls_key")
        self.check_certificates()
        if not self.token_file:
            return
        read_token(self.token_file)
        if not (self.uses_tls or self.insecure or self.is_loopback):
            tls = 'TLS (tls_ca=FILE, or tls_ca="system")'
            raise FailedPrecondition(
                f"refusing to send the token of {self.token_file} to {self.address} in the clear, where everybody on the way "
                f"could read it; use {'https://' if self.server.is_http else tls}, or say insecure=True if the network is yours alone"
            )


def read_file(path: str) -> bytes:
    """NotFound or PermissionDenied, naming the file."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        kind = PermissionDenied if isinstance(error, PermissionError) else NotFound
        raise kind(f"cannot read {path}: {error.strerror}; check the path and its permissions") from None


def _check_secret(path: str) -> None:
    if os.stat(path).st_mode & (stat.S_IRWXO | stat.S_IWGRP):
        raise FailedPrecondition(f"{path} holds a secret, but other users may read or change it; run `chmod 600 {path}`")


def read_token(path: str) -> str:
    """The one word in a file. Errors name the file and never its content."""
    words = read_file(path).split()
    is_token = len(words) == 1 and len(words[0]) <= _TOKEN_BYTES_MAX and all(0x21 <= each <= 0x7E for each in words[0])
    if not is_token:
        raise InvalidArgument(f"the token file {path} does not hold one token and nothing else; write into it what `sheaf token "
                              "create` printed")
    _check_secret(path)
    return words[0].decode()


class CertificateFiles:
    """Looks whether there are other certificates by now. Those that cannot work are passed over: they may be half written."""

    def __init__(self, security: Security) -> None:
        self._security = security
        self._paths = [path for path in (security.tls_ca, security.tls_cert, security.tls_key) if path not in ("", "system")]
        self._looked_at = time.monotonic()
        self._seen = self._look()

    def were_renewed(self) -> bool:
        """True once for each renewal. Looks once a second at the most."""
        now = time.monotonic()
        if not self._paths or now - self._looked_at < _LOOK_SECONDS:
            return False
        self._looked_at = now
        seen = self._look()
        if seen == self._seen:
            return False
        try:
            self._security.check_certificates()
        except Error:
            return False
        self._seen = seen
        return True

    def _look(self) -> list[tuple[int, ...]]:
        return [_identity_of(path) for path in self._paths]


def _identity_of(path: str) -> tuple[int, ...]:
    """Changes with every write, and with a file that is renamed over it. Empty if there is none."""
    try:
        now = os.stat(path)
    except OSError:
        return ()
    return now.st_dev, now.st_ino, now.st_size, now.st_ctime_ns


class TokenFile:
    """The token that every call shows; read again when its file changes. Thread-safe.

    While a changed file cannot be read, or holds no token yet, the one before stays: it may be half written.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen: tuple[int, ...] = ()
        self._header = ""
        self.header()

    def header(self) -> str:
        """What the metadata `authorization` says; "" without a token."""
        if not self._path:
            return ""
        seen = _identity_of(self._path)
        if seen != self._seen:
            # Taken before the file is read: what is written meanwhile is seen by the next look.
            self._seen = seen
            self._read()
        return self._header

    def was_refused(self, shown: str) -> bool:
        """Whether there is another token to show, after the server refused this one."""
        if self._path:
            self._read()
        return bool(self._header) and self._header != shown

    def _read(self) -> None:
        try:
            self._header = f"Bearer {read_token(self._path)}"
        except Error:
            if not self._header:
                raise
