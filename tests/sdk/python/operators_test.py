"""The functions of the operators against the server's own table: a row or a modifier more there fails here."""

import inspect

import pytest

import sheaf
from sheaf import operators
from sheaf.calls import CREATE_ROUND, METHODS, call
from sheaf.dtypes import PROTOCOL_NAMES
from sheaf.round_spec import output_spec
from sheaf.v1 import (aggregation_pb2, blob_service_pb2, inspection_service_pb2, round_pb2, round_service_pb2, tensor_pb2)

# For each field of OutputSpec, the argument that it is, and values that differ from what is unset. A modifier exists for an
# operator if each of its values is accepted.
ALWAYS = {"name", "operator", "dtype", "dense_shape"}
MODIFIERS = {
    "index_dims": ("index_dims", [2]),
    "min_contributors": ("min_contributors", [2]),
    "drop_zeros": ("drop_zeros", [True]),
    "non_finite": ("non_finite", [aggregation_pb2.PROPAGATE_NON_FINITE]),
    "nnz_max": ("nnz_max", [5]),
    "key_type": ("key_type", [aggregation_pb2.STRING_KEYS, aggregation_pb2.INT64_KEYS]),
    "form": ("form", [aggregation_pb2.SPARSE, aggregation_pb2.DENSE]),
}
BY_NAME = {function.__name__: function for function in operators.OPERATORS}


def is_accepted(server, output):
    spec = round_pb2.RoundSpec(population="default")
    spec.computation.name = "noop"
    spec.open_slots.count = 1
    spec.aggregate.outputs.append(output)
    request = round_service_pb2.CreateRoundRequest(request_id="1", spec=spec, validate_only=True)
    try:
        server._connection.run(call(CREATE_ROUND, request))
    except sheaf.InvalidArgument:
        return False
    return True


def spec_of(operator, **fields):
    if operator == "keyed_sum":
        fields.setdefault("key_type", aggregation_pb2.STRING_KEYS)
    return aggregation_pb2.OutputSpec(name="w", operator=operator, dtype=tensor_pb2.FLOAT64, dense_shape=[4, 3], **fields)


def test_there_is_a_function_for_each_row_of_the_table_in_its_order(server):
    assert [function.__name__ for function in operators.OPERATORS] == list(server.info().operators)
    for name, function in BY_NAME.items():
        assert getattr(sheaf, name) is function


def test_all_fields_of_an_output_are_known_here():
    fields = {field.name for field in aggregation_pb2.OutputSpec.DESCRIPTOR.fields}
    assert fields == ALWAYS | set(MODIFIERS)


def test_an_operator_has_the_arguments_that_mean_something_for_it_and_no_others(server):
    for name in server.info().operators:
        taken = {argument for field, (argument, values) in MODIFIERS.items()
                 if all(is_accepted(server, spec_of(name, **{field: value})) for value in values)}
        assert set(inspect.signature(BY_NAME[name]).parameters) == {"shape", "dtype"} | taken, name


def test_what_a_function_says_is_what_the_server_is_told(server):
    for name, function in BY_NAME.items():
        first = (str,) if name == "keyed_sum" else ()
        for dtype in PROTOCOL_NAMES:
            output = output_spec("w", function(*first, (4, 3), dtype))
            assert output.operator == name and list(output.dense_shape) == [4, 3]
            assert is_accepted(server, output) == (dtype.kind == "f" or "mean" not in name)
        chosen = {"index_dims": 2, "min_contributors": 3, "drop_zeros": True, "non_finite": "propagate", "nnz_max": 7,
                  "form": "sparse"}
        arguments = inspect.signature(function).parameters
        output = output_spec("w", function(*first, shape=(4, 3), **{key: chosen[key] for key in chosen if key in arguments}))
        for field, (argument, _) in MODIFIERS.items():
            assert bool(getattr(output, field)) == (argument in arguments), (name, field)


def test_what_is_wrong_is_said_at_once():
    for wrong, because in [
        (lambda: sheaf.sum((), "float16"), "cannot be of dtype float16; use one of float32"),
        (lambda: sheaf.keyed_sum(bytes), "key_type is str or int"),
        (lambda: output_spec("w", sheaf.sparse_sum(3, form="thick")), "form is 'sparse' or 'dense', and not 'thick'"),
        (lambda: output_spec("w", sheaf.sum(3, non_finite="no")), "non_finite is 'reject' or 'propagate', and not 'no'"),
        (lambda: output_spec("w", 3), "output 'w' is a int, and not an operator such as"),
    ]:
        with pytest.raises(sheaf.InvalidArgument, match=because):
            wrong()
    with pytest.raises(TypeError):
        sheaf.sum((), min_contributors=2)


def test_the_methods_are_those_of_the_services():
    services = [service for module in (round_service_pb2, blob_service_pb2, inspection_service_pb2)
                for service in module.DESCRIPTOR.services_by_name.values()]
    known = {f"/{service.full_name}/{method.name}": method for service in services for method in service.methods}
    for method in METHODS:
        assert method.request.DESCRIPTOR is known[method.path].input_type
        assert method.response.DESCRIPTOR is known[method.path].output_type
