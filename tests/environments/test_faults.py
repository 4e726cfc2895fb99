"""Faults of environments, a few of those that `benchmarks/faults.py` injects."""

import importlib.util
import pathlib
import sys

import pytest

pytestmark = pytest.mark.timeout(120)


def load():
    """The module of the command."""
    path = pathlib.Path(__file__).parents[2] / "benchmarks" / "faults.py"
    spec = importlib.util.spec_from_file_location("faults", path)
    module = sys.modules["faults"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


faults = load()

QUICK = [
    ("make/raise unpicklable", "async"),
    ("make/raise", "sync"),
    ("reset/raise", "serial"),
    ("step/sys.exit(4)", "serial"),
    ("step/terminated 'no'", "sync"),
    ("step/reward '1.0'", "async"),
    ("step/reward '1.0'", "own"),
    ("step/wrong shape", "own"),
    ("step/os._exit(3)", "own"),
    ("step/hang asleep", "async"),
    ("step/Box(-1, 1) = 5", "workers"),
    ("step/unpicklable info", "process"),
    ("close/all hang", "process"),
    ("reset/Discrete(5) = 7", "compiled"),
    ("trainer/SIGKILL while an environment hangs", "own"),
    ("trainer/SIGKILL with processes of environments", "async"),
]


SLOW = [
    ("step/own process, then SIGKILL", "async"),
    ("close/all hang", "serial"),
]


@pytest.mark.parametrize(
    ("place", "backend"),
    QUICK + [pytest.param(*cell, marks=pytest.mark.slow) for cell in SLOW],
)
def test_faults_end_in_time_with_one_line_and_leave_nothing(place, backend):
    found = [
        function
        for where, name, _, function in faults.cells([backend], [place])
        if f"{where}/{name}" == place
    ]
    (function,) = found
    _, problem = function()
    assert not problem, problem


def test_the_command_finds_what_is_not_as_it_must_be():
    silent = faults.Fault("step", "silent", "an error")
    assert faults.run("serial", silent) == ("on", "goes on\n")
    rude = faults.Fault("step", "rude", None, faults.throw(KeyError, "x"))
    shows, problem = faults.run("serial", rude)
    assert (shows, "says Environment row 2 raised KeyError" in problem) == ("row", True)
