"""The same for asyncio: `connect` gives a server whose methods are awaited.

    async with sheaf.aio.connect("HOST:7433") as server:
        result = await server.run("mean_age", outputs={"age": sheaf.weighted_mean(shape=())}, tasks=20)
        async for result in server.loop("tags", rounds=20, outputs=.., tasks=50, broadcast=lambda: {"w": w}):
            w += result["w"]
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeVar, Unpack

from sheaf import round_calls
from sheaf.calls import GET_SERVER_INFO, AsyncChannel, Begin, Call, CallFailed, Compute, End, Pause, Steps, call
from sheaf.connection import Link
from sheaf.result import Result
from sheaf.round_spec import Broadcast, RoundOptions
from sheaf.round_view import RoundView
from sheaf.rounds_ahead import RoundsAhead
from sheaf.security import Security
from sheaf.transfer import READ_BYTES_MAX, Content, upload
from sheaf.v1 import inspection_service_pb2, round_pb2

T = TypeVar("T")


def _open_channel(security: Security) -> AsyncChannel:
    """By the protocol that the address names."""
    if security.server.is_http:
        from sheaf.http_channel import HttpAsyncChannel

        return HttpAsyncChannel(security)
    from sheaf.grpc_channel import GrpcAsyncChannel

    return GrpcAsyncChannel(security)


class Connection:
    """A connection to a server, and the driver of operations in an event loop."""

    def __init__(self, security: Security, seconds: float) -> None:
        self.link = Link(security, seconds)
        self.channel = _open_channel(security)

    async def run(self, steps: Steps[T]) -> T:
        """Makes the steps of an operation, and gives what it returns. Errors are sheaf.Error."""
        answer: Any = None
        error: BaseException | None = None
        begun: set[asyncio.Task[Any]] = set()
        try:
            while True:
                try:
                    step = steps.send(answer) if error is None else steps.throw(error)
                except StopIteration as end:
                    returned: T = end.value
                    return returned
                answer, error = None, None
                try:
                    if isinstance(step, Call):
                        answer = await self._call(step)
                    elif isinstance(step, Begin):
                        answer = asyncio.ensure_future(self._call(step.call))
                        begun.add(answer)
                    elif isinstance(step, End):
                        begun.discard(step.begun)
                        answer = await step.begun
                    elif isinstance(step, Pause):
                        await asyncio.sleep(step.seconds)
                    elif isinstance(step, Compute):
                        answer = await asyncio.to_thread(step.function)
                except Exception as raised:
                    error = raised
        finally:
            steps.close()
            for task in begun:
                task.cancel()
            await asyncio.gather(*begun, return_exceptions=True)

    async def close(self) -> None:
        """Ends open calls, and the connection."""
        await self.channel.close()

    async def _call(self, call: Call) -> Any:
        patience = self.link.patience(call)
        while True:
            shown = self.link.token.header()
            try:
                answer = await self.channel.call(call.method, call.request, patience.attempt(shown))
                self.link.reached()
                return answer
            except CallFailed as failed:
                pause = self.link.pause_after(patience, failed, shown)
            await asyncio.sleep(pause)


class Round(RoundView):
    """As `sheaf.Round`; its methods are awaited."""

    def __init__(self, connection: Connection, message: round_pb2.Round) -> None:
        super().__init__(message)
        self._connection = connection

    async def refresh(self) -> Round:
        """As `sheaf.Round.refresh`."""
        self.message = await self._connection.run(round_calls.get(self.id))
        return self

    async def wait(self, timeout: float | None = None, *, progress: bool | None = None) -> Round:
        """As `sheaf.Round.wait`. Cancelling it does not cancel the round."""
        try:
            self.message = (await self._connection.run(round_calls.wait(self.id, self.message.etag, timeout, progress))).round
        except BaseException as error:
            error.add_note(round_calls.goes_on(self.id))
            raise
        return self

    async def result(self, timeout: float | None = None, *, progress: bool | None = None,
                     bytes_max: int = READ_BYTES_MAX) -> Result:
        """As `sheaf.Round.result`."""
        try:
            return await self._connection.run(round_calls.result(self, timeout, progress, bytes_max))
        except BaseException as error:
            if not self.has_ended:
                error.add_note(round_calls.goes_on(self.id))
            raise

    async def open(self, broadcast: Broadcast | None = None) -> Round:
        """As `sheaf.Round.open`."""
        self.message = await self._connection.run(round_calls.open(self.message, broadcast))
        return self

    async def cancel(self, reason: str = "cancelled by its program") -> Round:
        """As `sheaf.Round.cancel`."""
        self.message = await self._connection.run(round_calls.cancel(self.id, reason))
        return self

    async def explain(self) -> str:
        """As `sheaf.Round.explain`."""
        return await self._connection.run(round_calls.explain(self.id))


class Server:
    """As `sheaf.Server`; its methods are awaited. For one event loop."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def run(self, computation: str, /, *, timeout: float | None = None, progress: bool | None = None,
                  **options: Unpack[RoundOptions]) -> Result:
        """As `sheaf.Server.run`."""
        round = await self.create(computation, **options)
        return await round.result(timeout, progress=progress)

    async def create(self, computation: str, /, **options: Unpack[RoundOptions]) -> Round:
        """As `sheaf.Server.create`."""
        population = self._connection.link.security.population
        return Round(self._connection, await self._connection.run(round_calls.create(computation, options, population)))

    async def announce(self, computation: str, /, **options: Unpack[RoundOptions]) -> Round:
        """As `sheaf.Server.announce`."""
        population = self._connection.link.security.population
        return Round(self._connection, await self._connection.run(round_calls.announce(computation, options, population)))

    async def loop(self, computation: str, /, *, rounds: int | None = None, ahead: int = 0, buffered: bool = False,
                   apply: Callable[[Result], object] | None = None, timeout: float | None = None, progress: bool | None = None,
                   **options: Any) -> AsyncIterator[Result]:
        """As `sheaf.Server.loop`, for `async for`. Who leaves it with `ahead` closes it, as contextlib.aclosing does."""
        run = self._connection.run
        begun = RoundsAhead(computation, options, self._connection.link.security.population, rounds, ahead, buffered)
        try:
            while begun.has_next:
                try:
                    round = Round(self._connection, await run(begun.next()))
                    result = await round.result(timeout, progress=progress)
                    if apply is not None:
                        apply(result)
                        await run(begun.open_early())
                except BaseException as error:
                    error.add_note(round_calls.in_round(begun.number, rounds))
                    raise
                yield result
        finally:
            await run(begun.cancel())

    async def round(self, id: str, /) -> Round:
        """As `sheaf.Server.round`."""
        return Round(self._connection, await self._connection.run(round_calls.get(id)))

    async def rounds(self, *, state: str | list[str] | None = None, job: str = "") -> AsyncIterator[Round]:
        """As `sheaf.Server.rounds`, for `async for`."""
        population, token = self._connection.link.security.population, ""
        while True:
            page = await self._connection.run(round_calls.page(population, round_calls.states_of(state), job, token))
            for message in page.rounds:
                yield Round(self._connection, message)
            token = page.next_page_token
            if not token:
                return

    async def upload(self, content: Broadcast | Mapping[str, Any] | os.PathLike[str] | bytes, /) -> str:
        """As `sheaf.Server.upload`."""
        population = self._connection.link.security.population
        return (await self._connection.run(upload(Content(content), population))).digest

    async def info(self) -> inspection_service_pb2.GetServerInfoResponse:
        """As `sheaf.Server.info`."""
        return await self._connection.run(call(GET_SERVER_INFO, inspection_service_pb2.GetServerInfoRequest()))

    async def workers(self) -> list[str]:
        """As `sheaf.Server.workers`."""
        return await self._connection.run(round_calls.workers(self._connection.link.security.population))

    @property
    def address(self) -> str:
        """HOST:PORT, or the URL of its HTTP/1.1."""
        return self._connection.link.security.address

    async def close(self) -> None:
        """Ends the connection. Rounds go on."""
        await self._connection.close()

    async def __aenter__(self) -> Server:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<sheaf.aio.Server at {self.address}>"


def connect(address: str | None = None, *, tls_ca: str | os.PathLike[str] | None = None,
            tls_cert: str | os.PathLike[str] | None = None, tls_key: str | os.PathLike[str] | None = None,
            token_file: str | os.PathLike[str] | None = None, insecure: bool | None = None, population: str | None = None,
            seconds: float = 30.0) -> Server:
    """As `sheaf.connect`. Called where an event loop runs."""
    security = Security.of(os.environ, address, tls_ca, tls_cert, tls_key, token_file, insecure, population)
    return Server(Connection(security, seconds))
