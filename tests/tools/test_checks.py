"""Checks of single values: finite numbers, masks of actions."""

import numpy as np
import pytest
from gymnasium import spaces
from scripted import make

from agents.tools import batch_env, checks


def test_finite_check_maps_indices_to_rows():
    with pytest.raises(checks.EnvDataError, match="row 7"):
        checks.require_finite("x", np.array([0, np.nan]), [3, 7])


def masked(mask, sensor=0.0):
    return {"action_mask": mask, "sensor": np.full(1, sensor, np.float32)}


def masks(kind):
    """Spaces of observation and action, a good mask, a bad one, and what is said."""
    sensor = spaces.Box(-1, 1, (1,))
    multi = spaces.MultiDiscrete([2, 3])
    dtype = np.float32 if kind == "float" else np.int8
    if kind in ("int8", "float"):
        mask, actions = spaces.Box(0, 1, (3,), dtype), spaces.Discrete(3)
        good, bad = np.array([0, 0, 1], dtype), np.zeros(3, dtype)
        text = "no action, all"
    elif kind == "flat":
        mask, actions = spaces.MultiBinary(5), multi
        good, bad = np.array([[0, 1, 0, 0, 1], [1, 1, 0, 0, 0]], np.int8)
        text = "no value of action 1, all"
    else:
        mask = spaces.Tuple([spaces.MultiBinary(2), spaces.MultiBinary(3)])
        actions = multi
        good = np.array([0, 1], np.int8), np.array([0, 0, 1], np.int8)
        bad = np.zeros(2, np.int8), np.ones(3, np.int8)
        text = "no value of action 0, all"
    return spaces.Dict(sensor=sensor, action_mask=mask), actions, good, bad, text


@pytest.mark.parametrize("kind", ["int8", "float", "flat", "tuple"])
def test_masks_must_allow_an_action(kind):
    space, actions, good, bad, text = masks(kind)
    envs, batch = make(space, actions, masked(good))
    action = np.zeros((2, *actions.shape), np.int64)
    batch.reset()
    batch.step(action)
    envs[1].observation = masked(bad)
    message = f"row 1 after step 2 of the batch: observation action_mask allows {text}"
    with pytest.raises(batch_env.EnvDataError, match=message):
        batch.step(action)
    batch.reset([0])
    with pytest.raises(batch_env.EnvDataError, match=message):
        batch.reset([1])


def test_masks_of_last_observations_may_forbid_everything():
    space, actions, good, bad, text = masks("int8")
    envs, batch = make(space, actions, masked(good))

    def end(action):
        envs[1].observation = masked(bad)
        return envs[1].observation, 0.0, True, False, {}

    batch.reset()
    envs[1].step = end
    assert batch.step(np.zeros(2, int))[0]["action_mask"].tolist() == [
        [0, 0, 1],
        [0, 0, 0],
    ]
    envs[1].observation = masked(good)
    batch.reset([1])
    envs[1].reset = lambda **_: (masked(good), {})
    batch.start(np.zeros(2, int), restart=True)
    assert batch.finish().done.tolist() == [False, True]
    envs[1].reset = lambda **_: (masked(bad), {})
    batch.start(np.zeros(2, int), restart=True)
    with pytest.raises(batch_env.EnvDataError, match=f"row 1 after step 3 .*{text}"):
        batch.finish()


def test_masks_that_no_network_takes_are_not_checked():
    sensor, mask = spaces.Box(-1, 1, (1,)), spaces.MultiBinary(3)
    for actions in (spaces.Discrete(4), spaces.Box(-1, 1, (3,))):
        space = spaces.Dict(sensor=sensor, action_mask=mask)
        _, batch = make(space, actions, masked(np.zeros(3, np.int8)))
        assert batch.reset()["action_mask"].tolist() == [[0, 0, 0]] * 2
