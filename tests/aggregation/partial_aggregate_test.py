#!/usr/bin/env python3
"""docs/examples/partial_aggregate.py makes the published states, and the page's example is one of them."""

import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs/examples"))
import partial_aggregate  # noqa: E402


def example(page):
    """The name of the vector that the page spells out, and the first words of its lines: hex."""
    name, block = re.search(r"<!-- vector: (.*) -->\n\n```text\n(.*?)```", page, re.S).groups()
    return name, "".join(line.split()[0] for line in block.splitlines())


def main():
    made = json.loads((ROOT / "docs/reference/partial-aggregates.json").read_text())["made"]
    assert len(made) > 40, "few vectors"
    differing = [vector["name"] for vector in made
                 if partial_aggregate.state(vector["output"], vector["numerics"], vector["clients"]).hex() != vector["state"]]
    name, spelt_out = example((ROOT / "docs/reference/partial-aggregates.md").read_text())
    if spelt_out != next(vector["state"] for vector in made if vector["name"] == name):
        differing.append("the example on the page")
    print(f"{len(made)} states made; other than published: {differing or 'none'}")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
