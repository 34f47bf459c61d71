"""What a loop sends of its broadcasts: what the server puts together is what the program has, bit by bit."""

import hashlib
import tracemalloc

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sheaf
from sheaf import round_calls, row_comparison, sent_broadcast
from sheaf.rounds_ahead import RoundsAhead
from sheaf.row_comparison import RowComparison
from sheaf.safetensors import Encoded, Safetensors
from sheaf.sent_broadcast import PATCHES_MAX, SentBroadcast
from sheaf.transfer import Chunk
from sheaf.v1 import blob_service_pb2, round_pb2, round_service_pb2
from transfer_bounds_test import drive

DTYPES = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]
SHAPES = [(), (0,), (3, 0), (0, 4), (1,), (1, 5), (7,), (200,), (64, 17), (33, 2, 2), (40, 3), (90, 40), (3, 500)]
N = {"n": sheaf.sum(())}


def whole_of(tensors):
    """The file that is sent where nobody has heard of patches."""
    return bytes(Encoded({name: numpy.ascontiguousarray(array).reshape(array.shape) for name, array in tensors.items()}))


def patched(base, patch):
    """What a patch stands for: the file of its base with other bytes in their places, as blob_service.proto has it."""
    before, after = Safetensors(base), Safetensors(patch)
    tensors = {name: numpy.array(array) for name, array in before.items()}
    for name, array in after.items():
        if name in tensors:
            assert (array.dtype, array.shape) == (tensors[name].dtype, tensors[name].shape)
            tensors[name] = numpy.array(array)
        elif name.endswith(".indices"):
            name = name.removesuffix(".indices")
            values = after[f"{name}.values"]
            assert f"{name}.indices" not in before and f"{name}.values" not in before
            assert array.dtype == numpy.int64 and array.ndim == 1 and (numpy.diff(array) > 0).all() and len(array) > 0
            assert values.dtype == tensors[name].dtype and values.shape == (len(array), *tensors[name].shape[1:])
            tensors[name][array] = values
        else:
            assert name.removesuffix(".values") in tensors and f"{name.removesuffix('.values')}.indices" in after
    return bytes(Encoded(tensors))


class Federation:
    """A server that stores broadcasts and creates rounds; `refuse(kind, digest)` may give an error instead of an answer.

    rounds: of each the file that its broadcast stands for, and what was sent for it: "inline", "upload", "patch inline", "patch
    upload", "stored" (it was announced, and was there) or "named", and how many bytes: 100 of an announcement."""

    def __init__(self, takes_patches=True, refuse=lambda kind, digest: None):
        self.takes_patches, self.refuse = takes_patches, refuse
        self.files, self.rounds, self.uploads, self._sent, self._size = {}, [], {}, None, 0
        # Of each upload.
        self.populations = []

    def __call__(self, request):
        kind = "WriteChunk" if isinstance(request, Chunk) else type(request).__name__.removesuffix("Request")
        digest = {"StartUpload": lambda: request.digest, "CreateRound": lambda: request.spec.broadcast_digest,
                  "OpenRound": lambda: request.broadcast_digest}.get(kind, lambda: "")()
        return self.refuse(kind, digest) or getattr(self, kind)(request)

    def StartUpload(self, request):
        self._size += 100
        self.populations.append(request.population)
        has_it = request.digest in self.files
        if has_it:
            self._sent = "stored"
        else:
            self.uploads[request.digest] = b""
        return blob_service_pb2.StartUploadResponse(verdict=2 if has_it else 1, upload_id=request.digest, chunk_bytes_max=1 << 20,
                                                    takes_patches=self.takes_patches)

    def WriteChunk(self, request):
        request = blob_service_pb2.WriteChunkRequest.FromString(request.SerializeToString())
        self._size += len(request.data)
        self.uploads[request.upload_id] += request.data
        return blob_service_pb2.WriteChunkResponse(committed_bytes=len(self.uploads[request.upload_id]))

    def FinishUpload(self, request):
        self._store(self.uploads.pop(request.upload_id), "upload")
        return blob_service_pb2.FinishUploadResponse()

    def _store(self, data, how):
        base = Safetensors(data).metadata.get("sheaf.base")
        self.files[hashlib.sha256(data).hexdigest()] = patched(self.files[base], data) if base else data
        self._sent = f"patch {how}" if base else how

    def CreateRound(self, request):
        if request.spec.announced:
            announced = round_pb2.Round(id="r-announced", state="ANNOUNCED", spec=request.spec)
            return round_service_pb2.CreateRoundResponse(round=announced)
        return round_service_pb2.CreateRoundResponse(round=self._begin(request.broadcast, request.spec.broadcast_digest))

    def OpenRound(self, request):
        return round_service_pb2.OpenRoundResponse(round=self._begin(request.broadcast, request.broadcast_digest))

    def _begin(self, broadcast, digest):
        if broadcast:
            assert len(broadcast) <= 1 << 20 and hashlib.sha256(broadcast).hexdigest() == digest
            self._size += len(broadcast)
            self._store(broadcast, "inline")
        self.rounds.append((self.files[digest], self._sent or "named", self._size))
        self._sent, self._size = None, 0
        return round_pb2.Round(id=f"r-{len(self.rounds)}")

    def run(self, sent, broadcast, is_opened=False):
        """A round; what was sent for it."""
        if is_opened:
            drive(round_calls.open(round_pb2.Round(id="r-1"), broadcast, sent), self)
        else:
            drive(round_calls.create("one", {"outputs": N, "tasks": 1, "broadcast": broadcast}, "default", sent), self)
        assert self.rounds[-1][0] == whole_of(broadcast)
        return self.rounds[-1][1]


def model(num_rows=20_000, width=64):
    """A model of 5 MB: a table and a little beside it."""
    rng = numpy.random.default_rng(5)
    return {"table": rng.random((num_rows, width), numpy.float32), "bias": rng.random(width), "steps": numpy.full((), 3)}


# Values and changes by their bits: NaNs with any payload, zeros of both signs.
def bits(array):
    return array.reshape(-1).view(numpy.uint8)


@st.composite
def arrays(draw):
    dtype, shape = numpy.dtype(draw(st.sampled_from(DTYPES))), draw(st.sampled_from(SHAPES))
    rng = numpy.random.default_rng(draw(st.integers(0, 2**32)))
    array = numpy.zeros(shape, dtype)
    if draw(st.booleans()):
        bits(array)[:] = rng.integers(0, 2 if dtype == bool else 256, array.nbytes, numpy.uint8)
    return array


@st.composite
def changed(draw, before):
    """The array with other bits here and there, and the rows where they are."""
    array = before.copy()
    num_rows = len(array) if array.ndim else 1
    if array.nbytes == 0:
        return array, []
    how = draw(st.sampled_from(["nothing", "bits", "all"]))
    most = {"nothing": 0, "bits": 5, "all": num_rows}[how]
    rows = range(num_rows) if how == "all" else sorted(draw(st.sets(st.integers(0, num_rows - 1), max_size=most)))
    row_bytes = array.nbytes // num_rows
    for row in rows:
        at = row * row_bytes + draw(st.integers(0, row_bytes - 1))
        # Of a boolean only this bit; of floats, often the sign.
        bits(array)[at] ^= 1 if array.dtype == bool else draw(st.sampled_from([1, 128, 255]))
    return array, list(rows)


@st.composite
def laid_out(draw, array):
    """The same values, otherwise in memory."""
    how = draw(st.sampled_from(["as it is", "columns first", "backwards", "every second", "other bytes", "read-only"]))
    if how == "columns first":
        return numpy.asfortranarray(array).reshape(array.shape, order="A")
    if how == "backwards" and array.ndim:
        return array[::-1].copy()[::-1]
    if how == "every second" and array.ndim:
        return numpy.repeat(array, 2, axis=0)[::2]
    if how == "other bytes":
        return array.byteswap().view(array.dtype.newbyteorder())
    if how == "read-only":
        array.flags.writeable = False
    return array


@settings(max_examples=300)
@given(data=st.data(), block_bytes=st.sampled_from([64, 1000, 2 << 20]))
def test_the_rows_that_changed_are_found_whatever_their_bits_are(data, block_bytes):
    before = data.draw(arrays())
    now, rows = data.draw(changed(before))
    rows_max = data.draw(st.integers(0, 50))
    kept, comparison = before.copy(), RowComparison()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_comparison, "_BLOCK_BYTES", block_bytes)
        found = comparison.update(kept, data.draw(laid_out(now)), rows_max)
        assert (found is None) == (len(rows) > rows_max) and (found is None or found.tolist() == rows)
        assert found is None or found.dtype == numpy.int64
        assert kept.tobytes() == now.tobytes()
        # Its buffers are used again.
        assert comparison.update(kept, now, 0).tolist() == []


@pytest.mark.parametrize("shape", [(8000, 2000), (2, 8_000_000), (1, 16_000_000), (16_000_000,), (4_000_000, 4)])
def test_a_comparison_takes_the_memory_of_a_few_blocks_however_large_an_array_is(shape):
    kept, now = numpy.zeros(shape, numpy.float32), numpy.zeros(shape, numpy.float32)
    for change in (0, 1):
        now += change
        tracemalloc.start()
        rows = RowComparison().update(kept, now, rows_max=100)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 8 << 20, f"{peak:,} B for an array of {now.nbytes:,}"
        assert (rows is None) == (change and len(now) > 100)
    assert (kept == now).all()


@settings(max_examples=60)
@given(data=st.data())
def test_what_a_server_puts_together_is_what_a_program_without_patches_would_send(data):
    names = ["w", "x.y", "w.indices", "w.values", "x.y.values", "z"]
    tensors = {name: data.draw(arrays()) for name in data.draw(st.sets(st.sampled_from(names), min_size=1))}
    tensors["large"] = numpy.zeros((1100, 125))
    federation, sent = Federation(), SentBroadcast()
    for number in range(data.draw(st.integers(2, 5))):
        how = federation.run(sent, {name: data.draw(laid_out(array)) for name, array in tensors.items()},
                             is_opened=data.draw(st.booleans()))
        assert how == "upload" if number == 0 else how in ("patch inline", "named"), how
        tensors = {name: data.draw(changed(array))[0] for name, array in tensors.items() if name != "large"}
        tensors["large"] = federation_table(data.draw(st.integers(0, 1099)), number)


def federation_table(row, value):
    table = numpy.zeros((1100, 125))
    table[row] = value
    return table


def test_rows_that_changed_travel_and_what_did_not_change_does_not():
    federation, sent, w = Federation(), SentBroadcast(), model()
    assert federation.run(sent, w) == "upload"
    w["table"][[5, 77, 19_999]] += 1
    assert federation.run(sent, w) == "patch inline" and federation.rounds[-1][2] < 1500
    assert federation.run(sent, w) == "named" and federation.rounds[-1][2] == 0
    w["bias"][3] = -w["bias"][3]
    assert federation.run(sent, w, is_opened=True) == "patch inline" and federation.rounds[-1][2] < 1000
    w["table"][:10_000] += 1
    assert federation.run(sent, w) == "patch upload" and 2_560_000 < federation.rounds[-1][2] < 2_700_000
    w["steps"][...] += 1
    assert federation.run(sent, w) == "patch inline" and federation.rounds[-1][2] < 300


def test_a_broadcast_is_uploaded_for_the_population_of_its_round():
    federation, options = Federation(), {"outputs": N, "tasks": 1}
    drive(round_calls.create("one", {**options, "broadcast": model()}, "wards"), federation)
    drive(round_calls.create("one", {**options, "broadcast": model(), "population": "phones"}, "wards"), federation)
    announced = drive(round_calls.announce("one", {**options, "population": "phones"}, "wards"), federation)
    drive(round_calls.open(announced, model()), federation)
    assert federation.populations == ["wards", "phones", "phones"]
    for ahead in (0, 1):
        federation, w = Federation(), model()
        loop = RoundsAhead("one", {**options, "broadcast": lambda: w}, "wards", rounds=2, ahead=ahead)
        drive(loop.next(), federation)
        w["table"][:10_000] += 1
        drive(loop.next(), federation)
        assert federation.populations == ["wards"] * 2 and federation.rounds[-1][1] == "patch upload"


def test_a_nan_is_itself_and_a_zero_of_the_other_sign_is_another():
    federation, sent, w = Federation(), SentBroadcast(), model()
    w["table"][3] = numpy.nan
    w["table"][7] = 0.0
    federation.run(sent, w)
    assert federation.run(sent, w) == "named"
    w["table"][7] = -0.0
    assert federation.run(sent, w) == "patch inline"


def test_patches_end_when_there_are_many_or_when_they_have_as_many_bytes_as_the_whole():
    federation, sent, w = Federation(), SentBroadcast(), model()
    how = []
    for _ in range(2 * PATCHES_MAX):
        w["table"][0] += 1
        how.append(federation.run(sent, w))
    assert how == ["upload", *["patch inline"] * PATCHES_MAX, "upload", *["patch inline"] * (PATCHES_MAX - 2)]
    how.clear()
    for _ in range(6):
        w["table"][:8000] += 1
        how.append(federation.run(sent, w))
    assert how == ["patch upload", "patch upload", "upload", "patch upload", "patch upload", "upload"]
    # All of it takes a patch more than the file.
    w["table"] += 1
    w["bias"] += 1
    w["steps"] += 1
    assert federation.run(sent, w) == "upload"


def test_a_table_whose_rows_would_have_the_names_of_other_tensors_travels_whole():
    for part in ("indices", "values"):
        federation, sent, w = Federation(), SentBroadcast(), model()
        w[f"table.{part}"] = numpy.zeros(3)
        w["more"] = numpy.zeros((3000, 100))
        assert federation.run(sent, w) == "upload"
        w["table"][0] += 1
        assert federation.run(sent, w) == "patch upload" and 5_120_000 < federation.rounds[-1][2] < 5_130_000
        w["more"][0] += 1
        assert federation.run(sent, w) == "patch inline"


def test_a_broadcast_of_other_names_shapes_or_dtypes_travels_whole():
    federation, sent, w = Federation(), SentBroadcast(), model()
    others = [{**w, "more": numpy.zeros(3)}, {**w, "more": numpy.zeros(4)}, {**w, "more": numpy.zeros(4, numpy.int64)},
              {**w, "more": numpy.zeros((2, 2), numpy.int64)}, {"more": w["table"]}, model(width=65)]
    for broadcast in (w, *others):
        assert federation.run(sent, broadcast) == "upload"
        broadcast = {name: numpy.array(array) for name, array in broadcast.items()}
        next(iter(broadcast.values()))[0] += 1
        assert federation.run(sent, broadcast) == "patch inline"


def test_a_sparse_tensor_of_a_broadcast_is_its_parts():
    federation, sent, w = Federation(), SentBroadcast(), model()
    indices, values = numpy.arange(1000), numpy.ones((1000, 64))
    for number in range(3):
        values = values.copy()
        values[number] += 1
        broadcast = {"table": w["table"], "update": sheaf.Sparse(indices, values, (5000, 64))}
        drive(round_calls.create("one", {"outputs": N, "tasks": 1, "broadcast": broadcast}, "default", sent), federation)
        file, how, _ = federation.rounds[-1]
        assert how == ("patch inline" if number else "upload")
        assert (Safetensors(file)["update.values"] == values).all() and "update.dense_shape" in Safetensors(file)


def test_a_server_that_takes_no_patches_gets_the_whole_each_time_and_nothing_is_kept_for_it():
    federation, sent, w = Federation(takes_patches=False), SentBroadcast(), model()
    for _ in range(3):
        w["table"][0] += 1
        assert federation.run(sent, w) == "upload"
        assert not sent._kept
    # It was updated while the loop ran: that is seen with the next whole, and the one after it is kept.
    federation.takes_patches = True
    how = []
    for _ in range(3):
        w["table"][0] += 1
        how.append(federation.run(sent, w))
    assert how == ["upload", "upload", "patch inline"]


def test_what_fits_a_call_is_sent_in_it_each_time():
    federation, sent, w = Federation(), SentBroadcast(), model(num_rows=1000)
    for number in range(3):
        w["table"][0] += 1
        assert federation.run(sent, w) == "inline"
    assert federation.run(sent, w) == "inline" and not sent._kept
    large = model()
    assert federation.run(sent, large) == "upload"
    large["table"][0] += 1
    assert federation.run(sent, large) == "patch inline"


@pytest.mark.parametrize("error", [sheaf.InvalidArgument, sheaf.ResourceExhausted, sheaf.NotFound])
@pytest.mark.parametrize("is_opened", [False, True])
def test_a_patch_that_is_refused_is_sent_as_a_whole(error, is_opened):
    w = model()
    wholes = set()

    def refuse(kind, digest):
        if kind in ("CreateRound", "OpenRound") and digest not in wholes:
            return error("the base is gone")

    federation, sent = Federation(refuse=refuse), SentBroadcast()
    for _ in range(3):
        w["table"][:10] += 1
        wholes.add(hashlib.sha256(whole_of(w)).hexdigest())
        assert federation.run(sent, w, is_opened) in ("upload", "patch inline")
        assert hashlib.sha256(federation.rounds[-1][0]).hexdigest() in wholes
    # Nothing changed, and what the server had is gone.
    wholes.clear()
    with pytest.raises(error, match="the base is gone"):
        federation.run(sent, w, is_opened)


def test_a_patch_that_is_refused_when_its_upload_ends_is_sent_as_a_whole():
    w, finished = model(), []

    def refuse(kind, digest):
        if kind == "FinishUpload":
            finished.append(1)
            return sheaf.ResourceExhausted("patches lie upon each other") if len(finished) == 2 else None

    federation, sent = Federation(refuse=refuse), SentBroadcast()
    federation.run(sent, w)
    w["table"][:9000] += 1
    assert federation.run(sent, w) == "upload" and len(finished) == 3
    w["table"][:9000] += 1
    assert federation.run(sent, w) == "patch upload"


def test_a_small_patch_that_a_server_does_not_take_in_a_call_is_uploaded():
    w = model()

    def refuse(kind, digest):
        # It takes nothing along with a call.
        return sheaf.ResourceExhausted("too much for one call") if kind == "OpenRound" and digest not in federation.files else None

    federation, sent = Federation(refuse=refuse), SentBroadcast()
    federation.run(sent, w, is_opened=True)
    w["table"][0] += 1
    assert federation.run(sent, w, is_opened=True) == "patch upload"


def test_after_an_error_of_any_other_kind_the_whole_is_sent():
    w, troubles = model(), []
    federation, sent = Federation(refuse=lambda kind, digest: troubles.pop() if troubles and kind == "CreateRound" else None), SentBroadcast()
    federation.run(sent, w)
    for error, change in ((sheaf.Unavailable("gone"), 1), (sheaf.PermissionDenied("no"), 0)):
        w["table"][0] += change
        troubles.append(error)
        with pytest.raises(type(error)):
            federation.run(sent, w)
        assert federation.run(sent, w) == "upload"
        w["table"][1] += 1
        assert federation.run(sent, w) == "patch inline"


def test_what_no_file_can_hold_is_refused_by_name_as_ever():
    federation, sent, w = Federation(), SentBroadcast(), model()
    federation.run(sent, w)
    with pytest.raises(sheaf.InvalidArgument, match="'table' is of dtype complex64"):
        federation.run(sent, {**w, "table": w["table"].astype(numpy.complex64)})
    assert len(federation.rounds) == 1


def test_what_becomes_of_the_arrays_while_they_are_sent_is_part_of_the_next_broadcast():
    w = model()
    before = whole_of(w)

    def change(kind, digest):
        w["table"][3] += kind == "WriteChunk"

    federation, sent = Federation(refuse=change), SentBroadcast()
    drive(round_calls.create("one", {"outputs": N, "tasks": 1, "broadcast": w}, "default", sent), federation)
    assert federation.rounds[-1][0] == before != whole_of(w)
    assert federation.run(sent, w) == "patch inline"


def test_a_program_without_memory_for_a_copy_sends_the_whole_each_time(monkeypatch):
    federation, sent, w = Federation(), SentBroadcast(), model()

    def no_memory(*arguments, **options):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(sent_broadcast.numpy, "array", no_memory)
        assert federation.run(sent, w) == "upload"
    w["table"][0] += 1
    assert federation.run(sent, w) == "upload"
    w["table"][0] += 1
    assert federation.run(sent, w) == "patch inline"


def test_bytes_a_path_and_a_digest_are_sent_as_they_are(tmp_path):
    w = model()
    sheaf.safetensors.write(tmp_path / "w.safetensors", w)
    file = (tmp_path / "w.safetensors").read_bytes()
    federation, sent = Federation(), SentBroadcast()
    how = []
    for broadcast in (w, file, tmp_path / "w.safetensors", hashlib.sha256(file).hexdigest()):
        drive(round_calls.create("one", {"outputs": N, "tasks": 1, "broadcast": broadcast}, "default", sent), federation)
        assert federation.rounds[-1][0] == file
        how.append(federation.rounds[-1][1:])
    assert how == [("upload", len(file) + 100), ("stored", 100), ("stored", 100), ("named", 0)]
    # They have nothing to do with what is kept.
    w["table"][0] += 1
    assert federation.run(sent, w) == "patch inline"
