"""What is asked of a server, apart from how: an operation is a generator of steps, written once for threads and for asyncio.

    def cancel(id: str, reason: str) -> Steps[round_pb2.Round]:
        request = round_service_pb2.CancelRoundRequest(request_id=new_request_id(), round=id, reason=reason)
        return (yield from call(CANCEL_ROUND, request)).round

A driver makes the steps: `Connection` in this thread, `aio.Connection` in an event loop. Both repeat what the server did not
answer. Every request that changes something has a request_id, so that repeating it is harmless.
"""

from __future__ import annotations

import dataclasses
import random
import secrets
import time
from collections.abc import Callable, Generator
from typing import Any, Generic, Protocol, TypeVar, Union

from google.protobuf.message import Message

from sheaf.errors import DeadlineExceeded, Error, Unavailable
from sheaf.v1 import blob_service_pb2, inspection_service_pb2, round_service_pb2

Q = TypeVar("Q")
A = TypeVar("A")
T = TypeVar("T")
B = TypeVar("B", covariant=True)

CALL_SECONDS = 30.0
_RETRY_AFTER_SECONDS_MAX = 300.0
_BACKOFF_FIRST, _BACKOFF_MAX = 0.1, 5.0
# One attempt to reach a server that was away.
_RECONNECT_SECONDS = 2.0


@dataclasses.dataclass(frozen=True)
class Method(Generic[Q, A]):
    """One RPC: its path, and the types of its messages."""

    path: str
    request: type[Q]
    response: type[A]


CREATE_ROUND = Method("/sheaf.v1.RoundService/CreateRound", round_service_pb2.CreateRoundRequest,
                      round_service_pb2.CreateRoundResponse)
OPEN_ROUND = Method("/sheaf.v1.RoundService/OpenRound", round_service_pb2.OpenRoundRequest,
                    round_service_pb2.OpenRoundResponse)
GET_ROUND = Method("/sheaf.v1.RoundService/GetRound", round_service_pb2.GetRoundRequest, round_service_pb2.GetRoundResponse)
LIST_ROUNDS = Method("/sheaf.v1.RoundService/ListRounds", round_service_pb2.ListRoundsRequest,
                     round_service_pb2.ListRoundsResponse)
CANCEL_ROUND = Method("/sheaf.v1.RoundService/CancelRound", round_service_pb2.CancelRoundRequest,
                      round_service_pb2.CancelRoundResponse)
READ_AGGREGATE = Method("/sheaf.v1.RoundService/ReadAggregate", round_service_pb2.ReadAggregateRequest,
                        round_service_pb2.ReadAggregateResponse)
START_UPLOAD = Method("/sheaf.v1.BlobService/StartUpload", blob_service_pb2.StartUploadRequest,
                      blob_service_pb2.StartUploadResponse)
WRITE_CHUNK = Method("/sheaf.v1.BlobService/WriteChunk", blob_service_pb2.WriteChunkRequest,
                     blob_service_pb2.WriteChunkResponse)
QUERY_UPLOAD = Method("/sheaf.v1.BlobService/QueryUpload", blob_service_pb2.QueryUploadRequest,
                      blob_service_pb2.QueryUploadResponse)
FINISH_UPLOAD = Method("/sheaf.v1.BlobService/FinishUpload", blob_service_pb2.FinishUploadRequest,
                       blob_service_pb2.FinishUploadResponse)
EXPLAIN_ROUND = Method("/sheaf.v1.InspectionService/ExplainRound", inspection_service_pb2.ExplainRoundRequest,
                       inspection_service_pb2.ExplainRoundResponse)
GET_SERVER_INFO = Method("/sheaf.v1.InspectionService/GetServerInfo", inspection_service_pb2.GetServerInfoRequest,
                         inspection_service_pb2.GetServerInfoResponse)
LIST_WORKERS = Method("/sheaf.v1.InspectionService/ListWorkers", inspection_service_pb2.ListWorkersRequest,
                      inspection_service_pb2.ListWorkersResponse)
METHODS = [CREATE_ROUND, OPEN_ROUND, GET_ROUND, LIST_ROUNDS, CANCEL_ROUND, READ_AGGREGATE, START_UPLOAD, WRITE_CHUNK,
           QUERY_UPLOAD, FINISH_UPLOAD, EXPLAIN_ROUND, GET_SERVER_INFO, LIST_WORKERS]


@dataclasses.dataclass
class Call:
    """Step: make the call, and give its answer. `seconds`: after them it ends, repetitions included."""

    method: Method[Any, Any]
    request: Any
    seconds: float = CALL_SECONDS


@dataclasses.dataclass
class Begin:
    """Step: begin the call, and give something to wait for with `End`. Several may be under way."""

    call: Call


@dataclasses.dataclass
class End:
    """Step: give the answer of a call that was begun."""

    begun: Any


@dataclasses.dataclass
class Pause:
    """Step: let so much time pass."""

    seconds: float


@dataclasses.dataclass
class Compute:
    """Step: give what the function returns, which takes long and needs no server."""

    function: Callable[[], Any]


Step = Union[Call, Begin, End, Pause, Compute]
Steps = Generator[Step, Any, T]


def call(method: Method[Q, A], request: Q, seconds: float = CALL_SECONDS) -> Steps[A]:
    """One call, as a sub-generator that knows the type of its answer."""
    answer: A = yield Call(method, request, seconds)
    return answer


def new_request_id() -> str:
    """An idempotency key that nobody else has."""
    return secrets.token_hex(8)


class CallFailed(Exception):
    """A call came to nothing: `error` says why, `retry_after` in how many seconds the server asks to be asked again."""

    def __init__(self, error: Error, retry_after: float | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.retry_after = retry_after


class Channel(Protocol):
    """The wire to a server, for threads: gRPC's (grpc_channel.py), or HTTP's (http_channel.py). Thread-safe."""

    def call(self, method: Method[Any, A], request: Any, attempt: Attempt) -> A:
        """The answer. CallFailed."""

    def begin(self, method: Method[Any, A], request: Any, attempt: Attempt) -> Begun[A]:
        """The same, to wait for later."""

    def close(self) -> None:
        """Ends open calls, and the connection."""


class AsyncChannel(Protocol):
    """The same for an event loop."""

    async def call(self, method: Method[Any, A], request: Any, attempt: Attempt) -> A:
        """The answer. CallFailed. Who cancels it ends the call."""

    async def close(self) -> None:
        """Ends open calls, and the connection."""


class Begun(Protocol[B]):
    """A call under way."""

    def result(self) -> B:
        """Waits for the answer. CallFailed."""

    def cancel(self) -> Any:
        """Ends the call."""


@dataclasses.dataclass(frozen=True)
class Attempt:
    """How one call is made: in how many seconds, with which header `authorization` ("" for none).

    waits_for_ready: go on for as long while the server cannot be reached.
    """

    seconds: float
    shown: str
    waits_for_ready: bool = False


class Patience:
    """Whether a call is repeated, and when: one for each call. For drivers.

    patience = Patience(call.seconds, reach_seconds)
    while True:
        try:
            return channel.call(method, request, patience.attempt(shown))
        except CallFailed as failed:
            sleep(patience.pause_after(failed, has_new_token=..))             # Raises what the call comes to.
    """

    def __init__(self, seconds: float, reach_seconds: float) -> None:
        """`reach_seconds`: how long to go on while the server cannot be reached."""
        self._begin = time.monotonic()
        self._must_end_at = self._begin + seconds
        self._give_up_at = self._begin + min(seconds, reach_seconds)
        self._attempts = 0
        self._unreachable: Error | None = None

    def attempt(self, shown: str) -> Attempt:
        """The next one. A call that fails at once, while gRPC pauses between its own attempts to connect, would fail for seconds."""
        left = self._must_end_at - time.monotonic()
        if self._unreachable is not None:
            left = min(left, max(self._give_up_at - time.monotonic(), _RECONNECT_SECONDS))
        return Attempt(max(left, 0.001), shown, self._unreachable is not None)

    def pause_after(self, failed: CallFailed, *, has_new_token: bool = False) -> float:
        """How long to wait before the next attempt. Raises the error if there is none."""
        self._attempts += 1
        status = failed.error
        if isinstance(status, Unavailable):
            self._unreachable = status
        elif isinstance(status, DeadlineExceeded) and self._unreachable is not None:
            # It waited for a connection that did not come.
            status = self._unreachable
        least = failed.retry_after
        if least is not None:
            # A server that asks for more is not believed.
            least = min(least, _RETRY_AFTER_SECONDS_MAX)
        if has_new_token:
            least = 0.001
        if not isinstance(status, Unavailable) and least is None:
            raise status from None
        bound = min(_BACKOFF_MAX, _BACKOFF_FIRST * 2 ** min(self._attempts - 1, 30))
        pause = (least or 0.0) + random.uniform(0.0, max(bound, least or 0.0))
        end = self._give_up_at if least is None else self._must_end_at
        if time.monotonic() + pause >= end:
            raise status from None
        return pause
