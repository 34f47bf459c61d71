"""Trains the tagger over all maintainers but a tenth, and says how well it does on those."""

import argparse
import pathlib
import random

import sheaf
import sheaf.torch
import tags

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("packages", type=pathlib.Path, help="what `apt-cache dumpavail` prints")
parser.add_argument("--rounds", type=int, default=20)
arguments = parser.parse_args()

maintainers, num_words = tags.read_packages(arguments.packages)
shuffled = random.Random(1).sample(range(len(maintainers)), len(maintainers))
testers, clients = shuffled[: len(shuffled) // 10], shuffled[len(shuffled) // 10 :]
test_packages = [package for tester in testers for package in maintainers[tester]]
draw = random.Random(2)

training = sheaf.torch.Training(tags.Tagger(num_words))
with sheaf.connect() as server:
    results = training.rounds(server, "tags", rounds=arguments.rounds,
                              tasks=lambda: [str(client) for client in draw.sample(clients, 50)])
    for number, result in enumerate(results, 1):
        recall = tags.recall_at_5(training.model, test_packages)
        print(f"round {number:2}  loss {result.metrics['loss']:6.3f}  recall@5 {recall:.3f}", flush=True)
