"""Environments by name: constructors, batches and descriptions."""

import dataclasses
import difflib
import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any

import gymnasium

from agents.environments import config, envpool, serial, vector, workers
from agents.tools import batch_env, errors, limits, processes, wrappers

# Packages that register their environments only when imported.
_NAMESPACES = {
    "ALE": ("ale_py", "the extra [atari]"),
    "dm_control": ("shimmy", "it"),
}


class EnvironmentNotFound(errors.Mistake):
    """Name of no known environment, with suggestions in one line."""


class ConstructorError(errors.Mistake):
    """Failed construction of an environment, with its traceback below the line."""


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


@dataclasses.dataclass(frozen=True)
class Constructor:
    """Picklable function without arguments that creates one environment."""

    environment: config.Environment

    def __call__(self) -> gymnasium.Env:
        env = self._make()
        return wrappers.ActionMask(env) if self.environment.action_mask else env

    def _make(self) -> gymnasium.Env:
        """Create the environment without mask."""
        id, limit = self.environment.id, self.environment.max_length
        function = id if callable(id) else _attribute(id)
        if function is None:
            return _registered(id, limit, self.environment.kwargs)
        env = function(**self.environment.kwargs)
        if not isinstance(env, gymnasium.Env):
            env = wrappers.OldGym(env)
        return env if limit is None else gymnasium.wrappers.TimeLimit(env, limit)


@dataclasses.dataclass(frozen=True)
class VectorConstructor:
    """Picklable function of `num_envs` that creates a vector environment.

    Attributes:
      id: Specification in the registry, or a function.
      kwargs: Arguments of the environment, or of the function.
    """

    id: gymnasium.envs.registration.EnvSpec | Callable[..., Any]
    kwargs: dict[str, Any]

    def __call__(self, num_envs: int) -> gymnasium.vector.VectorEnv:
        if callable(self.id):
            return self.id(num_envs=num_envs, **self.kwargs)
        return gymnasium.make_vec(self.id, num_envs=num_envs, **self.kwargs)


def constructor(environment: config.Environment) -> Callable[[], gymnasium.Env]:
    """Create a picklable function that returns one environment.

    It raises `EnvironmentNotFound` for unknown names.

    Raises:
      BackendError: for functional environments.
    """
    if _is_functional(environment.id):
        raise config.BackendError(
            f"{environment.id!r} is a functional environment, which backend compiled "
            "runs."
        )
    return Constructor(environment)


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


def in_graph(environment: config.Environment, in_halves: bool = False) -> Any:
    """Create a batch of all environments in the graph, optionally in two halves.

    Raises:
      BackendError: if the backend cannot run the environments.
    """
    from agents.tools import in_graph_batch_env

    if choose(environment) == "compiled":
        from agents.environments import compiled

        env = functional(environment)
        return compiled.Compiled(env, environment.num_agents, environment.max_length)
    make = halves if in_halves else batch
    return in_graph_batch_env.InGraphBatchEnv(make(environment))


def choose(environment: config.Environment) -> str:
    """Choose the backend; `auto` is the fastest one for exactly this environment.

    That is `vector` for Atari, which ALE vectorizes itself, `compiled` for functional
    environments, else `workers`. EnvPool and functional equals of Gymnasium's
    environments are faster but not the same code, so they need an explicit choice.
    """
    id = environment.id
    if environment.backend != "auto":
        return environment.backend
    if isinstance(id, str) and id.startswith("ALE/"):
        return "vector"
    return "compiled" if _is_functional(id) else "workers"


def describe(environment: config.Environment) -> Description:
    """Create an environment, close it, and return its spaces and limit.

    Backend vector creates it in a separate process. Backend serial has no time limit,
    because its environments may be debugged.

    Raises:
      EnvironmentNotFound: for unknown names.
      BackendError: if the backend cannot run it.
      UnsupportedSpaceError: if requested action masks do not fit its spaces.
      ConstructorError: if the environment cannot be constructed.
    """
    backend = choose(environment)
    waits = backend in ("serial", "vector")
    what = f"Cannot construct environment {environment.id!r}"
    with errors.framed(what, ConstructorError):
        try:
            with limits.interrupted(None if waits else environment.start_timeout):
                env, limit = _one(environment, backend)
                found = env.observation_space, env.action_space
        except processes.EnvError as error:  # Its text has a traceback.
            raise ConstructorError(f"{what}: {error}") from error
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
    if backend in ("vector", "envpool"):
        changes = {"num_agents": 1, "timeout": environment.start_timeout}
        if backend == "envpool":
            changes["num_workers"] = 1
        env = batch(dataclasses.replace(environment, **changes))
        return env, environment.max_length or env.max_length
    env = constructor(environment)()
    return env, _limit(env)


def functional(environment: config.Environment) -> Any:
    """Create the functional environment of `module:Class`, or the equal of an id.

    Raises:
      BackendError: if there is none.
    """
    from agents.environments import functional as package

    _refuse_mask("compiled", environment)
    id, kwargs = environment.id, environment.kwargs
    if isinstance(id, str) and id in package.GYMNASIUM:
        return getattr(package, package.GYMNASIUM[id])(**kwargs)
    if _is_functional(id):
        return (id if callable(id) else _attribute(id))(**kwargs)
    names = ", ".join(package.GYMNASIUM)
    raise config.BackendError(
        f"{id!r} is no functional environment, as backend compiled needs; it has {names}"
        ", and classes of yours by module:Class. Use backend workers."
    )


def _is_functional(id: str | Callable[..., Any]) -> bool:
    """Return whether this is or names a class of functional environments."""
    if not callable(id):
        module = id.partition(":")[0]
        if ":" not in id or module in gymnasium.registry:
            return False
        id = _attribute(id)
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
    if backend in ("vector", "envpool"):
        _refuse_mask(backend, environment)
    if backend == "envpool":
        return _share_ranges([_envpool(environment, size, x) for x in firsts])
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
    """Let halves warn together, once, of observations outside of their space."""
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
    function = id if callable(id) else _attribute(id)
    if function is None:
        _import_package(id)
        if id not in gymnasium.registry:
            raise _not_found(id)
        function = gymnasium.registry[id]
    make = VectorConstructor(function, environment.kwargs)
    args = make, environment.num_agents, environment.max_length
    args = *args, environment.timeout, environment.start_timeout
    try:
        if parts == 2:
            return vector.Vector.halves(*args)
        return [vector.Vector(*args)]
    except vector.NotVectorized:
        raise config.BackendError(
            f"{id!r} makes no gymnasium.vector.VectorEnv, as backend vector needs; use "
            "backend workers for single environments."
        ) from None


def _envpool(environment: config.Environment, size: int, first_row: int) -> Any:
    """Create a batch of this number of environments that EnvPool steps."""
    id, limit = environment.id, environment.max_length
    if callable(id):
        raise config.BackendError(
            "EnvPool makes environments by name; use backend workers."
        )
    args = id, size, environment.num_workers, limit, environment.kwargs
    try:
        return envpool.EnvPool(*args, first_row)
    except ModuleNotFoundError as error:
        if error.name != "envpool":
            raise
        raise config.BackendError(
            "Backend envpool needs EnvPool; install the extra [envpool], or use "
            "backend workers."
        ) from None
    except LookupError as error:
        raise config.BackendError(f"{error.args[0]} Use backend workers.") from None


@functools.cache
def _attribute(id: str) -> Callable[..., Any] | None:
    """Return the function at `module:function`; None if there is no such attribute."""
    module, _, name = id.partition(":")
    if not name:
        return None
    with errors.framed(f"Cannot import environment {id!r}", ConstructorError):
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if not f"{module}.".startswith(f"{error.name}."):
                raise
            text = f"Environment {id!r} not found: there is no module {error.name!r}."
            raise EnvironmentNotFound(text) from None
        for part in name.split("."):
            found = getattr(found, part, None)
    return found if callable(found) else None


def _registered(id: str, max_length: int | None, kwargs: dict) -> gymnasium.Env:
    """Create an environment from the registry of Gymnasium."""
    _import_package(id)
    limit = {} if max_length is None else {"max_episode_steps": max_length}
    spec = gymnasium.registry.get(id)
    if spec and str(spec.entry_point).startswith("gymnasium.envs.mujoco"):
        _quiet_mujoco()
    try:
        return gymnasium.make(id, disable_env_checker=True, **limit, **kwargs)
    except (gymnasium.error.UnregisteredEnv, gymnasium.error.DeprecatedEnv):
        pass
    raise _not_found(id)


def _import_package(id: str) -> None:
    """Import the package that registers environments of this name, if any."""
    package, extra = _NAMESPACES.get(id.partition("/")[0], (None, None))
    if not package or id in gymnasium.registry:
        return
    try:
        importlib.import_module(package)
    except ModuleNotFoundError:
        text = f"Environment {id!r} needs the package {package!r}; install {extra}."
        raise EnvironmentNotFound(text) from None


def _not_found(id: str) -> EnvironmentNotFound:
    """Create the error for an unknown name, with suggestions."""
    name = id.rpartition(":")[2]
    near = difflib.get_close_matches(name, gymnasium.registry, 3, 0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else "."
    return EnvironmentNotFound(f"Environment {id!r} not found{hint}")


def _quiet_mujoco():
    """Print each warning of MuJoCo once, without those about its own models.

    By default MuJoCo repeats them for every environment, and writes them to a file.
    """
    import mujoco

    if mujoco.get_mju_user_warning() is not None:
        return
    seen = set()

    def warn(text: str):
        if text not in seen and "is deprecated" not in text:
            print(f"MuJoCo warning: {text}", file=sys.stderr)
        seen.add(text)

    mujoco.set_mju_user_warning(warn)


def _limit(env: Any) -> int | None:
    """Return the smallest episode limit among all wrappers."""
    limits = []
    while env is not None:
        spec = getattr(env, "spec", None)
        for limit in (
            env.__dict__.get("_max_episode_steps"),
            getattr(spec, "max_episode_steps", None),
        ):
            if isinstance(limit, int) and limit > 0:
                limits.append(limit)
        env = env.__dict__.get("env")
    return min(limits, default=None)
