"""HTTP's channels: the wire to a server whose address is a URL. Unary calls of the Connect protocol, over HTTP/1.1.

Python's own http.client speaks HTTP. It waits for each piece of an answer as long as for the first; here each call has one time,
however slowly a server answers (`_TimedSocket`), and answers have bounds.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import http.client
import io
import os
import select
import socket
import ssl
import threading
import time
from typing import Any, Generic, TypeVar, cast

from sheaf import connect_answer
from sheaf.calls import Attempt, CallFailed, Method
from sheaf.connect_answer import Answer, Asked, unreachable
from sheaf.errors import Error, error_of
from sheaf.http_proxy import HttpProxy, proxy_for
from sheaf.security import CertificateFiles, Security
from sheaf.version import __version__

A = TypeVar("A")

_MESSAGE_BYTES_MAX = 64 << 20
_ERROR_BYTES_MAX = 64 << 10
_PIECE_BYTES = 1 << 20
_CONNECT_SECONDS = 10.0
# As the C++ client's: a NAT forgets nobody, and a server that went without a word is noticed in less than a minute.
_KEEPALIVE_SECONDS, _UNHEARD_SECONDS = 30, 50
# What the server is given beyond the call's own time, which we keep ourselves: so there is one who ends it.
_GRACE_SECONDS = 1.0
# Pauses while a server that cannot be reached is tried again.
_RECONNECT_FIRST, _RECONNECT_MAX = 0.1, 1.0
# Calls that are begun and not waited for: threads.
_BEGUN_MAX = 256
# Connections that nobody uses.
_IDLE_MAX = 16
_TIME_IS_OVER = "Deadline Exceeded"


class HttpChannel:
    """A calls.Channel. Each call has a connection to itself while it is under way; idle ones are used again."""

    def __init__(self, security: Security) -> None:
        self._security = security
        self._url = security.server.url
        self._proxy = proxy_for(security.server, os.environ)
        self._asked = Asked(self._url, self._proxy.name if self._proxy else "", self._proxy.variable if self._proxy else "",
                            not security.uses_tls)
        self._files = CertificateFiles(security)
        self._lock = threading.Lock()
        self._context = self._make_context()
        self._idle: list[_Connection] = []
        self._used: set[_Connection] = set()
        self._threads: concurrent.futures.ThreadPoolExecutor | None = None
        self._is_closed = False

    def call(self, method: Method[Any, A], request: Any, attempt: Attempt) -> A:
        """As Channel's."""
        return self._call(method, request, attempt, time.monotonic() + attempt.seconds, _Switch())

    def begin(self, method: Method[Any, A], request: Any, attempt: Attempt) -> _Begun[A]:
        """As Channel's."""
        with self._lock:
            if self._threads is None:
                self._threads = concurrent.futures.ThreadPoolExecutor(_BEGUN_MAX, "sheaf-http")
        switch, deadline = _Switch(), time.monotonic() + attempt.seconds
        return _Begun(self._threads.submit(lambda: self._call(method, request, attempt, deadline, switch)), switch)

    def close(self) -> None:
        """As Channel's."""
        with self._lock:
            self._is_closed = True
            for connection in self._used:
                connection.abort()
            self._end_idle()
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)

    def _call(self, method: Method[Any, A], request: Any, attempt: Attempt, deadline: float, switch: _Switch) -> A:
        body: bytes = request.SerializeToString()
        if len(body) > _MESSAGE_BYTES_MAX:
            raise _too_much(f"a request of {len(body)} bytes, and {_MESSAGE_BYTES_MAX} are the most")
        fields = {
            "content-type": "application/proto",
            "connect-protocol-version": "1",
            "connect-timeout-ms": str(max(int((attempt.seconds + _GRACE_SECONDS) * 1000), 1)),
        }
        if attempt.shown:
            fields["authorization"] = attempt.shown
        answer = self._exchange(method.path, body, fields, deadline, attempt.waits_for_ready, switch)
        connect_answer.check(answer, self._asked)
        try:
            message: A = method.response.FromString(answer.body)  # type: ignore[attr-defined]
            return message
        # Of protobuf, which this module does not know.
        except Exception:
            raise CallFailed(error_of("INTERNAL", f"{self._url}{method.path} answered with bytes that are no message")) from None

    def _exchange(self, path: str, body: bytes, fields: dict[str, str], deadline: float, waits: bool, switch: _Switch) -> Answer:
        """One request and its answer; over another connection, if the one that was kept has ended meanwhile."""
        pause = _RECONNECT_FIRST
        while True:
            connection, is_new = self._connection()
            is_done = False
            try:
                with switch.over(connection):
                    answer = connection.exchange(path, body, fields, deadline)
                    is_done = connection.may_be_kept
                return answer
            except (OSError, http.client.HTTPException, _Unreached) as error:
                if switch.is_off or self._is_closed:
                    raise CallFailed(error_of("CANCELLED", "the call was given up")) from None
                if not is_new and not connection.has_answered and not isinstance(error, TimeoutError):
                    continue
                failed = self._failure(error, connection, deadline)
                if not waits or connection.was_reached or time.monotonic() + pause >= deadline:
                    raise failed from None
            finally:
                self._put_back(connection, is_done)
            time.sleep(pause)
            pause = min(2 * pause, _RECONNECT_MAX)

    def _connection(self) -> tuple[_Connection, bool]:
        """One that is idle, or a new one, and whether it is new."""
        with self._lock:
            if self._is_closed:
                raise CallFailed(error_of("CANCELLED", "the connection to the server is closed"))
            if self._files.were_renewed():
                self._context = self._make_context()
                self._end_idle()
            while self._idle:
                connection = self._idle.pop()
                if connection.is_alive():
                    self._used.add(connection)
                    return connection, False
                connection.end()
            connection = _Connection(self._security, self._proxy, self._context, self._asked)
            self._used.add(connection)
            return connection, True

    def _put_back(self, connection: _Connection, is_done: bool) -> None:
        with self._lock:
            self._used.discard(connection)
            # One of certificates that were renewed meanwhile has another context.
            if is_done and not self._is_closed and connection.context is self._context and len(self._idle) < _IDLE_MAX:
                self._idle.append(connection)
                return
        connection.end()

    def _end_idle(self) -> None:
        for connection in self._idle:
            connection.end()
        self._idle.clear()

    def _make_context(self) -> ssl.SSLContext | None:
        return self._security.context() if self._security.uses_tls else None

    def _failure(self, error: Exception, connection: _Connection, deadline: float) -> CallFailed:
        if isinstance(error, _Unreached):
            return error.failed
        if isinstance(error, TimeoutError):
            if time.monotonic() >= deadline:
                return CallFailed(error_of("DEADLINE_EXCEEDED", _TIME_IS_OVER))
            return unreachable(self._url, f"{connection.first} gave no connection within {_CONNECT_SECONDS:.0f} s")
        said = str(error) or type(error).__name__
        is_https = self._security.uses_tls
        if isinstance(error, ssl.SSLCertVerificationError):
            return unreachable(self._url, f"its certificate is not to be believed ({error.verify_message}); name the authorities "
                               "that signed it with tls_ca, and the server by a name that the certificate has")
        if isinstance(error, ssl.SSLError):
            if "ALERT" in (error.reason or ""):
                return unreachable(self._url, f"it refused TLS ({said}); it may want a certificate of yours (tls_cert, tls_key)")
            if not connection.was_reached:
                return unreachable(self._url, f"TLS failed ({said}); if what listens there speaks HTTP without TLS, give http:// "
                                   "and not https://, and if it speaks gRPC, HOST:PORT without https://")
        if isinstance(error, (http.client.BadStatusLine, http.client.UnknownProtocol)) and not isinstance(
                error, http.client.RemoteDisconnected):
            return unreachable(self._url, f"what listens there does not speak HTTP/1.1 ({said!r:.80}); give the port of sheafd "
                               f"--http, or, if this is the port of gRPC, HOST:PORT without {'https' if is_https else 'http'}://")
        if isinstance(error, http.client.HTTPException) and not isinstance(
                error, (http.client.IncompleteRead, http.client.RemoteDisconnected)):
            return unreachable(self._url, f"its answer is none of HTTP ({type(error).__name__})")
        if connection.has_answered:
            return unreachable(self._url, f"the answer broke off ({said})")
        if connection.was_reached:
            advice = ("it may want a certificate of yours (tls_cert, tls_key); if it speaks gRPC, give HOST:PORT without https://"
                      if is_https else "if it speaks TLS, give https://")
            return unreachable(self._url, f"it hung up without an answer ({said}); {advice}")
        return unreachable(self._url, connection.why_not(error))


class HttpAsyncChannel:
    """A calls.AsyncChannel: the same calls, in threads of this channel's own."""

    def __init__(self, security: Security) -> None:
        self._channel = HttpChannel(security)

    async def call(self, method: Method[Any, A], request: Any, attempt: Attempt) -> A:
        """As AsyncChannel's."""
        begun = self._channel.begin(method, request, attempt)
        try:
            return await asyncio.wrap_future(begun.future)
        except asyncio.CancelledError:
            begun.cancel()
            raise

    async def close(self) -> None:
        """As AsyncChannel's."""
        await asyncio.to_thread(self._channel.close)


class _Unreached(Exception):
    """There is no way to the server, as `failed` says."""

    def __init__(self, failed: CallFailed) -> None:
        super().__init__(str(failed))
        self.failed = failed


class _Switch:
    """Ends a call from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: _Connection | None = None
        self.is_off = False

    @contextlib.contextmanager
    def over(self, connection: _Connection) -> Any:
        with self._lock:
            if self.is_off:
                raise CallFailed(error_of("CANCELLED", "the call was given up"))
            self._connection = connection
        try:
            yield
        finally:
            with self._lock:
                self._connection = None

    def turn_off(self) -> None:
        with self._lock:
            self.is_off = True
            if self._connection is not None:
                self._connection.abort()


class _Begun(Generic[A]):
    """A calls.Begun."""

    def __init__(self, future: concurrent.futures.Future[A], switch: _Switch) -> None:
        self.future, self._switch = future, switch

    def result(self) -> A:
        """As Begun's."""
        return self.future.result()

    def cancel(self) -> Any:
        """As Begun's."""
        self.future.cancel()
        self._switch.turn_off()


class _TimedSocket:
    """A socket whose every step ends at a deadline, however many there are. What http.client needs of one."""

    def __init__(self, inner: socket.socket) -> None:
        self.inner = inner
        self.deadline = 0.0

    def sendall(self, data: Any) -> None:
        with memoryview(data).cast("B") as view:
            sent = 0
            while sent < len(view):
                self._wait()
                sent += self.inner.send(view[sent:sent + _PIECE_BYTES])

    def recv_into(self, buffer: Any) -> int:
        self._wait()
        return self.inner.recv_into(buffer)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Raw(self), 64 << 10)

    def close(self) -> None:
        """http.client would close it before an answer is read that ends with it; see `_Connection.end`."""

    def _wait(self) -> None:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self.inner.settimeout(left)


class _Raw(io.RawIOBase):
    """What a socket has to say, as a file."""

    def __init__(self, timed: _TimedSocket) -> None:
        self._timed = timed

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._timed.recv_into(buffer)


class _Connection(http.client.HTTPConnection):
    """One connection, through the proxy if there is one. For one call, and thread, at a time; `abort` may come from another."""

    def __init__(self, security: Security, proxy: HttpProxy | None, context: ssl.SSLContext | None, asked: Asked) -> None:
        server = security.server
        super().__init__(server.host, cast(int, server.port))
        self._server, self._proxy, self._asked = server, proxy, asked
        self.context = context
        self._timed: _TimedSocket | None = None
        self._is_aborted = False
        self._deadline = 0.0
        # Of a request, not sent yet.
        self._held: list[Any] = []
        # Somebody took what was sent; a byte of an answer came; the answer is whole, and another may follow.
        self.was_reached = False
        self.has_answered = False
        self.may_be_kept = False

    @property
    def first(self) -> str:
        """Who is connected to."""
        return f"the proxy {self._proxy.name}" if self._proxy else self._server.target

    def connect(self) -> None:
        """As HTTPConnection's, in the time that the call has."""
        hop = (self._proxy.host, self._proxy.port) if self._proxy else (self._server.host, cast(int, self._server.port))
        left = self._deadline - time.monotonic()
        raw = socket.create_connection(hop, max(min(left, _CONNECT_SECONDS), 0.001))
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_SECONDS)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _UNHEARD_SECONDS - _KEEPALIVE_SECONDS)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNHEARD_SECONDS * 1000)
        self._use(raw)
        if self.context is not None:
            if self._proxy:
                self._dig(self._proxy)
            raw.settimeout(max(self._deadline - time.monotonic(), 0.001))
            self._use(self.context.wrap_socket(raw, server_hostname=self._server.host))
        self.was_reached = True

    def exchange(self, path: str, body: bytes, fields: dict[str, str], deadline: float) -> Answer:
        """One request, and its answer. What is wrong is an error of sockets, of TLS, or of http.client."""
        self._deadline = deadline
        self.has_answered = self.may_be_kept = False
        if self._timed is not None:
            self._timed.deadline = deadline
        target = self._server.path + path
        if self._proxy and self.context is None:
            target = self._server.url + path
            if self._proxy.authorization:
                fields = {**fields, "proxy-authorization": self._proxy.authorization}
        self._held.clear()
        try:
            self.request("POST", target, body, {**fields, "user-agent": f"sheaf-python/{__version__}", "accept-encoding": "identity"})
            self._flush()
        except (BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
            # A server that refuses a large request does not read it to its end. Its answer, or its alert, may be there.
            if self._timed is None or not self.was_reached:
                raise
        response = self.getresponse()
        self.has_answered = True
        answered = {name.lower(): value for name, value in response.getheaders()}
        answer = Answer(response.status, answered, self._body(response, answered))
        response.close()
        return answer

    def send(self, data: Any) -> None:
        """As HTTPConnection's, but a request that is small goes in one piece: two would be two packets, and two wake-ups."""
        if self.sock is None:
            self.connect()
        self._held.append(data)

    def _flush(self) -> None:
        pieces = [b"".join(self._held)] if sum(map(len, self._held)) <= _PIECE_BYTES else self._held
        for piece in pieces:
            self.sock.sendall(piece)
        self._held.clear()

    def is_alive(self) -> bool:
        """Of one that was kept: nobody has hung up, or said what nobody asked for."""
        if self._timed is None:
            return False
        look = select.poll()
        look.register(self._timed.inner, select.POLLIN)
        return not look.poll(0)

    def abort(self) -> None:
        """Ends what its thread waits for."""
        self._is_aborted = True
        if self._timed is not None:
            with contextlib.suppress(OSError):
                # Not TLS's own, which would take the state away from whoever reads.
                socket.socket.shutdown(self._timed.inner, socket.SHUT_RDWR)

    def end(self) -> None:
        """By whoever has it: nobody reads."""
        self.close()
        if self._timed is not None:
            self._timed.inner.close()

    def why_not(self, error: Exception) -> str:
        """Of a connection that did not come about."""
        variable = f"; check {self._proxy.variable}" if self._proxy else ""
        if isinstance(error, socket.gaierror):
            if self._proxy:
                return f"there is no host of the name of {self.first}{variable}"
            return f"there is no host of this name: {self._server.host}"
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        return f"{self.first}: {reason}{variable}" if self._proxy else reason

    def _use(self, inner: socket.socket) -> None:
        self._timed = _TimedSocket(inner)
        self._timed.deadline = self._deadline
        self.sock = cast(socket.socket, self._timed)
        if self._is_aborted:
            raise ConnectionAbortedError

    def _dig(self, proxy: HttpProxy) -> None:
        """A tunnel to the server."""
        target = self._server.target
        lines = [f"CONNECT {target} HTTP/1.1", f"host: {target}"]
        if proxy.authorization:
            lines.append(f"proxy-authorization: {proxy.authorization}")
        self.sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        response = http.client.HTTPResponse(self.sock, method="CONNECT")
        response.begin()
        if response.status != 200:
            raise _Unreached(connect_answer.proxy_refusal(response.status, self._asked))

    def _body(self, response: http.client.HTTPResponse, fields: dict[str, str]) -> bytes:
        """The whole of it. Of an answer that ends with its connection nobody can tell whether it is."""
        bytes_max = _MESSAGE_BYTES_MAX if response.status == 200 else _ERROR_BYTES_MAX
        length = fields.get("content-length", "")
        is_chunked = fields.get("transfer-encoding", "").lower() == "chunked"
        has_length = not is_chunked and length.isascii() and length.isdecimal()
        if has_length and int(length) > bytes_max:
            raise _Unreached(_too_much(f"an answer of {length} bytes, and {bytes_max} are the most"))
        body = response.read(int(length)) if has_length else response.read(bytes_max + 1)
        if len(body) > bytes_max:
            raise _Unreached(_too_much(f"an answer of more than {bytes_max} bytes"))
        if has_length and len(body) < int(length):
            raise http.client.IncompleteRead(body, int(length) - len(body))
        if response.status == 200 and not (has_length or is_chunked):
            raise _Unreached(unreachable(self._asked.server, "the answer broke off, or does not say how long it is"))
        # The end of chunks is read by whoever asks for more than there is.
        self.may_be_kept = (has_length or is_chunked) and response.isclosed() and not response.will_close
        return body


def _too_much(what: str) -> CallFailed:
    return CallFailed(_too_much_error(what))


def _too_much_error(what: str) -> Error:
    return error_of("RESOURCE_EXHAUSTED", f"too much for one call ({what}); send less in one call: fewer tasks, smaller payloads, "
                    "and what tasks share in the round's broadcast")
