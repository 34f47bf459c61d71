"""A model trains with the rows that its data look up as it would with whole tables."""

import numpy
import pytest

torch = pytest.importorskip("torch")
import sheaf  # noqa: E402
import sheaf.torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402


class Model(nn.Module):
    """Looks a table up twice, has a bag, a padding row, a dense layer and running statistics."""

    def __init__(self):
        super().__init__()
        self.items = nn.Embedding(1000, 4, padding_idx=3)
        self.words = nn.EmbeddingBag(500, 4, mode="mean")
        self.norm = nn.BatchNorm1d(4)
        self.out = nn.Linear(4, 1)

    def forward(self, left, right, words, offsets):
        both = self.items(left) * self.items(right) + self.words(words, offsets)
        return self.out(self.norm(both))


def batches(seed, num_batches=6, size=5):
    rng = numpy.random.default_rng(seed)
    for _ in range(num_batches):
        left, right = (torch.from_numpy(rng.integers(0, 40, size) * 7) for _ in range(2))
        left[0] = 3
        words = torch.from_numpy(rng.integers(0, 500, 3 * size))
        yield left, right, words, torch.arange(0, 3 * size, 3), torch.from_numpy(rng.normal(size=(size, 1))).float()


OPTIMIZERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, 0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9),
    "Adam": lambda parameters: torch.optim.Adam(parameters, 0.01),
    "Adagrad": lambda parameters: torch.optim.Adagrad(parameters, 0.1, initial_accumulator_value=0.5),
    "RMSprop": lambda parameters: torch.optim.RMSprop(parameters, 0.01),
}


def train(model, make_optimizer, seed=1):
    """An ordinary training loop."""
    optimizer = make_optimizer(model.parameters())
    for *inputs, targets in batches(seed):
        optimizer.zero_grad()
        loss = functional.mse_loss(model(*inputs), targets)
        loss.backward()
        optimizer.step()
    return loss.item()


def seeded():
    torch.manual_seed(1)
    return Model()


def run(training, function):
    """The computation's update, without a server."""
    made = sheaf.Computation.__new__(sheaf.Computation)
    made.__init__(function, "train")
    return made.try_run(outputs=training.outputs, params=training.broadcast())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_with_fetched_rows_gives_what_training_with_whole_tables_gives(name):
    training = sheaf.torch.Training(seeded())
    whole = seeded()
    # Rows that are looked up later have been decayed towards nothing meanwhile, in both.
    expected_loss = train(whole, OPTIMIZERS[name])

    def computation(task):
        model = sheaf.torch.load(task, Model)
        return sheaf.torch.update(model, weight=2, loss=train(model, OPTIMIZERS[name]))

    update = run(training, computation)
    assert update.metrics["loss"] == pytest.approx(expected_loss, rel=1e-5)
    for key, before in training.broadcast().items():
        if key not in training.outputs:
            continue
        delta = whole.state_dict()[key].numpy() - before
        value = update[key]
        if isinstance(value, sheaf.Sparse):
            changed = numpy.flatnonzero((delta != 0).any(axis=1))
            assert set(value.indices.ravel()) <= set(changed) | {3}
            value = value.to_dense()
        numpy.testing.assert_allclose(value, delta, rtol=2e-4, atol=2e-6, err_msg=key)


def test_only_rows_that_are_looked_up_are_fetched_and_only_those_that_changed_are_returned():
    training = sheaf.torch.Training(seeded())

    def computation(task):
        model = sheaf.torch.load(task, Model)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        model.eval()
        left, right = torch.tensor([10, 20]), torch.tensor([20, 999])
        model(left, right, torch.tensor([1, 2]), torch.tensor([0, 1]))[0].backward()
        optimizer.step()
        assert len(model.items.weight) < 100
        return sheaf.torch.update(model)

    update = run(training, computation)
    # 999 was looked up, and had no part in what was minimised.
    assert update["items.weight"].indices.ravel().tolist() == [10, 20]
    assert update["words.weight"].indices.ravel().tolist() == [1]


class Large(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(100_000_000, 16)
        nn.init.normal_(self.table.weight)

    def forward(self, ids):
        return self.table(ids).sum()


class _Rows:
    """A broadcast that nobody could hold: row i is full of i mod 7."""

    def rows(self, wanted):
        return {name: numpy.repeat((rows % 7).astype(numpy.float32)[:, None], 16, axis=1) for name, rows in wanted.items()}


def test_a_table_of_a_hundred_million_rows_takes_the_memory_of_those_that_are_looked_up():
    entry = {"computation": "c", "broadcast": "here", "outputs": [
        {"name": "table.weight", "operator": "slices_sum", "operand": "sparse", "dtype": "F32", "shape": [100_000_000, 16],
         "index_dims": 1}]}
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model = sheaf.torch.load(sheaf.LeasedTask(entry, _Rows()), Large)
    ids = torch.tensor([99_999_999, 0, 5, 99_999_999])
    model(ids).backward()
    torch.optim.SGD(model.parameters(), 1.0).step()
    update = sheaf.torch.update(model)["table.weight"]
    assert update.indices.ravel().tolist() == [0, 5, 99_999_999]
    assert update.values[:, 0].tolist() == [-1, -1, -2]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kB


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 4)
        self.out = nn.Linear(4, 10, bias=False)
        self.out.weight = self.table.weight

    def forward(self, ids):
        return self.out(self.table(ids)).sum()


def test_a_weight_that_is_tied_travels_whole_and_stays_tied():
    training = sheaf.torch.Training(Tied())
    assert {output.operator for output in training.outputs.values()} == {"weighted_mean"}

    def computation(task):
        model = sheaf.torch.load(task, Tied)
        assert model.out.weight is model.table.weight
        model(torch.tensor([1])).backward()
        torch.optim.SGD(model.parameters(), 0.1).step()
        return sheaf.torch.update(model)

    update = run(training, computation)
    assert numpy.abs(update["table.weight"]).sum() > 0


def test_a_model_of_another_shape_is_refused_by_name():
    training = sheaf.torch.Training(nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 1)))
    with pytest.raises(sheaf.InvalidArgument, match=r"'0.weight' has shape \[11, 4\].*\[10, 4\]"):
        run(training, lambda task: sheaf.torch.load(task, lambda: nn.Sequential(nn.Embedding(11, 4), nn.Linear(4, 1))))


def test_an_index_out_of_range_is_an_error_as_it_is_in_torch():
    training = sheaf.torch.Training(nn.Embedding(10, 4))
    with pytest.raises(IndexError, match="10 was looked up in an embedding of 10 rows"):
        run(training, lambda task: sheaf.torch.load(task, lambda: nn.Embedding(10, 4))(torch.tensor([10])))


def test_a_parameter_that_is_not_float32_is_refused_by_name():
    with pytest.raises(sheaf.InvalidArgument, match="'weight' is torch.float64"):
        sheaf.torch.Training(nn.Linear(2, 1).double())


def test_what_a_round_released_moves_the_model():
    model = nn.Sequential(nn.Embedding(10, 2), nn.Linear(2, 1))
    nn.init.zeros_(model[0].weight)
    training = sheaf.torch.Training(model, optimizer=sheaf.FedAvg(0.5))
    training.apply({"0.weight": sheaf.Sparse([4], numpy.full((1, 2), 2, numpy.float32), (10, 2))})
    assert model[0].weight[4].tolist() == [1, 1]
    assert model[0].weight.abs().sum() == 2
