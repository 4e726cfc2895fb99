"""Environments by name: constructors, batches and descriptions."""

import contextlib
import dataclasses
import logging
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from agents.environments import (
    config,
    curriculum,
    envpool,
    serial,
    singles,
    vector,
    vectorization,
    workers,
)
from agents.environments.mujoco import creation, robot
from agents.tools import batch_env, errors, limits, processes, spaces, wrappers

if TYPE_CHECKING:  # It imports TensorFlow.
    from agents.tools import steps

_NOTES = logging.getLogger(__name__)


ATARI = {"reward_clipping": False, "noop_max": 0, "use_fire_reset": False}
"""Arguments of ALE's vector environment with which it plays like a single one."""


SINGLE = {"difficulty", "mode", "obs_type", "render_mode", "sound_obs"}
"""Arguments that only single environments of ALE take."""


@dataclasses.dataclass(frozen=True)
class Description:
    """Properties of an environment that are known before it runs.

    Attributes:
      observation_space: Space of observations of one environment.
      action_space: Space of actions of one environment.
      max_length: Steps after which to truncate episodes; None if unlimited.
    """

    observation_space: gymnasium.Space
    action_space: gymnasium.Space
    max_length: int | None


def constructor(environment: config.Environment) -> Callable[[], gymnasium.Env]:
    """Create a picklable function that returns one environment.

    The function raises `EnvironmentNotFound` for unknown names.

    Raises:
      BackendError: for functional environments.
    """
    if _is_functional(environment.id):
        raise config.BackendError(
            f"{environment.id!r} is a functional environment, which backend compiled "
            "runs."
        )
    return singles.Constructor(environment)


def batch(environment: config.Environment) -> batch_env.Backend:
    """Create a batch of all environments that steps outside of the graph.

    Raises:
      BackendError: if the backend cannot run the environments.
    """
    return _batches(environment, 1)[0]


def halves(environment: config.Environment) -> list[batch_env.Backend]:
    """Create two batches with half of the environments each.

    While one of them steps, the caller can compute the actions of the other one.

    Raises:
      BackendError: if the backend cannot run the environments.
    """
    return _batches(environment, 2)


def in_graph(
    environment: config.Environment, in_halves: bool = False
) -> "steps.Environments":
    """Create a batch of all environments in the graph, optionally in two halves.

    Raises:
      BackendError: if the backend cannot run the environments.
    """
    from agents.tools import in_graph_batch_env

    if choose(environment) == "compiled":
        from agents.environments import compiled

        env = functional(environment)
        return compiled.Compiled(env, environment.num_agents, environment.max_length)
    batches = halves(environment) if in_halves else [batch(environment)]
    prepare = curriculum.preparation(environment.kwargs, batches)
    return in_graph_batch_env.InGraphBatchEnv(batches, prepare)


def choose(environment: config.Environment) -> str:
    """Choose the backend; `auto` is the fastest one for exactly this environment.

    That is `vector` for Atari, which ALE vectorizes itself, `compiled` for functional
    environments, `mujoco` for robots and Gymnasium's MuJoCo tasks, and `workers` for
    others and with wrappers or schedules. EnvPool and functional versions of tasks of
    Gymnasium are faster but not the same code, so they must be chosen explicitly.
    """
    id = environment.id
    if environment.backend != "auto":
        return environment.backend
    if curriculum.schedules_of(environment.kwargs):
        return "workers"
    single = environment.wrappers or SINGLE & environment.kwargs.keys()
    if singles.is_atari(id) and not single:
        return "vector"
    if _is_functional(id):
        return "compiled"
    return "mujoco" if creation.covers(environment) else "workers"


def describe(environment: config.Environment) -> Description:
    """Create an environment, close it, and return its spaces and limit.

    Backend vector creates it in a separate process. Backend serial has no time limit,
    because its environments may be debugged.

    Raises:
      EnvironmentNotFound: for unknown names.
      BackendError: if the backend cannot run it.
      UnsupportedSpaceError: if requested action masks do not fit its spaces, or keys
        cannot be sorted.
      ConstructorError: if the environment cannot be constructed.
    """
    backend = choose(environment)
    waits = backend in ("serial", "vector")
    what = f"Cannot construct environment {environment.id!r}"
    with errors.framed(what, singles.ConstructorError):
        try:
            with (
                contextlib.chdir(os.getcwd()),  # Constructors may leave it.
                limits.interrupted(None if waits else environment.start_timeout),
            ):
                env, limit = _one(environment, backend)
                found = env.observation_space, env.action_space
                for space in found:
                    spaces.flatten(space)  # Raises for keys that cannot be sorted.
        except processes.EnvError as error:  # Its text has a traceback.
            raise singles.ConstructorError(f"{what}: {error}") from error
    if backend != "compiled":
        limits.close([env.close])
    return Description(*found, limit)


def _one(environment: config.Environment, backend: str) -> tuple[Any, int | None]:
    """Create one environment, or a batch of one, and return it with its limit."""
    if backend == "compiled":
        from agents.environments import compiled

        env = functional(environment)
        compiled.check(env)
        return env, environment.max_length or env.max_length
    if backend in ("vector", "envpool", "mujoco"):
        changes = {"num_agents": 1, "timeout": environment.start_timeout}
        if backend != "vector":
            changes["num_workers"] = 1
        env = batch(dataclasses.replace(environment, **changes))
        return env, environment.max_length or env.max_length
    env = constructor(environment)()
    return env, _limit(env)


def functional(environment: config.Environment) -> Any:
    """Create the functional environment of `module:Class`, or the equivalent of an id.

    Raises:
      BackendError: if there is none.
    """
    from agents.environments import functional as package

    _refuse_mask("compiled", environment)
    if environment.wrappers:  # By backend auto.
        raise config.BackendError(
            "Functional environments have no single ones that environment.wrappers could "
            "wrap; leave the wrappers out."
        )
    id, kwargs = environment.id, environment.kwargs
    if isinstance(id, str) and id in package.GYMNASIUM:
        return getattr(package, package.GYMNASIUM[id])(**kwargs)
    if _is_functional(id):
        return singles.function(id)(**kwargs)
    names = ", ".join(package.GYMNASIUM)
    raise config.BackendError(
        f"{id!r} is not a functional environment, as backend compiled needs; it has "
        f"{names}, and classes of yours by module:Class. Use backend workers."
    )


def _is_functional(id: str | Callable[..., Any]) -> bool:
    """Return whether this is or names a class of functional environments."""
    id = singles.function(id)
    name = "agents.environments.functional.functional_env"
    if not isinstance(id, type) or name not in sys.modules:
        return False
    return issubclass(id, sys.modules[name].FunctionalEnv)


def _batches(environment: config.Environment, parts: int) -> list[batch_env.Backend]:
    """Create one or two batches with all environments together."""
    backend, total = choose(environment), environment.num_agents
    if total % parts:
        raise ValueError(f"Expected an even number of agents, got {total}.")
    size = total // parts
    firsts = range(0, total, size)
    if backend == "compiled":
        raise config.BackendError(
            "Backend compiled steps in the graph only; see environments.compiled."
        )
    if backend in ("vector", "envpool", "mujoco"):
        _refuse_mask(backend, environment)
    if backend == "envpool":
        return _share_ranges([envpool.create(environment, size, x) for x in firsts])
    if backend == "mujoco":
        overlap = parts > 1
        return _share_ranges(
            [creation.create(environment, size, x, overlap) for x in firsts]
        )
    if backend == "vector":
        return _share_ranges(_vector(environment, parts))
    make = constructor(environment)
    timeouts = environment.timeout, environment.start_timeout
    if backend == "workers":
        args = [make] * total, environment.num_workers, *timeouts
        if parts == 1:
            return [workers.Workers(*args)]
        return _share_ranges(workers.Workers.halves(*args))
    if backend == "serial":
        return _share_ranges([serial.Serial([make] * size, x) for x in firsts])
    envs = [wrappers.ExternalProcess(make, *timeouts) for _ in range(total)]
    return _share_ranges(
        [batch_env.BatchEnv(envs[x : x + size], False, x) for x in firsts]
    )


def _share_ranges(batches: list[batch_env.Backend]) -> list[batch_env.Backend]:
    """Let both halves share one warning about observations outside of their space."""
    for batch in batches:
        batch.ranges = batches[0].ranges
    return batches


def _refuse_mask(backend: str, environment: config.Environment) -> None:
    """Raise BackendError if the config takes action masks from the info."""
    if environment.action_mask:
        raise config.BackendError(
            f"Backend {backend} cannot move info['action_mask'] into observations "
            "(environment.action_mask); use backend workers."
        )


def _vector(environment: config.Environment, parts: int) -> list[batch_env.Backend]:
    """Create batches from vector environments."""
    id = environment.id
    function = id if callable(id) else singles.attribute(id)
    if function is None:
        name = singles.registry_name(id)
        singles.import_package(name)
        if name not in gymnasium.registry:
            raise singles.not_found(id)
        function = _limited(gymnasium.registry[name], environment.max_length)
    if robot.is_robot(function):
        raise config.BackendError(f"{id!r} is a robot; use backend mujoco or workers.")
    wrappings = singles.wrappings(environment)
    if wrappings and callable(function):
        raise config.BackendError(
            f"{id!r} makes all environments at once, so environment.wrappers have no "
            "single one to wrap; use backend workers."
        )
    kwargs = environment.kwargs
    if singles.is_atari(id) and not wrappings:
        kwargs = {**ATARI, **kwargs}
    make = vectorization.VectorConstructor(function, kwargs, wrappings)
    args = make, environment.num_agents, environment.max_length
    args = *args, environment.timeout, environment.start_timeout
    try:
        batches = vector.Vector.halves(*args) if parts == 2 else [vector.Vector(*args)]
    except vector.NotVectorized:
        raise config.BackendError(
            f"{id!r} makes no gymnasium.vector.VectorEnv, as backend vector needs; use "
            "backend workers for single environments."
        ) from None
    _, mode = batches[0].besides[0]
    if text := make.says(mode):
        _NOTES.info(text)
    return batches


def _limited(spec: EnvSpec, max_length: int | None) -> EnvSpec:
    """Return a spec with another limit of episode length, if it has one."""
    if max_length is None or spec.max_episode_steps is None:
        return spec
    return dataclasses.replace(spec, max_episode_steps=max_length)


def _limit(env: Any) -> int | None:
    """Return the smallest episode limit among all wrappers."""
    limits = []
    while env is not None:
        inside, spec = getattr(env, "__dict__", {}), getattr(env, "spec", None)
        for limit in (
            inside.get("_max_episode_steps"),
            getattr(spec, "max_episode_steps", None),
        ):
            if isinstance(limit, int) and limit > 0:
                limits.append(limit)
        env = inside.get("env")
    return min(limits, default=None)
