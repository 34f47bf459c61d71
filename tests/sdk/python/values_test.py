"""Sparse tensors and tables, and what a computation may return for an output."""

import collections
import types

import numpy
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

import sheaf
from sheaf.declared_output import tensors_of

COORDINATES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(-9, 9)), max_size=8)


def declared(**outputs):
    return [sheaf.DeclaredOutput.of(name, output) for name, output in outputs.items()]


def sparse_of(entries):
    return sheaf.Sparse([entry[:2] for entry in entries], numpy.array([entry[2] for entry in entries], float), (4, 5))


@given(COORDINATES)
def test_a_sparse_is_the_dense_tensor_that_scipy_makes_of_it(entries):
    sparse = sparse_of(entries)
    assert numpy.array_equal(sparse.to_dense(), sparse.to_scipy().toarray())
    assert numpy.array_equal(sheaf.Sparse.of(sparse.to_scipy()).to_dense(), sparse.to_dense())
    assert numpy.array_equal(sheaf.Sparse.from_dense(sparse.to_dense()).to_dense(), sparse.to_dense())


def test_rows_of_a_table_are_a_sparse_of_one_index_column():
    rows = sheaf.Sparse([7, 2], numpy.ones((2, 3), numpy.float32), (9, 3))
    assert rows.index_dims == 1 and rows.rows.tolist() == [7, 2] and len(rows) == 2
    assert rows.to_dense()[[2, 7]].sum() == 6 and rows.to_dense().sum() == 6
    blocks = sheaf.Sparse.from_dense(rows.to_dense(), index_dims=1)
    assert blocks.rows.tolist() == [2, 7] and blocks.values.shape == (2, 3)


def test_a_sparse_of_nothing_keeps_its_index_columns():
    assert sheaf.Sparse([], numpy.zeros((0, 3)), (9, 3)).indices.shape == (0, 1)
    assert sheaf.Sparse([], [], (9, 3)).indices.shape == (0, 2)


@pytest.mark.parametrize("because, indices, values, shape", [
    (r"indices\[1, 0\] is 9, outside \[0, 9\)", [0, 9], [1.0, 2.0], (9,)),
    (r"indices\[0, 1\] is -1", [[0, -1]], [1.0], (9, 3)),
    ("are integers, and not float64", [0.0], [1.0], (9,)),
    ("do not fit: there is one block", [0], [1.0, 2.0], (9,)),
    (r"need values of shape \[1, 3\]", [0], [1.0], (9, 3)),
    ("an array: one value", [0], 1.0, (9,)),
])
def test_parts_that_do_not_fit_are_refused(because, indices, values, shape):
    with pytest.raises(sheaf.InvalidArgument, match=because):
        sheaf.Sparse(indices, values, shape)


def test_the_sparse_values_of_tensorflow_are_understood_by_their_parts():
    class Eager:
        def __init__(self, value):
            self.value = numpy.array(value)

        def numpy(self):
            return self.value

    slices = types.SimpleNamespace(values=Eager([[1.0, 2.0]]), indices=Eager([3]), dense_shape=Eager([5, 2]))
    assert sheaf.Sparse.of(slices).to_dense()[3].tolist() == [1, 2]
    slices.dense_shape = None
    with pytest.raises(sheaf.InvalidArgument, match="have no dense_shape"):
        sheaf.Sparse.of(slices)
    assert sheaf.Sparse.of(slices, (5, 2)).shape == (5, 2)
    tensor = types.SimpleNamespace(values=Eager([4.0]), indices=Eager([[1, 2]]), dense_shape=Eager([3, 3]))
    assert sheaf.Sparse.of(tensor).to_dense()[1, 2] == 4


def test_a_table_is_a_mapping_of_its_keys_in_text_bytes_or_integers():
    table = sheaf.Keyed({"libc6": 3, b"z\xff": 1})
    assert dict(table) == {"libc6": 3, "z\udcff": 1} and table[b"z\xff"] == 1
    assert dict(sheaf.Keyed(numpy.array([5, -1]), [1.0, 2.0])) == {5: 1.0, -1: 2.0}
    for keys in (["a", 1], [1.5], [2**63], [True], ["x" * 1025]):
        with pytest.raises(sheaf.InvalidArgument, match="key"):
            sheaf.Keyed(keys, numpy.zeros(len(keys)))


@given(st.dictionaries(st.binary(max_size=12), st.integers(-5, 5), max_size=6))
def test_any_bytes_are_a_key_and_come_back(entries):
    tensors = sheaf.Keyed(entries if entries else {}).tensors("n", is_text=True)
    table = sheaf.Keyed.from_tensors(tensors["n.keys"], tensors["n.key_offsets"], tensors["n.values"])
    assert {key.encode(errors="surrogateescape"): value for key, value in table.items()} == entries


@pytest.mark.parametrize("offsets", [[0, 3], [1, 2], [0, 2, 1, 2], [], [0.0, 2.0]])
def test_keys_that_do_not_fit_their_offsets_are_refused(offsets):
    with pytest.raises(sheaf.InvalidArgument):
        sheaf.Keyed.from_tensors(numpy.zeros(2, numpy.uint8), numpy.array(offsets), numpy.zeros(1))


def test_values_become_the_outputs_dtype_where_only_the_precision_of_floats_is_lost():
    wide, narrow, whole = declared(w=sheaf.sum(2)), declared(w=sheaf.sum(2, "float32")), declared(w=sheaf.sum(2, "int32"))
    assert tensors_of({"w": [0.1, 1]}, narrow)["w"].dtype == numpy.float32
    assert tensors_of({"w": numpy.float16([1, 2])}, wide)["w"].tolist() == [1, 2]
    assert tensors_of({"w": numpy.array([2**53, -7])}, wide)["w"].tolist() == [2**53, -7]
    assert tensors_of({"w": numpy.uint64([2**63, 0])}, wide)["w"][0] == 2**63
    assert tensors_of({"w": numpy.int64([3, -4])}, whole)["w"].dtype == numpy.int32
    assert tensors_of({"w": [True, False]}, whole)["w"].tolist() == [1, 0]
    for value, outputs in [([1.0, 2.0], whole), ([2**31, 0], whole), ([2**53 + 1, 0], wide), ([2**24 + 1, 0], narrow),
                           ([1e300, 0.0], narrow), ([1j, 0], wide), (["a", "b"], wide), ([None, 1.0], wide),
                           ([-1, 0], declared(w=sheaf.sum(2, "uint64")))]:
        with pytest.raises(sheaf.InvalidArgument, match="output 'w'"):
            tensors_of({"w": value}, outputs)


def test_infinities_pass_for_the_server_to_judge():
    assert tensors_of({"w": [numpy.inf, numpy.nan]}, declared(w=sheaf.sum(2, "float32")))["w"][0] == numpy.inf


def test_a_sparse_tensor_or_a_part_of_one_is_no_value_of_a_dense_output():
    grad = sheaf.Sparse([0, 1], [1.0, 2.0], (2,))
    dense = declared(w=sheaf.sum(2))
    for value in (grad, scipy.sparse.eye(2)):
        with pytest.raises(sheaf.InvalidArgument, match="a sparse tensor is one operand: declare the output with a sparse"):
            tensors_of({"w": value}, dense)
    with pytest.raises(sheaf.InvalidArgument, match="the indices or the values of a sheaf.Sparse, which are never summed"):
        tensors_of({"w": grad.values}, dense)
    with pytest.raises(sheaf.InvalidArgument, match="return the whole sheaf.Sparse or sheaf.Keyed as 'w'"):
        tensors_of({"w.values": grad.values, "w.indices": grad.indices}, declared(w=sheaf.sparse_sum(2)))
    assert tensors_of({"w": grad.to_dense()}, dense)["w"].tolist() == [1, 2]


def test_each_output_is_returned_once_and_nothing_else():
    outputs = declared(a=sheaf.sum(()), b=sheaf.sum(()))
    with pytest.raises(sheaf.InvalidArgument, match="the output 'b' is missing"):
        tensors_of({"a": 1.0}, outputs)
    with pytest.raises(sheaf.InvalidArgument, match="there is no output 'c'; the round declares a, b"):
        tensors_of({"a": 1.0, "b": 2.0, "c": 3.0}, outputs)
    with pytest.raises(sheaf.InvalidArgument, match=r"the array has shape \[1\], expected \[\]"):
        tensors_of({"a": [1.0], "b": 2.0}, outputs)


def test_rows_and_tables_of_another_kind_are_refused_with_what_to_do():
    rows = declared(w=sheaf.slices_sum((9, 3)))
    table = declared(w=sheaf.keyed_sum(str, dtype="int64"))
    for value, outputs, because in [
        (numpy.zeros((9, 3)), rows, "make one of the indices and values, or with sheaf.Sparse.from_dense"),
        (sheaf.Sparse([0], [[1.0]], (9, 1)), rows, r"shape \[9, 1\], expected \[9, 3\]"),
        (sheaf.Sparse([[0, 0]], [1.0], (9, 3)), rows, "address 2 dimensions, expected 1"),
        ({1: 2}, table, "its keys are text, and these are not"),
        ({"a": 1.5}, table, "expected int64"),
        ({"a": [1]}, table, r"shape \[1, 1\], expected \[1\]"),
        ([1], table, "takes a sheaf.Keyed or a dict"),
        ({"a": 1}, declared(w=sheaf.sum(())), "sheaf.keyed_sum takes those"),
    ]:
        with pytest.raises(sheaf.InvalidArgument, match=because):
            tensors_of({"w": value}, outputs)


def test_a_counter_is_a_table_and_so_is_an_empty_one():
    table = declared(n=sheaf.keyed_sum(str, dtype="int64"))
    assert tensors_of({"n": collections.Counter("abca")}, table)["n.values"].tolist() == [2, 1, 1]
    empty = tensors_of({"n": {}}, table)
    assert empty["n.key_offsets"].tolist() == [0] and empty["n.values"].shape == (0,) and empty["n.values"].dtype == numpy.int64
