"""A config with fields of all kinds."""

import dataclasses
from typing import Any

import pytest

from agents.tools import config, schedules, sections


@dataclasses.dataclass(frozen=True)
class Network:
    layers: tuple[int, ...] = (64, 64)
    filters: tuple[tuple[int, int], ...] = ()
    activation: str = "relu"

    @classmethod
    def short(cls, name):
        if name != "big":
            raise config.ConfigError(f"unknown network {name!r}.")
        return cls(layers=(512,))


@dataclasses.dataclass(frozen=True)
class Inner:
    name: str = "inner"
    limit: int | None = None


@dataclasses.dataclass(frozen=True)
class Config:
    steps: int = 100
    rate: float = 1e-3
    schedule: float | schedules.Schedule | None = 0.5
    jit: bool = False
    name: str = "default"
    size: tuple[int, float] = (1, 2.0)
    network: Network = Network()
    inner: Inner | None = None
    options: dict = dataclasses.field(default_factory=dict)
    anything: Any = None

    def __post_init__(self):
        if self.steps < 1:
            raise ValueError(f"steps must be positive, got {self.steps}.")


FULL = Config(
    steps=7,
    rate=3e-5,
    schedule=schedules.Schedule("linear", 3e-4, 0.0, 1e6),
    jit=True,
    name="yes: no # 'quoted' \"twice\" ü",
    size=(3, 0.25),
    network=Network((8,), ((16, 8), (32, 4)), "1e3"),
    inner=Inner("null", 10**12),
    options={"a": {"b": [1, "x", None, 1e-9]}, "5": True},
    anything=[1, {"k": "v"}],
)


def error(function, *args):
    """Text of the ConfigError, which must be one line."""
    with pytest.raises(config.ConfigError) as caught:
        function(*args)
    text = str(caught.value)
    assert "\n" not in text
    return text


def build(**values):
    return sections.build(Config, values)
