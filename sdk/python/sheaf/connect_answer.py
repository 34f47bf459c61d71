"""An answer of HTTP as what it says of a call, by the rules of the Connect protocol for unary calls.

What no Sheaf server says, but a proxy, a login page or another server, becomes a sentence that says who answered what, and what to
do. As sdk/cpp/client/connect_answer.cc.
"""

from __future__ import annotations

import dataclasses
import http
import json

from sheaf.calls import CallFailed
from sheaf.errors import Error, error_of

_CODES = {
    "canceled": "CANCELLED", "unknown": "UNKNOWN", "invalid_argument": "INVALID_ARGUMENT", "deadline_exceeded": "DEADLINE_EXCEEDED",
    "not_found": "NOT_FOUND", "already_exists": "ALREADY_EXISTS", "permission_denied": "PERMISSION_DENIED",
    "resource_exhausted": "RESOURCE_EXHAUSTED", "failed_precondition": "FAILED_PRECONDITION", "aborted": "ABORTED",
    "out_of_range": "OUT_OF_RANGE", "unimplemented": "UNIMPLEMENTED", "internal": "INTERNAL", "unavailable": "UNAVAILABLE",
    "data_loss": "DATA_LOSS", "unauthenticated": "UNAUTHENTICATED",
}
# The codes that Connect infers from a status which says no error of its own; but for 407, where nothing was reached.
_INFERRED = {400: "INTERNAL", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "UNIMPLEMENTED", 407: "UNAVAILABLE",
             429: "UNAVAILABLE", 502: "UNAVAILABLE", 503: "UNAVAILABLE", 504: "UNAVAILABLE"}
_EXCERPT_CHARACTERS_MAX = 200


@dataclasses.dataclass(frozen=True)
class Asked:
    """Who was asked, for the sentences."""

    # Its URL.
    server: str
    # That of a proxy on the way, "" if there is none, and who names it.
    proxy: str = ""
    proxy_variable: str = ""
    # Whether the proxy sees the answers, as one does with http://.
    proxy_sees: bool = False


@dataclasses.dataclass(frozen=True)
class Answer:
    """One answer: its status, its fields by names in small letters, and its body."""

    status: int
    fields: dict[str, str]
    body: bytes


def check(answer: Answer, asked: Asked) -> None:
    """CallFailed unless the body is the answer's message."""
    encoding = answer.fields.get("content-encoding", "identity").lower()
    if encoding != "identity":
        raise CallFailed(error_of("INTERNAL", f'{asked.server} answered in the content-encoding "{_excerpt(encoding)}", which nobody '
                                  "asked for: have what stands in front of the server pass answers on as they are"))
    media_type = _media_type(answer)
    if answer.status == 200:
        if media_type == "application/proto":
            return
        raise CallFailed(error_of("UNKNOWN", f'{asked.server} answered with "{_excerpt(answer.fields.get("content-type", ""))}" in '
                                  "place of a message: no Sheaf server is there, or something on the way answers for it, such as a "
                                  "login page; open the address in a browser"))
    error = _error_of(answer) if media_type == "application/json" else None
    if error is None:
        raise CallFailed(_foreign(answer, asked), _retry_after(answer))
    code, message = error
    if code == "UNAVAILABLE":
        message = f"the server at {asked.server} cannot be reached: {message}"
    raise CallFailed(error_of(code, message), _retry_after(answer))


def proxy_refusal(status: int, asked: Asked) -> CallFailed:
    """What a proxy said when it was to lead to the server."""
    advice = (_advice(status, "", asked) if status == 407 else "it does not lead there: ask whoever runs it to allow CONNECT to this "
              "host and port, or leave it out with NO_PROXY")
    return unreachable(asked.server, f"the proxy {asked.proxy} answered {_numbered(status)}; {advice}")


def unreachable(server: str, why: str) -> CallFailed:
    """Unavailable, in the words that a client has for it, whatever its transport."""
    return CallFailed(error_of("UNAVAILABLE", f"the server at {server} cannot be reached: {why}"))


def _error_of(answer: Answer) -> tuple[str, str] | None:
    """Code and message of an error of Connect."""
    try:
        error = json.loads(answer.body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(error, dict) or not isinstance(error.get("code"), str) or error["code"] not in _CODES:
        return None
    message = error.get("message", "")
    return _CODES[error["code"]], message if isinstance(message, str) else ""


def _retry_after(answer: Answer) -> float | None:
    """The server's word on when to ask again, else what any proxy may say."""
    for name, unit in (("grpc-retry-pushback-ms", 1000), ("retry-after", 1)):
        value = answer.fields.get(name, "")
        if value.isascii() and value.isdecimal() and len(value) < 10:
            return int(value) / unit
    return None


def _foreign(answer: Answer, asked: Asked) -> Error:
    who = f"{asked.server}, or the proxy {asked.proxy} before it," if asked.proxy and asked.proxy_sees else asked.server
    says = ""
    if _media_type(answer) == "text/plain" and answer.body:
        says = f' ("{_excerpt(answer.body.decode("utf-8", "replace"))}")'
    advice = _advice(answer.status, answer.fields.get("location", ""), asked)
    what = f"{who} answered {_numbered(answer.status)}{says}; {advice}"
    code = _INFERRED.get(answer.status, "UNKNOWN")
    return unreachable(asked.server, what).error if code == "UNAVAILABLE" else error_of(code, what)


def _advice(status: int, location: str, asked: Asked) -> str:
    if 300 <= status < 400:
        return f"it sends callers to {_excerpt(location) or 'nowhere'}: give that address, if it is the server's"
    if status in (401, 403):
        return "what answers is no Sheaf server, but stands in front of it: ask whoever runs it to let calls through"
    if status in (404, 405):
        return "no Sheaf server is there: check the host, the port (that of sheafd --http) and the path of the address"
    if status == 407:
        return f"give the proxy's user and password in {asked.proxy_variable or 'HTTPS_PROXY'}, as http://USER:PASSWORD@HOST:PORT"
    if status == 413:
        return "something in front of the server takes no requests of this size: have its limit raised to 8 MiB"
    if status in (426, 505):
        return "what answers does not speak HTTP/1.1: give the port of sheafd --http"
    if status in (502, 503, 504):
        return "what stands in front of the server did not get an answer from it: is the server up?"
    return "what answers is no Sheaf server: check the address, and what stands in front of the server"


def _media_type(answer: Answer) -> str:
    return answer.fields.get("content-type", "").partition(";")[0].strip().lower()


def _numbered(status: int) -> str:
    try:
        return f"{status} {http.HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _excerpt(text: str) -> str:
    """One line of it that harms no terminal."""
    line = (text.splitlines() or [""])[0][:_EXCERPT_CHARACTERS_MAX]
    return "".join(each if each.isprintable() else "?" for each in line)
