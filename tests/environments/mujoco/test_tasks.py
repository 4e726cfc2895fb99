"""Gymnasium's tasks, against Gymnasium bit for bit."""

import inspect
import pathlib
import re
import types

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.mujoco import mujoco_env

from agents.environments.mujoco import (
    backend,
    crawlers,
    humanoids,
    pendulums,
    simulations,
    task,
    walkers,
)
from agents.tools import transitions

CHANGES = {
    "Ant-v5": [
        {"main_body": "aux_1", "frame_skip": 2, "healthy_z_range": [0.7, 0.9]},
        {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0.1},
        {"contact_force_range": [-3, 2], "forward_reward_weight": -2},
        {"terminate_when_unhealthy": False, "healthy_reward": 3}
        | {"healthy_z_range": [0.7, 0.9]},
        {"exclude_current_positions_from_observation": False},
    ],
    "HalfCheetah-v5": [
        {"exclude_current_positions_from_observation": False, "frame_skip": 3},
        {"forward_reward_weight": 2, "ctrl_cost_weight": 3, "reset_noise_scale": 0.3},
    ],
    "Hopper-v5": [
        {"healthy_state_range": [-2, 2], "reset_noise_scale": 0.1},
        {"healthy_z_range": [1, 2], "healthy_angle_range": [-0.1, 0.5]},
        {"terminate_when_unhealthy": False, "healthy_reward": 0.3},
        {"exclude_current_positions_from_observation": False, "ctrl_cost_weight": 1},
    ],
    "Humanoid-v5": [
        {"include_cinert_in_observation": False, "include_cvel_in_observation": False},
        {"include_cvel_in_observation": False}
        | {"exclude_current_positions_from_observation": False},
        {"include_qfrc_actuator_in_observation": False, "contact_cost_weight": 0.1},
        {"include_cfrc_ext_in_observation": False, "healthy_z_range": [1.3, 1.39]},
        {"contact_cost_range": [-1, 2e-5], "terminate_when_unhealthy": False}
        | {"healthy_z_range": [1.3, 1.39]},
        {"contact_cost_range": [0.5, 2], "contact_cost_weight": 1e-3},
    ],
    "HumanoidStandup-v5": [
        {"uph_cost_weight": 3, "impact_cost_weight": 1e-3, "frame_skip": 4},
        {"impact_cost_range": [-1, 1e-5], "ctrl_cost_weight": 2},
        {"impact_cost_range": [0.5, 2], "reset_noise_scale": 0.1}
        | {"include_cvel_in_observation": False},
    ],
    "InvertedDoublePendulum-v5": [
        {"healthy_reward": 3, "reset_noise_scale": 0.2},
        {"reset_noise_scale": 10},  # Fast, and beyond the ends of the rail.
    ],
    "InvertedPendulum-v5": [{"reset_noise_scale": 0.15, "frame_skip": 5}],
    "Pusher-v5": [
        {"reward_near_weight": 2, "reward_dist_weight": 3, "reward_control_weight": 4}
    ],
    "Reacher-v5": [{"reward_dist_weight": 3, "reward_control_weight": 0.3}],
    "Swimmer-v5": [
        {"exclude_current_positions_from_observation": False, "ctrl_cost_weight": 1}
    ],
    "Walker2d-v5": [
        {"healthy_z_range": [1.2, 1.3], "healthy_angle_range": [-0.1, 0.1]},
        {"terminate_when_unhealthy": False, "healthy_z_range": [1.2, 1.3]}
        | {"forward_reward_weight": 3},
    ],
}
ASSETS = pathlib.Path(mujoco_env.__file__).parent / "assets"
SEEDS = [3, 9, 2**31]


class Pair:
    """A batch, and as many environments of Gymnasium, stepped side by side."""

    def __init__(self, id, limit, **kwargs):
        self.envs = [
            gymnasium.make(id, max_episode_steps=limit, **kwargs) for _ in SEEDS
        ]
        for env in self.envs:
            env.action_space.seed(0)
        self.robot = task.create(id, kwargs)
        self.batch = backend.Mujoco(self.robot, len(SEEDS), 2, limit)
        self.actions = np.random.default_rng(0)
        self.ends = 0

    def reset(self):
        found = self.batch.reset(seeds=SEEDS)
        expected = [
            env.reset(seed=x)[0] for env, x in zip(self.envs, SEEDS, strict=True)
        ]
        np.testing.assert_array_equal(found, np.float32(expected))

    def step(self):
        space = self.batch.action_space
        shape = len(SEEDS), *space.shape
        action = self.actions.uniform(space.low, space.high, shape).astype(np.float32)
        self.batch.start(action, restart=True)
        numbers = self.batch.finish().numbers
        last, following = np.split(numbers[:, transitions.NUMBERS :], 2, 1)
        for row, env in enumerate(self.envs):
            observation, reward, terminated, truncated, _ = env.step(action[row])
            np.testing.assert_array_equal(last[row], np.float32(observation))
            assert numbers[row, :3].tolist() == [
                np.float32(reward),
                terminated,
                truncated,
            ]
            if terminated or truncated:
                self.ends += 1
                observation, _ = env.reset()
            np.testing.assert_array_equal(following[row], np.float32(observation))
            data = env.unwrapped.data
            np.testing.assert_array_equal(self.batch[row].qpos[row], data.qpos)
            np.testing.assert_array_equal(self.batch[row].qvel[row], data.qvel)


@pytest.fixture
def pair():
    """Function that makes a `Pair`, and closes it at last."""
    made = []

    def create(*args, **kwargs):
        made.append(Pair(*args, **kwargs))
        return made[-1]

    yield create
    for one in made:
        one.batch.close()
        for env in one.envs:
            env.close()


@pytest.mark.parametrize("id", task.GYMNASIUM)
def test_trajectories_are_those_of_gymnasium(pair, id):
    both = pair(id, 25)
    assert both.batch.observation_space == both.envs[0].observation_space
    assert both.batch.action_space == both.envs[0].action_space
    both.reset()
    for _ in range(60):
        both.step()
    assert both.ends >= 6
    both.reset()
    both.step()


@pytest.mark.slow
@pytest.mark.parametrize("id", task.GYMNASIUM)
def test_long_trajectories_are_those_of_gymnasium(pair, id):
    both = pair(id, 1000)
    both.reset()
    for _ in range(2500):
        both.step()
    assert both.ends >= 6


@pytest.mark.parametrize(
    ("id", "kwargs"), [(id, x) for id, changes in CHANGES.items() for x in changes]
)
def test_arguments_mean_the_same(pair, id, kwargs):
    both = pair(id, 12, **kwargs)
    both.reset()
    for _ in range(30):
        both.step()
    assert both.ends >= 3


@pytest.mark.parametrize("id", task.GYMNASIUM)
def test_arguments_are_those_of_gymnasium(id):
    cls = gymnasium.envs.registration.load_env_creator(
        gymnasium.registry[id].entry_point
    )
    parameters = inspect.signature(cls).parameters
    expected = {
        name: x.default for name, x in parameters.items() if x.kind != x.VAR_KEYWORD
    }
    robot = task.create(id, {})
    found = {name: getattr(robot, name) for name in task.arguments(id)}
    assert found == {k: v for k, v in expected.items() if k not in task.RENDERING}


def test_own_models_are_found_as_in_gymnasium(pair, tmp_path, monkeypatch):
    text = (ASSETS / "ant.xml").read_text().replace('damping="1"', 'damping="3"')
    (tmp_path / "mine.xml").write_text(text)
    monkeypatch.chdir(tmp_path)
    for path in ("./mine.xml", str(tmp_path / "mine.xml")):
        both = pair("Ant-v5", 12, xml_file=path)
        both.reset()
        both.step()
    with pytest.raises(task.TaskError, match=r"Ant: File ./none.xml does not exist"):
        simulations.load(task.create("Ant-v5", {"xml_file": "./none.xml"}))


def test_unstable_physics_go_on_as_in_gymnasium(pair, tmp_path, monkeypatch):
    text = (ASSETS / "half_cheetah.xml").read_text()
    path = tmp_path / "strong.xml"
    path.write_text(re.sub(r'gear="\d+"', 'gear="1e8"', text))
    monkeypatch.chdir(tmp_path)
    both = pair("HalfCheetah-v5", 20, xml_file=str(path))
    both.reset()
    for _ in range(35):
        both.step()
    assert both.batch.simulations.failed().any()
    assert list(tmp_path.iterdir()) == [path]  # MuJoCo has written no log.


def test_unknown_arguments_are_named():
    with pytest.raises(task.TaskError, match=r"no argument 'frame_skp'; did you mean"):
        task.create("Ant-v5", {"frame_skp": 3})
    with pytest.raises(task.TaskError, match="'render_mode' .* does not render"):
        task.create("Ant-v5", {"render_mode": "rgb_array"})


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@pytest.mark.parametrize("kind", [crawlers.Ant, pendulums.InvertedPendulum])
def test_states_that_are_not_finite_end_the_episode(kind, wrong):
    qpos, qvel = np.zeros((3, 3)), np.zeros((3, 3))
    if kind is crawlers.Ant:
        qpos[:, 2] = 0.5
    qpos[1, 0] = qvel[2, 1] = wrong
    data = types.SimpleNamespace(qpos=qpos, qvel=qvel)
    assert kind().terminal(data).tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("kind", "column", "limit", "ends"),
    [
        (crawlers.Ant, 2, 1.0, False),
        (crawlers.Ant, 2, 0.2, False),
        (humanoids.Humanoid, 2, 1.0, True),
        (humanoids.Humanoid, 2, 2.0, True),
        (walkers.Walker2d, 1, 0.8, True),
        (walkers.Walker2d, 1, 2.0, True),
        (walkers.Hopper, 1, 0.7, True),
        (pendulums.InvertedPendulum, 1, 0.2, False),
    ],
)
def test_limits_themselves_end_episodes_where_they_do_in_gymnasium(
    kind, column, limit, ends
):
    qpos = np.zeros((1, 6))
    qpos[:, column] = limit
    data = types.SimpleNamespace(qpos=qpos, qvel=np.zeros((1, 6)))
    assert kind().terminal(data).tolist() == [ends]


def test_the_state_of_a_hopper_has_an_angle():
    data = types.SimpleNamespace(qpos=np.ones((2, 6)), qvel=np.zeros((2, 6)))
    data.qpos[1, 2] = 101  # Only the range of the state ends at 100.
    robot = walkers.Hopper(healthy_angle_range=(-200, 200))
    assert robot.terminal(data).tolist() == [False, True]
