"""Single environments by name, from Gymnasium's registry or from functions."""

import dataclasses
import difflib
import functools
import importlib
import importlib.util
import re
from collections.abc import Callable
from typing import Any

import gymnasium

from agents.environments import config
from agents.environments.mujoco import messages
from agents.environments.mujoco import robot as robot_
from agents.tools import config as config_
from agents.tools import errors, wrappers

# Packages that register their environments only when imported.
_NAMESPACES = {
    "ALE": ("ale_py", "the extra [atari]"),
    "dm_control": ("shimmy", "it"),
}
# The same for packages whose environments have no namespace; beginnings of their ids.
_PACKAGES = {
    "ale_py": r"\w+(NoFrameskip|Deterministic)-v\d",
    "flappy_bird_gymnasium": r"FlappyBird-",
    "gymnasium_robotics": r"(Fetch|Hand|AntMaze|PointMaze|AdroitHand|FrankaKitchen)",
    "highway_env": r"(highway|merge|roundabout|parking|intersection|racetrack|exit)-",
    "minigrid": r"(MiniGrid|BabyAI)-",
    "miniworld": r"MiniWorld-",
    "panda_gym": r"Panda",
    "pybullet_envs_gymnasium": r"\w+BulletEnv-",
}


class EnvironmentNotFound(errors.Mistake):
    """Name of no known environment, with suggestions in one line."""


class ConstructorError(errors.Mistake):
    """Failed construction of an environment, with its traceback below the line."""


@dataclasses.dataclass(frozen=True)
class Constructor:
    """Picklable function without arguments that creates one environment."""

    environment: config.Environment

    def __call__(self) -> gymnasium.Env:
        env = self._make()
        for wrapping in wrappings(self.environment):
            env = wrapping(env)
        return wrappers.ActionMask(env) if self.environment.action_mask else env

    def _make(self) -> gymnasium.Env:
        """Create the environment without wrappers and mask."""
        id, limit = self.environment.id, self.environment.max_length
        function = id if callable(id) else attribute(id)
        if function is None:
            return _registered(id, limit, self.environment.kwargs)
        if robot_.is_robot(function):
            from agents.environments.mujoco import robot_env

            return robot_env.create(function, limit, **self.environment.kwargs)
        env = function(**self.environment.kwargs)
        if not isinstance(env, gymnasium.Env):
            env = wrappers.OldGym(env)
        return env if limit is None else gymnasium.wrappers.TimeLimit(env, limit)


@dataclasses.dataclass(frozen=True)
class Wrapping:
    """Picklable function that puts a declared wrapper around an environment."""

    path: str
    arguments: dict[str, Any]

    def __call__(self, env: gymnasium.Env) -> gymnasium.Env:
        what = f"environment wrapper {self.path!r}"
        cls = functools.partial(config_.find(self.path), env)
        wrapped = config_.call(cls, self.arguments, what)
        if not isinstance(wrapped, gymnasium.Env):
            raise config_.ConfigError(
                f"{what} must make a gymnasium.Env, got {type(wrapped).__name__}."
            )
        return wrapped


def wrappings(environment: config.Environment) -> list[Wrapping]:
    """Return functions that put the wrappers of a config around an environment."""
    declared = [config_.declaration(x) for x in environment.wrappers]
    return [Wrapping(arguments.pop("type"), arguments) for arguments in declared]


def function(id: str | Callable[..., Any]) -> Callable[..., Any] | None:
    """Return what an id names; None for an environment of a registry."""
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
            text = (
                f"Environment {id!r} not found: there is no module {error.name!r}; "
                "install its package, or correct the name."
            )
            raise EnvironmentNotFound(text) from None
        for part in name.split("."):
            found = getattr(found, part, None)
    return found if callable(found) else None


def registry_name(id: str) -> str:
    """Return the name in the registry of `Id` or `package:Id`."""
    return id.rpartition(":")[2]


def import_package(id: str) -> None:
    """Import the package that registers environments of this name, if any."""
    package, extra = _NAMESPACES.get(id.partition("/")[0], (None, None))
    if not package or id in gymnasium.registry:
        return
    try:
        importlib.import_module(package)
    except ModuleNotFoundError:
        text = f"Environment {id!r} needs the package {package!r}; install {extra}."
        raise EnvironmentNotFound(text) from None


def not_found(id: str) -> EnvironmentNotFound:
    """Create the error for an unknown name, with suggestions."""
    name = registry_name(id)
    near = difflib.get_close_matches(name, gymnasium.registry, 3, 0.5)
    packages = [x for x, begin in _PACKAGES.items() if re.match(begin, name)]
    if packages and name == id:
        (package,) = packages
        missing = importlib.util.find_spec(package) is None
        install = f"install the package {package} and " if missing else ""
        hint = f"; {install}write {package}:{id}, which imports the package first."
    elif near:
        hint = f"; did you mean {' or '.join(near)}?"
    else:
        hint = "; if a package registers it at its import, write package:Id."
    return EnvironmentNotFound(f"Environment {id!r} not found{hint}")


def _registered(id: str, max_length: int | None, kwargs: dict) -> gymnasium.Env:
    """Create an environment from the registry of Gymnasium."""
    import_package(id)
    limit = {} if max_length is None else {"max_episode_steps": max_length}
    spec = gymnasium.registry.get(id)
    if spec and str(spec.entry_point).startswith("gymnasium.envs.mujoco"):
        messages.print_once()
    try:
        return gymnasium.make(id, disable_env_checker=True, **limit, **kwargs)
    except (gymnasium.error.UnregisteredEnv, gymnasium.error.DeprecatedEnv):
        pass
    raise not_found(id)
