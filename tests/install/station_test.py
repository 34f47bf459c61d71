#!/usr/bin/env python3
"""A worker with a computation of its own and a program of its own, both built against the installed package, get the
right aggregate from a real server. Python's standard library is enough.

  station_test.py SHEAFD BUILD_FOLDER STATIONS GUIDE
"""

import pathlib
import subprocess
import sys
import tempfile
import time


def address_of(server, port_file):
    """Where the server serves; it writes the file in one step, once it does."""
    for _ in range(300):
        if port_file.exists():
            return port_file.read_text().strip()
        if server.poll() is not None:
            raise RuntimeError(f"sheafd ended with {server.returncode}")
        time.sleep(0.1)
    raise RuntimeError("sheafd does not serve")


def released(sheafd, build, stations):
    """What the program prints."""
    processes = []
    with tempfile.TemporaryDirectory() as folder:
        port_file = pathlib.Path(folder, "port")
        try:
            processes.append(subprocess.Popen([sheafd, "--listen", "127.0.0.1:0", "--data-dir", folder + "/data",
                                               "--port-file", port_file]))
            address = address_of(processes[0], port_file)
            processes.append(subprocess.Popen([build / "station_worker", "--server", address,
                                               "--data", f"stations={stations}"]))
            program = subprocess.run([build / "station_program", address], capture_output=True, text=True, timeout=60)
            print(program.stdout, program.stderr, sep="")
            return program.stdout
        finally:
            for process in reversed(processes):
                process.terminate()
                process.wait(timeout=30)


def main(argv):
    sheafd, build, stations, guide = map(pathlib.Path, argv[1:])
    numbers = [float(number) for number in stations.read_text().split()]
    expected = f"the mean of all readings is {sum(numbers) / len(numbers):g}\n"
    problems = []
    if released(sheafd, build, stations) != expected:
        problems.append(f"the program does not print: {expected}")
    if expected not in guide.read_text():
        problems.append(f"{guide.name} does not show: {expected}")
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
