"""A call that names a broadcast: it comes along with the call if it is small, and is uploaded before else."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from sheaf.calls import Method, Steps, call
from sheaf.errors import Error
from sheaf.transfer import INLINE_BYTES_MAX, Content, Uploaded, upload

A = TypeVar("A")


class BroadcastCall(Generic[A]):
    """CreateRound or OpenRound. For drivers: its methods are operations, and each makes the call.

        opening = BroadcastCall(OPEN_ROUND, request, request, "default", (ResourceExhausted,))
        answer, uploaded = yield from opening.bringing(Content({"w": w}))
    """

    def __init__(self, method: Method[Any, A], request: Any, names_it: Any, population: str,
                 wants_upload: tuple[type[Error], ...]) -> None:
        """names_it: the message that has its digest. population: the round's. wants_upload: what a server answers that takes less
        in a call."""
        self._method, self._request, self._names_it = method, request, names_it
        self._population, self._wants_upload = population, wants_upload

    def without(self) -> Steps[A]:
        """Without a broadcast."""
        return (yield from call(self._method, self._request))

    def naming(self, digest: str) -> Steps[A]:
        """With one that the server has."""
        self._request.ClearField("broadcast")
        self._names_it.broadcast_digest = digest
        return (yield from call(self._method, self._request))

    def bringing(self, content: Content) -> Steps[tuple[A, Uploaded]]:
        """With one that the server may not have. What came along with the call is said to take no patches: nobody was asked."""
        if content.size <= INLINE_BYTES_MAX:
            digest = content.digest()
            self._request.broadcast = bytes(content)
            self._names_it.broadcast_digest = digest
            try:
                return (yield from call(self._method, self._request)), Uploaded(digest, takes_patches=False)
            except self._wants_upload:
                pass
        uploaded = yield from upload(content, self._population)
        return (yield from self.naming(uploaded.digest)), uploaded
