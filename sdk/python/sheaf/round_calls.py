"""What is asked of a server about rounds: the operations behind `Server` and `Round`, for threads and asyncio alike."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from sheaf.broadcast_call import BroadcastCall
from sheaf.calls import (CALL_SECONDS, CANCEL_ROUND, CREATE_ROUND, EXPLAIN_ROUND, GET_ROUND, LIST_ROUNDS, LIST_WORKERS,
                         OPEN_ROUND, A, Pause, Steps, call, new_request_id)
from sheaf.computations import broadcast_tensors
from sheaf.errors import (DataLoss, DeadlineExceeded, Error, InvalidArgument, NotFound, ResourceExhausted, RoundFailed,
                          RoundStuck, Unimplemented)
from sheaf.progress_bar import ProgressBar
from sheaf.result import Result
from sheaf.round_spec import Broadcast, RoundOptions, round_spec
from sheaf.round_view import RoundView
from sheaf.sent_broadcast import SentBroadcast
from sheaf.transfer import INLINE_BYTES_MAX, Content, checked, is_digest, read_aggregate
from sheaf.v1 import inspection_service_pb2, round_pb2, round_service_pb2

# How long one call stays parked at the server, and what it may take beyond that before it counts as lost.
_POLL_SECONDS, _POLL_GRACE_SECONDS = 20.0, 10.0
# After an answer without news that came although the server could have waited.
_NO_NEWS_SECONDS = 0.1


class Ended(NamedTuple):
    """A round that has ended; the file that it released, or nothing if it was not asked for or is too large."""

    round: round_pb2.Round
    file: bytes


def create(computation: str, options: RoundOptions, population: str,
           sent: SentBroadcast | None = None) -> Steps[round_pb2.Round]:
    """Uploads the broadcast and creates the round. sent: what the loop that it belongs to sent before."""
    request = round_service_pb2.CreateRoundRequest(request_id=new_request_id(),
                                                   spec=round_spec(computation, options, population))
    # A server of 0.1 looks for a small broadcast among the uploads; another may take less at a time.
    creation = BroadcastCall(CREATE_ROUND, request, request.spec, request.spec.population, (NotFound, ResourceExhausted))
    return (yield from _with_broadcast(creation, options.get("broadcast"), sent)).round


def announce(computation: str, options: RoundOptions, population: str) -> Steps[round_pb2.Round]:
    """Creates the round without its broadcast, which `open` brings."""
    if options.get("broadcast") is not None:
        raise InvalidArgument("the broadcast of an announced round comes when it is opened: round.open(broadcast)")
    request = round_service_pb2.CreateRoundRequest(request_id=new_request_id(),
                                                   spec=round_spec(computation, options, population))
    request.spec.announced = True
    announced = (yield from call(CREATE_ROUND, request)).round
    if announced.state == round_pb2.COLLECTING:
        # A server of 0.1 does not know the field, and has opened it without a broadcast.
        yield from cancel(announced.id, "its program announced it, which the server does not know")
        raise Unimplemented("the server is older than announced rounds; update it, or announce none (ahead=0)")
    return announced


def open(announced: round_pb2.Round, broadcast: Broadcast | None, sent: SentBroadcast | None = None) -> Steps[round_pb2.Round]:
    """Brings the broadcast of an announced round. sent: what the loop that it belongs to sent before."""
    request = round_service_pb2.OpenRoundRequest(request_id=new_request_id(), round=announced.id)
    opening = BroadcastCall(OPEN_ROUND, request, request, announced.spec.population, (ResourceExhausted,))
    return (yield from _with_broadcast(opening, broadcast, sent)).round


def _with_broadcast(opening: BroadcastCall[A], broadcast: Broadcast | None, sent: SentBroadcast | None) -> Steps[A]:
    if broadcast is None:
        return (yield from opening.without())
    if is_digest(broadcast):
        return (yield from opening.naming(str(broadcast)))
    if sent is not None and isinstance(broadcast, Mapping):
        return (yield from sent.send(broadcast_tensors(broadcast), opening))
    return (yield from opening.bringing(Content(broadcast)))[0]


def get(id: str) -> Steps[round_pb2.Round]:
    """The round as it is now."""
    return (yield from call(GET_ROUND, round_service_pb2.GetRoundRequest(round=id))).round


def wait(id: str, etag: str, timeout: float | None, progress: bool | None, aggregate_bytes_max: int = 0) -> Steps[Ended]:
    """The round when it has ended, and what it released if that has at most so many bytes; `etag` is of the last that was seen of it. RoundStuck if it
    will not end before its deadline unless somebody helps. DeadlineExceeded after `timeout` seconds: it goes on."""
    must_end_at = None if timeout is None else time.monotonic() + timeout
    with ProgressBar(id, progress) as bar:
        request = round_service_pb2.GetRoundRequest(round=id, etag=etag, aggregate_bytes_max=aggregate_bytes_max)
        while True:
            left = _POLL_SECONDS if must_end_at is None else max(must_end_at - time.monotonic(), 0.0)
            seconds = min(left, _POLL_SECONDS)
            request.wait.FromNanoseconds(int(seconds * 1e9))
            asked = time.monotonic()
            answer = yield from call(GET_ROUND, request, seconds + _POLL_GRACE_SECONDS)
            seen = answer.round
            bar.show(RoundView(seen))
            if RoundView(seen).has_ended:
                return Ended(seen, answer.aggregate_file)
            if _is_stuck(seen):
                raise RoundStuck(f"round {id} is stuck: {seen.tasks.buried} of its tasks failed as often as it allows. "
                                 + (yield from explain(id)), round=id, state="COLLECTING")
            if must_end_at is not None and time.monotonic() >= must_end_at:
                raise DeadlineExceeded(f"round {id} has not ended within {timeout:g} s; it goes on: see its explain()")
            if seen.etag == request.etag and time.monotonic() - asked < seconds / 2:
                yield Pause(_NO_NEWS_SECONDS)
            request.etag = seen.etag


def _is_stuck(round: round_pb2.Round) -> bool:
    tasks = round.tasks
    return round.state == round_pb2.COLLECTING and tasks.buried > 0 and not (tasks.queued or tasks.leased)


def check_succeeded(round: round_pb2.Round) -> None:
    """RoundFailed, with the server's reason, if it ended otherwise."""
    if round.state == round_pb2.SUCCEEDED:
        return
    ended = "was cancelled" if round.state == round_pb2.CANCELLED else "failed"
    raise RoundFailed(f"round {round.id} {ended}: {round.error}", round=round.id,
                      state=round_pb2.RoundState.Name(round.state))


def result(view: RoundView, timeout: float | None, progress: bool | None, bytes_max: int) -> Steps[Result]:
    """What the round released, when it has ended."""
    file = b""
    if not view.has_ended:
        view.message, file = yield from wait(view.id, view.message.etag, timeout, progress, min(INLINE_BYTES_MAX, bytes_max))
    check_succeeded(view.message)
    if file:
        return Result(view, checked(file, view.message.aggregate.digest))
    return Result(view, (yield from read_aggregate(view.id, bytes_max)))


def page(population: str, states: list[str], job: str, token: str) -> Steps[round_service_pb2.ListRoundsResponse]:
    """One page of the list of rounds."""
    request = round_service_pb2.ListRoundsRequest(
        population=population, states=[round_pb2.RoundState.Value(state) for state in states], job=job,
        page_token=token,
    )
    answer = yield from call(LIST_ROUNDS, request)
    if answer.next_page_token and answer.next_page_token == token:
        raise DataLoss("the server's list of rounds does not end: its next page is the same again")
    return answer


def cancel(id: str, reason: str, seconds: float = CALL_SECONDS) -> Steps[round_pb2.Round]:
    """Ends the round without an aggregate."""
    request = round_service_pb2.CancelRoundRequest(request_id=new_request_id(), round=id, reason=reason)
    return (yield from call(CANCEL_ROUND, request, seconds)).round


def explain(id: str) -> Steps[str]:
    """Why the round is not done yet, or how it ended."""
    answer = yield from call(EXPLAIN_ROUND, inspection_service_pb2.ExplainRoundRequest(round=id))
    lines = [answer.summary, *(f"  - {reason}" for reason in answer.reasons), *(f"  hint: {hint}" for hint in answer.hints)]
    return "\n".join(lines)


def workers(population: str) -> Steps[list[str]]:
    """Names of the workers that have called."""
    names: list[str] = []
    token = ""
    while True:
        request = inspection_service_pb2.ListWorkersRequest(population=population, page_token=token)
        answer = yield from call(LIST_WORKERS, request)
        names += [worker.name for worker in answer.workers]
        if not answer.next_page_token:
            return names
        if answer.next_page_token == token:
            raise DataLoss("the server's list of workers does not end: its next page is the same again")
        token = answer.next_page_token


def goes_on(id: str) -> str:
    """What is added to whatever interrupts a wait: nothing is cancelled without somebody saying so."""
    return f'round {id} goes on at the server; server.round("{id}").wait() waits again, .cancel() ends it'


def in_round(number: int, rounds: int | None) -> str:
    """What is added to whatever ends a loop."""
    return f"in round {number}{'' if rounds is None else f' of {rounds}'} of the loop"


def states_of(state: str | list[str] | None) -> list[str]:
    """The states that a list is about, as the protocol names them. InvalidArgument if there is none of a name."""
    states = [each.upper() for each in ([state] if isinstance(state, str) else state or [])]
    for each in states:
        if each not in round_pb2.RoundState.keys():
            raise InvalidArgument(f"there is no state {each!r} of rounds; they are ANNOUNCED, COLLECTING, SEALING, SUCCEEDED, "
                                  "FAILED and CANCELLED")
    return states


def current(options: Mapping[str, Any]) -> RoundOptions:
    """The arguments of the next round of a loop: what is a function is called."""
    now: dict[str, Any] = {name: value() if callable(value) else value for name, value in options.items()}
    return cast(RoundOptions, now)
