"""Server optimisers: the same bits as the C++ library's, and memory only for what is touched."""

import os
import subprocess

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sheaf

PEER = os.path.join(os.environ["SHEAF_BINARIES"], "server_optimizer_peer")
OPTIMIZERS = [sheaf.FedAvg, sheaf.FedAvgM, sheaf.FedAdagrad, sheaf.FedAdam, sheaf.FedYogi]
FLOATS = st.floats(-(2.0**10), 2.0**10, width=32)


def of_peer(optimizer, arguments, weights, moves):
    """The weights after each move, by the C++ library."""
    lines = [[optimizer, *arguments], [*weights.shape, *weights.flat]]
    for move in moves:
        lines.append([-1, *move.flat] if isinstance(move, numpy.ndarray) else [len(move), *move.rows, *move.values.flat])
    text = "\n".join(" ".join(each if isinstance(each, str) else str(int(each)) if isinstance(each, (int, numpy.integer))
                              else float(each).hex() for each in line) for line in lines)
    done = subprocess.run([PEER], input=text, capture_output=True, text=True, check=True)
    return [numpy.array([float.fromhex(word) for word in line.split()], numpy.float32).reshape(weights.shape)
            for line in done.stdout.splitlines()]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_it_has_the_bits_of_the_cpp_library(optimizer):
    @settings(max_examples=30, deadline=None)
    @given(st.data())
    def check(data):
        height, width = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 3))
        rate, tau = data.draw(st.floats(1e-3, 10)), data.draw(st.floats(1e-6, 1))
        betas = [data.draw(st.floats(0, 0.999)) for _ in range(2)]

        def table(rows):
            size = rows * width
            return numpy.array(data.draw(st.lists(FLOATS, min_size=size, max_size=size)), numpy.float32).reshape(rows, width)

        weights = table(height)
        moves = []
        is_dense = data.draw(st.booleans())
        for _ in range(data.draw(st.integers(1, 4))):
            if is_dense:
                moves.append(table(height))
                continue
            rows = data.draw(st.lists(st.integers(0, height - 1), unique=True, max_size=height))
            moves.append(sheaf.Sparse(numpy.array(rows, int), table(len(rows)), (height, width)))
        expected = of_peer(optimizer.__name__, [rate, *betas, tau], weights, moves)
        own = optimizer(rate, beta1=betas[0], beta2=betas[1], tau=tau)
        model = {"w": weights.copy()}
        for move, after in zip(moves, expected, strict=True):
            own.move(model, {"w": move})
            assert model["w"].tobytes() == after.tobytes()

    check()


def test_the_moments_of_a_table_take_memory_for_the_rows_that_were_touched():
    # A table of 4 GB, of which nothing is written but these rows.
    table = numpy.zeros((1 << 26, 16), numpy.float32)
    optimizer = sheaf.FedAdam(0.1)
    for begin in range(0, 3000, 1000):
        rows = numpy.arange(begin, begin + 1500) * 19_000
        optimizer.move({"w": table}, {"w": sheaf.Sparse(rows, numpy.ones((1500, 16), numpy.float32), table.shape)})
    moments = optimizer._moments["w"]
    assert len(moments.rows) == 3500 and all(len(array) < 5000 for array in moments.arrays)
    assert table[19_000, 0] > 0 and table[19_001, 0] == 0


def test_a_delta_that_does_not_fit_moves_nothing():
    model = {"a": numpy.zeros(3, numpy.float32), "w": numpy.zeros((4, 2), numpy.float32)}
    good = numpy.ones(3)
    optimizer = sheaf.FedAvgM()
    for delta, because in [
        (numpy.ones(3), r"shape \[3\] does not fit tensor 'w' of \[4, 2\]"),
        (sheaf.Sparse([1, 1], numpy.ones((2, 2)), (4, 2)), "a row of tensor 'w' is there twice"),
        (sheaf.Sparse([1], numpy.ones((1, 2)), (5, 2)), "does not fit"),
    ]:
        with pytest.raises(sheaf.InvalidArgument, match=because):
            optimizer.move(model, {"a": good, "w": delta})
    with pytest.raises(sheaf.InvalidArgument, match="a float32 array that can be written to"):
        optimizer.move({"a": numpy.zeros(3)}, {"a": good})
    assert not model["a"].any()
    optimizer.move(model, {"a": good, "of_no_model": good})
    assert model["a"].tolist() == [1, 1, 1]
    with pytest.raises(sheaf.InvalidArgument, match="the rows of tensor 'w' had 1 elements before, and 2 now"):
        for delta in (sheaf.Sparse([[1, 1]], [1.0], (4, 2)), sheaf.Sparse([1], [[1.0, 1.0]], (4, 2))):
            optimizer.move(model, {"w": delta})
    for wrong in ({"learning_rate": 0}, {"tau": -1}, {"beta1": 1}, {"beta2": float("nan")}):
        with pytest.raises(sheaf.InvalidArgument, match="a learning rate and a tau above 0"):
            sheaf.FedAdam(**wrong)


def test_a_model_that_is_a_view_moves_where_it_is():
    whole = numpy.zeros((4, 6), numpy.float32)
    model = {"w": whole[:, ::2]}
    sheaf.FedAvg(2.0).move(model, {"w": sheaf.Sparse([3], [[1.0, 2.0, 3.0]], (4, 3))})
    assert whole[3].tolist() == [2, 0, 4, 0, 6, 0]
    sheaf.FedAvg().move(model, {"w": numpy.ones((4, 3))})
    assert whole.sum() == 24
