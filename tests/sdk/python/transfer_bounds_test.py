"""Large content: what arrives is what was sent, whatever the server does, and no more than is taken."""

import hashlib

import numpy
import pytest

import sheaf
from sheaf.calls import Begin, Call, Compute, End
from sheaf.transfer import Chunk, Content, read_aggregate, upload
from sheaf.v1 import blob_service_pb2, round_service_pb2

FILE = numpy.random.default_rng(1).integers(0, 256, 9_000_001, numpy.uint8).tobytes()


def drive(steps, answer):
    """Makes the steps with answers of the test's own: a server that may say anything."""
    said = None
    try:
        while True:
            step = steps.send(said) if not isinstance(said, Exception) else steps.throw(said)
            if isinstance(step, Compute):
                said = step.function()
            else:
                call = step if isinstance(step, Call) else step.call if isinstance(step, Begin) else step.begun
                said = call if isinstance(step, Begin) else answer(call.request)
    except StopIteration as end:
        return end.value


def reading(data=FILE, size=None, digest=None, most=2 << 20):
    def answer(request):
        chunk = data[request.offset : request.offset + min(request.length, most)]
        return round_service_pb2.ReadAggregateResponse(data=chunk, size_bytes=len(data) if size is None else size,
                                                       digest=digest or hashlib.sha256(data).hexdigest())
    return answer


@pytest.mark.parametrize("most", [2 << 20, (2 << 20) - 1, 700_001, 8 << 20])
def test_a_file_arrives_whole_in_chunks_of_any_size(most):
    assert drive(read_aggregate("r-1", 1 << 30), reading(most=most)).tobytes() == FILE


@pytest.mark.parametrize("kind, because, answer, bytes_max", [
    (sheaf.DataLoss, "have the digest", reading(digest="00"), 1 << 30),
    (sheaf.DataLoss, "arrived from offset", reading(size=len(FILE) + 5), 1 << 30),
    (sheaf.DataLoss, "arrived from offset", reading(size=len(FILE) // 100), 1 << 30),
    (sheaf.DataLoss, "0 bytes of", reading(most=0), 1 << 30),
    (sheaf.ResourceExhausted, "no more than 1000 are taken", reading(), 1000),
    (sheaf.ResourceExhausted, "has 4611686018427387904 bytes", reading(size=2**62), 1 << 34),
    (sheaf.ResourceExhausted, "has -1 bytes", reading(size=-1), 1 << 34),
])
def test_a_server_that_lies_of_a_file_is_not_believed(kind, because, answer, bytes_max):
    with pytest.raises(kind, match=because):
        drive(read_aggregate("r-1", bytes_max), answer)


class Uploads:
    """A server that takes chunks, and forgets or fails as it is told."""

    def __init__(self, troubles=()):
        self.data, self.troubles, self.started, self.populations = b"", list(troubles), [], set()

    def __call__(self, request):
        kind = "WriteChunkRequest" if isinstance(request, Chunk) else type(request).__name__
        if self.troubles and self.troubles[0][0] == kind:
            return self.troubles.pop(0)[1](self)
        if kind == "StartUploadRequest":
            self.started.append(request.request_id)
            self.populations.add(request.population)
            return blob_service_pb2.StartUploadResponse(verdict=1, upload_id="u", committed_bytes=len(self.data),
                                                        chunk_bytes_max=1 << 20)
        if kind == "WriteChunkRequest":
            request = blob_service_pb2.WriteChunkRequest.FromString(request.SerializeToString())
            assert request.offset == len(self.data) and len(request.data) <= 1 << 20
            self.data += request.data
            return blob_service_pb2.WriteChunkResponse(committed_bytes=len(self.data))
        if kind == "QueryUploadRequest":
            return blob_service_pb2.QueryUploadResponse(committed_bytes=len(self.data))
        return blob_service_pb2.FinishUploadResponse()

    def cut(self, size, error):
        self.data = self.data[:size]
        return error


def test_an_upload_goes_on_where_the_server_is_after_anything_happened():
    server = Uploads([
        ("WriteChunkRequest", lambda server: server.cut(0, sheaf.Unavailable("gone"))),
        ("WriteChunkRequest", lambda server: server.cut(0, sheaf.DeadlineExceeded("slow"))),
        ("WriteChunkRequest", lambda server: server.cut(500_000, sheaf.OutOfRange("there is a gap"))),
        ("FinishUploadRequest", lambda server: server.cut(0, sheaf.DataLoss("damaged"))),
        ("WriteChunkRequest", lambda server: server.cut(0, sheaf.NotFound("no such upload"))),
    ])
    assert drive(upload(Content(FILE), "wards"), server).digest == hashlib.sha256(FILE).hexdigest()
    # A new beginning is a new request.
    assert server.data == FILE and len(set(server.started)) == len(server.started) == 3
    assert server.populations == {"wards"}


@pytest.mark.parametrize("kind, because, troubles", [
    (sheaf.Internal, "takes no more bytes", [("WriteChunkRequest", lambda server: blob_service_pb2.WriteChunkResponse())] * 99),
    (sheaf.Internal, "has 99999999999 bytes of an upload of",
     [("WriteChunkRequest", lambda server: blob_service_pb2.WriteChunkResponse(committed_bytes=99999999999))]),
    (sheaf.Internal, "unknown verdict 9", [("StartUploadRequest", lambda server: blob_service_pb2.StartUploadResponse(verdict=9))]),
    (sheaf.DataLoss, "again", [("FinishUploadRequest", lambda server: sheaf.DataLoss("again"))] * 9),
    (sheaf.ResourceExhausted, "full", [("WriteChunkRequest", lambda server: sheaf.ResourceExhausted("full"))]),
])
def test_an_upload_to_a_server_that_takes_nothing_ends(kind, because, troubles):
    with pytest.raises(kind, match=because):
        drive(upload(Content(FILE), "wards"), Uploads(troubles))
