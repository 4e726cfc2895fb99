"""Episodes that a runner plays, counts and reports."""

import dataclasses
import io
import os
import signal
import sys

import gymnasium
import numpy as np
import pytest
import tensorflow as tf

import agents
from agents import agent as agent_
from agents.environments import Environment, make
from agents.testing import mock_algorithm, mocks
from agents.tools import algorithm, calls, loop

decode = mocks.MockEnvironment.decode


class Recorder:
    """Stands in for an agent: acts without thinking and remembers all calls."""

    def __init__(self, num_agents=1):
        self.num_agents, self.calls, self.kept = num_agents, [], []
        self.observation_space = mock(1).observation_space
        self.action_space = mock(1).action_space
        self.algorithm = mock_algorithm.MockAlgorithm(
            self.action_space, np.float32([0.5])
        )

    def act(self, observation, agent_indices):
        self.calls.append(("act", np.array(observation)[:, 0].tolist()))
        return np.zeros([len(agent_indices), 1], np.float32)

    def observe(self, reward, terminated, truncated, agent_indices, next_observation):
        flags = [
            "T" if one else "t" if other else "."
            for one, other in zip(terminated, truncated, strict=True)
        ]
        self.kept.append((next_observation, np.array(next_observation)))
        after = np.array(next_observation)[:, 0].tolist()
        self.calls.append(("observe", reward.tolist(), "".join(flags), after))

    def reset(self):
        self.calls.append(("reset",))

    def save(self, directory):
        """Tests replace it."""


def mock(*durations, **kwargs):
    return mocks.MockEnvironment(durations=durations, **kwargs)


@pytest.mark.parametrize(("truncate", "flag"), [(False, "T"), (True, "t")])
def test_order_of_calls(truncate, flag):
    agent = Recorder()
    result = agents.Runner(agent, mock(2, 1, truncate=truncate)).run(num_episodes=3)
    assert agent.calls == [
        ("reset",),
        *[("act", [0.0]), ("observe", [1.0], ".", [1.0])],
        *[("act", [1.0]), ("observe", [2.0], flag, [2.0])],
        *[("act", [1000.0]), ("observe", [1.0], flag, [1001.0])],
        *[("act", [2000.0]), ("observe", [1.0], ".", [2001.0])],
        *[("act", [2001.0]), ("observe", [2.0], flag, [2002.0])],
    ]
    assert result.episode_returns == [3.0, 1.0, 3.0]
    assert result.episode_lengths == [2, 1, 2]
    assert result.steps == 5
    assert result.seconds > 0


def test_rows_go_on_by_themselves():
    agent, envs = Recorder(2), [mock(2), mock(3)]
    result = agents.Runner(agent, envs).run(num_steps=9)
    assert result.steps == 10
    assert result.episode_lengths == [2, 3, 2]
    observed = [call for call in agent.calls if call[0] == "observe"]
    assert [call[2] for call in observed] == ["..", "T.", ".T", "T.", ".."]
    assert [call[3] for call in observed] == [
        *[[1, 1], [2, 2], [1001, 3], [1002, 1001], [2001, 1002]]
    ]
    acted = [call[1] for call in agent.calls if call[0] == "act"]
    assert acted == [[0, 0], [1, 1], [1000, 2], [1001, 1000], [2000, 1001]]
    assert [env.lengths for env in envs] == [[2, 2, 1], [3, 2]]
    for told, copy in agent.kept:
        np.testing.assert_array_equal(told, copy)


def test_episodes_that_end_in_the_last_step_count():
    runner = agents.Runner(Recorder(3), [mock(2), mock(2), mock(5)])
    assert runner.run(num_episodes=1).episode_lengths == [2, 2]


def test_runs_go_on_where_they_stopped():
    env, agent = mock(4), Recorder()
    runner = agents.Runner(agent, env)
    results = [runner.run(num_steps=3) for _ in range(3)]
    assert [result.steps for result in results] == [3, 3, 3]
    assert [result.episode_lengths for result in results] == [[], [4], [4]]
    assert (runner.episodes, runner.steps) == (2, 9)
    assert repr(runner) == "Runner(9 steps, 2 episodes, mean return 10.0)"
    assert env.lengths == [4, 4, 1]
    assert agent.calls.count(("reset",)) == 1


@pytest.mark.parametrize("wrong", [False, 0, np.False_])
def test_callback_stops(wrong):
    seen = []

    def callback(runner):
        seen.append((runner.episodes, runner.steps, runner.mean_return))
        return wrong if runner.episodes == 3 else None

    runner = agents.Runner(Recorder(), mock(1, 2))
    assert runner.run(num_episodes=10, callback=callback).episode_lengths == [1, 2, 1]
    assert seen == [(1, 1, 1.0), (2, 3, 2.0), (3, 4, pytest.approx(5 / 3))]


def test_a_callback_that_raises_loses_no_episode():
    def callback(runner):
        raise KeyError(runner.episodes)

    runner = agents.Runner(Recorder(3), [mock(2), mock(3), mock(2)])
    with pytest.raises(KeyError, match="1"):
        runner.run(num_steps=9, callback=callback)
    assert (runner.episode_lengths, runner.steps) == ([2, 2], 6)
    runner.run(num_steps=3)
    assert runner.episode_lengths == [2, 2, 3]


def test_stops_when_the_mean_of_the_last_hundred_is_high_enough():
    env = mock(*[1] * 60, *[2] * 200)
    runner = agents.Runner(Recorder(), env)
    runner.run(num_episodes=250, callback=lambda runner: runner.mean_return < 2.5)
    # (n - 60) long ones with return 3 and the others with return 1.
    assert runner.episodes == 135
    assert runner.mean_return == 2.5


@pytest.mark.parametrize("limited", ["environment", "id"])
def test_longest_episode(limited):
    agent = Recorder()
    if limited == "environment":
        env = mock(9)
    else:
        gymnasium.register("Mock-v0", lambda: mock(9), max_episode_steps=5)
        env = "Mock-v0"
    runner = agents.Runner(agent, env, max_episode_steps=3)
    assert runner.run(num_episodes=2).episode_lengths == [3, 3]
    gymnasium.registry.pop("Mock-v0", None)
    assert [x[2] for x in agent.calls if x[0] == "observe"] == [".", ".", "t"] * 2


def test_environments_made_here_are_closed():
    closed = []

    class Closing(mocks.MockEnvironment):
        def close(self):
            closed.append(self)

    agent, mine = Recorder(2), [Closing(), Closing()]
    with agents.Runner(agent, Closing) as runner:
        runner.run(num_steps=2)
        runner.evaluate(1)
    assert len(closed) == 3
    with agents.Runner(agent, mine, evaluation_environment=Closing) as runner:
        runner.evaluate(1)
    assert len(closed) == 4
    assert not set(mine) & set(closed)
    assert agent.calls[-1] == ("reset",)


def test_evaluation_sees_other_episodes_and_leaves_no_trace():
    training, evaluation = mock(2), mock(1, 3)
    agent = Recorder()
    runner = agents.Runner(agent, training, evaluation_environment=evaluation)
    result = runner.run(num_steps=12, evaluate_every=4, evaluation_episodes=2)
    assert result.evaluation_returns == [(1 + 6) / 2] * 3
    assert result.evaluation_steps == [4, 8, 12]
    assert evaluation.lengths == [1, 3] * 3
    assert training.lengths == [2] * 6
    assert len(agent.calls) == 1 + 2 * 12
    assert not agent.algorithm.calls  # It asks the policy apart from its rows.


def test_best_evaluation_is_saved(tmp_path, monkeypatch):
    scores, saved = iter([2.0, 5.0, 4.0, 6.0, 6.0]), []
    agent = Recorder()
    runner = agents.Runner(agent, lambda: mock(3))
    monkeypatch.setattr(runner, "evaluate", lambda _: [next(scores)])
    monkeypatch.setattr(agent, "save", lambda _: saved.append(runner.steps))
    runner.run(num_steps=50, evaluate_every=10, save_best=tmp_path)
    assert saved == [10, 20, 40]


def test_every_run_may_save_its_best_agent_elsewhere(tmp_path, monkeypatch):
    scores, saved = iter([5.0, 4.0, 1.0, 2.0]), []
    agent = Recorder()
    runner = agents.Runner(agent, lambda: mock(3))
    monkeypatch.setattr(runner, "evaluate", lambda _: [next(scores)])
    monkeypatch.setattr(agent, "save", lambda path: saved.append(path.name))
    first, second, used = (tmp_path / name for name in ("first", "second", "used"))
    for path in (first, first, second):
        runner.run(num_steps=10, evaluate_every=10, save_best=path)
    assert saved == ["first", "second"]
    used.mkdir()
    (used / "agent").touch()
    with pytest.raises(agent_.AgentError, match="new or empty"):
        runner.run(num_steps=10, evaluate_every=10, save_best=used)


def test_best_hundred_episodes_are_saved(tmp_path, monkeypatch):
    saved, agent = [], Recorder()
    runner = agents.Runner(agent, mock(*[1] * 100, 2, *[1] * 100, 2, 2, *[1] * 9))
    monkeypatch.setattr(agent, "save", lambda _: saved.append(runner.episodes))
    runner.run(num_episodes=210, save_best=tmp_path)
    assert saved == [100, 101, 203]


def test_interrupt_stops_between_steps():
    def interrupt(runner):
        if runner.episodes == 2:
            os.kill(os.getpid(), signal.SIGINT)

    before, agent = signal.getsignal(signal.SIGINT), Recorder()
    runner = agents.Runner(agent, mock(2))
    assert runner.run(num_episodes=9, callback=interrupt).episode_lengths == [2, 2]
    assert signal.getsignal(signal.SIGINT) is before
    assert [call[0] for call in agent.calls[1:]] == ["act", "observe"] * 4
    assert runner.run(num_episodes=1).episode_lengths == [2]


def test_failures_abandon_the_episode(monkeypatch):
    env, agent = mock(5), Recorder()
    runner = agents.Runner(agent, env)
    runner.run(num_steps=2)

    def broken(_):
        raise RuntimeError("broken")

    with monkeypatch.context() as patch:
        patch.setattr(env, "step", broken)
        with pytest.raises(RuntimeError, match="broken"):
            runner.run(num_steps=1)
    assert runner.run(num_episodes=1).episode_lengths == [5]
    assert env.lengths == [2, 5]


@pytest.mark.parametrize(
    ("environment", "arguments", "message"),
    [
        (
            [mock(1)] * 3,
            {},
            "acts for 2 environments, got 3; make it with num_agents=3",
        ),
        (mock(1), {}, "acts for 2 environments, got 1"),
        (5, {}, "must be a Gymnasium environment, its id, a function"),
        ([mock(1), mock(1, observation_shape=(3,))], {}, "same observation space"),
        ("CartPol-v1", {}, "did you mean CartPole-v1"),
        (mock, {}, "needs an end: num_episodes or num_steps"),
        (mock, {"num_steps": 0}, "num_steps must be a positive integer, got 0"),
        (
            [mock(1), mock(1)],
            {"num_steps": 9, "evaluate_every": 3},
            "needs an environment of",
        ),
        ([mock(1)] * 2, {}, "needs an environment of its own, but one is in several"),
        (
            mock,
            {"num_steps": 9, "evaluate_every": 3, "evaluation_episodes": 0},
            "evaluation_episodes must be a positive integer, got 0",
        ),
        (mock, {"num_episodes": 9, "save_best": "x"}, "or at least 100 episodes"),
    ],
)
def test_mistakes(environment, arguments, message):
    with pytest.raises(ValueError, match=message) as info:
        agents.Runner(Recorder(2), environment).run(**arguments)
    assert "\n" not in str(info.value)


def test_directory_of_another_agent_is_kept(tmp_path):
    (tmp_path / "config.yaml").touch()
    runner = agents.Runner(Recorder(), lambda: mock(3))
    with pytest.raises(agent_.AgentError, match="directory that is new or empty"):
        runner.run(num_steps=9, evaluate_every=3, save_best=tmp_path)


@pytest.mark.parametrize("counted", ["num_episodes", "num_steps"])
def test_progress_is_shown_in_terminals_only(monkeypatch, counted):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    shown = []
    for output, progress in ((Terminal, True), (Terminal, False), (io.StringIO, True)):
        monkeypatch.setattr(sys, "stdout", output())
        runner = agents.Runner(Recorder(), mock(2))
        runner.run(**{counted: 4}, progress=progress)
        shown.append(sys.stdout.getvalue())
    assert "4 / 4" in shown[0]
    assert "mean return 3.0" in shown[0]
    assert "nan" not in shown[0]
    assert shown[1:] == ["", ""]


# With agents.


def cartpole(config, num_agents=1):
    env = gymnasium.make("CartPole-v1")
    spaces = env.observation_space, env.action_space
    return agents.Agent.create(config, *spaces, num_agents, max_length=500)


DQN = {"type": "dqn", "jit": False, "network": {"layers": [16]}}
DQN |= {"capacity": 500, "start_size": 32, "batch_size": 16}
CONFIGS = {
    "dqn": DQN,
    "a2c": {"type": "a2c", "jit": False, "network": {"layers": [16]}},
    "recurrent": {
        **{"type": "a2c", "jit": False, "unroll_length": 16, "chunk_length": 8},
        "network": {"layers": [8, {"type": "gru", "units": 8}]},
    },
}


def require_equal_weights(one, other):
    for ours, theirs in zip(one.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.quick("dqn")
@pytest.mark.parametrize("kind", ["dqn", "a2c"])
def test_same_as_a_loop_by_hand(kind):
    ours, theirs = (cartpole(CONFIGS[kind], 2) for _ in range(2))
    with agents.Runner(ours, "CartPole-v1", seed=3) as runner:
        result = runner.run(num_steps=160)
    envs = [gymnasium.make("CartPole-v1") for _ in range(2)]
    seeds = loop.phase_seeds(3, 0, 2).tolist()
    observations = [
        env.reset(seed=seed)[0] for env, seed in zip(envs, seeds, strict=True)
    ]
    lengths, count = [], [0, 0]
    for _ in range(80):
        actions = theirs.act(np.stack(observations))
        results = [env.step(x) for env, x in zip(envs, actions, strict=True)]
        observations, reward, terminated, truncated, _ = map(
            list, zip(*results, strict=True)
        )
        theirs.observe(
            reward, terminated, truncated, next_observation=np.stack(observations)
        )
        for row, env in enumerate(envs):
            count[row] += 1
            if terminated[row] or truncated[row]:
                lengths.append(count[row])
                count[row], observations[row] = 0, env.reset()[0]
    theirs.reset()
    assert result.episode_lengths == lengths
    assert result.episode_returns == lengths
    require_equal_weights(ours, theirs)
    assert int(ours.algorithm.steps) == 160


@pytest.mark.quick("dqn")
@pytest.mark.parametrize("kind", ["dqn", "a2c", "recurrent"])
def test_training_is_the_same_with_evaluation(kind):
    id = "CartPole-v1"
    if kind == "recurrent":
        id = "agents.environments.masked:cartpole"
    results, trained = [], []
    for every in (None, 7):
        env = make.constructor(Environment(id))()
        spaces = env.observation_space, env.action_space
        agent = agents.Agent.create(CONFIGS[kind], *spaces, 2)
        with agents.Runner(agent, id, max_episode_steps=20, seed=1) as runner:
            results.append(
                runner.run(num_steps=70, evaluate_every=every, evaluation_episodes=2)
            )
            if every:
                assert runner._best_action.experimental_get_tracing_count() == 1
        trained.append(agent)
    assert len(results[1].evaluation_returns) == 10
    assert results[0].episode_returns == results[1].episode_returns
    require_equal_weights(*trained)


class Noise(gymnasium.Env):
    """Shows numbers without meaning; the return tells all actions of the episode."""

    observation_space = gymnasium.spaces.Box(-9, 9, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.np_random.normal(size=2).astype(np.float32), {}

    def step(self, action):
        self.time += 1
        observation = self.np_random.normal(size=2).astype(np.float32)
        reward = float(action * 2**self.time)
        return observation, reward, self.time == 20, False, {}


def test_evaluation_acts_as_the_agent_does():
    """It remembers what it saw in the episode, if the policy does."""
    env = Noise()
    spaces = env.observation_space, env.action_space
    agent = agents.Agent.create(CONFIGS["recurrent"], *spaces)
    noise = np.random.default_rng(0)
    weights = agent.get_weights()
    agent.set_weights(
        [3 * noise.normal(size=x.shape) if x.ndim == 2 else x for x in weights]
    )
    with agents.Runner(agent, Noise, seed=5) as runner:
        returns = runner.evaluate(3)
    expected = []
    for seed in (int(loop.phase_seeds(5, 1, 1)[0]), None, None):
        observation, _ = env.reset(seed=seed)
        total, done = 0.0, False
        while not done:
            action = agent.act(observation, training=False)
            observation, reward, done, _, _ = env.step(action)
            agent.observe(reward, done)
            total += reward
        expected.append(total)
    assert returns == expected
    assert len(set(returns)) == 3


@dataclasses.dataclass(frozen=True)
class Config:
    type: str = f"{__name__}:Counting"


class Counting(algorithm.Algorithm):
    """Acts by the parity of the step of a row, counted in a variable."""

    def __init__(self, observation_space, action_space, num_agents, *_):
        super().__init__()
        self.time = tf.Variable(tf.zeros([num_agents], tf.int64))

    def begin_episodes(self, agent_indices, training=True):
        zeros = tf.zeros_like(agent_indices, tf.int64)
        self.time.scatter_nd_update(agent_indices[:, None], zeros)

    def perform(self, agent_indices, observation, training=True):
        ones = tf.ones_like(agent_indices, tf.int64)
        self.time.scatter_nd_add(agent_indices[:, None], ones)
        return tf.gather(self.time, agent_indices) % 2


def test_state_in_variables_cannot_act_apart():
    env = Noise()
    spaces = env.observation_space, env.action_space
    agent = agents.Agent.create(Config(), *spaces)
    with agents.Runner(agent, Noise) as runner:
        runner.run(num_steps=5)
        for act in (
            lambda: runner.evaluate(1),
            lambda: agent.act(np.zeros(2), independent=True),
        ):
            with pytest.raises(calls.AlgorithmError, match="pass a state") as raised:
                act()
            assert str(raised.value).startswith(f"Counting.perform at {__file__}:")
        assert agent.algorithm.time.numpy().tolist() == [5]
        runner.run(num_steps=1)
        assert agent.algorithm.time.numpy().tolist() == [6]


class Parts(gymnasium.Env):
    """Observations and actions of several parts; three steps."""

    observation_space = gymnasium.spaces.Dict(
        {
            "image": gymnasium.spaces.Box(0, 255, (4, 4, 1), np.uint8),
            "word": gymnasium.spaces.Discrete(5),
        }
    )
    action_space = gymnasium.spaces.Tuple(
        (gymnasium.spaces.Box(-1, 1, (2,), np.float64), gymnasium.spaces.Discrete(3))
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.time += 1
        return self.observation_space.sample(), 1.0, self.time == 3, False, {}


@pytest.mark.quick("2")
@pytest.mark.parametrize("num_agents", [1, 2])
def test_spaces_of_several_parts(num_agents):
    config = {"type": "a2c", "jit": False, "unroll_length": 4}
    spaces = Parts.observation_space, Parts.action_space
    agent = agents.Agent.create(config, *spaces, num_agents)
    with agents.Runner(agent, Parts) as runner:
        result = runner.run(num_episodes=4, evaluate_every=6, evaluation_episodes=1)
    assert result.episode_returns == [3.0] * 4
    assert set(result.evaluation_returns) == {3.0}
    assert int(agent.algorithm.steps) == 12


def test_wrong_spaces():
    with pytest.raises(agent_.AgentError, match="has the action space Discrete.2.*3"):
        agents.Runner(cartpole(DQN), "Acrobot-v1")
    box = gymnasium.spaces.Box(-1, 1, (1,))
    for space, message in (
        (box, r"has the observation space Box\(-1.0, 1.0, \(1,\), float32\), but"),
        (gymnasium.spaces.Dict(x=box), "has the observation space Dict"),
    ):
        other = agents.Agent.create(DQN, space, gymnasium.spaces.Discrete(2))
        with pytest.raises(agent_.AgentError, match=message):
            agents.Runner(other, "CartPole-v1")
    env = gymnasium.make("CartPole-v1")
    actions = gymnasium.spaces.Box(-1, 1, (2,))
    agent = agents.Agent.create({"type": "a2c"}, env.observation_space, actions)
    with pytest.raises(agent_.AgentError, match="has the action space Box"):
        agents.Runner(agent, env)


def test_environments_are_in_one_place():
    env = mock(7)
    runner = agents.Runner(Recorder(), env, evaluation_environment=env)
    with pytest.raises(agent_.AgentError, match="is in several places"):
        runner.run(num_steps=9, evaluate_every=3)
    with pytest.raises(agent_.AgentError, match="is in several places"):
        agents.Runner(Recorder(2), [env, gymnasium.wrappers.TimeLimit(env, 3)])


@pytest.mark.parametrize(
    "wrong", [{"num_steps": "5"}, {"num_episodes": 0}, {"evaluation_episodes": 2.5}]
)
def test_counts_are_positive_integers(wrong):
    runner = agents.Runner(Recorder(), mock(3))
    message = rf"{next(iter(wrong))} must be a positive integer, got"
    with pytest.raises(agent_.AgentError, match=message):
        runner.run(**{"num_steps": 9} | wrong)
    for limit in (0, 2.5):
        with pytest.raises(agent_.AgentError, match="max_episode_steps must be a pos"):
            agents.Runner(Recorder(), mock(3), max_episode_steps=limit)
    assert runner.run(num_steps=1e1).steps == 10


def test_best_agent_is_not_saved_to_a_file(tmp_path):
    (tmp_path / "best").touch()
    runner = agents.Runner(Recorder(), lambda: mock(3))
    with pytest.raises(agent_.AgentError, match="new or empty"):
        runner.run(num_steps=9, evaluate_every=3, save_best=tmp_path / "best")


def test_saved_agent_is_the_best(tmp_path):
    agent = cartpole(DQN)
    with agents.Runner(agent, "CartPole-v1", seed=0) as runner:
        runner.run(num_steps=60, evaluate_every=60, save_best=tmp_path / "best")
        require_equal_weights(agents.Agent.load(tmp_path / "best"), agent)


@pytest.mark.slow
def test_learns_cartpole():
    agent = cartpole("cartpole_clip", 16)
    with agents.Runner(agent, "CartPole-v1", seed=0) as runner:
        before = np.mean(runner.evaluate(5))
        runner.run(num_steps=60_000, callback=lambda runner: runner.mean_return < 200)
        assert runner.mean_return >= 200
        assert np.mean(runner.evaluate(10)) > 200 > before


def test_only_first_episodes_have_seeds_and_those_of_evaluation_are_others():
    seen = []

    class Told(mocks.MockEnvironment):
        def reset(self, *, seed=None, options=None):
            seen.append(seed)
            return super().reset(seed=seed, options=options)

    with agents.Runner(Recorder(2), Told, seed=3) as runner:
        runner.run(num_steps=2)
        runner.evaluate(2)
        runner.evaluate(1)
    training, evaluation = (
        loop.phase_seeds(3, x, y).tolist() for x, y in ((0, 2), (1, 1))
    )
    assert seen == [*training, *evaluation, None, None]
    assert len({*seen}) == 4


def test_episodes_of_earlier_runs_are_among_the_best_hundred(tmp_path, monkeypatch):
    saved, agent = [], Recorder()
    runner = agents.Runner(agent, mock(1))
    monkeypatch.setattr(agent, "save", lambda _: saved.append(runner.episodes))
    runner.run(num_episodes=60)
    runner.run(num_episodes=40, save_best=tmp_path)
    assert saved == [100]
