"""The rounds of a loop up to when they run: announced ahead, and opened in their order."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from sheaf import round_calls
from sheaf.calls import Steps
from sheaf.errors import Error, FailedPrecondition, InvalidArgument
from sheaf.round_spec import RoundOptions, seconds_of
from sheaf.sent_broadcast import SentBroadcast
from sheaf.v1 import round_pb2

# What a server takes a deadline to be that nobody has set; the longest that it takes.
_DEADLINE_SECONDS, _DEADLINE_SECONDS_MAX = 3600.0, 365 * 86400.0
# Who ends a loop does not wait for a server that is gone.
_CANCEL_SECONDS = 5.0


class RoundsAhead:
    """One loop's. For drivers: its methods are operations.

    ahead = RoundsAhead("tags", options, "default", rounds=20, ahead=2)
    while ahead.has_next:
        round = connection.run(ahead.next())       # Open; the two that come after it are announced.
    connection.run(ahead.cancel())
    """

    def __init__(self, computation: str, options: Mapping[str, Any], population: str, rounds: int | None, ahead: int,
                 buffered: bool = False) -> None:
        if ahead < 0:
            raise InvalidArgument(f"a loop announces 0 or more rounds ahead, and not {ahead}")
        self._computation, self._population = computation, population
        self._options = dict(options)
        self._broadcast = self._options.pop("broadcast", None)
        self._rounds, self._ahead = rounds, max(ahead, 1) if buffered else ahead
        self._buffered, self._newest = buffered, ""
        self._announced: deque[round_pb2.Round] = deque()
        self._opened: round_pb2.Round | None = None
        self._num_begun = self._num_given = 0
        # A single round has no other whose broadcast could be a patch of its own.
        self._sent = None if rounds == 1 else SentBroadcast()
        self.number = 0
        """Of the round that the last operation was about."""

    @property
    def has_next(self) -> bool:
        """Whether there is one more round to come."""
        return self._rounds is None or self._num_given < self._rounds

    def next(self) -> Steps[round_pb2.Round]:
        """The next round, open."""
        if self._opened is None:
            yield from self._open()
        opened, self._opened = self._opened, None
        assert opened is not None
        self._num_given += 1
        self.number = self._num_given
        return opened

    def open_early(self) -> Steps[None]:
        """Opens the next round before it is asked for; of a loop that announces none it does nothing."""
        if self._ahead and self.has_next and self._opened is None:
            yield from self._open()

    def cancel(self) -> Steps[None]:
        """Cancels what it began and did not give: nobody else would open it, or wait for it."""
        begun = [*([self._opened] if self._opened is not None else []), *self._announced]
        self._opened = None
        self._announced.clear()
        for round in begun:
            try:
                yield from round_calls.cancel(round.id, "its program's loop ended before it", _CANCEL_SECONDS)
            except FailedPrecondition:
                # It has ended by itself.
                continue
            except Error:
                # A server that is gone keeps them until their announce_deadline.
                return

    def _open(self) -> Steps[None]:
        if self._buffered:
            # Before it opens: it may have its goal then, and what runs of it goes on in the next.
            yield from self._announce(self._ahead + 1)
        elif self._num_begun == 0:
            # So that workers prepare the first, too, while its broadcast is made and sent.
            yield from self._announce(self._ahead)
        self.number = self._num_given + 1
        if self._announced:
            self._opened = yield from round_calls.open(self._announced[0], self._current_broadcast(), self._sent)
            self._announced.popleft()
        else:
            options = round_calls.current(self._options)
            options["broadcast"] = self._current_broadcast()
            self._num_begun += 1
            self._opened = yield from round_calls.create(self._computation, options, self._population, self._sent)
        yield from self._announce(self._ahead)

    def _announce(self, ahead: int) -> Steps[None]:
        while len(self._announced) < ahead and (self._rounds is None or self._num_begun < self._rounds):
            self.number = self._num_begun + 1
            options = round_calls.current(self._options)
            options.setdefault("announce_deadline", _announce_seconds(options, ahead))
            if self._buffered and self._newest:
                options["continues"] = self._newest
            elif self._buffered and not options.get("continues"):
                # The first continues none, unless its program says so.
                options.pop("staleness", None)
            announced = yield from round_calls.announce(self._computation, options, self._population)
            self._announced.append(announced)
            self._newest = announced.id
            self._num_begun += 1

    def _current_broadcast(self) -> Any:
        return self._broadcast() if callable(self._broadcast) else self._broadcast


def _announce_seconds(options: RoundOptions, ahead: int) -> float:
    """It waits for the end of as many rounds as there are ahead of it, each of which may take until its own deadline."""
    deadline = seconds_of(options.get("deadline", _DEADLINE_SECONDS), "deadline")
    return min((ahead + 1) * deadline, _DEADLINE_SECONDS_MAX)
