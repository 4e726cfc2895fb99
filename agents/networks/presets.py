"""Configuration of networks, by preset name or in full. Imports no TensorFlow."""

import dataclasses

from agents.tools import config


@dataclasses.dataclass(frozen=True)
class NetworkConfig:
    """Torso and heads of the policy and the value function."""

    convolutions: tuple[tuple[int, int, int], ...] = ()
    """Filters, kernel size and stride of each layer for images."""
    residual: tuple[int, ...] = ()
    """Or filters of each section of residual blocks; Espeholt et al. (2018), figure 3."""
    layers: tuple[int, ...] = (200, 100)
    """Units of the dense layers."""
    activation: str = "relu"
    recurrent: str = ""
    """`gru` or `lstm`: one recurrent layer behind the dense ones."""
    recurrent_units: int = 100
    shared: bool = False
    """One torso for policy and value; else each has its own."""
    initializer: str = "scaled"
    """`scaled` (Glorot, as in the TensorFlow Agents paper) or `orthogonal`."""
    output_scale: float = 0.1
    """Scale of the initial weights of the policy's last layer."""
    continuous: str = "normal"
    """Distribution of continuous actions: `normal`, clipped to the bounds, or, between
    finite bounds, `tanh_normal` or `beta`."""
    mean_activation: str = "tanh"
    """Activation of the mean of normal actions."""
    initial_std: float = 0.35
    """Initial standard deviation of continuous actions, of [-1, 1]; before tanh."""

    def __post_init__(self) -> None:
        for name, known in (
            ("recurrent", ("", "gru", "lstm")),
            ("initializer", ("scaled", "orthogonal")),
            ("continuous", ("normal", "tanh_normal", "beta")),
        ):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name} must be one of {known}, got {getattr(self, name)!r}."
                )
        if self.convolutions and self.residual:
            raise ValueError("images go through convolutions or residual, not both.")

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
    "gru": {"layers": (200,), "recurrent": "gru"},
    "lstm": {"layers": (200,), "recurrent": "lstm"},
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
        "layers": (256,),
        "recurrent": "lstm",
        "recurrent_units": 256,
    },
}
