"""Configuration of networks, by preset name or in full. Imports no TensorFlow."""

import contextlib
import dataclasses
from typing import Annotated, Any

from agents.tools import bounds, config

JOINS = ("concat", "product", "sum", "mean")
"""How streams come together; or an import path."""


@dataclasses.dataclass(frozen=True)
class NetworkConfig:
    """Torso and heads of the policy and the value function.

    Layers are declared as in `layers.create`: units of a dense layer, a name, an import
    path `module:name`, or a mapping of arguments with one of these as `type`.
    """

    streams: dict = dataclasses.field(default_factory=dict)
    """Layers for parts of a structured observation, by their path, `camera/left`. Parts
    without a stream are flat numbers, after `convolutions` or `residual` for images."""
    join: str = "concat"
    """How the parts come together: `concat`, `product`, `sum`, `mean`, or the import
    path of a class or of a function that returns a layer, which is given all of them in
    the structure of the observation, as they are where there is no stream."""
    convolutions: Annotated[tuple[tuple[int, int, int], ...], bounds.UNITS] = ()
    """Filters, kernel size and stride of each layer for images."""
    residual: Annotated[tuple[int, ...], bounds.UNITS] = ()
    """Or filters of each section of residual blocks; Espeholt et al. (2018), figure 3."""
    layers: Annotated[tuple[int | str | dict, ...], bounds.UNITS] = (200, 100)
    """Behind all of that. The first one is given flat numbers if it is dense or
    recurrent, and what is observed as it is if it is another one. `lstm` and `gru`
    remember the steps of an episode. Where `sac` and `td3` judge an action, it joins in
    front of the first layer that is given vectors, see `torsos.Torso`."""
    activation: str = "relu"
    """Of dense layers and convolutions that declare none."""
    shared: bool = False
    """One torso for policy and value; else each has its own."""
    initializer: str = "scaled"
    """`scaled` (Glorot, as in the TensorFlow Agents paper) or `orthogonal`."""
    output_scale: bounds.NotNegativeFloat = 0.1
    """Scale of the initial weights of the policy's last layer."""
    continuous: str = "normal"
    """Distribution of continuous actions: `normal`, clipped to the bounds, or, between
    finite bounds, `tanh_normal` or `beta`."""
    mean_activation: str = "tanh"
    """Activation of the mean of normal actions."""
    initial_std: bounds.PositiveFloat = 0.35
    """Initial standard deviation of continuous actions, of [-1, 1]; before tanh."""

    def __post_init__(self) -> None:
        bounds.require(self)
        for name, known in (
            ("initializer", ("scaled", "orthogonal")),
            ("continuous", ("normal", "tanh_normal", "beta")),
        ):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name} must be one of {known}, got {getattr(self, name)!r}."
                )
        if self.convolutions and self.residual:
            raise ValueError("images go through convolutions or residual, not both.")
        if self.join not in JOINS and ":" not in self.join:
            raise config.ConfigError(
                f"join is {self.join!r}; {config.did_you_mean(self.join, JOINS)}"
            )
        self._check_layers()

    def _check_layers(self) -> None:
        """Make every declared layer once, which raises ConfigError if it cannot be."""
        lists = {"layers": self.layers, **self.streams}
        if all(isinstance(x, int) for declared in lists.values() for x in declared):
            return
        from agents.networks import layers

        for name, declared in lists.items():
            for layer in declared:
                with contextlib.suppress(config.NotImportedError):
                    layers.create(layer, 0, input_dim=1)  # For embeddings.
                if name in self.streams and layers.is_recurrent(layer):
                    raise config.ConfigError(
                        f"stream {name!r} has a layer that remembers steps, which only "
                        "'layers' may have; give it 'over: sequence' to run along what "
                        "is observed at once."
                    )

    @property
    def recurrent(self) -> bool:
        """Whether some layer remembers earlier steps of an episode."""
        if all(isinstance(x, int) for x in self.layers):
            return False
        from agents.networks import layers

        return any(map(layers.is_recurrent, self.layers))

    @property
    def linear(self) -> bool:
        """Whether there are no layers at all."""
        parts = self.streams, self.convolutions, self.residual, self.layers
        return not any(parts) and self.join in JOINS

    def has(self, kind: str) -> bool:
        """Whether a layer of a type is declared."""
        declared = [x for part in (self.layers, *self.streams.values()) for x in part]
        return any(
            kind == x or isinstance(x, dict) and x["type"] == kind for x in declared
        )

    @classmethod
    def short(cls, value: Any) -> "NetworkConfig":
        """Network by the name of its preset, by a file, or by a list of its layers."""
        if isinstance(value, str) and value.endswith((".json", ".yaml", ".yml")):
            value = config.load(value)
        if isinstance(value, dict):
            return config.build(cls, value, "network")
        if isinstance(value, list | tuple):
            return config.build(cls, {"layers": value}, "network")
        return cls.preset(value)

    @classmethod
    def preset(cls, name: str) -> "NetworkConfig":
        """Network by the name of its preset."""
        if name not in PRESETS:
            raise config.ConfigError(
                f"unknown network {name!r}; {config.did_you_mean(name, PRESETS)}"
            )
        return cls(**PRESETS[name])


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
    "dense": {},  # 200-100 ReLU; Hafner et al. (2017), section 6.
    "small": _CLIP,  # 64-64 tanh; Schulman et al. (2017), section 6.1.
    "gru": {"layers": (200, {"type": "gru", "units": 100})},
    "lstm": {"layers": (200, {"type": "lstm", "units": 100})},
    # Mnih et al. (2015), extended data table 1.
    "nature": {**_IMAGE, "convolutions": ((32, 8, 4), (64, 4, 2), (64, 3, 1))},
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
