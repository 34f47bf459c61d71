"""Predicts a Debian package's tags from the words of its description and the names of what it depends on."""

import collections
import re

import torch
from torch import nn
from torch.nn import functional

NUM_TAGS = 500


class Tagger(nn.Module):
    def __init__(self, num_words):
        super().__init__()
        self.words = nn.EmbeddingBag(num_words, NUM_TAGS, mode="sum")
        self.bias = nn.Parameter(torch.zeros(NUM_TAGS))
        nn.init.zeros_(self.words.weight)

    def forward(self, packages):
        words = [package["words"] for package in packages]
        begins = torch.tensor([0] + [len(one) for one in words[:-1]]).cumsum(0)
        return self.words(torch.cat(words), begins) + self.bias


def train(model, packages, batch_size=10):
    """One pass; the mean loss."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    total = 0.0
    for begin in range(0, len(packages), batch_size):
        batch = packages[begin : begin + batch_size]
        targets = torch.stack([package["tags"] for package in batch])
        loss = functional.binary_cross_entropy_with_logits(model(batch), targets, reduction="sum") / len(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(batch)
    return total / len(packages)


@torch.no_grad()
def recall_at_5(model, packages):
    """The part of all tags that are among the five that the model thinks likeliest."""
    found = wanted = 0
    for package in packages:
        _, likeliest = model([package]).topk(5)
        found += package["tags"][likeliest].sum().item()
        wanted += package["tags"].sum().item()
    return found / wanted


def read_packages(path):
    """The packages of `apt-cache dumpavail`, by maintainer, and how many words there are.

    Words and tags are numbers, the same on every machine that has the same package lists. A tenth of the maintainers, spread
    over all of them, is for testing: `testers` says which.
    """
    raw = {}
    for stanza in path.read_text(errors="replace").split("\n\n"):
        fields = {name: value.strip() for name, value in re.findall(r"^([\w-]+):(.*(?:\n[ \t].*)*)", stanza, re.M)}
        if fields.get("Tag"):
            raw.setdefault(fields["Package"], fields)
    counts = collections.Counter(tag for fields in raw.values() for tag in tags_of(fields))
    frequent = sorted(counts, key=lambda tag: (-counts[tag], tag))[:NUM_TAGS]
    tag_numbers = {tag: number for number, tag in enumerate(frequent)}
    word_numbers = {word: number for number, word in enumerate(sorted({word for f in raw.values() for word in words_of(f)}))}
    by_maintainer = {}
    for name in sorted(raw):
        fields = raw[name]
        tags = torch.zeros(NUM_TAGS)
        tags[[tag_numbers[tag] for tag in tags_of(fields) if tag in tag_numbers]] = 1
        words = torch.tensor([word_numbers[word] for word in sorted(words_of(fields))])
        by_maintainer.setdefault(fields["Maintainer"], []).append({"words": words, "tags": tags})
    return [by_maintainer[maintainer] for maintainer in sorted(by_maintainer)], len(word_numbers)


def tags_of(fields):
    return {tag.strip() for tag in fields["Tag"].split(",") if tag.strip()}


def words_of(fields):
    description = fields.get("Description") or fields.get("Description-en") or ""
    text = f"{fields['Package']} {description.partition(chr(10))[0]}".lower()
    words = {f"word {word}" for word in re.findall(r"[a-z][a-z0-9+]+", text)}
    for relation in ("Depends", "Pre-Depends", "Recommends", "Suggests"):
        for entry in fields.get(relation, "").split(","):
            if name := re.split(r"[\s|(:\[<]", entry.strip())[0]:
                words.add(f"needs {name}")
    return words
