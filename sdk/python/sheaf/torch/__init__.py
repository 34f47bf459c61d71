"""Federated training of torch modules, sparse where they are.

The model and its training loop are ordinary torch code. On a worker:

    import sheaf, sheaf.torch
    from tags import Tagger, examples_of, train

    @sheaf.computation
    def tags(task):
        model = sheaf.torch.load(task, Tagger)
        examples = examples_of(task.data, task.data_selector)
        loss = train(model, examples)
        return sheaf.torch.update(model, weight=len(examples), loss=loss)

    sheaf.work()

and the program:

    training = sheaf.torch.Training(Tagger())
    with sheaf.connect() as server:
        for result in training.rounds(server, "tags", rounds=20, tasks=50):
            print(result.metrics["loss"], evaluate(training.model))

The weight of an `nn.Embedding` or `nn.EmbeddingBag` is a *table*. A worker fetches the rows of it that its data look up, when
they are looked up, and returns the rows that training has changed. All other parameters travel whole. Nothing of this is
seen by the model or its training loop.
"""

from sheaf.torch.local_model import load, update
from sheaf.torch.training import Training

__all__ = ["Training", "load", "update"]
