"""Connection: a channel to a server, and the driver of operations for threads."""

from __future__ import annotations

import dataclasses
import time
from typing import Any, TypeVar

from sheaf import calls
from sheaf.calls import Begin, Call, CallFailed, Compute, End, Patience, Pause, Steps
from sheaf.errors import Unauthenticated, Unavailable
from sheaf.security import Security, TokenFile

T = TypeVar("T")

# How long the first call goes on trying to reach a server: an address is easily wrong.
_FIRST_SECONDS = 3.0


class Link:
    """What drivers share: whom they call, and what they show."""

    def __init__(self, security: Security, seconds: float) -> None:
        self.security = security
        self.token = TokenFile(security.token_file)
        self._seconds = seconds
        self._was_reached = False

    def patience(self, call: Call) -> Patience:
        reach = self._seconds if self._was_reached else min(self._seconds, _FIRST_SECONDS)
        return Patience(call.seconds, reach)

    def reached(self) -> None:
        self._was_reached = True

    def pause_after(self, patience: Patience, failed: CallFailed, shown: str) -> float:
        refused = isinstance(failed.error, Unauthenticated)
        if not isinstance(failed.error, Unavailable):
            self.reached()
        return patience.pause_after(failed, has_new_token=refused and self.token.was_refused(shown))


def open_channel(security: Security) -> calls.Channel:
    """By the protocol that the address names."""
    if security.server.is_http:
        # Who has no need of it does without what it imports.
        from sheaf.http_channel import HttpChannel

        return HttpChannel(security)
    from sheaf.grpc_channel import GrpcChannel

    return GrpcChannel(security)


@dataclasses.dataclass
class _Begun:
    """A call under way."""

    call: Call
    patience: Patience
    shown: str
    answer: calls.Begun[Any]


class Connection:
    """A connection to a server. Connects when first called; outlives restarts of the server. Thread-safe."""

    def __init__(self, security: Security, seconds: float) -> None:
        self.link = Link(security, seconds)
        self.channel = open_channel(security)

    def run(self, steps: Steps[T]) -> T:
        """Makes the steps of an operation, and gives what it returns. Errors are sheaf.Error."""
        begun: dict[int, _Begun] = {}
        try:
            return self._make(steps, begun)
        finally:
            steps.close()
            for each in begun.values():
                each.answer.cancel()

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
        self.channel.close()

    def _begin(self, call: Call) -> _Begun:
        shown, patience = self.link.token.header(), self.link.patience(call)
        return _Begun(call, patience, shown, self.channel.begin(call.method, call.request, patience.attempt(shown)))

    def _answer(self, call: Call, begun: _Begun | None) -> Any:
        """Of a call that is made here, or was begun. Repeats what was not answered."""
        patience = begun.patience if begun else self.link.patience(call)
        while True:
            shown = begun.shown if begun else self.link.token.header()
            try:
                answer = begun.answer.result() if begun else self.channel.call(call.method, call.request, patience.attempt(shown))
                self.link.reached()
                return answer
            except CallFailed as failed:
                pause = self.link.pause_after(patience, failed, shown)
            begun = None
            time.sleep(pause)
