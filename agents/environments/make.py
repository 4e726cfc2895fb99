"""Environments by name: constructors, batches, and what is known beforehand."""

import dataclasses
import difflib
import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any

import gymnasium

from agents.environments import envpool, serial, vector, workers
from agents.tools import batch_env, errors, limits, processes, wrappers

BACKENDS = ("auto", "serial", "process", "workers", "vector", "envpool", "compiled")

ACTION_MASK = "info['action_mask']"
"""Reserved key of kwargs: if true, environments are wrapped by `wrappers.ActionMask`.

It is no identifier, so it hides no argument of environments.
"""

# Packages that register their environments only when imported.
_NAMESPACES = {
    "ALE": ("ale_py", "the extra [atari]"),
    "dm_control": ("shimmy", "it"),
}


class EnvironmentNotFound(errors.Mistake):
    """No environment has this name; the text is one line with suggestions."""


class BackendError(errors.Mistake):
    """A backend cannot run an environment; the text is one line that says which can."""


class ConstructorError(errors.Mistake):
    """An environment could not be constructed; its traceback is in the text below."""


@dataclasses.dataclass(frozen=True)
class Description:
    """What is known about an environment before it runs.

    Attributes:
      observation_space: Space of observations of one environment.
      action_space: Space of actions of one environment.
      max_length: Steps after which episodes are truncated; None if not limited.
    """

    observation_space: gymnasium.Space
    action_space: gymnasium.Space
    max_length: int | None


@dataclasses.dataclass(frozen=True)
class Constructor:
    """Picklable function without arguments that makes one environment."""

    id: str | Callable[..., Any]
    max_length: int | None = None
    kwargs: dict[str, Any] = dataclasses.field(default_factory=dict)
    action_mask: bool = False

    def __call__(self) -> gymnasium.Env:
        env = self._make()
        return wrappers.ActionMask(env) if self.action_mask else env

    def _make(self) -> gymnasium.Env:
        """The environment without mask."""
        function = self.id if callable(self.id) else _attribute(self.id)
        if function is None:
            return _registered(self.id, self.max_length, self.kwargs)
        env = function(**self.kwargs)
        if not isinstance(env, gymnasium.Env):
            env = wrappers.OldGym(env)
        if self.max_length is not None:
            env = gymnasium.wrappers.TimeLimit(env, self.max_length)
        return env


@dataclasses.dataclass(frozen=True)
class VectorConstructor:
    """Picklable function of `num_envs` that makes a vector environment.

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


def constructor(
    id: str | Callable[..., Any],
    max_length: int | None = None,
    kwargs: dict[str, Any] | None = None,
) -> Callable[[], gymnasium.Env]:
    """Picklable function without arguments that makes one environment.

    Args:
      id: Registered Gymnasium id, `module:function`, or a function. Functions may
        return environments with the old Gym interface.
      max_length: Steps after which to truncate episodes. Replaces the limit of a
        registered environment; for functions, the shorter of both limits holds.
      kwargs: Arguments of the environment, and the reserved key `ACTION_MASK`.

    The function raises `EnvironmentNotFound` for unknown names.

    Raises:
      BackendError: for functional environments.
    """
    if _is_functional(id):
        raise BackendError(
            f"{id!r} is a functional environment, which backend compiled runs."
        )
    if max_length is not None and max_length < 1:
        raise ValueError(f"Expected a positive max_length, got {max_length}.")
    kwargs = dict(kwargs or {})
    action_mask = kwargs.pop(ACTION_MASK, False)
    return Constructor(id, max_length, kwargs, action_mask)


def batch(
    id: str | Callable[..., Any],
    num_agents: int,
    backend: str = "workers",
    num_workers: int | None = None,
    max_length: int | None = None,
    kwargs: dict[str, Any] | None = None,
    timeout: float | None = 60.0,
    start_timeout: float | None = 120.0,
) -> batch_env.Backend:
    """Batch of environments of the same kind.

    Args:
      id: Name or function as for `constructor`.
      num_agents: Number of environments.
      backend: One of `BACKENDS`; see `choose` for `auto`.
      num_workers: Number of workers, by default one per CPU.
      max_length: Limit as for `constructor`.
      kwargs: Arguments of each environment as for `constructor`.
      timeout: Seconds that a step or reset may take; none where it is made in the
        process of the caller.
      start_timeout: Seconds that the construction of one of them may take; as above.
    """
    timeouts = timeout, start_timeout
    return _batches(
        id, num_agents, backend, num_workers, max_length, kwargs, timeouts, 1
    )[0]


def halves(
    id: str | Callable[..., Any],
    num_agents: int,
    backend: str = "workers",
    num_workers: int | None = None,
    max_length: int | None = None,
    kwargs: dict[str, Any] | None = None,
    timeout: float | None = 60.0,
    start_timeout: float | None = 120.0,
) -> list[batch_env.Backend]:
    """Two batches of half the agents each; arguments as for `batch`.

    While one of them steps, the caller can compute the actions of the other one.
    """
    timeouts = timeout, start_timeout
    return _batches(
        id, num_agents, backend, num_workers, max_length, kwargs, timeouts, 2
    )


def choose(id: str | Callable[..., Any], backend: str = "auto") -> str:
    """The backend to use; for `auto`, the fastest that steps the very environment.

    That is `vector` for Atari, which ALE vectorizes itself, `compiled` for functional
    environments, else `workers`. EnvPool and the functional equals of Gymnasium's
    environments are faster but not the same code, so they must be asked for.
    """
    if backend not in BACKENDS:
        raise BackendError(
            f"Unknown backend {backend!r}; choose from {', '.join(BACKENDS)}."
        )
    if backend != "auto":
        return backend
    if isinstance(id, str) and id.startswith("ALE/"):
        return "vector"
    return "compiled" if _is_functional(id) else "workers"


def describe(
    id: str | Callable[..., Any],
    max_length: int | None = None,
    kwargs: dict[str, Any] | None = None,
    backend: str = "auto",
    start_timeout: float | None = None,
) -> Description:
    """Spaces and limit of an environment, from one that is made here and closed.

    Those of backend vector are made in a process of their own.

    Args:
      id, max_length, kwargs: As for `constructor`.
      backend: As for `choose`.
      start_timeout: Seconds that the construction may take. There is no limit for
        backend serial, whose environments may be debugged.

    Raises:
      EnvironmentNotFound: for unknown names.
      BackendError: if the backend cannot run it.
      UnsupportedSpaceError: if action masks are asked for and do not fit its spaces.
      ConstructorError: if the environment cannot be constructed.
    """
    backend = choose(id, backend)
    waits = backend in ("serial", "vector")
    what = f"Cannot construct environment {id!r}"
    with errors.framed(what, ConstructorError):
        try:
            with limits.interrupted(None if waits else start_timeout):
                env, limit = _one(id, max_length, kwargs, backend, start_timeout)
                found = env.observation_space, env.action_space
        except processes.EnvError as error:  # Its text holds a traceback already.
            raise ConstructorError(f"{what}: {error}") from error
    if backend != "compiled":
        limits.close([env.close])
    return Description(*found, limit)


def _one(id, max_length, kwargs, backend, start_timeout) -> tuple[Any, int | None]:
    """One environment, or a batch of one, and its limit."""
    if backend == "compiled":
        from agents.environments import compiled

        env = functional(id, kwargs)
        compiled.check(env)
        return env, max_length or env.max_length
    if backend in ("vector", "envpool"):
        timeouts = start_timeout, start_timeout
        (env,) = _batches(id, 1, backend, 1, max_length, kwargs, timeouts, 1)
        return env, max_length or env.max_length
    env = constructor(id, max_length, kwargs)()
    return env, _limit(env)


def functional(id: str | Callable[..., Any], kwargs: dict[str, Any] | None) -> Any:
    """Functional environment: a class by `module:Class`, or the equal of an id.

    Raises:
      BackendError: if it is none and has none.
    """
    from agents.environments import functional as package

    _refuse_mask("compiled", kwargs)
    if isinstance(id, str) and id in package.GYMNASIUM:
        return getattr(package, package.GYMNASIUM[id])(**(kwargs or {}))
    if _is_functional(id):
        cls = id if callable(id) else _attribute(id)
        return cls(**(kwargs or {}))
    names = ", ".join(package.GYMNASIUM)
    raise BackendError(
        f"{id!r} is no functional environment, as backend compiled needs; it has {names}"
        ", and classes of yours by module:Class. Use backend workers."
    )


def _is_functional(id: str | Callable[..., Any]) -> bool:
    """Whether this is, or names, a class of functional environments."""
    if not callable(id):
        module = id.partition(":")[0]
        if ":" not in id or module in gymnasium.registry:
            return False
        id = _attribute(id)
    name = "agents.environments.functional.functional_env"
    if not isinstance(id, type) or name not in sys.modules:
        return False
    return issubclass(id, sys.modules[name].FunctionalEnv)


def _batches(
    id: str | Callable[..., Any],
    num_agents: int,
    backend: str,
    num_workers: int | None,
    max_length: int | None,
    kwargs: dict[str, Any] | None,
    timeouts: tuple[float | None, float | None],
    parts: int,
) -> list[batch_env.Backend]:
    """One or two batches with this many agents together."""
    backend = choose(id, backend)
    if num_agents < 1:
        raise ValueError(f"Expected at least one agent, got {num_agents}.")
    if num_agents % parts:
        raise ValueError(f"Expected an even number of agents, got {num_agents}.")
    size = num_agents // parts
    firsts = range(0, num_agents, size)
    if backend == "compiled":
        raise BackendError(
            "Backend compiled steps in the graph only; see environments.compiled."
        )
    if backend in ("vector", "envpool"):
        _refuse_mask(backend, kwargs)
    if backend == "envpool":
        args = id, size, num_workers, max_length, kwargs
        return _share_ranges([_envpool(*args, first) for first in firsts])
    if backend == "vector":
        args = id, num_agents, max_length, kwargs, timeouts, parts
        return _share_ranges(_vector(*args))
    make = constructor(id, max_length, kwargs)
    if backend == "workers":
        args = [make] * num_agents, num_workers, *timeouts
        if parts == 1:
            return [workers.Workers(*args)]
        return _share_ranges(workers.Workers.halves(*args))
    if backend == "serial":
        return _share_ranges([serial.Serial([make] * size, x) for x in firsts])
    envs = [wrappers.ExternalProcess(make, *timeouts) for _ in range(num_agents)]
    return _share_ranges(
        [batch_env.BatchEnv(envs[x : x + size], False, x) for x in firsts]
    )


def _share_ranges(batches: list[batch_env.Backend]) -> list[batch_env.Backend]:
    """Halves that warn of observations outside of their space once, together."""
    for batch in batches:
        batch.ranges = batches[0].ranges
    return batches


def _refuse_mask(backend: str, kwargs: dict[str, Any] | None) -> None:
    """Raise BackendError if action masks shall be taken from the info."""
    if kwargs and kwargs.get(ACTION_MASK):
        raise BackendError(
            f"Backend {backend} cannot move {ACTION_MASK} into observations "
            "(environment.action_mask); use backend workers."
        )


def _vector(id, num_agents, max_length, kwargs, timeouts, parts) -> list:
    """Batches that are vector environments."""
    function = id if callable(id) else _attribute(id)
    if function is None:
        _import_package(id)
        if id not in gymnasium.registry:
            raise _not_found(id)
        function = gymnasium.registry[id]
    make = VectorConstructor(function, dict(kwargs or {}))
    args = make, num_agents, max_length, *timeouts
    try:
        if parts == 2:
            return vector.Vector.halves(*args)
        return [vector.Vector(*args)]
    except vector.NotVectorized:
        raise BackendError(
            f"{id!r} makes no gymnasium.vector.VectorEnv, as backend vector needs; use "
            "backend workers for single environments."
        ) from None


def _envpool(id, num_agents, num_threads, max_length, kwargs, first_row) -> Any:
    """Batch that is stepped by EnvPool."""
    if callable(id):
        raise BackendError("EnvPool makes environments by name; use backend workers.")
    try:
        return envpool.EnvPool(
            id, num_agents, num_threads, max_length, kwargs, first_row
        )
    except ModuleNotFoundError as error:
        if error.name != "envpool":
            raise
        raise BackendError(
            "Backend envpool needs EnvPool; install the extra [envpool], or use "
            "backend workers."
        ) from None
    except LookupError as error:
        raise BackendError(f"{error.args[0]} Use backend workers.") from None


@functools.cache
def _attribute(id: str) -> Callable[..., Any] | None:
    """Function that `module:function` names; None if it names no attribute."""
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
    """Environment from the registry of Gymnasium."""
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
    """Import the package that registers environments of this name, if there is one."""
    package, extra = _NAMESPACES.get(id.partition("/")[0], (None, None))
    if not package or id in gymnasium.registry:
        return
    try:
        importlib.import_module(package)
    except ModuleNotFoundError:
        text = f"Environment {id!r} needs the package {package!r}; install {extra}."
        raise EnvironmentNotFound(text) from None


def _not_found(id: str) -> EnvironmentNotFound:
    """Error with suggestions for an unknown name."""
    name = id.rpartition(":")[2]
    near = difflib.get_close_matches(name, gymnasium.registry, 3, 0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else "."
    return EnvironmentNotFound(f"Environment {id!r} not found{hint}")


def _quiet_mujoco():
    """Print each warning of MuJoCo once; leave out what it says of its own models.

    By default it repeats them for every environment, and writes a file of them.
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
    """Smallest limit of the length of episodes among all wrappers."""
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
