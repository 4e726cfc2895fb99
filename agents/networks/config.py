"""Configuration of networks, by preset name or in full. Imports no TensorFlow."""

import dataclasses
import re
from typing import Annotated, Any

from agents.tools import bounds, config

TORSOS = {"layers": "agents.networks.torsos:Torso"}
"""Import paths of torsos by name."""
RECURRENT = ("gru", "lstm")
"""Names of layers that remember earlier steps of an episode."""
JOINS = ("concat", "product", "sum", "mean")
"""Names of the ways to join streams."""
POLICY = ("shared", "output_scale", "continuous", "mean_activation", "initial_std")
"""Fields that only networks with a policy and values use."""
NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Convolutions of Mnih et al. (2015), extended data table 1."""


@dataclasses.dataclass(frozen=True)
class NetworkConfig:
    """Torso and heads of the policy and the value function.

    Layers are declared as in `layers.create`: units of a dense layer, a name, an import
    path `module:name`, or a mapping of arguments with one of these as `type`.
    """

    torso: str = "layers"
    """Torso: `layers` as declared here, or the import path of your own class, see
    `parts.torso`. It has recurrent state only if `layers` has a recurrent layer."""
    streams: dict = dataclasses.field(default_factory=dict)
    """Layers for parts of a structured observation, by their path, `camera/left`. Parts
    without a stream become flat numbers, images after `convolutions` or `residual`."""
    join: str = "concat"
    """Combination of the parts: `concat`, `product`, `sum`, `mean`, or the import path
    of a class or function that returns a layer. This layer gets all parts in the
    structure of the observation, in their shapes if they have no stream."""
    convolutions: Annotated[tuple[tuple[int, int, int], ...] | None, bounds.UNITS] = (
        None
    )
    """Filters, kernel size and stride of each layer for images. None for those of the
    Nature network in front of dense layers, if images are at least 36 wide and high."""
    residual: Annotated[tuple[int, ...], bounds.UNITS] = ()
    """Filters of each section of residual blocks; Espeholt et al. (2018), figure 3."""
    layers: Annotated[tuple[int | str | dict, ...], bounds.UNITS] = (200, 100)
    """Last layers of the torso. The first one gets flat numbers if it is dense or
    recurrent, and otherwise numbers in the observed shape. `lstm` and `gru` remember the
    steps of an episode. In the critics of `sac` and `td3`, actions join in front of the
    first layer with vectors as input, see `torsos.Torso`."""
    activation: str = "relu"
    """Activation of dense layers and convolutions that declare none."""
    shared: bool = False
    """Share one torso between policy and value."""
    initializer: str = "scaled"
    """Initial weights: `scaled` (Glorot, TensorFlow Agents paper) or `orthogonal`."""
    output_scale: bounds.NotNegativeFloat = 0.1
    """Scale of the initial weights of the policy's last layer."""
    continuous: str = "normal"
    """Distribution of continuous actions: `normal`, clipped to the bounds, or, between
    finite bounds, `tanh_normal` or `beta`."""
    mean_activation: str = "tanh"
    """Activation of the mean of normal actions."""
    initial_std: Annotated[float, bounds.Bounds(0, 7, open=True)] = 0.35
    """Initial deviation of continuous actions in [-1, 1], before tanh; `beta` begins
    with at most 0.56."""

    def __post_init__(self) -> None:
        bounds.require(self)
        bounds.require_known(self, "initializer", ("scaled", "orthogonal"))
        bounds.require_known(self, "continuous", ("normal", "tanh_normal", "beta"))
        if self.convolutions and self.residual:
            raise ValueError("images go through convolutions or residual, not both.")
        for name, known in (("join", JOINS), ("torso", TORSOS)):
            value = getattr(self, name)
            if value not in known and ":" not in value:
                raise config.ConfigError(
                    f"{name} is {value!r}; {config.did_you_mean(value, known)}"
                )
        for part, x in self.streams.items() if self.torso in TORSOS else ():
            if not isinstance(x, list | tuple):
                raise config.ConfigError(f"stream {part!r} must be a list, got {x!r}.")
        declared = [x for part in (self.layers, *self.streams.values()) for x in part]
        if self.torso in TORSOS and not all(isinstance(x, int) for x in declared):
            config.imported(TORSOS[self.torso]).check(self)
        bounds.require_effect(self)

    def without_effect(self) -> dict[str, str]:
        """Map each field without effect to the reason; see `bounds.require_effect`.

        A user's own torso may read all of them.
        """
        unused = {}
        if self.torso in TORSOS and self.join not in JOINS:
            filters = [x for x in ("convolutions", "residual") if getattr(self, x)]
            unused = dict.fromkeys(filters, f"with join {self.join}")
        if self.torso in TORSOS and self.linear:
            unused["activation"] = "without layers"
        if self.continuous != "normal" and self.mean_activation != "linear":
            unused["mean_activation"] = f"with continuous {self.continuous}"
        return unused

    def without_policy(self) -> dict[str, str]:
        """Map fields of `POLICY` to the reason where no head uses them.

        Combinations that a preset has are allowed.
        """
        presets = [
            [preset.get(name, getattr(NetworkConfig, name)) for name in POLICY]
            for preset in PRESETS.values()
        ]
        if self.torso not in TORSOS or [getattr(self, x) for x in POLICY] in presets:
            return {}
        return dict.fromkeys(POLICY, "on networks of an algorithm with a replay memory")

    @property
    def recurrent(self) -> bool:
        """Return whether a layer remembers earlier steps of an episode."""
        return any(map(is_recurrent, self.layers))

    @property
    def linear(self) -> bool:
        """Return whether there are no layers at all."""
        parts = self.streams, self.convolutions, self.residual, self.layers
        return not any(parts) and self.join in JOINS

    def has(self, kind: str) -> bool:
        """Return whether a layer of this type is declared, by name or import path."""
        declared = [x for part in (self.layers, *self.streams.values()) for x in part]
        kinds = (x["type"] if isinstance(x, dict) else x for x in declared)
        names = {re.split("[:.]", str(x))[-1].replace("_", "").lower() for x in kinds}
        return kind.replace("_", "") in names

    @classmethod
    def short(cls, value: Any) -> Any:
        """Return the preset of a name, or a mapping with a list of layers."""
        return cls.preset(value) if isinstance(value, str) else {"layers": value}

    @classmethod
    def preset(cls, name: str) -> "NetworkConfig":
        """Create a network config from the name of a preset, or raise ConfigError."""
        if name not in PRESETS:
            raise config.ConfigError(
                f"unknown network {name!r}; {config.did_you_mean(name, PRESETS)}"
            )
        return cls(**PRESETS[name])


def complete(declaration: Any) -> dict:
    """Convert a declaration (units, name, path or mapping) to a mapping."""
    if isinstance(declaration, int):
        return {"type": "dense", "units": declaration}
    return config.declaration(declaration, "a layer, unless a number of units,")


def is_recurrent(declaration: Any) -> bool:
    """Return whether a layer remembers earlier steps of an episode."""
    layer = complete(declaration)
    return layer["type"] in RECURRENT and layer.get("over", "steps") == "steps"


def takes_vectors(declaration: Any) -> bool:
    """Return whether a layer gets flat numbers for any kind of observation."""
    return complete(declaration)["type"] == "dense" or is_recurrent(declaration)


def mixes(declaration: Any) -> bool:
    """Return whether a layer mixes its inputs: a dense layer, or one by the user."""
    return takes_vectors(declaration) or ":" in complete(declaration)["type"]


_CLIP = {
    "layers": (64, 64),
    "activation": "tanh",
    "initializer": "orthogonal",
    "output_scale": 0.01,
    "mean_activation": "linear",
    "initial_std": 0.6,
}
_IMAGE = {
    "layers": (512,),
    "shared": True,
    "initializer": "orthogonal",
    "output_scale": 0.01,
}

PRESETS = {
    # 200-100 ReLU; Hafner et al. (2017), section 6.
    "dense": {"convolutions": ()},
    "small": _CLIP,  # 64-64 tanh; Schulman et al. (2017), section 6.1.
    "gru": {"layers": (200, {"type": "gru", "units": 100})},
    "lstm": {"layers": (200, {"type": "lstm", "units": 100})},
    "nature": {**_IMAGE, "convolutions": NATURE},
    # Mnih et al. (2013), section 4.1.
    "convolutional": {
        **_IMAGE,
        "convolutions": ((16, 8, 4), (32, 4, 2)),
        "layers": (256,),
    },
    # Espeholt et al. (2018), figure 3, right; the second one without language.
    "residual": {**_IMAGE, "residual": (16, 32, 32), "layers": (256,)},
    "residual_lstm": {
        **_IMAGE,
        "residual": (16, 32, 32),
        "layers": (256, {"type": "lstm", "units": 256}),
    },
}
