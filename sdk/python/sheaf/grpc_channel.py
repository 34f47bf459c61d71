"""gRPC's channels: the wire to a server whose address is HOST:PORT."""

from __future__ import annotations

import threading
from typing import Any, Generic, TypeVar

import grpc
import grpc.aio

from sheaf.calls import Attempt, CallFailed, Method
from sheaf.errors import Error, Unavailable, error_of
from sheaf.security import CertificateFiles, Security, read_file

A = TypeVar("A")

_MESSAGE_BYTES_MAX = 64 << 20
_PUSHBACK = "grpc-retry-pushback-ms"


def channel_options(security: Security) -> list[tuple[str, Any]]:
    """As the C++ client's: a parked call is pinged often enough for a NAT, a server that is back is found within a second."""
    options: list[tuple[str, Any]] = [
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 1_000),
        ("grpc.max_reconnect_backoff_ms", 1_000),
        ("grpc.max_receive_message_length", _MESSAGE_BYTES_MAX),
        ("grpc.max_send_message_length", _MESSAGE_BYTES_MAX),
    ]
    if security.is_loopback:
        # A proxy of the environment must not stand between two processes of one machine.
        options.append(("grpc.enable_http_proxy", 0))
    return options


def credentials(security: Security) -> grpc.ChannelCredentials:
    """Of a channel with TLS. Errors name the file."""
    key = read_file(security.tls_key) if security.tls_key else None
    certificate = read_file(security.tls_cert) if security.tls_cert else None
    return grpc.ssl_channel_credentials(security.authorities(), key, certificate)


def serialized(request: Any) -> bytes:
    """Of a message, or what stands for one."""
    data: bytes = request.SerializeToString()
    return data


def failure_of(error: grpc.RpcError, address: str) -> CallFailed:
    """gRPC's error as ours, in the words of the server."""
    return CallFailed(_status_of(error, address), _pushback_seconds(error))


def _status_of(error: grpc.RpcError, address: str) -> Error:
    """gRPC's error as ours, in the words of the server."""
    code, details = error.code().name, error.details() or ""
    if code == "UNAVAILABLE":
        return Unavailable(f"the server at {address} cannot be reached: {details}")
    if code == "CANCELLED" and (details == "CANCELLED" or "RST_STREAM" in details):
        # Not by this side, whose words are others. A server that stops cancels what comes before its client has heard of that.
        return Unavailable(f"the server at {address} cannot be reached: it gave up the call, as one does that stops")
    if code == "RESOURCE_EXHAUSTED" and "message larger than max" in details:
        details = (f"too much for one call ({details}); send less in one call: fewer tasks, smaller payloads, and what tasks "
                   "share in the round's broadcast")
    return error_of(code, details)


def _pushback_seconds(error: grpc.RpcError) -> float | None:
    """What the server says of when to ask again."""
    for name, value in error.trailing_metadata() or ():
        if name == _PUSHBACK and str(value).isdecimal():
            return int(value) / 1000
    # ENHANCE_YOUR_CALM: a server whose memory for what arrives is used up gives up calls so, without a word.
    return 1.0 if "RST_STREAM with error code 11" in (error.details() or "") else None


class Channels:
    """The channel for new calls. Certificates that are renewed need another one: the calls of the one before go on. Thread-safe.

    library: grpc or grpc.aio.
    """

    def __init__(self, security: Security, library: Any) -> None:
        self._security = security
        self._library = library
        self._lock = threading.Lock()
        self._files = CertificateFiles(security)
        self._stubs: dict[str, Any] = {}
        self.all = [self._open()]

    def stub(self, method: Method[Any, Any]) -> Any:
        """What makes calls of a method."""
        with self._lock:
            if self._files.were_renewed():
                self.all.append(self._open())
                self._stubs.clear()
            stub = self._stubs.get(method.path)
            if stub is None:
                stub = self.all[-1].unary_unary(method.path, serialized, method.response.FromString)
                self._stubs[method.path] = stub
            return stub

    def _open(self) -> Any:
        options = channel_options(self._security)
        if self._security.uses_tls:
            return self._library.secure_channel(self._security.address, credentials(self._security), options)
        return self._library.insecure_channel(self._security.address, options)


class GrpcChannel:
    """A calls.Channel."""

    def __init__(self, security: Security) -> None:
        self._address = security.address
        self.channels = Channels(security, grpc)

    def call(self, method: Method[Any, A], request: Any, attempt: Attempt) -> A:
        """As Channel's."""
        try:
            # A future's thread costs time, so that a single call is made in this one.
            answer: A = self.channels.stub(method)(request, **_arguments(attempt))
            return answer
        except grpc.RpcError as error:
            raise failure_of(error, self._address) from None

    def begin(self, method: Method[Any, A], request: Any, attempt: Attempt) -> _Begun[A]:
        """As Channel's."""
        return _Begun(self.channels.stub(method).future(request, **_arguments(attempt)), self._address)

    def close(self) -> None:
        """As Channel's."""
        for channel in self.channels.all:
            channel.close()


class GrpcAsyncChannel:
    """A calls.AsyncChannel."""

    def __init__(self, security: Security) -> None:
        self._address = security.address
        self.channels = Channels(security, grpc.aio)

    async def call(self, method: Method[Any, A], request: Any, attempt: Attempt) -> A:
        """As AsyncChannel's."""
        try:
            answer: A = await self.channels.stub(method)(request, **_arguments(attempt))
            return answer
        except grpc.RpcError as error:
            raise failure_of(error, self._address) from None

    async def close(self) -> None:
        """As AsyncChannel's."""
        for channel in self.channels.all:
            await channel.close()


class _Begun(Generic[A]):
    """A calls.Begun."""

    def __init__(self, future: Any, address: str) -> None:
        self._future, self._address = future, address

    def result(self) -> A:
        """As Begun's."""
        try:
            answer: A = self._future.result()
            return answer
        except grpc.RpcError as error:
            raise failure_of(error, self._address) from None

    def cancel(self) -> Any:
        """As Begun's."""
        return self._future.cancel()


def _arguments(attempt: Attempt) -> dict[str, Any]:
    return {"timeout": attempt.seconds, "metadata": (("authorization", attempt.shown),) if attempt.shown else None,
            "wait_for_ready": attempt.waits_for_ready}
