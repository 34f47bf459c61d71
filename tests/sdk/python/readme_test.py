"""README.md's first screen: its computation and its program, as they stand."""

import pathlib
import re
import sys

import sheaf

README = (pathlib.Path(__file__).resolve().parents[3] / "README.md").read_text()


def test_the_computation_and_the_program_of_the_first_screen_work(tmp_path, capsys):
    computation, program = re.findall(r"^```python\n(.*?)^```", README, re.S | re.M)
    (tmp_path / "mean_age.py").write_text(computation)
    (tmp_path / "ages.csv").write_text("40\n41\n45\n")
    command = re.search(r'--serve mean_age="python3 (mean_age.py)" --data people=', README)
    serve = {"mean_age": [sys.executable, str(tmp_path / command.group(1))]}
    with sheaf.local(workers=2, serve=serve, data={"people": tmp_path},
                     worker_options=["--env", "PYTHONPATH"]) as server:
        exec(program.replace("HOST:7433", server.address), {})
    assert capsys.readouterr().out == "42.0 20\n"
