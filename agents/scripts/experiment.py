"""What a config consists of."""

import dataclasses
import importlib
from typing import Annotated, Any

from agents.environments import make
from agents.tools import bounds, calls
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
"""Type to module, which holds the dataclass `Config`, and class."""


Timeout = Annotated[float, bounds.Bounds(0, 1_000_000, open=True)]
"""Seconds, at most as many as sockets and timers can count."""


@dataclasses.dataclass(frozen=True)
class Environment:
    """Which environments, how many, and where they run."""

    id: str = ""
    """Registered Gymnasium id, or `module:function` that returns an environment."""
    backend: str = "auto"
    """`workers`: several per process; `process`: one each; `serial`: none, for
    few that are cheap, and for debugging;
    `vector`: vectorized by their own code; `envpool`: those of EnvPool; `compiled`:
    functional ones, in one program with the algorithm; `auto`: vector for Atari,
    compiled for `module:Class` of a functional one, else workers."""
    num_agents: Annotated[int, bounds.Bounds(1, 1_000_000)] = 16
    num_workers: bounds.Size | None = None
    """Processes of the workers backend; none for one per core."""
    max_length: bounds.Size | None = None
    """Steps after which episodes are truncated; none for the limit of the id."""
    action_lag: bool | None = None
    """Step the batch in two halves, one of which acts while the other steps; none: for
    many agents in workers, where that is faster."""
    timeout: Timeout = 60.0
    """Seconds that a step or reset may take; no limit in the process of the trainer,
    which is where backends serial, envpool and compiled step."""
    start_timeout: Timeout = 120.0
    """Seconds that the construction of an environment may take."""
    kwargs: dict = dataclasses.field(default_factory=dict)
    """Arguments of the environment's constructor."""
    action_mask: bool = False
    """Move `info["action_mask"]` into the observation, so that networks obey it."""

    @property
    def arguments(self) -> dict:
        """What `make` takes as kwargs."""
        mask = {make.ACTION_MASK: True} if self.action_mask else {}
        return {**self.kwargs, **mask}

    def describe(self) -> make.Description:
        """Spaces and episode limit of one; only backend vector starts a process."""
        return make.describe(
            *(self.id, self.max_length, self.arguments),
            *(self.backend, self.start_timeout),
        )

    def create(self, halves: bool = False) -> Any:
        """Batch of them in the graph, in two halves that take turns if so asked.

        Raises:
          make.BackendError: if the backend cannot run the environment.
        """
        from agents.tools import in_graph_batch_env

        backend = make.choose(self.id, self.backend)
        if backend == "compiled":
            from agents.environments import compiled

            env = make.functional(self.id, self.arguments)
            return compiled.Compiled(env, self.num_agents, self.max_length)
        batch = (make.halves if halves else make.batch)(
            self.id,
            self.num_agents,
            backend,
            self.num_workers,
            self.max_length,
            self.arguments,
            self.timeout,
            self.start_timeout,
        )
        return in_graph_batch_env.InGraphBatchEnv(batch)

    def __post_init__(self) -> None:
        if self.backend not in make.BACKENDS:
            raise config_.ConfigError(
                f"config key 'environment.backend' is {self.backend!r}; "
                + config_.did_you_mean(self.backend, make.BACKENDS)
            )
        bounds.require(self)


@dataclasses.dataclass(frozen=True)
class Train:
    """Phases of a run, in environment steps of training."""

    steps: bounds.Count = 1_000_000
    """All phases of training together."""
    eval_every: bounds.Count = 50_000
    """Length of a phase of training."""
    eval_episodes: bounds.Whole = 20
    """Deterministic episodes of a phase of evaluation; zero for none."""
    keep_checkpoints: bounds.Size = 5
    wandb: str | None = None
    """Weights & Biases project to report to."""

    def __post_init__(self) -> None:
        bounds.require(self)


@dataclasses.dataclass(frozen=True)
class Devices:
    """Where a run trains; its results can be used, and it can go on, anywhere.

    Devices are named as in `GPU:0`; none for TensorFlow's choice. What places variables
    places the operations that use them.
    """

    replicas: bounds.Size = 1
    """Devices that compute gradients together, each of a part of the batch."""
    policy: str | None = None
    """Of the algorithm: networks, optimizers, normalization."""
    memory: str | None = None
    """Of what is remembered; none for that of the policy."""
    environment: str | None = None
    """None or `CPU:0`: environments run on the processor, whatever else does not."""

    def __post_init__(self) -> None:
        bounds.require(self)
        if self.environment not in (None, "CPU:0"):
            raise config_.ConfigError(
                f"config key 'devices.environment' is {self.environment!r}, but "
                "environments run on the processor, CPU:0."
            )
        if self.replicas > 1 and self.policy:
            raise config_.ConfigError(
                "config keys 'devices.replicas' and 'devices.policy' exclude each "
                "other: replicas are on the first devices that there are."
            )

    def require(self) -> None:
        """Raise ConfigError unless the devices exist; starts TensorFlow."""
        from agents.tools import placement

        known, usable = placement.devices(), placement.accelerators()
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
    """Everything that defines a run."""

    name: str
    environment: Environment
    train: Train
    algorithm: Any
    """Dataclass of the algorithm that its `type` names."""
    preprocessing: list | dict = dataclasses.field(default_factory=list)
    """Stages that observations pass before the algorithm sees them: a list, or for
    structured observations lists by the path of the part; `preprocessing.create`."""
    seed: Annotated[int, bounds.SEED] = 0
    devices: Devices = dataclasses.field(default_factory=Devices)

    def __post_init__(self) -> None:
        bounds.require(self)
        config_.require_name(self.name, "config key 'name'")

    def without_memory(self, num_agents: int) -> "Config":
        """The same with the least replay memory that is legal, if it has any."""
        if not hasattr(self.algorithm, "without_memory"):
            return self
        settings = self.algorithm.without_memory(num_agents)
        return dataclasses.replace(self, algorithm=settings)

    def create_learner(self, description: make.Description) -> Any:
        """Algorithm that trains, on its devices; raises ValueError as below."""
        from agents.tools import placement

        devices = self.devices
        with placement.use(devices.policy, devices.memory, devices.replicas):
            return self.create_algorithm(description)

    def create_algorithm(
        self, description: make.Description, num_agents: int | None = None
    ) -> Any:
        """Algorithm with fresh variables, by default for all agents.

        Raises:
          ValueError: if it cannot be made with this config.
          AlgorithmError: for a mistake in a class of a user.
        """
        cls = algorithm_class(self.algorithm.type)
        if self.preprocessing:
            from agents import preprocessing

            cls = preprocessing.subclass(cls, self.preprocessing)
        with calls.blame(cls, "__init__", ValueError):
            return cls(
                description.observation_space,
                description.action_space,
                num_agents or self.environment.num_agents,
                description.max_length,
                self.algorithm,
                self.seed,
            )


def resolve(values: dict) -> Config:
    """Check a mapping and make a config of it.

    Where nothing may be imported, the algorithm of a class that is not of this package
    stays the mapping that it is.
    """
    algorithm = values.get("algorithm", {})
    if not isinstance(algorithm, dict):
        raise config_.ConfigError("config key 'algorithm' must be a mapping.")
    config = config_.build(Config, {**values, "algorithm": None})
    if not config.environment.id:
        raise config_.ConfigError("config key 'environment.id' is missing.")
    if config.environment.action_lag and config.environment.num_agents % 2:
        raise config_.ConfigError(
            "config key 'environment.action_lag' needs an even number of agents, got "
            f"{config.environment.num_agents}."
        )
    try:
        cls = algorithm_config(algorithm.get("type", "ppo"))
    except config_.NotImportedError:
        return dataclasses.replace(config, algorithm=algorithm)
    return dataclasses.replace(
        config, algorithm=config_.build(cls, algorithm, "algorithm")
    )


def algorithm_config(kind: str) -> type:
    """Dataclass of an algorithm's hyperparameters, for its name or `module:Class`."""
    module, _ = _location(kind)
    if kind in ALGORITHMS:
        return importlib.import_module(module).Config
    return config_.find(f"{module}:Config")


def algorithm_class(kind: str) -> type:
    """Class of an algorithm, for its name or `module:Class`."""
    return config_.find(":".join(_location(kind)))


def _location(kind: str) -> tuple[str, str]:
    """Module and class of an algorithm."""
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


def complete(values: dict) -> dict:
    """Mapping with all keys, so that overrides find the sections; checks the types."""
    defaults = {"environment": {}, "train": {}, "algorithm": {}}
    return config_.to_dict(resolve({**defaults, **values}))
