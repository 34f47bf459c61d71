"""Trains the tagger on the packages of one maintainer, on the machine that has them."""

import functools

import sheaf
import sheaf.torch
import tags


@functools.cache
def packages_of(path):
    return tags.read_packages(path)


@sheaf.computation(name="tags")
def train_tags(task):
    maintainers, num_words = packages_of(task.data)
    packages = maintainers[int(task.data_selector)][:512]
    model = sheaf.torch.load(task, lambda: tags.Tagger(num_words))
    loss = tags.train(model, packages)
    return sheaf.torch.update(model, weight=len(packages), loss=loss)


sheaf.work()
