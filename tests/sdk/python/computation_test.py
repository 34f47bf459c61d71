"""Computations, tried without a server or a worker."""

import math

import numpy
import pytest

import sheaf


@sheaf.computation
def mean_of_ages(task):
    ages = numpy.loadtxt(task.data / "ages.csv")
    return sheaf.Update({"age": ages.mean()}, weight=len(ages), oldest=ages.max())


@sheaf.computation(name="step")
def one_step(task):
    """Adds the config to chosen rows."""
    rows = task.rows("w", task.payload["rows"])
    rows += task.config
    return {"w": sheaf.Sparse(task.payload["rows"], rows, task.params["w"].shape)}


@sheaf.computation
def each_client(task):
    for number in range(3):
        yield sheaf.Update({"n": number + task.rng.random() * 0}, weight=number + 1)


def test_a_computation_is_tried_without_a_server(tmp_path):
    (tmp_path / "ages.csv").write_text("1\n2\n6\n")
    update = mean_of_ages.try_run(outputs={"age": sheaf.weighted_mean(())}, data=tmp_path)
    assert update["age"] == 3 and update.weight == 3 and update.metrics == {"oldest": 6}
    with pytest.raises(sheaf.InvalidArgument, match="there is no output 'age'; the round declares years"):
        mean_of_ages.try_run(outputs={"years": sheaf.weighted_mean(())}, data=tmp_path)


def test_a_computation_reads_rows_and_leaves_the_broadcast_as_it_is():
    params = {"w": numpy.zeros((4, 2), numpy.float32)}
    update = one_step.try_run(outputs={"w": sheaf.slices_sum((4, 2), "float32")}, params=params, config=0.5,
                              payload={"rows": [3, 1]})
    assert update["w"].rows.tolist() == [3, 1] and update["w"].values.tolist() == [[0.5, 0.5]] * 2
    assert one_step.name == "step" and one_step.__doc__ == "Adds the config to chosen rows." and not params["w"].any()


def test_a_generator_is_one_update_for_each_client():
    updates = each_client.try_updates(outputs={"n": sheaf.weighted_mean(())})
    assert [(float(update["n"]), update.weight) for update in updates] == [(0, 1), (1, 2), (2, 3)]
    with pytest.raises(sheaf.InvalidArgument, match="returned 3 updates, and not one"):
        each_client.try_run(outputs={"n": sheaf.weighted_mean(())})


def test_a_broadcast_has_sparse_tensors_as_one_value():
    @sheaf.computation
    def look(task):
        assert list(task.params) == ["b", "w"] and not task.params["b"].flags.writeable
        return {"w": task.params["w"]}

    params = {"w": sheaf.Sparse([1], [[2.0]], (4, 1)), "b": numpy.ones(2)}
    assert look.try_run(outputs={"w": sheaf.slices_sum((4, 1))}, params=params)["w"].rows == 1


def test_two_computations_of_one_name_are_refused():
    with pytest.raises(sheaf.InvalidArgument, match="there are two computations 'mean_of_ages'"):
        sheaf.computation(name="mean_of_ages")(lambda task: {})


@pytest.mark.parametrize("weight, metrics", [(0, {}), (-1, {}), (math.nan, {}), (math.inf, {}), (1, {"loss": math.nan}),
                                             (1, {"weight": 2.0})])
def test_weights_and_metrics_are_finite_numbers(weight, metrics):
    with pytest.raises(ValueError):
        sheaf.Update({}, weight, metrics)


def test_what_is_no_update_is_refused_by_name():
    nothing = sheaf.computation(name="nothing")(lambda task: None)
    with pytest.raises(TypeError, match="nothing returned a NoneType; it returns a sheaf.Update, a dict of values"):
        nothing.try_run(outputs={"n": sheaf.sum(())})


@pytest.mark.parametrize("data, because", [
    (None, "start it with --data NAME=PATH"), ({"a": "x", "b": "y"}, r"several names: a, b; choose with task.datasets\[NAME\]"),
])
def test_data_that_is_not_there_is_named(data, because):
    with pytest.raises(sheaf.NotFound, match=because):
        mean_of_ages.try_run(outputs={"age": sheaf.weighted_mean(())}, data=data)


def test_rows_of_no_broadcast_and_rows_that_are_no_numbers_are_refused():
    with pytest.raises(sheaf.NotFound, match="no broadcast"):
        one_step.try_run(outputs={}, payload={"rows": [1]})
    with pytest.raises(sheaf.InvalidArgument, match="row numbers are integers"):
        one_step.try_run(outputs={}, payload={"rows": [[1.5]]}, params={"w": numpy.zeros((2, 2))})


def test_config_and_payload_are_what_json_makes_of_them_or_bytes():
    @sheaf.computation
    def echo(task):
        assert task.config == b"\xff" and task.payload == [1, {"a": None}] and task.data_selector == "client:1"
        return {"n": task.seed}

    update = echo.try_run(outputs={"n": sheaf.sum((), "int64")}, config=b"\xff", payload=(1, {"a": None}), seed=5,
                          data_selector="client:1")
    assert update["n"] == 5
