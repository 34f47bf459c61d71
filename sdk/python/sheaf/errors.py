"""What can go wrong in a call, as exceptions. Their text is the server's sentence.

    try:
        server.round("r-aaaaaaaa")
    except sheaf.NotFound as error:
        print(error)                     # there is no round r-aaaaaaaa

All are `sheaf.Error`. docs/reference/errors.md says what each code means.
"""

from __future__ import annotations

from typing import ClassVar


class Error(Exception):
    """Something that a server, or this package on its behalf, refused or could not do.

    `code` is the status code as docs/reference/errors.md has it, for example "NOT_FOUND".
    """

    code: ClassVar[str] = "UNKNOWN"


class InvalidArgument(Error, ValueError):
    """The request is wrong, whatever the state of the server. Names the field or position."""

    code = "INVALID_ARGUMENT"


class NotFound(Error):
    """No such round, task, worker, blob or upload."""

    code = "NOT_FOUND"


class AlreadyExists(Error):
    """The name is taken by something else."""

    code = "ALREADY_EXISTS"


class FailedPrecondition(Error):
    """The state does not allow it: the round ended, or its aggregate is not there yet."""

    code = "FAILED_PRECONDITION"


class ResourceExhausted(Error):
    """A limit, which it names, or a full disk."""

    code = "RESOURCE_EXHAUSTED"


class OutOfRange(Error):
    """An offset or row lies beyond the end, or a result beyond its type."""

    code = "OUT_OF_RANGE"


class DataLoss(Error):
    """Bytes do not match their checksum."""

    code = "DATA_LOSS"


class Unavailable(Error, ConnectionError):
    """The server cannot be reached, is stopping, or its disk failed. Calls were repeated before this was raised."""

    code = "UNAVAILABLE"


class DeadlineExceeded(Error, TimeoutError):
    """The caller's own time limit passed."""

    code = "DEADLINE_EXCEEDED"


class Unimplemented(Error):
    """The server is older than this package and does not know the method."""

    code = "UNIMPLEMENTED"


class Unauthenticated(Error):
    """No token, or one that is unknown, revoked or expired."""

    code = "UNAUTHENTICATED"


class PermissionDenied(Error):
    """The token's role may not do this, or not in this population."""

    code = "PERMISSION_DENIED"


class Internal(Error):
    """A bug, or a disk that failed."""

    code = "INTERNAL"


class RoundFailed(Error):
    """A round ended without an aggregate: it FAILED, or was CANCELLED.

    `round` is its id, `state` is "FAILED" or "CANCELLED".
    """

    code = "ABORTED"

    def __init__(self, message: str, *, round: str, state: str) -> None:
        super().__init__(message)
        self.round = round
        self.state = state


class RoundStuck(RoundFailed):
    """A round has not ended, and nothing of it runs or waits: its last tasks failed as often as it allows, and are BURIED.

    It goes on until its deadline: an operator of the server can put its tasks back. `state` is "COLLECTING".
    """

    code = "STUCK"


def _all(of: type[Error]) -> list[type[Error]]:
    return [of, *(each for child in of.__subclasses__() for each in _all(child))]


_BY_CODE = {each.code: each for each in _all(Error) if not issubclass(each, RoundFailed)}


def error_of(code: str, message: str) -> Error:
    """The exception for a status code, for example "NOT_FOUND"; a plain Error for one that is not known here."""
    return _BY_CODE.get(code, Error)(message)
