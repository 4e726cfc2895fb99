"""Models of robots, and their simulations on the threads of mjbatch."""

import pathlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from agents.environments.mujoco import fields, forces, messages
from agents.environments.mujoco import robot as robot_
from agents.tools import checks, errors

_STALE = ("cacc", "cfrc_int", "cfrc_ext")
"""Fields that only steps compute, if the robot wants forces."""
_UNSTABLE = 3
"""First warning of MuJoCo about unstable physics, which make it restart."""
_BAD_CONTROL = 6
"""Last warning, about controls that are not finite or huge; it takes zeros then."""


class ModelError(errors.Mistake):
    """Model of a robot that MuJoCo cannot load, with its message."""


class Simulations:
    """N simulations of a robot, whose fields change with every step.

    Attributes:
      model: The `mujoco.MjModel`.
      data: Fields of all rows, which cannot be written.
      varied: Fields `[N, ...]` of the models that vary.
    """

    def __init__(self, robot: robot_.Robot, length: int, num_threads: int):
        """Create simulations, which have no state until they begin."""
        import mjbatch
        import mujoco

        messages.print_once()
        what = f"frame_skip of {type(robot).__name__}"
        checks.positive_integer(what, robot.frame_skip, ModelError)
        self.model = load(robot)
        self._robot = robot
        self._batch = mjbatch.Batch(self.model, length, num_threads)
        self._start, self._forced = _initial_state(self.model)
        self._bound: dict[str, np.ndarray] = {}
        self._state = self._bind("state")
        self._warning = self._bind("warning")
        self._state[:] = self._start
        # What the last step began with, and rows that were not stepped since.
        self._before, self._begun = self._state.copy(), np.ones(length, bool)
        if self.model.neq:
            self._bind("eq_active")
        if "timestep" in robot.varied:
            raise fields.FieldError("timestep cannot vary, as all rows share data.dt.")
        dt = self.model.opt.timestep * robot.frame_skip
        self._fields = lambda length, load: fields.Fields(self.model, dt, length, load)
        self.data = self._fields(length, self._read)
        self.varied = {name: self._expand(name) for name in robot.varied}
        self._known = [x for x in dir(mujoco.MjData) if not x.startswith("_")]

    def step(self, control: np.ndarray) -> None:
        """Step all rows with controls `[N, nu]`."""
        self._bind("ctrl")[:] = control
        self._before[:], self._begun[:] = self._state, False
        self._batch.step(nstep=self._robot.frame_skip)

    def begin(self, rows: np.ndarray, generators: list[np.random.Generator]) -> None:
        """Begin episodes in K rows, by the functions of the robot."""
        random = fields.Random(generators)
        chosen = np.zeros(len(self.data), bool)
        chosen[rows] = True
        if self.varied:
            self._vary(rows, random)
            self._batch.set_const(chosen)
        self._state[rows] = self._start
        self._begun[rows] = True
        self._warning[rows] = 0
        if self.model.neq:  # eq_active is a copy, which only computing renews.
            self._batch.forward(chosen)
        written = self._fields(len(rows), lambda name: self._initial(name)[rows])
        self._robot.initial(written, random)
        for name in set(fields.STATE) & set(vars(written)):
            self._bind(name)[rows] = getattr(written, name)
        self._forward(chosen)

    def copy(self, row: int, model: Any) -> Any:
        """Return a row as `mujoco.MjData`, for pictures.

        Args:
          row: Index of the row.
          model: Copy of the model, which gets the fields that vary.
        """
        import mujoco

        data = mujoco.MjData(model)
        for name, values in self.varied.items():
            owner = model if hasattr(model, name) else model.opt
            setattr(owner, name, values[row])
        if self.varied:
            mujoco.mj_setConst(model, data)
        kind = mujoco.mjtState.mjSTATE_INTEGRATION
        mujoco.mj_setState(model, data, self._state[row], kind)
        mujoco.mj_forward(model, data)
        return data

    def failed(self) -> np.ndarray:
        """Return the rows that MuJoCo had to correct in a step, bool `[N]`."""
        return self._warning[:, _UNSTABLE:, 1].any(1)

    def uncontrolled(self) -> np.ndarray:
        """Return the rows whose controls it did not take, bool `[N]`."""
        return self._warning[:, _BAD_CONTROL, 1] > 0

    def unstable(self) -> np.ndarray:
        """Return the rows whose state is not finite, bool `[N]`."""
        return ~np.isfinite(self._state).all(1)

    def _vary(self, rows: np.ndarray, random: fields.Random) -> None:
        """Write new values of the fields that vary."""

        def load(name):
            if name not in self.varied:
                raise fields.unknown("field that is varied,", name, self.varied)
            return np.repeat(self._nominal(name)[None], len(rows), 0)

        model = self._fields(len(rows), load)
        self._robot.vary(model, random)
        for name, values in self.varied.items():
            values[rows] = getattr(model, name)

    def _bind(self, name: str) -> np.ndarray:
        """Return a live field of all rows."""
        if name not in self._bound:
            self._bound[name] = self._batch.bind(name)
        return self._bound[name]

    def _read(self, name: str) -> np.ndarray:
        """Return a live field that cannot be written."""
        if name not in self._known:
            raise fields.unknown("field of MjData", name, self._known)
        if name not in self._bound:
            self._fill(name)
        view = self._bound[name].view()
        view.flags.writeable = False
        return view

    def _fill(self, name: str) -> None:
        """Bind a field and fill it, by repeating what was last done in each row.

        Derived fields are those of the last time step, not of the present state.
        """
        try:
            self._bind(name)
        except ValueError:
            raise fields.FieldError(
                f"Batches have no field {name} of MjData, as its size may differ among "
                "rows; use sensors or other fields."
            ) from None
        state = self._state.copy()
        if not self._begun.all():
            stepped = ~self._begun
            self._state[stepped] = self._before[stepped]
            self._batch.step(stepped, self._robot.frame_skip)
        self._forward(self._begun)
        self._state[:] = state

    def _forward(self, chosen: np.ndarray) -> None:
        """Compute what derives from the state in rows without a step, bool `[N]`."""
        self._batch.forward(chosen)
        for name in self._forced & set(self._bound):
            self._bound[name][chosen] = 0

    def _initial(self, name: str) -> np.ndarray:
        """Return a live field of the state."""
        if name not in fields.STATE:
            raise fields.unknown("field of the state", name, fields.STATE)
        return self._bind(name)

    def _nominal(self, name: str) -> np.ndarray:
        """Return the value in the file of a field of the model or its options."""
        owner = self.model if hasattr(self.model, name) else self.model.opt
        value = getattr(owner, name, None)
        if not isinstance(value, np.ndarray | float):
            known = [x for x in dir(self.model) if not x.startswith("_")]
            raise fields.unknown("field of MjModel", name, known)
        return np.asarray(value)

    def _expand(self, name: str) -> np.ndarray:
        """Return the values of a field, separate for every row."""
        self._nominal(name)
        return self._batch.expand(name)


def load(robot: robot_.Robot) -> Any:
    """Load the model of a robot.

    Raises:
      ModelError: with the message of MuJoCo.
    """
    import mujoco

    spec, source = _spec(robot)
    what = f"The model of {type(robot).__name__}{source} does not load"
    try:
        spec = spec()
        if robot.forces:
            forces.add(spec)
        return spec.compile()
    except (ValueError, mujoco.FatalError) as error:
        raise ModelError(f"{what}: {error}") from None


def _spec(robot: robot_.Robot) -> tuple[Callable[[], Any], str]:
    """Return a function that creates the spec of a robot, and its source as text."""
    import mujoco

    model = robot.model
    if isinstance(model, mujoco.MjSpec):
        return model.copy, ""
    if not isinstance(model, str | pathlib.Path):
        raise ModelError(
            f"The model of {type(robot).__name__} must be a file, XML or a "
            f"mujoco.MjSpec, got {type(model).__name__}."
        )
    if str(model).lstrip().startswith("<"):
        return lambda: mujoco.MjSpec.from_string(model), ""
    path = str(_folder(robot) / model)
    return lambda: mujoco.MjSpec.from_file(path), f", {path},"


def _folder(robot: robot_.Robot) -> pathlib.Path:
    """Return the folder of the class that names the model."""
    classes = [x for x in type(robot).__mro__ if "model" in vars(x)]
    module = sys.modules[(classes or [type(robot)])[0].__module__]
    return pathlib.Path(getattr(module, "__file__", None) or "x").parent


def _initial_state(model: Any) -> tuple[np.ndarray, set[str]]:
    """Return the state `[nstate]` of a new simulation, and the fields of steps only.

    Fields that no sensor needs keep their values when MuJoCo computes all others.
    """
    import mujoco

    data = mujoco.MjData(model)
    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    state = np.zeros(mujoco.mj_stateSize(model, kind))
    mujoco.mj_getState(model, data, state, kind)
    for name in _STALE:
        getattr(data, name)[:] = np.pi
    mujoco.mj_forward(model, data)
    return state, {x for x in _STALE if (getattr(data, x) == np.pi).all()}
