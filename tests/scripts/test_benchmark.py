"""The command that measures speed: its output and the plausibility of its parts."""

import json

import pytest

from agents.experiments import speed
from agents.scripts import benchmark

KEYS = [
    "config",
    "mode",
    "backend",
    "num_agents",
    "steps",
    "seconds",
    "env_steps_per_s",
    "end_to_end_steps_per_s",
    "limit_steps_per_s",
    "fraction_of_limit",
    "compile_seconds",
    "step_us",
    "parts_us",
]


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr(speed, "SECONDS", 0.1)


@pytest.mark.quick("train-workers-4", "simulate-envpool-4", "simulate-vector-4")
@pytest.mark.parametrize(
    ("mode", "backend", "agents"),
    [
        ("simulate", "serial", 4),
        ("simulate", "workers", 6),
        ("train", "workers", 4),
        ("train", "compiled", 4),
        ("simulate", "envpool", 4),
        ("simulate", "vector", 4),
    ],
)
def test_line_of_json(call, mode, backend, agents):
    pytest.importorskip("envpool")
    mode_of_vector = "environment.kwargs={vectorization_mode: sync}"
    code, output, errors = call(
        *(benchmark, mode, "--config", "debug", "--backend", backend),
        *("--num_agents", agents, "--steps", 1000),
        *(("--set", mode_of_vector) if backend == "vector" else ()),
    )
    assert code == 0, errors
    result = json.loads(output.splitlines()[-1])
    assert list(result) == KEYS
    assert (result["config"], result["mode"]) == ("debug", mode)
    assert (result["backend"], result["num_agents"]) == (backend, agents)
    assert result["steps"] == pytest.approx(1000, abs=64 * agents)
    rate = result["steps"] / result["seconds"]
    assert result["end_to_end_steps_per_s"] == pytest.approx(rate, rel=0.01)
    assert result["fraction_of_limit"] == pytest.approx(
        result["end_to_end_steps_per_s"] / result["limit_steps_per_s"], abs=1e-3
    )
    parts = ["environment", "crossing", "acting"]
    parts += ["remembering", "learning"] if mode == "train" else []
    parts = [x for x in parts if x != "crossing" or backend != "compiled"]
    assert list(result["parts_us"]) == parts
    shown = [line.split()[0] for line in output.splitlines()]
    assert [x for x in shown if x in parts] == parts
    assert result["step_us"] == pytest.approx(1e6 * agents / rate, rel=0.01, abs=1)
    assert " of the limit: " in output.splitlines()[-2]


def test_wrong_arguments(call):
    code, _, errors = call(benchmark, "train", "--config", "debug", "--steps", 0)
    hint = "see `agents benchmark --help`."
    assert (code, errors) == (2, f"error: --steps must be positive, got 0; {hint}\n")
    code, _, errors = call(
        benchmark, "simulate", "--config", "cheetah", "--backend", "compiled"
    )
    assert code == 2
    assert "not a functional environment" in errors
    code, _, errors = call(
        benchmark, "simulate", "--config", "debug", "--backend", "wrokers"
    )
    assert code == 2
    assert "did you mean" in errors
