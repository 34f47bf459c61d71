"""Connection: a channel to a server, and the driver of operations for threads."""

from __future__ import annotations

import dataclasses
import threading
import time
from typing import Any, TypeVar

import grpc

from sheaf.calls import Begin, Call, Compute, End, Method, Patience, Pause, Steps
from sheaf.security import CertificateFiles, Security, TokenFile, read_file

T = TypeVar("T")

_MESSAGE_BYTES_MAX = 64 << 20
# How long the first call goes on trying to reach a server: an address is easily wrong.
_FIRST_SECONDS = 3.0


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


class Link:
    """What drivers share: whom they call, and what they show."""

    def __init__(self, security: Security, seconds: float) -> None:
        self.security = security
        self.token = TokenFile(security.token_file)
        self._seconds = seconds
        self._was_reached = False

    def patience(self, call: Call) -> Patience:
        reach = self._seconds if self._was_reached else min(self._seconds, _FIRST_SECONDS)
        return Patience(self.security.address, call.seconds, reach)

    def reached(self) -> None:
        self._was_reached = True

    def pause_after(self, patience: Patience, error: grpc.RpcError, shown: str) -> float:
        refused = error.code() == grpc.StatusCode.UNAUTHENTICATED
        if error.code() != grpc.StatusCode.UNAVAILABLE:
            self.reached()
        return patience.pause_after(error, has_new_token=refused and self.token.was_refused(shown))


def metadata(shown: str) -> tuple[tuple[str, str], ...] | None:
    return (("authorization", shown),) if shown else None


def serialized(request: Any) -> bytes:
    """Of a message, or what stands for one."""
    data: bytes = request.SerializeToString()
    return data


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


@dataclasses.dataclass
class _Begun:
    """A call under way."""

    call: Call
    patience: Patience
    shown: str
    future: Any


class Connection:
    """A connection to a server. Connects when first called; outlives restarts of the server. Thread-safe."""

    def __init__(self, security: Security, seconds: float) -> None:
        self.link = Link(security, seconds)
        self._channels = Channels(security, grpc)

    def run(self, steps: Steps[T]) -> T:
        """Makes the steps of an operation, and gives what it returns. Errors are sheaf.Error."""
        begun: dict[int, _Begun] = {}
        try:
            return self._make(steps, begun)
        finally:
            steps.close()
            for each in begun.values():
                each.future.cancel()

    def _make(self, steps: Steps[T], open_calls: dict[int, _Begun]) -> T:
        answer: Any = None
        error: BaseException | None = None
        while True:
            try:
                step = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration as end:
                returned: T = end.value
                return returned
            answer, error = None, None
            try:
                if isinstance(step, Call):
                    answer = self._answer(step, None)
                elif isinstance(step, Begin):
                    answer = self._begin(step.call)
                    open_calls[id(answer)] = answer
                elif isinstance(step, End):
                    del open_calls[id(step.begun)]
                    answer = self._answer(step.begun.call, step.begun)
                elif isinstance(step, Pause):
                    time.sleep(step.seconds)
                elif isinstance(step, Compute):
                    answer = step.function()
            except Exception as raised:
                error = raised

    def close(self) -> None:
        """Ends open calls, and the connection."""
        for channel in self._channels.all:
            channel.close()

    def _begin(self, call: Call) -> _Begun:
        shown = self.link.token.header()
        future = self._channels.stub(call.method).future(call.request, timeout=call.seconds, metadata=metadata(shown))
        return _Begun(call, self.link.patience(call), shown, future)

    def _answer(self, call: Call, begun: _Begun | None) -> Any:
        """Of a call that is made here, or was begun. Repeats what was not answered."""
        patience = begun.patience if begun else self.link.patience(call)
        while True:
            shown = begun.shown if begun else self.link.token.header()
            try:
                # The future's thread costs time, so that a single call is made in this one.
                answer = begun.future.result() if begun else self._channels.stub(call.method)(
                    call.request, timeout=patience.seconds_left, metadata=metadata(shown),
                    wait_for_ready=patience.waits_for_ready,
                )
                self.link.reached()
                return answer
            except grpc.RpcError as error:
                pause = self.link.pause_after(patience, error, shown)
            begun = None
            time.sleep(pause)
