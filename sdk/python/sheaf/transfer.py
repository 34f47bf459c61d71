"""Large content: broadcasts up, aggregates down. Bounded, in chunks, checked against its SHA-256."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy

from sheaf.calls import (FINISH_UPLOAD, QUERY_UPLOAD, READ_AGGREGATE, START_UPLOAD, WRITE_CHUNK, Begin, Call, Compute, End,
                         Steps, call, new_request_id)
from sheaf.computations import broadcast_tensors
from sheaf.dtypes import Array
from sheaf.errors import (DataLoss, DeadlineExceeded, FailedPrecondition, InvalidArgument, Internal, NotFound,
                          OutOfRange, ResourceExhausted, Unavailable)
from sheaf.safetensors import Encoded
from sheaf.v1 import blob_service_pb2, round_service_pb2

# As much as is read of one aggregate unless somebody asks for more: the largest broadcast that a server usually takes.
READ_BYTES_MAX = 16 << 30
# What travels along with another call, instead of in calls of its own: a server's inline_bytes_max.
INLINE_BYTES_MAX = 1 << 20
# What a server gives at a time, and calls under way at once: the next chunks travel while one is hashed.
_CHUNK_BYTES = 2 << 20
_CALLS_MAX = 4
_RESTARTS_MAX = 3
_IDLE_TURNS_MAX = 5
_SETBACKS_MAX = 16
_DIGEST_CHARACTERS = 64


def read_aggregate(round: str, bytes_max: int) -> Steps[Array]:
    """The safetensors file that a round released, as an array of its bytes. DataLoss if it is not what its digest says."""

    def ask(offset: int, length: int) -> Call:
        request = round_service_pb2.ReadAggregateRequest(round=round, offset=offset, length=length)
        return Call(READ_AGGREGATE, request)

    first = yield ask(0, _CHUNK_BYTES)
    size, digest = first.size_bytes, first.digest
    if not 0 <= size <= bytes_max:
        raise ResourceExhausted(f"the aggregate of round {round} has {size} bytes, and no more than {bytes_max} are taken here")
    if size > _CALLS_MAX * _CHUNK_BYTES:
        _keep_blocks()
    # Memory that was not written to takes none: a size that is a lie costs nothing.
    file = numpy.empty(size, numpy.uint8)
    hasher = hashlib.sha256()
    at = 0
    asked_to = min(len(first.data), size)
    open_calls: deque[tuple[int, int, Any]] = deque()
    answer = first
    length = asked_to
    while True:
        data = answer.data
        if answer.size_bytes != size or len(data) > size - at or (not data and at < size):
            raise DataLoss(f"{len(data)} bytes of {answer.size_bytes} arrived from offset {at} of an aggregate of {size}")
        while asked_to < size and len(open_calls) < _CALLS_MAX:
            begin, asked_to = asked_to, min(asked_to + _CHUNK_BYTES, size)
            open_calls.append((begin, asked_to - begin, (yield Begin(ask(begin, asked_to - begin)))))
        data = data[:length]
        file[at : at + len(data)] = numpy.frombuffer(data, numpy.uint8)
        hasher.update(file[at : at + len(data)].data)
        at += len(data)
        if len(data) < length:
            # The answer held less than was asked for: the rest comes before what follows it.
            length -= len(data)
            answer = yield ask(at, length)
        elif open_calls:
            begin, length, begun = open_calls.popleft()
            answer = yield End(begun)
        else:
            break
    if hasher.hexdigest() != digest:
        raise DataLoss(f"the bytes that arrived have the digest {hasher.hexdigest()} and should have {digest}; read again")
    return file


def _keep_blocks() -> None:
    """Lets the C library keep blocks of some megabytes, instead of giving each back to the kernel and taking a new one.

    It does so once it has seen a larger one freed (mallopt(3), M_MMAP_THRESHOLD): 135,000 page faults for a gigabyte become
    10,000.
    """
    numpy.empty((32 << 20) - (1 << 16), numpy.uint8)


@dataclasses.dataclass
class Chunk:
    """A WriteChunkRequest whose data lies elsewhere. protobuf would copy it three times before it travels."""

    request: blob_service_pb2.WriteChunkRequest
    pieces: list[memoryview]
    size: int

    def SerializeToString(self) -> bytes:
        """The message with its field `data`: what a protobuf message is followed by belongs to it."""
        return b"".join([self.request.SerializeToString(), b"\x1a", _varint(self.size), *self.pieces])


def _varint(number: int) -> bytes:
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*digits, number])


class Content:
    """What is to be uploaded: bytes somewhere, in pieces."""

    def __init__(self, content: Any) -> None:
        if isinstance(content, Mapping):
            content = Encoded(broadcast_tensors(content))
        elif isinstance(content, os.PathLike):
            path = os.fspath(content)
            try:
                content = numpy.memmap(path, numpy.uint8, "r") if os.path.getsize(path) else b""
            except OSError as error:
                raise NotFound(f"cannot read {path}: {error.strerror}") from None
        elif not isinstance(content, (bytes, bytearray, memoryview, Encoded)):
            raise InvalidArgument(f"a broadcast is a mapping from names to arrays, a pathlib.Path, bytes, or the digest of an "
                                  f"upload, and not a {type(content).__name__}")
        self._content = content
        self.size = content.size if isinstance(content, Encoded) else memoryview(content).nbytes

    def chunk(self, upload_id: str, offset: int, length: int) -> Chunk:
        """The bytes from `offset` on, at most `length` of them."""
        pieces = list(self._pieces(offset, length))
        size = sum(len(piece) for piece in pieces)
        return Chunk(blob_service_pb2.WriteChunkRequest(upload_id=upload_id, offset=offset), pieces, size)

    def _pieces(self, offset: int, length: int) -> Iterable[memoryview]:
        if isinstance(self._content, Encoded):
            return self._content.pieces(offset, length)
        return [memoryview(self._content)[offset : offset + length]]

    def __bytes__(self) -> bytes:
        return bytes(self._content)

    def digest(self) -> str:
        hasher = hashlib.sha256()
        for piece in self._content.pieces() if isinstance(self._content, Encoded) else [self._content]:
            hasher.update(piece)
        return hasher.hexdigest()


def checked(file: bytes, digest: str) -> Array:
    """A file that came whole, as an array of its bytes. DataLoss if it is not what its digest says."""
    actual = hashlib.sha256(file).hexdigest()
    if actual != digest:
        raise DataLoss(f"the bytes that arrived have the digest {actual} and should have {digest}; read again")
    return numpy.frombuffer(file, numpy.uint8)


def is_digest(value: object) -> bool:
    return isinstance(value, str) and len(value) == _DIGEST_CHARACTERS and all(each in "0123456789abcdef" for each in value)


class Uploaded(NamedTuple):
    """A broadcast that the server has."""

    digest: str
    takes_patches: bool
    """Whether others may be patches of it."""


def upload(content: Content, population: str) -> Steps[Uploaded]:
    """Uploads a broadcast, if the server does not have it yet. population: of the rounds that will have it."""
    digest: str = yield Compute(content.digest)
    request_id = new_request_id()
    restarts = idle_turns = setbacks = 0
    most_committed = 0
    while True:
        # A new beginning is a new request: the old id would get the upload that is gone.
        request = blob_service_pb2.StartUploadRequest(request_id=f"{request_id}-{restarts}", size_bytes=content.size,
                                                      digest=digest, population=population)
        started = yield from call(START_UPLOAD, request)
        verdicts = blob_service_pb2.StartUploadResponse
        uploaded = Uploaded(digest, started.takes_patches)
        if started.verdict == verdicts.ALREADY_STORED:
            return uploaded
        if started.verdict != verdicts.SEND:
            raise Internal(f"the server answered an upload with the unknown verdict {started.verdict}")
        chunk_bytes = min(started.chunk_bytes_max or _CHUNK_BYTES, _CHUNK_BYTES)
        committed = started.committed_bytes
        try:
            while committed < content.size:
                try:
                    chunk = content.chunk(started.upload_id, committed, chunk_bytes)
                    written = yield Call(WRITE_CHUNK, chunk)
                    now = written.committed_bytes
                except (OutOfRange, Unavailable, DeadlineExceeded):
                    # The server went away, and lost what was not durable yet.
                    idle_turns += 1
                    if idle_turns > _IDLE_TURNS_MAX:
                        raise
                    query = blob_service_pb2.QueryUploadRequest(upload_id=started.upload_id)
                    now = (yield from call(QUERY_UPLOAD, query)).committed_bytes
                if not 0 <= now <= content.size:
                    raise Internal(f"the server has {now} bytes of an upload of {content.size}")
                if now > most_committed:
                    most_committed, idle_turns, setbacks = now, 0, 0
                else:
                    setbacks += 1
                    if setbacks > _SETBACKS_MAX:
                        raise Internal(f"the server takes no more bytes of an upload: it has {now} of {content.size}")
                committed = now
            yield from call(FINISH_UPLOAD, blob_service_pb2.FinishUploadRequest(upload_id=started.upload_id))
            return uploaded
        except (NotFound, DataLoss, FailedPrecondition):
            # The upload vanished with a restart of the server, or arrived damaged.
            restarts += 1
            if restarts > _RESTARTS_MAX:
                raise
