"""Checks of batches: actions in, results out, exact values."""

import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from agents.tools import batch_env, checks, mocks, processes


class Script(gymnasium.Env):
    """Returns what it is told to, whatever that is."""

    def __init__(self, observation_space, action_space=None, observation=None):
        self.observation_space = observation_space
        self.action_space = action_space or spaces.Discrete(3, start=2)
        self.observation = observation
        self.reward = 0.0
        self.received = []

    def reset(self, *, seed=None, options=None):
        return self.observation, {}

    def step(self, action):
        self.received.append(action)
        return self.observation, self.reward, False, False, {"seen": action}


def make(observation_space=None, action_space=None, observation=None, size=2):
    space = spaces.Box(-1, 1, (2,)) if observation_space is None else observation_space
    observation = np.zeros(2, np.float32) if observation is None else observation
    envs = [Script(space, action_space, observation) for _ in range(size)]
    return envs, batch_env.BatchEnv(envs, blocking=True)


def test_results_have_the_documented_shapes_and_dtypes():
    batch = batch_env.BatchEnv([mocks.MockEnvironment((2, 3))] * 1, blocking=True)
    assert len(batch) == 1
    assert batch.reset().shape == (1, 2, 3)
    observation, reward, terminated, truncated, info = batch.step(np.zeros((1, 1)))
    assert observation.dtype == np.float32
    assert reward.dtype == np.float32
    assert terminated.dtype == truncated.dtype == bool
    np.testing.assert_array_equal(reward, [1])
    assert info == {"rows": [{}]}


def test_discrete_actions_become_python_integers():
    envs, batch = make()
    batch.reset()
    batch.step(np.array([2, 4], np.int32))
    assert [env.received for env in envs] == [[2], [4]]
    assert type(envs[0].received[0]) is int


def test_box_actions_have_the_dtype_of_the_space_and_are_the_environments_own():
    space = spaces.Box(-1, 1, (2,), np.float64)
    envs, batch = make(action_space=space)
    batch.reset()
    actions = np.full((2, 2), 0.25, np.float32)
    batch.step(actions)
    actions[:] = 0.5
    batch.step(actions)
    assert envs[1].received[0].dtype == np.float64
    assert envs[1].received[0].tolist() == [0.25, 0.25]


def test_nested_actions_reach_the_environment_as_the_space_says():
    space = spaces.Dict(
        b=spaces.Tuple([spaces.Discrete(2), spaces.MultiBinary(2)]),
        a=spaces.MultiDiscrete([2, 3]),
    )
    envs, batch = make(action_space=space)
    batch.reset()
    binary = np.array([[0, 1], [1, 1]])
    batch.step({"a": np.array([[0, 1], [1, 2]]), "b": (np.array([0, 1]), binary)})
    (action,) = envs[1].received
    assert space.contains(action)
    assert action["a"].tolist() == [1, 2]
    assert action["b"][0] == 1


@pytest.mark.parametrize(
    ("space", "wrong"),
    [
        (spaces.Discrete(3, start=2), [2, 5]),
        (spaces.Discrete(3, start=2), [2, 1]),
        (spaces.MultiDiscrete([2, 3]), [[0, 0], [0, 3]]),
        (spaces.MultiBinary(2), [[0, 0], [0, 2]]),
        (spaces.Box(-1, 1, (1,)), [[0.0], [1.01]]),
        (spaces.Box(-1, 1, (1,)), [[0.0], [np.nan]]),
        (spaces.Box(-np.inf, np.inf, (1,)), [[0.0], [np.inf]]),
        (spaces.Box(0, 255, (1,), np.uint8), [[0], [300]]),
    ],
)
def test_actions_outside_of_the_space_name_their_row(space, wrong):
    envs, batch = make(action_space=space)
    batch.reset()
    with pytest.raises(ValueError, match="row 1: action"):
        batch.step(np.array(wrong))
    assert not envs[0].received


@pytest.mark.parametrize(
    ("space", "wrong"),
    [
        (spaces.Discrete(3), np.zeros((2, 1), int)),
        (spaces.Discrete(3), np.zeros(3, int)),
        (spaces.Discrete(3), np.zeros(2)),
        (spaces.Box(-1, 1, (1,)), np.zeros(2)),
        (spaces.Box(-1, 1, (1,)), np.zeros((2, 1), complex)),
    ],
)
def test_actions_of_wrong_shape_or_dtype_are_refused(space, wrong):
    _, batch = make(action_space=space)
    batch.reset()
    with pytest.raises(ValueError, match="Expected action to be"):
        batch.step(wrong)


def test_missing_action_leaf_is_named():
    _, batch = make(action_space=spaces.Dict(left=spaces.Discrete(2)))
    batch.reset()
    with pytest.raises(ValueError, match="action left is missing"):
        batch.step({"right": np.zeros(2, int)})


def test_rounding_errors_of_actions_are_moved_inside():
    envs, batch = make(action_space=spaces.Box(-1, 1, (1,)))
    batch.reset()
    batch.step(np.array([[1 + 5e-7], [-1 - 5e-7]]))
    assert envs[0].received[0] == 1
    assert envs[1].received[0] == -1


@pytest.mark.parametrize(
    "observation",
    [
        np.zeros(3, np.float32),
        np.zeros((1, 2), np.float32),
        np.zeros(2, complex),
        ["a", "b"],
        [[0.0], [0.0, 1.0]],
        {"x": 0},
        None,
    ],
)
def test_observations_that_do_not_fit_name_row_expected_and_got(observation):
    envs, batch = make()
    batch.reset()
    envs[1].observation = observation
    with pytest.raises(
        batch_env.EnvDataError, match=r"row 1: expected observation.*\[2\], got"
    ):
        batch.step(np.array([2, 2]))


@pytest.mark.parametrize(("value", "fits"), [(255, True), (256, False), (-1, False)])
def test_integers_must_fit_exactly(value, fits):
    space = spaces.Box(0, 255, (1,), np.uint8)
    envs, batch = make(space, observation=np.zeros(1, np.uint8))
    batch.reset()
    envs[0].observation = np.array([value])
    if fits:
        assert batch.step(np.array([2, 2]))[0].tolist() == [[value], [0]]
    else:
        with pytest.raises(batch_env.EnvDataError, match="row 0"):
            batch.step(np.array([2, 2]))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_name_their_row(value):
    envs, batch = make()
    batch.reset()
    envs[1].observation = np.array([0, value], np.float32)
    with pytest.raises(batch_env.EnvDataError, match="row 1: observation .* finite"):
        batch.step(np.array([2, 2]))
    with pytest.raises(batch_env.EnvDataError, match="row 1: observation .* finite"):
        batch.reset([1])
    envs, batch = make()
    batch.reset()
    envs[1].reward = value
    with pytest.raises(batch_env.EnvDataError, match="row 1: reward .* finite"):
        batch.step(np.array([2, 2]))


def test_wrong_leaf_of_a_nested_observation_is_named():
    space = spaces.Dict(a=spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (2,))]))
    good = {"a": (1, np.zeros(2, np.float32))}
    envs, batch = make(space, observation=good)
    batch.reset()
    envs[1].observation = {"a": (1, np.zeros(1, np.float32))}
    with pytest.raises(batch_env.EnvDataError, match="row 1: expected observation a/1"):
        batch.step(np.array([2, 2]))
    envs[1].observation = {"b": 0}
    with pytest.raises(batch_env.EnvDataError, match="observation a/0 is missing"):
        batch.step(np.array([2, 2]))


@pytest.mark.parametrize(
    "reward", [1, np.float64(1), np.array([1.0]), np.array(1), True]
)
def test_rewards_of_all_common_types_are_accepted(reward):
    envs, batch = make()
    envs[0].reward = reward
    batch.reset()
    np.testing.assert_array_equal(batch.step(np.array([2, 2]))[1], [1, 0])


@pytest.mark.parametrize("reward", [None, "1", np.zeros(2), {}])
def test_other_rewards_are_refused(reward):
    envs, batch = make()
    envs[0].reward = reward
    batch.reset()
    with pytest.raises(batch_env.EnvDataError, match="row 0: expected reward"):
        batch.step(np.array([2, 2]))


@pytest.mark.parametrize(
    "flag", [1, 0.0, np.bool_(True), np.array(1), np.array([True])]
)
def test_flags_of_all_common_types_are_accepted(flag):
    expected = bool(np.asarray(flag).item())
    envs, batch = make()
    batch.reset()
    envs[1].step = lambda action: (envs[1].observation, 0.0, flag, False, {})
    assert batch.step(np.array([2, 2]))[2].tolist() == [False, expected]
    assert written([True, flag], [False, False])[:, 1].tolist() == [1, expected]
    assert written([False, False], [True, flag])[:, 2].tolist() == [1, expected]


@pytest.mark.parametrize("flag", ["no", "", None, 2, np.nan, [], np.zeros(2, bool)])
def test_other_flags_are_refused(flag):
    envs, batch = make()
    batch.reset()
    envs[1].step = lambda action: (envs[1].observation, 0.0, flag, False, {})
    text = "row 1: expected terminated to be true or false, got"
    with pytest.raises(batch_env.EnvDataError, match=text):
        batch.step(np.array([2, 2]))
    with pytest.raises(batch_env.EnvDataError, match=text):
        written([True, flag], [False, False])
    with pytest.raises(batch_env.EnvDataError, match="row 1: expected truncated"):
        written([False, False], [True, flag])


def written(terminated, truncated, reward=(0.0, 0.0), observation=(0, 0)):
    """Numbers `[2, ...]` that workers make of these results of two environments."""
    arrays = batch_env.Arrays.create(spaces.Box(-1, 1, (1,)), spaces.Discrete(2), 2)
    writer, _ = arrays.writers(spaces.Box(-1, 1, (1,)))
    observation = [np.array([x], np.float32) if x == 0 else x for x in observation]
    columns = observation, reward, terminated, truncated, [{}, {}]
    writer.steps(list(zip(*columns, strict=True)))
    return arrays.numbers


class Hostile:
    """Raises whatever is made of it."""

    def __array__(self, *args, **kwargs):
        raise RuntimeError("no array")

    def __float__(self):
        raise RuntimeError("no number")


@pytest.mark.parametrize("value", ["1.0", None, 1j, 10**400, [1.0, 2.0], Hostile()])
def test_results_of_many_that_are_wrong_name_the_row(value):
    no = [False, False]
    with pytest.raises(batch_env.EnvDataError, match="row 1: expected reward to be a"):
        written(no, no, reward=(0.0, value))
    with pytest.raises(batch_env.EnvDataError, match="row 1: expected observation to"):
        written(no, no, observation=(0, value))


def test_old_interface_is_explained():
    envs, batch = make()
    envs[0].reset = lambda **kwargs: envs[0].observation
    with pytest.raises(batch_env.EnvDataError, match="row 0: reset must .*OldGym"):
        batch.reset()
    del envs[0].reset
    batch.reset()
    envs[1].step = lambda action: (envs[1].observation, 0.0, False, {})
    with pytest.raises(batch_env.EnvDataError, match="row 1: step must .*OldGym"):
        batch.step(np.array([2, 2]))


@pytest.mark.parametrize("indices", [[0, 0], [2], [-1], [0.5], [[0]], [True]])
def test_wrong_indices_are_refused(indices):
    _, batch = make()
    with pytest.raises(ValueError, match="indices"):
        batch.reset(indices)


@pytest.mark.parametrize("seeds", [[1], [1, -1], [1, None], [0.5, 1]])
def test_wrong_seeds_are_refused(seeds):
    _, batch = make()
    with pytest.raises(ValueError, match="seeds"):
        batch.reset(seeds=seeds)


def test_no_indices_reset_nothing():
    _, batch = make()
    assert batch.reset([]).shape == (0, 2)
    with pytest.raises(RuntimeError, match="done"):
        batch.step(np.array([2, 2]))


def test_different_spaces_are_refused():
    box = spaces.Box(-1, 1, (2,))
    with pytest.raises(ValueError, match="observation space.*row 0.*row 1"):
        batch_env.BatchEnv([Script(box), Script(spaces.Box(0, 1, (2,)))], blocking=True)
    envs = [Script(box), Script(box, spaces.Discrete(7))]
    with pytest.raises(ValueError, match="action space.*row 0.*row 1"):
        batch_env.BatchEnv(envs, blocking=True)
    with pytest.raises(ValueError, match="at least one"):
        batch_env.BatchEnv([], blocking=True)


def test_errors_of_environments_name_the_row():
    envs, batch = make()
    batch.reset()
    envs[1].step = lambda action: 1 // 0
    with pytest.raises(ZeroDivisionError) as caught:
        batch.step(np.array([2, 2]))
    assert "environment row 1" in caught.value.__notes__[0]


def test_exits_of_environments_are_errors():
    envs, batch = make()
    batch.reset()
    envs[1].step = lambda action: sys.exit(4)
    with pytest.raises(processes.EnvError) as caught:
        batch.step(np.array([2, 2]))
    first, blank, *rest = str(caught.value).splitlines()
    assert first == "Environment row 1 raised SystemExit: 4; last command: step."
    assert not blank
    assert "sys.exit(4)" in "".join(rest)


def test_errors_of_wrappers_about_data_name_the_row():
    envs, batch = make()

    def reset(**_):
        raise checks.EnvDataError("no mask")

    envs[1].reset = reset
    with pytest.raises(batch_env.EnvDataError, match="^Environment row 1: no mask$"):
        batch.reset()


@pytest.mark.parametrize(
    ("space", "good", "bad"),
    [(spaces.Discrete(5), 4, 7), (spaces.MultiBinary(2), [1, 0], [0, 3])],
)
def test_discrete_observations_outside_of_their_space_are_errors(space, good, bad):
    envs, batch = make(space, observation=np.array(good))
    batch.reset()
    envs[1].observation = np.array(bad)
    text = rf"row 1: observation.* is {np.max(bad)}, outside of its space"
    with pytest.raises(batch_env.EnvDataError, match=text):
        batch.step(np.array([2, 2]))
    with pytest.raises(batch_env.EnvDataError, match=text):
        batch.reset([1])


def test_boxes_that_are_left_are_warned_of_once(caplog):
    envs, batch = make()
    batch.reset()
    batch.step(np.array([2, 2]))
    assert not caplog.records
    envs[1].observation = np.array([0, 5], np.float32)
    for _ in range(3):
        observation, *_ = batch.step(np.array([2, 2]))
        batch.reset()
    assert observation.tolist() == [[0, 0], [0, 5]]
    (record,) = caplog.records
    assert "row 1: observation[1] is 5.0" in record.getMessage()
    envs[0].observation = np.array([0, np.inf], np.float32)
    with pytest.raises(batch_env.EnvDataError, match="row 0: .* not finite"):
        batch.step(np.array([2, 2]))


def test_observations_that_begin_an_episode_are_looked_at(caplog):
    envs, batch = make()
    batch.reset()
    inside, outside = envs[1].observation, np.array([0, 5], np.float32)
    envs[1].step = lambda action: (inside, 0.0, True, False, {})
    envs[1].observation = outside
    batch.start(np.array([2, 2]), restart=True)
    assert batch.finish().numbers[1, batch_env.NUMBERS :].tolist() == [0, 0, 0, 5]
    assert "row 1" in caplog.text


def test_all_environments_are_closed_whatever_they_do(capsys):
    envs, batch = make(size=3)
    closed = []
    envs[0].close = lambda: 1 // 0
    envs[1].close = lambda: closed.append(1)
    batch.close()
    batch.close()
    assert closed == [1]
    assert capsys.readouterr().err.count("ZeroDivisionError") == 1


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
