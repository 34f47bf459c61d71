"""A server, as programs see it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Unpack

from sheaf import round_calls
from sheaf.calls import GET_SERVER_INFO, call
from sheaf.connection import Connection
from sheaf.result import Result
from sheaf.round_spec import Broadcast, RoundOptions
from sheaf.round_view import RoundView
from sheaf.rounds_ahead import RoundsAhead
from sheaf.security import Security
from sheaf.transfer import READ_BYTES_MAX, Content, upload
from sheaf.v1 import inspection_service_pb2, round_pb2


class Round(RoundView):
    """A round at a server. What its properties say is what was seen last: `refresh` and `wait` look again."""

    def __init__(self, connection: Connection, message: round_pb2.Round) -> None:
        super().__init__(message)
        self._connection = connection

    def refresh(self) -> Round:
        """Looks at it now. NotFound if it is not there any more."""
        self.message = self._connection.run(round_calls.get(self.id))
        return self

    def wait(self, timeout: float | None = None, *, progress: bool | None = None) -> Round:
        """Waits until it has ended, whichever way; `timeout` seconds at the most.

        progress: a bar, if tqdm is there; None is on terminals only. RoundStuck if nothing of it runs or waits, because its last
        tasks were given up: it would only wait for the deadline. DeadlineExceeded after the timeout. Then, and if Ctrl-C
        interrupts it, the round goes on at the server; the exception says so, and how to wait again or cancel it.
        """
        try:
            self.message = self._connection.run(round_calls.wait(self.id, self.message.etag, timeout, progress)).round
        except BaseException as error:
            error.add_note(round_calls.goes_on(self.id))
            raise
        return self

    def result(self, timeout: float | None = None, *, progress: bool | None = None,
               bytes_max: int = READ_BYTES_MAX) -> Result:
        """Waits as `wait` does, and reads what it released, `bytes_max` at the most.

        RoundFailed if it released nothing, with the server's reason.
        """
        try:
            return self._connection.run(round_calls.result(self, timeout, progress, bytes_max))
        except BaseException as error:
            if not self.has_ended:
                error.add_note(round_calls.goes_on(self.id))
            raise

    def open(self, broadcast: Broadcast | None = None) -> Round:
        """Opens a round that `announce` made: its tasks get this broadcast (as in RoundOptions), and are computed.

        Opening it again with the same broadcast changes nothing. FailedPrecondition if it was opened with another one, was not
        announced, or has ended: also because it was not opened within its announce_deadline.
        """
        self.message = self._connection.run(round_calls.open(self.message, broadcast))
        return self

    def cancel(self, reason: str = "cancelled by its program") -> Round:
        """Ends it without an aggregate. FailedPrecondition if it ended otherwise before."""
        self.message = self._connection.run(round_calls.cancel(self.id, reason))
        return self

    def explain(self) -> str:
        """Why it is not done yet, or how it ended: a few lines. Not for tokens of workers."""
        return self._connection.run(round_calls.explain(self.id))


class Server:
    """A server, and a connection to it. Made by `sheaf.connect`. Thread-safe; a context manager that closes it.

    All methods raise `sheaf.Error`s, in the server's words. Calls that a server does not answer, or puts off, are repeated:
    a restart of the server is survived.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def run(self, computation: str, /, *, timeout: float | None = None, progress: bool | None = None,
            **options: Unpack[RoundOptions]) -> Result:
        """One round, from its broadcast to its result.

            result = server.run("mean_age", outputs={"age": sheaf.weighted_mean(shape=())}, tasks=20)

        computation: its name. options: see RoundOptions. timeout, progress: as of `Round.wait`; so is Ctrl-C, which cancels
        nothing. RoundFailed if the round released nothing.
        """
        return self.create(computation, **options).result(timeout, progress=progress)

    def create(self, computation: str, /, **options: Unpack[RoundOptions]) -> Round:
        """Uploads the broadcast, if there is one, creates a round, and does not wait for it. options: see RoundOptions."""
        population = self._connection.link.security.population
        return Round(self._connection, self._connection.run(round_calls.create(computation, options, population)))

    def announce(self, computation: str, /, **options: Unpack[RoundOptions]) -> Round:
        """Creates a round whose broadcast is not known yet: workers prepare its tasks, and compute when it is opened.

            round = server.announce("tags", outputs=.., tasks=50)
            result = round.open({"w": w}).result()

        options: see RoundOptions, without `broadcast`. It fails if it is not opened within its announce_deadline.
        """
        population = self._connection.link.security.population
        return Round(self._connection, self._connection.run(round_calls.announce(computation, options, population)))

    def loop(self, computation: str, /, *, rounds: int | None = None, ahead: int = 0, buffered: bool = False,
             apply: Callable[[Result], object] | None = None, timeout: float | None = None, progress: bool | None = None,
             **options: Any) -> Iterator[Result]:
        """One round after the other; the results, as they come.

            for result in server.loop("tags", rounds=20, outputs=.., tasks=50, broadcast=lambda: {"w": w}):
                w += result["w"]

        rounds: how many; None goes on until the loop is left. options: see RoundOptions; each may also be a function without
        arguments, which is called before each round: after the loop's body has seen the result of the last one. An exception
        says in which round it was raised.

        ahead: how many rounds are announced ahead of the one that runs, so that workers read and preprocess the data of their
        tasks meanwhile (see `sheaf-worker --prepare-ahead`). All of their options are asked for then, but for the broadcast, which
        is asked for when the round is opened: the values that the rounds release are the same with any `ahead`. apply: called
        with each result before it comes; with `ahead` the next round is opened right after it, so that the loop's body, which
        evaluates, runs beside the workers. buffered: each round continues the one before it: tasks that still run when a round has
        its `goal` are not cancelled, but go on in the next, where their contributions count (see `staleness` of RoundOptions). Give
        a goal, and more tasks than that. One round is announced ahead at least. A loop that is left, or in which something is raised, cancels what it began ahead.

        Of a broadcast that is a mapping of more than a megabyte, only the rows that changed since the round before are sent, where
        that is less; workers get the same bits. For that the loop keeps a copy of it, which takes as much memory again.
        """
        run = self._connection.run
        begun = RoundsAhead(computation, options, self._connection.link.security.population, rounds, ahead, buffered)
        try:
            while begun.has_next:
                try:
                    result = Round(self._connection, run(begun.next())).result(timeout, progress=progress)
                    if apply is not None:
                        apply(result)
                        run(begun.open_early())
                except BaseException as error:
                    error.add_note(round_calls.in_round(begun.number, rounds))
                    raise
                yield result
        finally:
            run(begun.cancel())

    def round(self, id: str, /) -> Round:
        """The round of this id, as it is now. NotFound if there is none."""
        return Round(self._connection, self._connection.run(round_calls.get(id)))

    def rounds(self, *, state: str | list[str] | None = None, job: str = "") -> Iterator[Round]:
        """The rounds of the population, newest first; those in this state or these, and of this job. Read page by page."""
        population, token = self._connection.link.security.population, ""
        while True:
            page = self._connection.run(round_calls.page(population, round_calls.states_of(state), job, token))
            yield from (Round(self._connection, message) for message in page.rounds)
            token = page.next_page_token
            if not token:
                return

    def upload(self, content: Broadcast | Mapping[str, Any] | os.PathLike[str] | bytes, /) -> str:
        """Uploads a broadcast, once for several rounds; its digest, for their `broadcast`.

        content: a mapping from names to arrays (or `sheaf.Sparse`), a pathlib.Path of a safetensors file, or bytes. What the
        server has already does not travel. It keeps what no round names for an hour.
        """
        population = self._connection.link.security.population
        return self._connection.run(upload(Content(content), population)).digest

    def info(self) -> inspection_service_pb2.GetServerInfoResponse:
        """Version, uptime, store, operators and limits of the server: sheaf.v1.GetServerInfoResponse."""
        return self._connection.run(call(GET_SERVER_INFO, inspection_service_pb2.GetServerInfoRequest()))

    def workers(self) -> list[str]:
        """Names of the workers that have called, in order. Not for tokens of workers."""
        return self._connection.run(round_calls.workers(self._connection.link.security.population))

    @property
    def address(self) -> str:
        """HOST:PORT, or the URL of its HTTP/1.1."""
        return self._connection.link.security.address

    def close(self) -> None:
        """Ends the connection. Rounds go on."""
        self._connection.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<sheaf.Server at {self.address}>"


def connect(address: str | None = None, *, tls_ca: str | os.PathLike[str] | None = None,
            tls_cert: str | os.PathLike[str] | None = None, tls_key: str | os.PathLike[str] | None = None,
            token_file: str | os.PathLike[str] | None = None, insecure: bool | None = None, population: str | None = None,
            seconds: float = 30.0) -> Server:
    """A server, for programs. The connection is made when it is first used.

    address: HOST:PORT, or https://HOST:PORT or http://HOST:PORT for HTTP/1.1, through the proxy of HTTPS_PROXY if there is one.
    tls_ca: PEM file with the authorities of the server's certificate, or "system" for those that this machine trusts; without it
    gRPC is without TLS, and https:// takes those of the machine. tls_cert, tls_key: our own certificate, for a server that asks for one.
    token_file: file with the token that proves who we are. Files are read again when they change. insecure: send the token even where
    others on the network can read it. population: whose rounds.

    What is not given is taken from SHEAF_SERVER, SHEAF_TLS_CA, SHEAF_TLS_CERT, SHEAF_TLS_KEY, SHEAF_TOKEN_FILE, SHEAF_INSECURE
    and SHEAF_POPULATION, as `sheaf` does; else the server is the one on this machine, and the population "default".

    seconds: how long a call goes on trying while a server that was reached before cannot be reached; 3 at the most before.

    Errors name the file that is wrong. FailedPrecondition: the token would travel in the clear.
    """
    security = Security.of(os.environ, address, tls_ca, tls_cert, tls_key, token_file, insecure, population)
    return Server(Connection(security, seconds))
