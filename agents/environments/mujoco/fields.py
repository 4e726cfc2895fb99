"""Fields of many simulations or models as arrays, also by the names of parts."""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from agents.tools import config, errors

KINDS = {
    "body": "nbody",
    "joint": "njnt",
    "geom": "ngeom",
    "site": "nsite",
    "actuator": "nu",
    "tendon": "ntendon",
    "sensor": "nsensor",
}
"""Kinds of parts that have names, and the attributes with their numbers."""
STATE = (
    *("time", "qpos", "qvel", "act", "ctrl", "qfrc_applied", "xfrc_applied"),
    *("mocap_pos", "mocap_quat", "eq_active", "userdata", "qacc_warmstart"),
)
"""Fields of `mujoco.MjData` that the others derive from."""
_BODY = (
    *("xpos", "xquat", "xmat", "xipos", "ximat", "cinert", "crb", "cvel", "cacc"),
    *("cfrc_int", "cfrc_ext", "xfrc_applied"),
    *("subtree_com", "subtree_linvel", "subtree_angmom"),
)
"""Fields of bodies whose names do not begin with `body_`."""
_FREEDOM = (
    *("qvel", "qacc", "qacc_smooth", "qacc_warmstart", "cdof", "cdof_dot"),
    *("qfrc_actuator", "qfrc_applied", "qfrc_bias", "qfrc_constraint"),
    *("qfrc_inverse", "qfrc_passive", "qfrc_smooth"),
)
"""Fields of degrees of freedom whose names do not begin with `dof_`."""


class FieldError(errors.Mistake):
    """Wrong use of a field of a robot, or of a name in its model."""


class _Writable:
    """Object whose attributes are arrays; assigning one writes into the array."""

    def __setattr__(self, name: str, value: Any):
        array = getattr(self, name)
        try:
            array[...] = value
        except ValueError as error:
            given = list(np.shape(value))
            raise FieldError(
                f"Field {name} {list(array.shape)} cannot be set to an array {given}: "
                f"{error}."
            ) from None


class Fields(_Writable):
    """Fields of N simulations, or of their models.

    Attributes are the fields of `mujoco.MjData` (or `MjModel`) as arrays `[N, ...]`,
    except for contacts and others whose sizes change. Parts of the model are `body`,
    `joint`, `geom`, `site`, `actuator` and `tendon`, functions of a name or number that
    return their fields, and `sensor`, which returns its values. Fields with one number
    per part are `[N]`.

    Attributes:
      model: The `mujoco.MjModel`, without what varies.
      dt: Seconds per step.
    """

    def __init__(
        self,
        model: Any,
        dt: float,
        length: int,
        load: Callable[[str], np.ndarray],
    ):
        """Create fields of a model and a number of rows, loaded on first use."""
        given = {"model": model, "dt": dt, "_length": length, "_load": load}
        self.__dict__.update(given)

    def __len__(self) -> int:
        return self._length

    def __getattr__(self, name: str) -> np.ndarray:
        if name.startswith("_"):
            raise AttributeError(name)
        array = self.__dict__[name] = self._load(name)
        return array

    def sensor(self, name: str | int) -> np.ndarray:
        """Return the values of a sensor, `[N]` or `[N, dim]`."""
        model, index = self.model, find(self.model, "sensor", name)
        span = _span(model.sensor_adr[index], model.sensor_dim[index])
        return self.sensordata[:, span]

    def _part(self, kind: str, name: str | int) -> "Part":
        parts = self.__dict__.setdefault("_parts", {})
        if (kind, name) not in parts:
            parts[kind, name] = Part(self, kind, find(self.model, kind, name))
        return parts[kind, name]

    body = functools.partialmethod(_part, "body")
    joint = functools.partialmethod(_part, "joint")
    geom = functools.partialmethod(_part, "geom")
    site = functools.partialmethod(_part, "site")
    actuator = functools.partialmethod(_part, "actuator")
    tendon = functools.partialmethod(_part, "tendon")


class Part(_Writable):
    """Fields of one part of a model, without the prefix of its kind.

    For example `actuator("motor").force` is `actuator_force` of `MjData`, and
    `joint("hinge").damping` is `dof_damping` of `MjModel`.
    """

    def __init__(self, fields: Fields, kind: str, index: int):
        self.__dict__.update(_fields=fields, _kind=kind, _index=index)

    def __getattr__(self, name: str) -> np.ndarray:
        if name.startswith("_"):
            raise AttributeError(name)
        model, kind, index = self._fields.model, self._kind, self._index
        if kind == "joint":
            field, columns = _of_joint(model, name, index)
        elif kind == "body":
            field, columns = _of_body(model, name, index)
        else:
            field, columns = _of_part(model, kind, name), index
        return getattr(self._fields, field)[:, columns]


class Random:
    """Generators of K rows, with the functions of one, which draw for every row.

    Rows draw from their own generators, so that their numbers do not depend on the
    other rows.
    """

    def __init__(self, generators: Iterable[np.random.Generator]):
        self._generators = list(generators)

    def __iter__(self) -> Iterator[np.random.Generator]:
        return iter(self._generators)

    def __len__(self) -> int:
        return len(self._generators)

    def __getattr__(self, name: str) -> Callable[..., np.ndarray]:
        functions = [getattr(x, name) for x in self._generators]
        return lambda *args, **kwargs: np.stack([f(*args, **kwargs) for f in functions])


def unknown(kind: str, name: str, known: Iterable[str]) -> FieldError:
    """Create the error for a name that does not exist, with a suggestion."""
    return FieldError(
        f"There is no {kind} {name!r}; {config.did_you_mean(name, known)}"
    )


def find(model: Any, kind: str, name: str | int) -> int:
    """Return the number of a part of a model."""
    if isinstance(name, int):
        return name
    import mujoco

    type_ = getattr(mujoco.mjtObj, f"mjOBJ_{kind.upper()}")
    index = mujoco.mj_name2id(model, type_, name)
    if index < 0:
        ids = range(getattr(model, KINDS[kind]))
        names = [mujoco.mj_id2name(model, type_, x) for x in ids]
        raise unknown(kind, name, filter(None, names))
    return index


def _of_part(model: Any, kind: str, name: str) -> str:
    """Return the field with a quantity of geoms, sites, actuators or tendons."""
    field = f"{kind}_{name}"
    if kind == "tendon" and not hasattr(model, field):
        return f"ten_{name}"
    return "ctrl" if field == "actuator_ctrl" else field


def _of_body(model: Any, name: str, index: int) -> tuple[str, int]:
    """Return the field with a quantity of a body, and its column there."""
    if name in ("mocap_pos", "mocap_quat"):
        if model.body_mocapid[index] < 0:
            raise FieldError(f"Body {index} has no {name}, as it is no mocap body.")
        return name, int(model.body_mocapid[index])
    return (name if name in _BODY else f"body_{name}"), index


def _of_joint(model: Any, name: str, index: int) -> tuple[str, int | slice]:
    """Return the field with a quantity of a joint, and its columns there."""
    kind = model.jnt_type[index]  # Free, ball, slide or hinge.
    if name.startswith("qpos"):
        return name, _span(model.jnt_qposadr[index], (7, 4, 1, 1)[kind])
    if name in _FREEDOM or hasattr(model, f"dof_{name}"):
        field = name if name in _FREEDOM else f"dof_{name}"
        return field, _span(model.jnt_dofadr[index], (6, 3, 1, 1)[kind])
    return (name if name in ("xanchor", "xaxis") else f"jnt_{name}"), index


def _span(first: int, size: int) -> int | slice:
    """Return the columns of a part, an integer if there is one."""
    return int(first) if size == 1 else slice(int(first), int(first + size))
