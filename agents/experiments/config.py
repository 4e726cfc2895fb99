"""Config of a run."""

import dataclasses
import importlib
import os
from collections.abc import Iterable
from typing import Annotated, Any

from agents import environments
from agents.environments import make
from agents.experiments import goals
from agents.tools import bounds, calls, config_files, errors, sections
from agents.tools import config as config_

ALGORITHMS = {
    "a2c": ("agents.algorithms.a2c", "A2C"),
    "apex": ("agents.algorithms.apex", "Apex"),
    "dqn": ("agents.algorithms.dqn", "DQN"),
    "impala": ("agents.algorithms.impala", "IMPALA"),
    "ppo": ("agents.algorithms.ppo", "PPO"),
    "sac": ("agents.algorithms.sac", "SAC"),
    "td3": ("agents.algorithms.td3", "TD3"),
    "trpo": ("agents.algorithms.trpo", "TRPO"),
    "vpg": ("agents.algorithms.vpg", "VPG"),
}
"""Module, with the dataclass `Config`, and class of each algorithm type."""
TYPE = "ppo"
"""Algorithm type by default."""


GONE = {"devices.environment": "environments run on the processor"}
"""Keys of older versions, with the reason of their removal."""


@dataclasses.dataclass(frozen=True)
class Train:
    """Phases of a run, in environment steps of training."""

    steps: bounds.Count = 1_000_000
    """Environment steps of all training phases together."""
    eval_every: bounds.Count = 50_000
    """Environment steps of a training phase."""
    eval_episodes: bounds.Whole = 20
    """Deterministic episodes of an evaluation phase; zero for none."""
    stop_at: float | None = None
    """Mean return of an evaluation that ends the run."""
    keep_checkpoints: bounds.Size = 5
    """Number of newest checkpoints to keep, besides the best one."""
    wandb: str | None = None
    """Weights & Biases project to report to."""
    callbacks: list[str] = dataclasses.field(default_factory=list)
    """Import paths `module:function` of functions that follow the run; see
    `experiments.callbacks.Event`."""

    def __post_init__(self) -> None:
        bounds.require(self)
        if self.stop_at is not None and not self.eval_episodes:
            raise config_.ConfigError(
                "config key 'train.stop_at' is the return of an evaluation; set "
                "train.eval_episodes above zero."
            )


@dataclasses.dataclass(frozen=True)
class Devices:
    """Devices of the algorithm; results can be used, and a run resumed, on any others.

    Devices are named as in `GPU:0`; none for TensorFlow's choice. Operations run on the
    devices of their variables.
    """

    replicas: bounds.Size = 1
    """Number of devices that compute gradients together, each for part of the batch."""
    policy: str | None = None
    """Device of the algorithm: networks, optimizers, normalization."""
    memory: str | None = None
    """Device of the memory; none for that of the policy."""

    def __post_init__(self) -> None:
        bounds.require(self)
        if self.replicas > 1 and self.policy:
            raise config_.ConfigError(
                "config keys 'devices.replicas' and 'devices.policy' exclude each "
                "other: replicas are on the first devices that there are."
            )

    def require(self) -> None:
        """Raise ConfigError unless the devices exist; starts TensorFlow."""
        from agents.tools import devices

        known, usable = devices.names(), devices.accelerators()
        for key in ("policy", "memory"):
            name = getattr(self, key)
            if name is not None and name not in known:
                raise config_.ConfigError(
                    f"config key 'devices.{key}' is {name!r}, but there is only "
                    f"{', '.join(known)}."
                )
        if self.replicas > len(usable):
            raise config_.ConfigError(
                f"config key 'devices.replicas' is {self.replicas}, but of devices "
                f"there is only {', '.join(usable)}."
            )


@dataclasses.dataclass(frozen=True)
class Config:
    """Config that defines a run completely."""

    name: str
    """Name of the config, which becomes part of the names of run directories."""
    environment: environments.Environment
    """Environments to train and evaluate in."""
    train: Train
    """Phases of the run."""
    algorithm: Any
    """Dataclass of the algorithm with this `type`."""
    preprocessing: list | dict = dataclasses.field(default_factory=list)
    """Preprocessing stages of observations: a list, or for structured observations
    lists by the path of the part; see `preprocessing.stages.create`."""
    hindsight: goals.HindsightConfig = goals.HindsightConfig()
    """Replacement of goals in replayed transitions, for environments with goals."""
    seed: Annotated[int, bounds.SEED] = 0
    """Seed of all random numbers: environments, weights, actions and minibatches."""
    devices: Devices = dataclasses.field(default_factory=Devices)
    """Devices of the algorithm and its memory."""

    def __post_init__(self) -> None:
        bounds.require(self)
        if self.name:
            config_files.require_name(self.name, "config key 'name'")

    def without_memory(self, num_agents: int) -> "Config":
        """Return a config with the smallest allowed replay memory, if there is one."""
        if not hasattr(self.algorithm, "without_memory"):
            return self
        settings = self.algorithm.without_memory(num_agents)
        return dataclasses.replace(self, algorithm=settings)

    def defaults(self) -> dict | None:
        """Return the defaults of all values, for this environment and algorithm.

        None if the algorithm has no defaults.
        """
        values = {
            "name": self.name,
            "environment": {"id": self.environment.id},
            "algorithm": {"type": self.algorithm.type},
        }
        try:
            return complete(values)
        except errors.Mistake:
            return None

    def create_learner(self, description: make.Description) -> Any:
        """Create the algorithm for training, on its devices; see `create_algorithm`."""
        from agents.tools import devices

        chosen = self.devices
        with devices.use(chosen.policy, chosen.memory, chosen.replicas):
            return self.create_algorithm(description)

    def create_algorithm(
        self, description: make.Description, num_agents: int | None = None
    ) -> Any:
        """Create the algorithm with fresh variables, by default for all agents.

        Raises:
          Mistake: if it cannot be created with this config, or for these spaces.
        """
        require_keras()
        cls = algorithm_class(self.algorithm.type)
        if self.preprocessing:
            from agents import preprocessing

            cls = preprocessing.subclass(cls, self.preprocessing)
        if self.hindsight.share:
            if self.preprocessing:
                raise config_.ConfigError(
                    "config keys 'hindsight' and 'preprocessing' exclude each other; "
                    "set algorithm.normalize_observations=true instead of stages."
                )
            space = description.observation_space
            cls = goals.subclass(cls, self.hindsight, self.environment, space)
        try:
            with calls.blame(cls, "__init__", ValueError):
                algorithm = cls(
                    description.observation_space,
                    description.action_space,
                    num_agents or self.environment.num_agents,
                    description.max_length,
                    self.algorithm,
                    self.seed,
                )
            _require_whole(algorithm)
        except errors.Mistake:
            raise
        except (ValueError, calls.AlgorithmError) as error:
            raise errors.Mistake(str(error)) from error
        return algorithm


def _require_whole(algorithm: Any) -> None:
    """Raise AlgorithmError if checkpoints would lose what the algorithm learns."""
    from agents.tools import checkpoint

    with calls.blame(type(algorithm), "persistent"):
        lost = checkpoint.forgotten(algorithm)
    if lost:
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        reason = (
            f"checkpoints would lose the weights {lost[0]}{more}; return all that "
            "training changes"
        )
        calls.refuse(algorithm, "persistent", reason)


def require_keras() -> None:
    """Raise ConfigError if TensorFlow is set to use Keras 2."""
    if os.environ.get("TF_USE_LEGACY_KERAS", "0").lower() in ("1", "true"):
        raise config_.ConfigError("agents needs Keras 3; unset TF_USE_LEGACY_KERAS.")


def resolve(values: dict) -> Config:
    """Check a mapping and convert it to a config.

    Inside `without_imports`, the section of an algorithm outside of this package stays
    a mapping.

    Raises:
      ConfigError: one line about the first wrong key or value.
    """
    algorithm = values.get("algorithm", {})
    if not isinstance(algorithm, dict):
        raise config_.ConfigError("config key 'algorithm' must be a mapping.")
    network = algorithm.get("network")
    if isinstance(network, str) and network.endswith(config_files.ENDINGS):
        algorithm = {**algorithm, "network": config_files.load(network)}
    _refuse_gone(values)
    config = sections.build(Config, {**values, "algorithm": None})
    if not config.environment.id:
        raise config_.ConfigError("config key 'environment.id' is missing.")
    if config.environment.action_lag and config.environment.num_agents % 2:
        raise config_.ConfigError(
            "config key 'environment.action_lag' needs an even number of agents, got "
            f"{config.environment.num_agents}."
        )
    try:
        cls = algorithm_config(algorithm.get("type", TYPE))
    except config_.NotImportedError:
        return dataclasses.replace(config, algorithm=algorithm)
    return dataclasses.replace(
        config, algorithm=sections.build(cls, algorithm, "algorithm")
    )


def _refuse_gone(values: dict) -> None:
    """Raise ConfigError for keys that only older versions have."""
    for key, reason in GONE.items():
        section, _, name = key.partition(".")
        if isinstance(values.get(section), dict) and name in values[section]:
            raise config_.ConfigError(
                f"config key {key!r} is gone, since {reason}; remove it."
            )


def algorithm_config(kind: str) -> type:
    """Return the dataclass of hyperparameters for a name or `module:Class`."""
    module, _ = _location(kind)
    if kind in ALGORITHMS:
        return importlib.import_module(module).Config
    found = config_.find(f"{module}:Config")
    if "type" not in getattr(found, "__dataclass_fields__", ()):
        raise config_.ConfigError(
            f"'{module}:Config' must be a dataclass with a field type: str = {kind!r}."
        )
    return found


def algorithm_class(kind: str) -> type:
    """Return the class of an algorithm for its name or `module:Class`."""
    return config_.find(":".join(_location(kind)))


def _location(kind: str) -> tuple[str, str]:
    """Return module and class of an algorithm."""
    if not isinstance(kind, str):
        raise config_.ConfigError(
            f"config key 'algorithm.type' must be str, got {kind!r}."
        )
    if ":" in kind:
        module, _, name = kind.partition(":")
        return module, name
    if kind not in ALGORITHMS:
        raise config_.ConfigError(
            f"config key 'algorithm.type' is {kind!r}; "
            + config_.did_you_mean(kind, ALGORITHMS)
        )
    return ALGORITHMS[kind]


SECTIONS = {"environment": {}, "train": {}, "algorithm": {}}
"""Sections that mappings may leave out."""
DECISIVE = ("environment", "environment.id", "algorithm.type")
"""Keys that no default replaces, or that the defaults of others depend on."""


def complete(values: dict) -> dict:
    """Add all missing keys to a mapping, so that overrides find them; check types."""
    return sections.to_dict(resolve({**SECTIONS, **values}))


def override(values: dict, assignments: Iterable[str]) -> Config:
    """Return the config of a mapping with assignments `a.b=value`, in any order.

    An `algorithm.type` other than that of the mapping starts from its own defaults.
    """
    assignments, values = list(assignments), {**SECTIONS, **values}
    first = [x for x in assignments if x.partition("=")[0] in DECISIVE]
    decided = config_files.override(values, first)
    algorithm = decided["algorithm"]
    if algorithm != values["algorithm"]:
        kind = algorithm["type"]
        if kind != values["algorithm"].get("type", TYPE):
            decided["algorithm"] = {"type": kind}
    return resolve(config_files.override(complete(decided), assignments))
