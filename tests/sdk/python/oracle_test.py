"""Every operator from Python, against Python's fractions: under EXACT bit by bit.

What a round releases is the true value, rounded once, half to even, to the output's dtype. Each case is a round of the real
server, whose tasks are clients with values of their own.
"""

from fractions import Fraction

import numpy
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

import sheaf
from sheaf import operators

FLOATS = ["float32", "float64"]
NUMBERS = [*FLOATS, "int32", "int64", "uint64"]
SETTINGS = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


def rounded(value, dtype):
    """The Fraction as the dtype: half to even, subnormals at their own precision. Only what was negative becomes -0."""
    if dtype.kind != "f":
        return dtype.type(int(value))
    if not value:
        return dtype.type(0)
    if dtype == numpy.float64:
        return numpy.float64(float(value))
    # The nearest double is near; of it and its neighbours in float32 the nearest is the one, the even one of two.
    near = numpy.float32(float(value))
    candidates = [near, numpy.nextafter(near, numpy.float32(-numpy.inf)), numpy.nextafter(near, numpy.float32(numpy.inf))]
    finite = [each for each in candidates if numpy.isfinite(each)]
    nearest = min(finite, key=lambda each: (abs(Fraction(float(each)) - value), each.view(numpy.uint32) & 1))
    return numpy.copysign(nearest, numpy.float32(-1 if value < 0 else 1))


def numbers(dtype):
    dtype = numpy.dtype(dtype)
    if dtype.kind == "f":
        # Any magnitude; sums that overflow are another test.
        return st.floats(-(2.0**100), 2.0**100, width=8 * dtype.itemsize).map(dtype.type)
    limits = numpy.iinfo(dtype)
    return st.one_of(st.integers(-9 if dtype.kind == "i" else 0, 9),
                     st.integers(int(limits.min) // 8, int(limits.max) // 8)).map(dtype.type)


WEIGHTS = st.floats(2.0**-60, 2.0**60, width=32)


@st.composite
def contributions(draw, operand, dtype, shape, index_dims):
    """What several clients return, and their weights."""
    def values(of):
        return numpy.array(draw(st.lists(numbers(dtype), min_size=of, max_size=of)), dtype)

    clients = []
    for _ in range(draw(st.integers(1, 4))):
        if operand == "dense":
            value = values(int(numpy.prod(shape))).reshape(shape)
        else:
            size = draw(st.integers(0, 5))
            row = shape[index_dims:] if operand == "sparse" else shape
            table = values(size * int(numpy.prod(row))).reshape(size, *row)
            if operand == "sparse":
                indices = [[draw(st.integers(0, side - 1)) for side in shape[:index_dims]] for _ in range(size)]
                value = sheaf.Sparse(numpy.array(indices, int).reshape(size, index_dims), table, shape)
            else:
                value = sheaf.Keyed([draw(st.sampled_from(["", "a", "bc", "\udcff"])) for _ in range(size)], table)
        clients.append((value, draw(WEIGHTS)))
    return clients


def entries_of(value):
    """(coordinate or key, element of the row) -> the numbers there, as Fractions."""
    found = {}
    if isinstance(value, sheaf.Sparse):
        rows = [(tuple(index), row) for index, row in zip(value.indices.tolist(), value.values)]
    elif isinstance(value, sheaf.Keyed):
        rows = list(zip(value.keys_array, value.values_array))
    else:
        rows = [((), value)]
    for coordinate, row in rows:
        for place, number in numpy.ndenumerate(row):
            found.setdefault((coordinate, place), []).append(Fraction(number.item()))
    return found


def expected(operator, dtype, clients):
    """The true value at each coordinate that was touched."""
    per_client = [(entries_of(value), Fraction(float(numpy.float32(weight)))) for value, weight in clients]
    all_weight = sum(weight for _, weight in per_client)
    result = {}
    for place in {place for entries, _ in per_client for place in entries}:
        touching = [(entries[place], weight) for entries, weight in per_client if place in entries]
        everything = [number for entries, _ in touching for number in entries]
        total = sum(everything)
        weighted = sum(weight * sum(entries) for entries, weight in touching)
        result[place] = {
            "min": lambda: min(everything), "sparse_min": lambda: min(everything),
            "max": lambda: max(everything), "sparse_max": lambda: max(everything),
            "count": lambda: sum(1 for number in everything if number),
            "mean": lambda: total / len(per_client), "client_mean": lambda: total / len(per_client),
            "weighted_mean": lambda: weighted / all_weight, "weighted_client_mean": lambda: weighted / all_weight,
            "coordinate_mean": lambda: total / len(touching),
            "weighted_coordinate_mean": lambda: weighted / sum(weight for _, weight in touching),
        }.get(operator, lambda: total)()
    dtype = numpy.dtype("int64") if operator == "count" else dtype
    return {place: rounded(value, dtype) for place, value in result.items()}


def released(value, index_dims):
    found = {}
    if isinstance(value, sheaf.Sparse):
        rows = [(tuple(index), row) for index, row in zip(value.indices.tolist(), value.values)]
        assert rows == sorted(rows, key=lambda row: row[0])
    elif isinstance(value, sheaf.Keyed):
        rows = list(zip(value.keys_array, value.values_array))
        assert sheaf.Keyed.encoded([key for key, _ in rows]) == sorted(sheaf.Keyed.encoded([key for key, _ in rows]))
    elif index_dims:
        rows = [(index, value[index]) for index in numpy.ndindex(value.shape[:index_dims])]
    else:
        rows = [((), value)]
    for coordinate, row in rows:
        for place, number in numpy.ndenumerate(row):
            found[coordinate, place] = number
    return found


@pytest.fixture(scope="module")
def run(sheafd):
    """run(output, clients): the values that a round of these clients releases."""
    from grpc_worker import GrpcWorker

    offered = {}

    def hand_in(task):
        value, weight = offered["clients"][task.payload]
        return sheaf.Update({"w": value}, weight)

    worker = GrpcWorker(sheafd.address, {"hand_in": hand_in})
    with sheaf.connect(sheafd.address) as server:
        def run_round(output, clients, **options):
            offered["clients"] = clients
            return server.run("hand_in", outputs={"w": output}, failed_max=1, **options,
                              tasks=[sheaf.Task(number) for number in range(len(clients))])["w"]

        yield run_round
    worker.close()


@pytest.mark.parametrize("function", operators.OPERATORS, ids=lambda function: function.__name__)
def test_what_a_round_releases_is_the_true_value_rounded_once(run, function):
    operator = function.__name__
    is_keyed = operator == "keyed_sum"
    operand = (function(str) if is_keyed else function(())).operand

    @SETTINGS
    @given(st.data())
    def check(data):
        dtype = data.draw(st.sampled_from(FLOATS if "mean" in operator else NUMBERS))
        if is_keyed:
            shape, index_dims = data.draw(st.sampled_from([(), (2,)])), 0
            output = function(str, shape, dtype)
        elif operand == "sparse":
            shape = data.draw(st.sampled_from([(3,), (2, 2)]))
            index_dims = 1 if operator == "slices_sum" else len(shape)
            output = function(shape, dtype)
        else:
            shape, index_dims = data.draw(st.sampled_from([(), (3,), (2, 1)])), 0
            output = function(shape, dtype)
        clients = data.draw(contributions(operand, dtype, shape, index_dims))
        note(str([(entries_of(value), weight) for value, weight in clients]))
        result = run(output, clients)
        wanted = expected(operator, numpy.dtype(dtype), clients)
        got = released(result, index_dims if isinstance(result, numpy.ndarray) else 0)
        if operator == "sparse_sum_to_dense":
            # What nobody touched holds 0 in the dense form.
            wanted = {place: wanted.get(place, numpy.dtype(dtype).type(0)) for place in got}
        assert set(got) == set(wanted)
        for place, value in wanted.items():
            assert got[place].dtype == value.dtype and got[place].tobytes() == value.tobytes(), (place, got[place], value)

    check()


@SETTINGS
@given(st.lists(st.tuples(st.integers(0, 19), st.integers(0, 9), st.integers(-99, 99)), min_size=1, max_size=60),
       st.integers(1, 5))
def test_a_sparse_sum_is_the_sum_of_scipys_matrices(run, entries, num_clients):
    matrices = [scipy.sparse.coo_matrix(([float(entry[2]) for entry in part], ([entry[0] for entry in part],
                                                                              [entry[1] for entry in part])), (20, 10))
                for part in (entries[number::num_clients] for number in range(num_clients))]
    for numerics in ("exact", "f64"):
        total = run(sheaf.sparse_sum((20, 10)), [(matrix, 1) for matrix in matrices], numerics=numerics)
        assert numpy.array_equal(total.to_scipy().toarray(), sum(matrix.toarray() for matrix in matrices))


def test_modifiers_withhold_drop_and_densify(run):
    clients = [(sheaf.Sparse([0, 1], [1.0, 2.0], (4,)), 1), (sheaf.Sparse([1, 2], [-2.0, 5.0], (4,)), 1)]
    assert run(sheaf.sparse_sum(4, min_contributors=2), clients).indices.tolist() == [[1]]
    assert run(sheaf.sparse_sum(4, drop_zeros=True), clients).indices.tolist() == [[0], [2]]
    assert run(sheaf.sparse_sum(4, form="dense"), clients).tolist() == [1, 0, 5, 0]
    assert run(sheaf.sparse_sum_to_dense(4, form="sparse"), clients).indices.tolist() == [[0], [1], [2]]
    tables = [(sheaf.Keyed({5: 1, -7: 2}), 1), (sheaf.Keyed({5: 1}), 1)]
    assert dict(run(sheaf.keyed_sum(int, dtype="int64", min_contributors=2), tables)) == {5: 2}


def test_what_is_not_finite_is_refused_or_propagates_as_the_output_says(run):
    with pytest.raises(sheaf.RoundFailed):
        run(sheaf.sum(()), [(numpy.nan, 1)])
    assert numpy.isnan(run(sheaf.sum((), non_finite="propagate"), [(numpy.nan, 1), (1.0, 1)]))
    with pytest.raises(sheaf.RoundFailed, match=r"the sum does not fit into INT64"):
        run(sheaf.sum((), "int64"), [(2**63 - 1, 1), (1, 1)])
