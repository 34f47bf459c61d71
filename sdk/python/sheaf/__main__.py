"""Serves the computations of files or modules, for a sheaf-worker that starts it.

    sheaf-worker --serve mean_age="python3 -m sheaf mean_age.py"

They may call sheaf.work() themselves or not: here it does nothing. A file that ends in .pickle is a computation that
sheaf.local has copied.
"""

import importlib
import importlib.util
import os
import pathlib
import pickle
import sys

from sheaf.computations import computation
from sheaf.serving import work


def load(what: str) -> None:
    """Imports a module by its name, or a file."""
    if what.endswith(".pickle"):
        made = pickle.loads(pathlib.Path(what).read_bytes())
        computation(name=made.name)(made.function)
        return
    if not what.endswith(".py"):
        importlib.import_module(what)
        return
    path = pathlib.Path(what).resolve()
    # Beside it may lie what it imports.
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)


def main(arguments: list[str]) -> None:
    is_started_by_worker = os.environ.get("SHEAF_SERVE") or os.environ.get("SHEAF_TASK_DIR")
    # The last argument of one-shot mode is the task's directory.
    names = [each for each in arguments if each != os.environ.get("SHEAF_TASK_DIR")]
    if not names or not is_started_by_worker:
        print("usage: sheaf-worker --serve NAME='python3 -m sheaf FILE.py|MODULE...'", file=sys.stderr)
        sys.exit(2)
    for name in names:
        load(name)
    work()


if __name__ == "__main__":
    main(sys.argv[1:])
