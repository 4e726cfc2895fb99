"""Single environments by name, from Gymnasium's registry or from functions."""

import contextlib
import dataclasses
import difflib
import functools
import importlib
import inspect
import re
import sys
from collections.abc import Callable
from typing import Any

import gymnasium

from agents.environments import config, curriculum
from agents.environments.mujoco import enums, messages
from agents.environments.mujoco import robot as robot_
from agents.tools import config as config_
from agents.tools import errors, wrappers

_PACKAGES = {
    r"ALE/|\w+NoFrameskip-v\d": ("ale_py", "install the extra [atari]"),
    "bsuite/": ("shimmy", "pip install 'shimmy[bsuite]'"),
    "dm_control/": ("shimmy", "pip install 'shimmy[dm-control]'"),
    "FlappyBird-": ("flappy_bird_gymnasium", "pip install flappy-bird-gymnasium"),
    "gym_aloha/": ("gym_aloha", "pip install gym-aloha"),
    "gym_pusht/": ("gym_pusht", "pip install gym-pusht"),
    "GymV(21|26)Environment-": ("shimmy", "pip install 'shimmy[gym-v26]'"),
    "(AdroitHand|AntMaze|Fetch|FrankaKitchen|Hand|PointMaze)": (
        *("gymnasium_robotics", "pip install gymnasium-robotics"),
    ),
    "(exit|highway|intersection|lane-keeping|merge|parking|racetrack|roundabout)-": (
        *("highway_env", "pip install highway-env"),
    ),
    "(MiniGrid|BabyAI)-": ("minigrid", "pip install minigrid"),
    "MiniWorld-": ("miniworld", "pip install miniworld"),
    "PyFlyt/": ("PyFlyt.gym_envs", "pip install PyFlyt"),
    "Panda": ("panda_gym", "pip install panda-gym"),
    r"\w+BulletEnv-": (
        *("pybullet_envs_gymnasium", "pip install pybullet_envs_gymnasium"),
    ),
}
"""Packages that register environments when they are imported, and the way to install
them, by the beginnings of the ids."""


UNCHECKED = "disable_env_checker"
"""Argument of `make` of Gym and Gymnasium. Backends check environments themselves, and
Gym's checks fail with NumPy 2."""


class EnvironmentNotFound(errors.Mistake):
    """Unknown name of an environment, with suggestions in one line."""


class ConstructorError(errors.Mistake):
    """Failed construction of an environment, with its traceback below the line."""


@dataclasses.dataclass(frozen=True)
class Constructor:
    """Picklable function without arguments that creates one environment."""

    environment: config.Environment

    def __call__(self) -> gymnasium.Env:
        kwargs = dict(self.environment.kwargs)
        schedules = curriculum.schedules_of(kwargs)
        if not schedules:
            return self._wrapped(kwargs)
        fixed = {key: value for key, value in kwargs.items() if key not in schedules}
        return curriculum.Curriculum(
            lambda changing: self._wrapped(fixed | changing),
            *(schedules, _parameters(self.environment.id)),
        )

    def _wrapped(self, kwargs: dict[str, Any]) -> gymnasium.Env:
        """Create the environment with wrappers and mask."""
        env = self._make(kwargs)
        for wrapping in wrappings(self.environment):
            env = wrapping(env)
        return wrappers.ActionMask(env) if self.environment.action_mask else env

    def _make(self, kwargs: dict[str, Any]) -> gymnasium.Env:
        """Create the environment without wrappers and mask."""
        id, limit = self.environment.id, self.environment.max_length
        function = id if callable(id) else attribute(id)
        if function is None:
            return _registered(id, limit, kwargs)
        if robot_.is_robot(function):
            from agents.environments.mujoco import robot_env

            return robot_env.create(function, limit, **kwargs)
        with contextlib.suppress(ValueError):  # Functions in C have no signature.
            if UNCHECKED in config_.parameters(function):
                kwargs = {UNCHECKED: True, **kwargs}
        env = function(**kwargs)
        if not isinstance(env, gymnasium.Env):
            env = wrappers.OldGym(env, kwargs.get("render_mode"))
        return env if limit is None else gymnasium.wrappers.TimeLimit(env, limit)


@dataclasses.dataclass(frozen=True)
class Wrapping:
    """Picklable function that puts a declared wrapper around an environment."""

    path: str
    arguments: dict[str, Any]

    def __call__(self, env: gymnasium.Env) -> gymnasium.Env:
        what = f"environment wrapper {self.path!r}"
        found = config_.find(self.path)
        if not _takes_one(found):
            raise config_.ConfigError(f"{what} must take the environment first.")
        cls = functools.partial(found, env)
        wrapped = config_.call(cls, self.arguments, what, _names(cls) or ())
        if not isinstance(wrapped, gymnasium.Env):
            raise config_.ConfigError(
                f"{what} must make a gymnasium.Env, got {type(wrapped).__name__}."
            )
        return wrapped


def _names(function: Callable[..., Any]) -> set[str] | None:
    """Return names of a function's arguments; None if it may take any."""
    try:
        found = inspect.signature(function).parameters.values()
    except ValueError:  # Functions in C have no signature.
        return None
    if any(x.kind == x.VAR_KEYWORD for x in found):
        return None
    return {*config_.parameters(function)}


def _takes_one(function: Callable[..., Any]) -> bool:
    """Return whether a function takes an argument by position, as far as it says."""
    try:
        inspect.signature(function).bind_partial(None)
    except TypeError:
        return False
    except ValueError:  # Functions in C have no signature.
        pass
    return True


def wrappings(environment: config.Environment) -> list[Wrapping]:
    """Return functions that put the wrappers of a config around an environment."""
    declared = [config_.declaration(x) for x in environment.wrappers]
    return [Wrapping(arguments.pop("type"), arguments) for arguments in declared]


def function(id: str | Callable[..., Any]) -> Callable[..., Any] | None:
    """Return the object that an id names; None for an environment of a registry."""
    if callable(id):
        return id
    return None if id.partition(":")[0] in gymnasium.registry else attribute(id)


@functools.cache
def attribute(id: str) -> Callable[..., Any] | None:
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
            known = (way for package, way in _PACKAGES.values() if package == module)
            text = (
                f"Environment {id!r} not found: there is no module {error.name!r}; "
                f"{next(known, 'install its package, or correct the name')}."
            )
            raise EnvironmentNotFound(text) from None
        for part in name.split("."):
            found = getattr(found, part, None)
    return found if callable(found) else None


def _parameters(id: str | Callable[..., Any]) -> set[str] | None:
    """Return names of an environment's arguments; None if it may take any."""
    made = id if callable(id) else attribute(id)
    if made is None:
        import_package(id)
        try:
            made = gymnasium.spec(id).entry_point
        except (gymnasium.error.Error, ImportError):  # Its construction tells why.
            return None
        if isinstance(made, str):
            made = gymnasium.envs.registration.load_env_creator(made)
    return _names(made)


def registry_name(id: str) -> str:
    """Return the name in the registry of `Id` or `package:Id`."""
    return id.rpartition(":")[2]


def is_atari(id: Any) -> bool:
    """Return whether this is the id of an environment of ALE."""
    return isinstance(id, str) and registry_name(id).startswith("ALE/")


def import_package(id: str) -> None:
    """Import the package that registers environments of this name, if any."""
    _, package, install = package_of(id)
    made = gymnasium.registry[id].entry_point if id in gymnasium.registry else None
    waiting = getattr(made, "__module__", None) == gymnasium.envs.__name__  # For it.
    if not package or (made and not waiting):
        return
    try:
        importlib.import_module(package)
    except ModuleNotFoundError as error:
        if not f"{package}.".startswith(f"{error.name}."):
            raise
        raise _needs(id, package, install) from None


def package_of(id: str) -> tuple[str, str, str]:
    """Return prefix of the ids, package, and how to install it; empty if unknown."""
    found = (x for x in _PACKAGES.items() if re.match(x[0], id))
    begin, package = next(found, ("", ("", "")))
    return begin, *package


def not_found(id: str) -> EnvironmentNotFound:
    """Create the error for an unknown name, with suggestions."""
    name = registry_name(id)
    begin, package, install = package_of(name)
    if package and not any(re.match(begin, x) for x in gymnasium.registry):
        return _needs(id, package, install)  # Without its extra.
    space, _, _ = name.rpartition("/")
    known = [x for x in gymnasium.registry if x.rpartition("/")[0] == space]
    near = difflib.get_close_matches(name, known, 3, 0.5)
    module, _, attribute_ = id.partition(":")
    if attribute_ and module in sys.modules:  # Then it was imported.
        own = [x for x, y in vars(sys.modules[module]).items() if callable(y)]
        own = difflib.get_close_matches(attribute_, own, 3, 0.5)
        near = [f"{module}:{x}" for x in own] or near
    if near:
        hint = f"; did you mean {' or '.join(near)}?"
    elif attribute_:
        hint = f"; module {module!r} has no such function, and registers no such id."
    else:
        hint = "; if a package registers it at its import, write package:Id."
    return EnvironmentNotFound(f"Environment {id!r} not found{hint}")


def _needs(id: str, package: str, install: str) -> EnvironmentNotFound:
    """Create the error for a package that is missing, or a part of it."""
    name = package.partition(".")[0]
    return EnvironmentNotFound(
        f"Environment {id!r} needs the package {name!r}; {install}."
    )


def _registered(id: str, max_length: int | None, kwargs: dict) -> gymnasium.Env:
    """Create an environment from the registry of Gymnasium."""
    import_package(id)
    limit = {} if max_length is None else {"max_episode_steps": max_length}
    spec = gymnasium.registry.get(id)
    if spec and str(spec.entry_point).startswith("gymnasium.envs.mujoco"):
        messages.print_once()
    package = package_of(registry_name(id))[1]
    if package == "gymnasium_robotics":
        enums.repair()
    if package == "ale_py" and spec:  # Else the first one prints a banner.
        ale = importlib.import_module(package)
        ale.ALEInterface.setLoggerMode(ale.LoggerMode.Error)
    if registry_name(id).startswith("GymV26Environment-"):
        kwargs = {"make_kwargs": {UNCHECKED: True}, **kwargs}
    try:
        return gymnasium.make(id, **{UNCHECKED: True}, **limit, **kwargs)
    except (gymnasium.error.UnregisteredEnv, gymnasium.error.DeprecatedEnv):
        if registry_name(id) in gymnasium.registry:  # It needs another one.
            raise
    except gymnasium.error.DependencyNotInstalled as error:
        if "box2d" not in str(error):
            raise
        raise _needs(id, "Box2D", "install the extra [box2d]") from None
    raise not_found(id)
