"""Groups of runs that share a curve, and labels that tell the groups apart.

Runs share a curve if they differ only in their seeds, or in what does not change
learning.
"""

import collections
import dataclasses
import json
import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

from agents.tools import config_files

SHOWN = 3  # Differences between configs that a label lists.
LONGEST = 24  # Characters of a value in a label.
PROCESSES = ("num_workers", "timeout", "start_timeout")
"""Settings of environments that change nothing but their processes."""


@dataclasses.dataclass(frozen=True)
class Group:
    """Runs of one config, with different seeds."""

    label: str
    """Name of the config, and how it differs from namesakes."""
    task: str
    """Environment, if known."""
    algorithm: str
    """Type of the algorithm, if known."""
    runs: tuple[pathlib.Path, ...]


def group(runs: Iterable[pathlib.Path]) -> list[Group]:
    """Group runs whose names and settings of learning are equal, except for their seeds.

    Runs of the same seed are in different groups, since they are not independent.
    """
    groups: dict[tuple, list] = {}
    configs: dict[tuple, dict] = {}
    known: collections.Counter = collections.Counter()
    for run in runs:
        values = _values(run)
        config = _plain(_shared(values))
        text, seed = json.dumps(config, sort_keys=True), str(values.get("seed"))
        key = text, known[text, seed]
        known[text, seed] += seed != "None"
        groups.setdefault(key, []).append(run)
        configs[key] = config
    labels = _labels(list(configs.values()))
    return [
        Group(label, _task(configs[key]), _algorithm(configs[key]), tuple(groups[key]))
        for label, key in zip(labels, groups, strict=True)
    ]


def task(run: pathlib.Path) -> str:
    """Name the environment of a run; empty if unknown."""
    return _task(_values(run))


def config_name(run: pathlib.Path) -> str:
    """Guess the name of the config from that of a run directory, `TIME-CONFIG`."""
    name = run.resolve().name
    match = re.fullmatch(r"(?:[\d_T:.-]*\d|[^-]*)-(.+)", name)
    return match[1] if match else name


def _values(run: pathlib.Path) -> dict:
    """Read the config of a run; only a name if there is none."""
    path = run / "config.yaml"
    values = config_files.load_mapping(path) if path.exists() else {}
    if not isinstance(values.get("name"), str):
        values["name"] = config_name(run)
    return values


def _shared(values: dict) -> dict:
    """Return the settings that runs of a curve share.

    Runs may be longer than others, be stopped, saved and shown in other ways, and use
    other processes and devices.
    """
    shared = {x: y for x, y in values.items() if x not in ("seed", "train", "devices")}
    if isinstance(environment := values.get("environment"), dict):
        kept = {x: y for x, y in environment.items() if x not in PROCESSES}
        shared["environment"] = kept
    interval = config_files.at(values, "train.eval_every")
    return {**shared, "train": {"eval_every": interval}}


def _plain(value: Any) -> Any:
    """Return a value of a config with whole floats as integers, which are equal."""
    if isinstance(value, dict):
        return {key: _plain(x) for key, x in value.items()}
    if isinstance(value, list):
        return [_plain(x) for x in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _labels(configs: Sequence[dict]) -> list[str]:
    """Name curves by their configs, and by the differences where names are equal.

    Labels list the first differences, or all if those do not tell curves apart, and
    number curves that still have equal labels.
    """
    full = []
    for config in configs:
        name = config["name"]
        namesakes = [x for x in configs if x["name"] == name]
        differing = {
            path: own
            for other in namesakes
            for path, (own, _) in config_files.changes(config, other).items()
        }
        values = [
            f"{path[-1]} {_value(differing[path])}"
            for path in sorted(differing, key=lambda x: ".".join(map(str, x)))
        ]
        full.append([name, *values])
    short = [", ".join(x[: 1 + SHOWN]) for x in full]
    alike: dict[str, set] = {}
    for text, parts in zip(short, full, strict=True):
        alike.setdefault(text, set()).add(tuple(parts))
    labels = [
        text if len(alike[text]) == 1 else ", ".join(parts)
        for text, parts in zip(short, full, strict=True)
    ]
    return [
        text
        if (number := labels[:index].count(text)) == 0
        else f"{text} ({number + 1})"
        for index, text in enumerate(labels)
    ]


def _value(value: Any) -> str:
    """Return a value of a config as a short text."""
    if isinstance(value, dict) and {"from", "to"} <= value.keys():
        return f"{_value(value['from'])} to {_value(value['to'])}"
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _task(config: dict) -> str:
    """Name the environment of a config."""
    return str(config_files.at(config, "environment.id") or "")


def _algorithm(config: dict) -> str:
    """Name the algorithm of a config."""
    return str(config_files.at(config, "algorithm.type") or "").rpartition(":")[2]
