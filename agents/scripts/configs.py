"""Experiments: one short function each, and what a config consists of."""

import dataclasses
import importlib
import pathlib
from collections.abc import Iterable
from typing import Any

from agents.environments import make
from agents.tools import config as config_

ALGORITHMS = {"ppo": ("agents.algorithms.ppo", "PPO")}
"""Type to module, which holds the dataclass `Config`, and class."""


@dataclasses.dataclass(frozen=True)
class Environment:
    """Which environments, how many, and where they run."""

    id: str = ""
    """Registered Gymnasium id, or `module:function` that returns an environment."""
    backend: str = "auto"
    """`workers`: several per process; `process`: one each; `serial`: for debugging;
    `vector`: vectorized by their own code; `envpool`: those of EnvPool; `auto`: vector
    for Atari, else workers."""
    num_agents: int = 16
    num_workers: int | None = None
    """Processes of the workers backend; none for one per core."""
    max_length: int | None = None
    """Steps after which episodes are truncated; none for the limit of the id."""
    action_lag: bool | None = None
    """Step the batch in two halves, one of which acts while the other steps; none: for
    many agents in workers, where that is faster."""
    timeout: float = 60.0
    """Seconds that a step or reset may take."""
    kwargs: dict = dataclasses.field(default_factory=dict)
    """Arguments of the environment's constructor."""

    def __post_init__(self) -> None:
        if self.backend not in make.BACKENDS:
            raise config_.ConfigError(
                f"config key 'environment.backend' is {self.backend!r}; "
                + config_.did_you_mean(self.backend, make.BACKENDS)
            )
        _positive(self, "environment", "num_agents", "num_workers", "max_length")


@dataclasses.dataclass(frozen=True)
class Train:
    """Phases of a run, in environment steps of training."""

    steps: int = 1_000_000
    """All phases of training together."""
    eval_every: int = 50_000
    """Length of a phase of training."""
    eval_episodes: int = 20
    """Deterministic episodes of a phase of evaluation; zero for none."""
    keep_checkpoints: int = 5
    wandb: str | None = None
    """Weights & Biases project to report to."""

    def __post_init__(self) -> None:
        _positive(self, "train", "steps", "eval_every", "keep_checkpoints")


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that defines a run."""

    name: str
    environment: Environment
    train: Train
    algorithm: Any
    """Dataclass of the algorithm that its `type` names."""
    seed: int = 0


def _positive(section: Any, path: str, *names: str) -> None:
    for name in names:
        value = getattr(section, name)
        if value is not None and value < 1:
            raise config_.ConfigError(
                f"config key '{path}.{name}' must be positive, got {value}."
            )


def load(source: str, overrides: Iterable[str] = (), seed: int | None = None) -> Config:
    """Config from the name of an experiment or a YAML file, with overrides applied.

    Raises:
      ConfigError: for anything wrong with it.
    """
    if source.endswith((".yaml", ".yml", ".json")) or pathlib.Path(source).is_file():
        values = config_.load(source)
        if not isinstance(values, dict):
            raise config_.ConfigError(f"{source} is not a mapping of config keys.")
        values.setdefault("name", pathlib.Path(source).stem)
    elif source in EXPERIMENTS:
        values = config_.to_dict(EXPERIMENTS[source]())
    else:
        hint = config_.did_you_mean(source, EXPERIMENTS)
        raise config_.ConfigError(f"unknown config {source!r}; {hint}")
    values = config_.override(_complete(values), overrides)
    if seed is not None:
        values["seed"] = seed
    return resolve(values)


def resolve(values: dict) -> Config:
    """Check a mapping and make a config of it."""
    algorithm = values.get("algorithm", {})
    if not isinstance(algorithm, dict):
        raise config_.ConfigError("config key 'algorithm' must be a mapping.")
    config = config_.build(Config, {**values, "algorithm": None})
    if not config.environment.id:
        raise config_.ConfigError("config key 'environment.id' is missing.")
    cls = algorithm_config(algorithm.get("type", "ppo"))
    return dataclasses.replace(
        config, algorithm=config_.build(cls, algorithm, "algorithm")
    )


def algorithm_config(kind: str) -> type:
    """Dataclass of an algorithm's hyperparameters."""
    if kind not in ALGORITHMS:
        raise config_.ConfigError(
            f"config key 'algorithm.type' is {kind!r}; "
            + config_.did_you_mean(kind, ALGORITHMS)
        )
    return importlib.import_module(ALGORITHMS[kind][0]).Config


def algorithm_class(kind: str) -> type:
    """Class of an algorithm."""
    module, name = ALGORITHMS[kind]
    return getattr(importlib.import_module(module), name)


def _complete(values: dict) -> dict:
    """Mapping with all keys, so that overrides find the sections; checks the types."""
    defaults = {"environment": {}, "train": {}, "algorithm": {}}
    return config_.to_dict(resolve({**defaults, **values}))


# Experiments with the settings of the TensorFlow Agents paper.


def _paper(
    id: str, steps: int, *, num_agents: int = 25, eval_every=250_000, **algorithm: Any
) -> Config:
    """KL penalty on whole episodes of one environment."""
    from agents.algorithms import ppo

    return Config(
        name="",
        environment=Environment(id=id, num_agents=num_agents),
        train=Train(steps=steps, eval_every=eval_every),
        algorithm=ppo.Config(**algorithm),
    )


def pendulum() -> Config:
    """Swing a pendulum up and balance it."""
    return _paper(
        "Pendulum-v1",
        300_000,
        eval_every=50_000,
        discount=0.95,
        gae_lambda=0.95,
        learning_rate=3e-4,
        minibatch_size=1000,
    )


def cartpole() -> Config:
    """Balance a pole on a cart."""
    return _paper(
        "CartPole-v1",
        300_000,
        eval_every=30_000,
        discount=0.99,
        gae_lambda=0.95,
        learning_rate=3e-4,
        normalize_rewards="return",
    )


def reacher() -> Config:
    """Reach a target with a two-link arm."""
    return _paper("Reacher-v5", 5_000_000, discount=0.985, update_every=60)


def cheetah() -> Config:
    """Run with a two-legged robot."""
    return _paper("HalfCheetah-v5", 10_000_000, discount=0.99)


def walker() -> Config:
    """Walk with a two-legged robot."""
    return _paper("Walker2d-v5", 10_000_000)


def hopper() -> Config:
    """Hop with a one-legged robot."""
    return _paper("Hopper-v5", 10_000_000, update_every=60)


def ant() -> Config:
    """Walk with a four-legged robot."""
    return _paper("Ant-v5", 20_000_000)


def humanoid() -> Config:
    """Walk with a humanoid robot."""
    return _paper("Humanoid-v5", 50_000_000, update_every=60)


def swimmer() -> Config:
    """Swim with a three-link robot."""
    return _paper("Swimmer-v5", 10_000_000)


# The same with the clipped objective, tuned for sample efficiency.


def _clip(id: str, steps: int = 1_000_000, **algorithm: Any) -> Config:
    """Clipped objective on short unrolls of one environment."""
    from agents.algorithms import ppo

    steps_per_update = 16 * 128
    settings = {
        "memory": "unrolls",
        "unroll_length": 128,
        "discount": 0.99,
        "gae_lambda": 0.95,
        "normalize_rewards": "return",
        "objective": "clip",
        "epochs": 10,
        "minibatch_size": 64,
        "learning_rate": {"type": "linear", "from": 3e-4, "to": 0, "over": steps},
        "value_learning_rate": None,
        "adam_epsilon": 1e-5,
        "clip_norm": 0.5,
        "network": "small",
    }
    return Config(
        name="",
        environment=Environment(id=id, num_agents=16),
        train=Train(steps=steps, eval_every=24 * steps_per_update),
        algorithm=config_.build(ppo.Config, {**settings, **algorithm}),
    )


def cheetah_clip() -> Config:
    """Run with a two-legged robot, in a million steps."""
    return _clip("HalfCheetah-v5")


def walker_clip() -> Config:
    """Walk with a two-legged robot, in a million steps."""
    return _clip("Walker2d-v5")


def hopper_clip() -> Config:
    """Hop with a one-legged robot, in a million steps."""
    return _clip("Hopper-v5")


def ant_clip() -> Config:
    """Walk with a four-legged robot, in a million steps."""
    return _clip("Ant-v5")


def humanoid_clip() -> Config:
    """Walk with a humanoid robot, in a million steps."""
    return _clip("Humanoid-v5")


def swimmer_clip() -> Config:
    """Swim with a three-link robot, in a million steps."""
    return _clip("Swimmer-v5", discount=0.9999)


def reacher_clip() -> Config:
    """Reach a target with a two-link arm, in a million steps."""
    return _clip("Reacher-v5")


def pendulum_clip() -> Config:
    """Swing a pendulum up and balance it, in few steps."""
    return _clip("Pendulum-v1", 200_000, discount=0.9, learning_rate=1e-3)


def cartpole_clip() -> Config:
    """Balance a pole on a cart, in few steps."""
    return _clip("CartPole-v1", 100_000, minibatch_size=256)


def cartpole_masked() -> Config:
    """Balance a pole without seeing velocities, which takes a memory."""
    return _clip(
        "agents.environments.masked:cartpole",
        200_000,
        minibatch_size=512,
        network="gru",
    )


def cartpole_masked_forward() -> Config:
    """The same without a memory, which does not suffice; for comparison."""
    config = cartpole_masked()
    algorithm = dataclasses.replace(
        config.algorithm, network=type(config.algorithm.network).preset("small")
    )
    return dataclasses.replace(config, algorithm=algorithm)


def debug() -> Config:
    """Reach every line in seconds; learn nothing."""
    config = _clip("CartPole-v1", 512, unroll_length=32, epochs=2, network="small")
    return dataclasses.replace(
        config,
        environment=Environment(id="CartPole-v1", num_agents=4, max_length=40),
        train=Train(steps=512, eval_every=256, eval_episodes=4),
    )


def _named(function) -> Any:
    """Experiment whose config has the function's name."""
    return lambda: dataclasses.replace(function(), name=function.__name__)


EXPERIMENTS = {
    function.__name__: _named(function)
    for function in (
        pendulum,
        cartpole,
        reacher,
        cheetah,
        walker,
        hopper,
        ant,
        humanoid,
        swimmer,
        pendulum_clip,
        cartpole_clip,
        reacher_clip,
        cheetah_clip,
        walker_clip,
        hopper_clip,
        ant_clip,
        humanoid_clip,
        swimmer_clip,
        cartpole_masked,
        cartpole_masked_forward,
        debug,
    )
}
"""Functions that make a config, by name."""
