"""Configs of networks: presets, and what is refused."""

import numpy as np
import pytest
from gymnasium import spaces as gs

from agents import networks
from agents.tools import bounds, config


def test_presets():
    dense = networks.NetworkConfig.preset("dense")
    assert dense == networks.NetworkConfig(convolutions=())
    assert dense.layers == (200, 100)
    small = networks.NetworkConfig.preset("small")
    assert (small.layers, small.activation) == ((64, 64), "tanh")
    assert (small.initializer, small.output_scale) == ("orthogonal", 0.01)
    assert networks.NetworkConfig.preset("lstm").recurrent
    nature = networks.NetworkConfig.preset("nature")
    assert nature.convolutions == ((32, 8, 4), (64, 4, 2), (64, 3, 1))
    assert nature.shared
    with pytest.raises(config.ConfigError, match="did you mean 'nature'"):
        networks.NetworkConfig.preset("natur")


def test_nature_network_has_its_published_size():
    """Mnih et al. (2015), with 18 actions and a value on top."""
    space = gs.Box(0, 255, (84, 84, 4), np.uint8)
    preset = networks.NetworkConfig.preset("nature")
    made = networks.PolicyValueNetwork(space, gs.Discrete(18), preset, 0)
    torso = 8 * 8 * 4 * 32 + 32 + 4 * 4 * 32 * 64 + 64 + 3 * 3 * 64 * 64 + 64
    torso += 7 * 7 * 64 * 512 + 512
    heads = (512 + 1) * 18 + (512 + 1)
    assert sum(np.prod(v.shape) for v in made.trainable_variables) == torso + heads


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"layers": ("rmm",)}, "unknown layer 'rmm'; choose from dense"),
        ({"initializer": "x"}, "initializer"),
        ({"continuous": "gamma"}, "continuous must be"),
    ],
)
def test_unknown_kinds_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        networks.NetworkConfig(**values)


def test_no_convolutions_have_no_effect_to_complain_about():
    join = "keras.layers:Concatenate"
    assert networks.NetworkConfig(join=join, convolutions=()).convolutions == ()
    with pytest.raises(bounds.OutOfBounds, match="no effect with join"):
        networks.NetworkConfig(join=join, convolutions=((4, 3, 2),))
