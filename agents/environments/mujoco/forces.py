"""Forces on bodies, computed at the end of every time step.

MuJoCo leaves the fields `cacc`, `cfrc_int` and `cfrc_ext` alone unless a sensor needs
them, and Gymnasium computes them by `mj_rnePostConstraint` after each step. A plugin of
MuJoCo whose callback is this function does the same within the step, without Python.
"""

import ctypes
import functools
import pathlib
from typing import Any

_NAME = "agents.forces"
_CALLBACKS = (
    *("nstate", "nsensordata", "init", "destroy", "copy", "reset", "compute"),
    *("advance", "visualize", "actuator_act_dot", "sdf_distance", "sdf_gradient"),
    *("sdf_staticdistance", "sdf_attribute", "sdf_aabb"),
)


class _Plugin(ctypes.Structure):
    """Type `mjpPlugin` of the header `mjplugin.h`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("nattribute", ctypes.c_int),
        ("attributes", ctypes.c_void_p),
        ("capabilityflags", ctypes.c_int),
        ("needstage", ctypes.c_int),
        *((name, ctypes.c_void_p) for name in _CALLBACKS),
    )


def add(spec: Any) -> None:
    """Let a `mujoco.MjSpec` compute the forces on its bodies in every time step."""
    _register()
    spec.activate_plugin(_NAME)
    spec.add_plugin(name=_NAME, plugin_name=_NAME, active=True)


@functools.cache
def _register() -> list[Any]:
    """Register the plugin; return the objects that must live as long as the process.

    The callbacks in Python do nothing, and are not part of steps. The callback of the
    steps gets one more argument than the function takes, which C ignores.
    """
    library = _library()
    pointer, number = ctypes.c_void_p, ctypes.c_int
    functions = {
        "nstate": ctypes.CFUNCTYPE(number, pointer, number)(lambda *_: 0),
        "init": ctypes.CFUNCTYPE(number, pointer, pointer, number)(lambda *_: 0),
        "reset": ctypes.CFUNCTYPE(None, *[pointer] * 3, number)(lambda *_: None),
        "compute": ctypes.CFUNCTYPE(None, *[pointer] * 2, number, number)(
            lambda *_: None
        ),
        "advance": library.mj_rnePostConstraint,
    }
    plugin = _Plugin()
    library.mjp_defaultPlugin(ctypes.byref(plugin))
    plugin.name = _NAME.encode()
    for name, function in functions.items():
        setattr(plugin, name, ctypes.cast(function, pointer).value)
    library.mjp_registerPlugin(ctypes.byref(plugin))
    return [plugin, functions]


def _library() -> ctypes.CDLL:
    """Return the library that the package of MuJoCo has loaded."""
    import mujoco

    folder = pathlib.Path(mujoco.__file__).parent
    files = [*folder.glob("libmujoco*.so*"), *folder.glob("libmujoco*.dylib")]
    return ctypes.CDLL(str(files[0]))
