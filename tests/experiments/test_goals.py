"""Hindsight in configs, and outcomes that environments compute."""

import dataclasses

import gymnasium
import numpy as np
import pytest
import tensorflow as tf

import agents
from agents import environments
from agents.algorithms import dqn
from agents.environments import goals as goal_environments
from agents.environments import make
from agents.experiments import evaluation, goals, named, runs
from agents.tools import config as config_
from agents.tools import spaces

BITS = "agents.environments.goals:BitFlipping"
SPACE = gymnasium.spaces.MultiBinary(6)


class Together(goal_environments.BitFlipping):
    """Computes rewards of many goals in one call, and tells nothing of the end."""

    compute_terminated = property()

    def compute_reward(self, achieved_goal, desired_goal, info):
        return -np.abs(achieved_goal - desired_goal).sum(-1).astype(np.float64)


class Rewardless(goal_environments.BitFlipping):
    compute_reward = property()


def pairs(count=50, seed=0):
    random = np.random.default_rng(seed)
    achieved = random.integers(0, 2, (count, 6), np.int8)
    desired = np.where(random.random((count, 1)) < 0.5, achieved, 1 - achieved)
    return achieved, desired.astype(np.int8)


def environment(id, **kwargs):
    return environments.Environment(id=id, kwargs={"bits": 6, **kwargs})


@pytest.mark.parametrize("cls", [goal_environments.BitFlipping, Together])
def test_outcomes_are_those_that_the_environment_computes(cls):
    outcome = goals._Outcome(environment(cls), SPACE)
    achieved, desired = pairs()
    reward, terminated = outcome(tf.constant(achieved), tf.constant(desired))
    env = cls(6)
    expected = [
        env.compute_reward(x, y, {}) for x, y in zip(achieved, desired, strict=True)
    ]
    np.testing.assert_array_equal(reward, np.float32(expected))
    reached = (achieved == desired).all(1)
    np.testing.assert_array_equal(terminated, reached & (cls is not Together))
    assert 10 < reached.sum() < 40
    assert (reward.shape, terminated.shape) == ([50], [50])


def config(*assignments):
    small = "environment.kwargs={bits: 6}", "algorithm.start_size=128"
    return named.load("bit_flipping", [*small, *assignments])


def create(made):
    return made.create_algorithm(make.describe(made.environment))


def test_replayed_goals_are_relabelled():
    agent = create(config())
    assert type(agent).__name__ == "DQN"
    assert agent.config.jit is False
    env, rows = goal_environments.BitFlipping(6), tf.constant([0])
    observation, _ = env.reset(seed=3)
    agent.memory.begin(rows)
    for action in (0, 1, 2, 3):
        following, reward, *ends, _ = env.step(action)
        batch = [{k: v[None] for k, v in x.items()} for x in (observation, following)]
        facts = [[action]], [reward], *([x] for x in ends)
        agent.memory.append(rows, batch[0], *map(tf.constant, facts), batch[1])
        observation = following
    items = agent.memory.sample(400, tf.constant([1, 2]))
    goal = items["next_observation"]["desired_goal"].numpy()
    achieved = items["next_observation"]["achieved_goal"].numpy()
    reached = (goal == achieved).all(1)
    np.testing.assert_array_equal(items["reward"], np.where(reached, 0, -1))
    np.testing.assert_allclose(items["discount"], np.where(reached, 0, 0.98))
    assert reached.mean() > 0.2
    assert 0.1 < (goal == env.reset(seed=3)[0]["desired_goal"]).all(1).mean() < 0.3


@pytest.mark.parametrize(
    ("assignment", "error", "text"),
    [
        ("algorithm.jit=true", config_.ConfigError, "leave it out, or declare hindsi"),
        ("preprocessing=[normalize]", config_.ConfigError, "exclude each other"),
        ("algorithm.type=ppo", config_.ConfigError, "PPO has no replay memory"),
        ("environment.id=CartPole-v1", spaces.UnsupportedSpaceError, "needs Dict"),
    ],
)
def test_what_cannot_be_relabelled_is_refused(assignment, error, text):
    made = named.load("bit_flipping", [assignment])
    with pytest.raises(error, match=text) as raised:
        create(made)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("assignment", "text"),
    [
        ("algorithm.n_step=2", "'algorithm.n_step' must be 1 with hindsight, got 2"),
        ("algorithm.stack=4", "'algorithm.stack' must be null with hindsight, got 4"),
        ("algorithm.type=apex", "'algorithm.n_step' must be 1 with hindsight, got 3"),
    ],
)
def test_transitions_of_several_steps_are_refused(assignment, text):
    with pytest.raises(config_.ConfigError, match=text):
        create(named.load("bit_flipping", [assignment]))


def test_share_follows_no_schedule():
    share = "hindsight.share={type: linear, from: 0.8, to: 0, over: 1000}"
    with pytest.raises(config_.ConfigError, match="'hindsight.share' must be"):
        named.load("bit_flipping", [share])


@pytest.mark.parametrize(("clip", "least"), [(None, -1.0), (0.5, -0.5)])
def test_rewards_of_other_goals_are_clipped_like_others(clip, least):
    agent = create(
        config("hindsight.share=1", f"algorithm.reward_clip={clip or 'null'}")
    )
    achieved, desired = pairs()
    reward, _ = agent.memory._outcome(tf.constant(achieved), tf.constant(desired))
    reached = (achieved == desired).all(1)
    np.testing.assert_array_equal(reward, np.where(reached, 0, least))


def test_compiled_environments_need_a_function_of_goals():
    made = named.load("bit_flipping")
    compiled = dataclasses.replace(
        made.environment, id="agents.environments.functional:Catch", kwargs={}
    )
    with pytest.raises(config_.ConfigError, match="declare hindsight.outcome"):
        goals.subclass(
            dqn.DQN,
            made.hindsight,
            compiled,
            goal_environments.BitFlipping().observation_space,
        )


def test_environments_without_rewards_of_goals_are_named():
    with pytest.raises(config_.ConfigError, match="has no compute_reward"):
        goals._Outcome(environment(Rewardless), SPACE)


class Tenfold(gymnasium.Wrapper):
    """Wrapper that says what its rewards are."""

    def compute_reward(self, achieved_goal, desired_goal, info):
        return 10.0 * self.env.compute_reward(achieved_goal, desired_goal, info)


class Informed(goal_environments.BitFlipping):
    def compute_reward(self, achieved_goal, desired_goal, info):
        return info["reward"]


def test_wrappers_may_compute_rewards():
    wrapped = [f"{__name__}:Tenfold"]
    outcome = goals._Outcome(
        dataclasses.replace(environment(BITS), wrappers=wrapped), SPACE
    )
    plain = goals._Outcome(environment(BITS), SPACE)
    np.testing.assert_array_equal(
        outcome.compute(*pairs())[0], 10.0 * plain.compute(*pairs())[0]
    )
    np.testing.assert_array_equal(
        outcome.compute(*pairs())[1], plain.compute(*pairs())[1]
    )


CLIPS = {"type": "gymnasium.wrappers:ClipReward", "min_reward": -0.5}


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (
            dataclasses.replace(environment(BITS), wrappers=[CLIPS]),
            "ClipReward changes rewards, but not those that compute_reward",
        ),
        (
            dataclasses.replace(
                environment(BITS), wrappers=["gymnasium.wrappers:NormalizeReward"]
            ),
            "NormalizeReward changes rewards",
        ),
        (
            environment(
                BITS, bits={"type": "linear", "from": 6.0, "to": 8.0, "over": 100}
            ),
            "kwargs.bits changes in training.*declare hindsight.outcome",
        ),
        (environment(Informed), "without an info: KeyError: 'reward'; declare"),
    ],
    ids=["clipped", "normalized", "scheduled", "informed"],
)
def test_rewards_that_would_differ_are_refused(made, text):
    with pytest.raises(config_.ConfigError, match=text):
        goals._Outcome(made, SPACE)


def test_functions_of_users_replace_the_environment(tmp_path, monkeypatch):
    (tmp_path / "outcomes.py").write_text(
        "import tensorflow as tf\n"
        "def same(achieved, desired):\n"
        "    same = tf.reduce_all(achieved == desired, 1)\n"
        "    return tf.cast(same, tf.float32), same\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    agent = create(config("hindsight.outcome=outcomes:same"))
    assert agent.config.jit is True
    with pytest.raises(config_.ConfigError, match="with share 0"):
        config("hindsight.outcome=outcomes:same", "hindsight.share=0")


def success(bits, steps, share):
    """Share of 200 episodes that reach the goal after training."""
    made = named.load(
        "bit_flipping",
        [f"environment.kwargs={{bits: {bits}}}", f"hindsight.share={share}"],
    )
    envs = runs.environments(made)
    try:
        agent = runs.algorithm(made, runs.describe(made))
        envs.discontinue(np.arange(len(envs)))
        agents.simulate(envs, agent, steps // len(envs))
        played = evaluation.play(envs, agent, 200, stochastic=False, seed=1)
    finally:
        envs.close()
    return np.mean(np.array(played.scores) > -bits)


@pytest.mark.parametrize("bits", [8, pytest.param(15, marks=pytest.mark.slow)])
def test_goals_are_reached_in_hindsight(bits):
    assert success(bits, {8: 8_000, 15: 60_000}[bits], share=0.8) >= 0.95


@pytest.mark.slow
def test_distant_goals_are_not_reached_without_hindsight():
    assert success(15, 60_000, share=0) < 0.5
