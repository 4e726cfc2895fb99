"""Phases, their seeds, what they report, and resuming."""

import dataclasses
import itertools

import gymnasium
import numpy as np
import pytest
import tensorflow as tf

from agents import tools
from agents.environments import compiled, functional
from agents.testing import mock_algorithm, mocks
from agents.tools import (
    algorithm,
    checkpoint,
    loop,
    simulation,
)


class Seeded(mocks.MockEnvironment):
    """Remembers the seeds it was reset with."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seeds = []

    def reset(self, *, seed=None, options=None):
        self.seeds.append(seed)
        return super().reset(seed=seed, options=options)


class Noise(gymnasium.Env):
    """Everything is a function of the last seed and of the actions."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._observe(), {}

    def step(self, action):
        terminated = self.np_random.random() < 0.2
        reward = self.np_random.normal() + float(action[0])
        return self._observe(), reward, terminated, False, {}

    def _observe(self):
        return self.np_random.normal(size=1).astype(np.float32)


class Learner(algorithm.Algorithm):
    """Acts by a number that it learns, plus noise of a generator."""

    def __init__(self, rows):
        super().__init__(["weight"])
        self.weight = tf.Variable(0.1)
        self.generator = tf.random.Generator.from_seed(0, alg="philox")
        self.running = tf.Variable(tf.zeros([rows, 1]), trainable=False)

    def begin_episodes(self, agent_indices, training=True):
        zeros = tf.zeros([tf.size(agent_indices), 1])
        self.running.scatter_nd_update(agent_indices[:, None], zeros)

    def perform(self, agent_indices, observation, training=True):
        self.running.scatter_nd_add(agent_indices[:, None], observation)
        action = self.weight * tf.gather(self.running, agent_indices)
        if training:
            action += self.generator.normal(tf.shape(action))
        return tf.clip_by_value(action, -1.0, 1.0)

    def experience(self, agent_indices, observation, action, reward, *_):
        self.weight.assign(0.9 * self.weight + 0.1 * tf.reduce_mean(reward * action))
        self.metrics.update({"weight": self.weight})

    def persistent(self):
        return {"weight": self.weight, "generator": self.generator}


def batch(*envs):
    return tools.InGraphBatchEnv(tools.BatchEnv(list(envs), blocking=True))


def mock_loop(steps, eval_every, eval_episodes, durations=(2, 4), seed=0, **kwargs):
    made = [Seeded(durations=(d,)) for d in durations]
    envs = batch(*made)
    agent = mock_algorithm.MockAlgorithm(envs.action_space)
    plan = loop.Plan(steps, eval_every, eval_episodes)
    return made, agent, loop.Loop(envs, agent, plan, seed, **kwargs)


def noise_loop(directory, steps=90):
    envs = batch(*(Noise() for _ in range(3)))
    agent = Learner(3)
    checkpoints = checkpoint.Checkpoints(directory)
    plan = loop.Plan(steps, 30, 4)
    return agent, loop.Loop(envs, agent, plan, 5, checkpoints)


def finished(reports):
    return [report for report in reports if report.finished]


def places(reports):
    return [(report.phase, report.step) for report in reports]


def test_phases_alternate_until_all_steps_are_done():
    _, _, runner = mock_loop(steps=40, eval_every=16, eval_episodes=3)
    reports = finished(runner.run())
    assert places(reports) == [
        ("train", 16),
        ("evaluate", 16),
        ("train", 32),
        ("evaluate", 32),
        ("train", 40),
        ("evaluate", 40),
    ]
    assert runner.step == 40
    assert runner.phase == 6
    assert [r.env_steps for r in reports if r.phase == "train"] == [16, 16, 8]
    assert all(report.seconds > 0 for report in reports)


def test_no_evaluation_if_it_has_no_episodes():
    _, agent, runner = mock_loop(steps=8, eval_every=4, eval_episodes=0)
    assert places(finished(runner.run())) == [("train", 4), ("train", 8)]
    assert {call.training for call in agent.calls if call.name == "perform"} == {True}


@pytest.mark.parametrize(
    ("batch_steps", "expected"), [(1, [8, 16, 20]), (3, [12, 24]), (16, [32])]
)
def test_phases_last_whole_batch_steps(batch_steps, expected):
    _, agent, runner = mock_loop(steps=20, eval_every=7, eval_episodes=0)
    agent.batch_steps = batch_steps
    assert [report.step for report in finished(runner.run())] == expected


def test_scores_are_those_of_all_episodes_that_ended_in_training():
    _, _, runner = mock_loop(steps=20, eval_every=20, eval_episodes=0)
    (report,) = finished(runner.run())
    # Ten steps: five episodes of two steps, two of four; the rest is cut off.
    assert report.metrics == {
        "score": (5 * 3 + 2 * 10) / 7,
        "length": (5 * 2 + 2 * 4) / 7,
        "episodes": 7,
        "lower_quartile": 3.0,
        "upper_quartile": (3 + 10) / 2,  # Of 3, 3, 3, 3, 3, 10, 10.
    }


def test_scores_of_an_evaluation_are_those_of_the_first_episodes_of_every_row():
    _, _, runner = mock_loop(2, 2, eval_episodes=5, durations=(1, 30))
    report = finished(runner.run())[1]
    assert report.phase == "evaluate"
    assert report.metrics == {
        "score": (3 * 1 + 2 * 30 * 31 / 2) / 5,
        "length": (3 * 1 + 2 * 30) / 5,
        "episodes": 5,
        "lower_quartile": 1.0,
        "upper_quartile": 30 * 31 / 2,
    }


def test_no_episode_no_score():
    _, _, runner = mock_loop(4, 4, 0, durations=(5, 9))
    (report,) = finished(runner.run())
    assert report.metrics == {"score": None, "length": None, "episodes": 0}


def test_evaluation_teaches_nothing():
    _, agent, runner = mock_loop(4, 4, 3)
    reports = runner.run()
    while not next(reports).finished:
        pass
    agent.clear()
    list(reports)
    assert {call.name for call in agent.calls} == {"begin_episodes", "perform"}


def test_long_phases_report_their_progress():
    _, _, runner = mock_loop(steps=400, eval_every=400, eval_episodes=0)
    reports = list(runner.run())
    assert len(reports) > 1
    steps = [report.step for report in reports]
    assert steps == sorted(set(steps))
    assert steps[-1] == 400
    assert [report.finished for report in reports] == [False] * (len(steps) - 1) + [
        True
    ]
    assert all(report.metrics == {} for report in reports[:-1])
    assert [report.env_steps for report in reports] == steps
    assert reports[-1].metrics["episodes"] == 100 + 50


def test_every_phase_begins_new_episodes_with_its_own_seeds():
    made, agent, runner = mock_loop(12, 6, eval_episodes=2, seed=3)
    list(runner.run())
    seeds = np.array([[s for s in env.seeds if s is not None] for env in made]).T
    assert seeds.shape == (4, 2)
    assert len(set(seeds.ravel())) == 8
    for phase, row in enumerate(seeds):
        assert row.tolist() == loop.phase_seeds(3, phase, 2).tolist()
    begins = [c.agent_indices for c in agent.calls if c.name == "begin_episodes"]
    assert begins[0] == [0, 1]
    # Three steps, so the episode of four steps never ends in a phase of training.
    assert made[1].lengths[0] == 3
    episodes = [int(c.arrays["observation"][1, 0]) for c in transitions(agent)]
    assert episodes[:3] == [0, 1, 2]


def transitions(agent):
    return [call for call in agent.calls if call.name == "experience"]


def test_seeds_are_a_function_of_seed_phase_and_row():
    seeds = [
        loop.phase_seeds(seed, phase, 50)
        for seed in (0, 1, 2**40)
        for phase in (0, 1, 1000)
    ]
    for made in seeds:
        assert made.dtype == np.int64
        assert (made >= 0).all()
        assert (made < 2**31).all()
    assert len(set(np.concatenate(seeds))) == 450
    np.testing.assert_array_equal(
        loop.phase_seeds(1, 1, 50), loop.phase_seeds(1, 1, 50)
    )
    np.testing.assert_array_equal(
        loop.phase_seeds(1, 1, 3), loop.phase_seeds(1, 1, 50)[:3]
    )


def test_metrics_of_the_algorithm_are_reported_and_begin_anew(tmp_path):
    agent, runner = noise_loop(tmp_path)
    values = []
    for report in finished(runner.run()):
        if report.phase == "train":
            values.append(report.metrics["weight"])
            assert agent.metrics.result() == {}
        else:
            assert "weight" not in report.metrics
    assert len(set(values)) == 3


@pytest.mark.quick("3", "5")
@pytest.mark.parametrize("after", [1, 2, 3, 5])
def test_resumed_run_is_the_uninterrupted_one(tmp_path, after):
    agent, runner = noise_loop(tmp_path / "whole")
    expected = finished(runner.run())
    reports = noise_loop(tmp_path / "parts")[1].run()
    collected = []
    while len(collected) < after:
        report = next(reports)
        collected += [report] if report.finished else []
    next(reports)  # Asking for more saves the phase; what follows is lost.
    reports.close()
    resumed_agent, resumed = noise_loop(tmp_path / "parts")
    state = resumed.restore()
    scores = {r.metrics["score"]: r.step for r in collected if r.phase == "evaluate"}
    best = None
    if scores:
        name = f"step-{scores[max(scores)]:012d}"
        best = {"score": max(scores), "checkpoint": name}
    assert state == {"step": collected[-1].step, "phase": after, "best": best}
    assert resumed.best == best
    assert (resumed.step, resumed.phase) == (collected[-1].step, after)
    collected += finished(resumed.run())
    assert places(collected) == places(expected)
    assert [r.metrics for r in collected] == [r.metrics for r in expected]
    np.testing.assert_array_equal(resumed_agent.weight, agent.weight)
    np.testing.assert_array_equal(resumed_agent.generator.state, agent.generator.state)


def test_finished_run_has_nothing_to_resume(tmp_path):
    list(noise_loop(tmp_path)[1].run())
    _, resumed = noise_loop(tmp_path)
    resumed.restore()
    assert list(resumed.run()) == []
    _, longer = noise_loop(tmp_path, steps=120)
    longer.restore()
    assert places(finished(longer.run())) == [("train", 120), ("evaluate", 120)]


def test_seed_decides_everything():
    results = []
    for seed in (1, 1, 2):
        envs, agent = batch(*(Noise() for _ in range(3))), Learner(3)
        runner = loop.Loop(envs, agent, loop.Plan(60, 30, 4), seed)
        results.append([report.metrics for report in finished(runner.run())])
    assert results[0] == results[1]
    assert all(a != b for a, b in zip(results[0], results[2], strict=True))


def test_state_of_the_caller_is_saved_after_it_got_the_report(tmp_path):
    seen = []
    made, agent, runner = mock_loop(
        8,
        4,
        2,
        checkpoints=checkpoint.Checkpoints(tmp_path),
        state=lambda: {"reports": len(seen)},
    )
    for report in runner.run():
        if report.finished:
            seen.append(report)
    checkpoints = checkpoint.Checkpoints(tmp_path)
    assert checkpoints.names() == ["step-000000000004", "step-000000000008"]
    assert checkpoints.restore(agent.persistent()) == {
        "step": 8,
        "phase": 4,
        "best": {"score": 6.5, "checkpoint": "step-000000000004"},
        "reports": 4,
    }


def test_checkpoint_elsewhere_names_no_best_one_that_is_not_there(tmp_path):
    _, agent, runner = mock_loop(8, 4, 2, checkpoints=checkpoint.Checkpoints(tmp_path))
    list(runner.run())
    assert runner.best["checkpoint"] == "step-000000000004"
    other = checkpoint.Checkpoints(tmp_path / "other")
    runner.save(other)
    assert other.restore(agent.persistent())["best"] is None
    assert not (tmp_path / "other/best").is_symlink()


def test_stopping_ends_the_run_after_the_phase_and_saves_it(tmp_path):
    checkpoints = checkpoint.Checkpoints(tmp_path)
    _, agent, runner = mock_loop(400, 100, 2, checkpoints=checkpoints)
    reports = []
    for report in runner.run():
        runner.stopping = True
        reports.append(report)
    assert reports[0].finished is False
    assert places(finished(reports)) == [("train", 100)]
    state = checkpoints.restore(agent.persistent())
    assert state == {"step": 100, "phase": 1, "best": None}


@pytest.mark.parametrize("eval_episodes", [0, 3])
def test_best_phase_is_kept_and_may_end_the_run(tmp_path, eval_episodes):
    """Scores of phases are 2, 5, 9, 4, ..."""
    kept = checkpoint.Checkpoints(tmp_path, keep=1)
    scores = iter([2.0, 5.0, 9.0, 4.0, 8.0])

    def make(goal=None):
        _, agent, runner = mock_loop(40, 8, eval_episodes, checkpoints=kept)
        runner.plan = dataclasses.replace(runner.plan, stop_at=goal)
        return agent, runner

    def judged(runner):
        for report in runner.run():
            if report.finished and (report.phase == "evaluate" or not eval_episodes):
                report.metrics["score"] = next(scores)

    agent, runner = make(goal=9.0)
    judged(runner)
    assert (runner.step, runner.solved, runner.stopping) == (24, True, False)
    best = {"score": 9.0, "checkpoint": "step-000000000024"}
    assert runner.best == best
    _, again = make(goal=9.0)
    again.restore()
    assert list(again.run()) == []
    agent, further = make(goal=10.0)
    further.restore()
    judged(further)
    assert (further.step, further.solved, further.best) == (40, False, best)
    assert kept.names() == ["step-000000000024", "step-000000000040"]
    assert kept.restore(agent.persistent(), "best")["step"] == 24
    assert (tmp_path / "best").readlink().name == "step-000000000024"


def test_failure_says_how_far_it_was():
    class Broken(Seeded):
        def step(self, action):
            if len(self.seeds) > 2 and self.lengths[-1] == 1:
                raise OSError("broken")
            return super().step(action)

    envs = batch(Broken(durations=(2,)), Seeded(durations=(2,)))
    agent = mock_algorithm.MockAlgorithm(envs.action_space)
    runner = loop.Loop(envs, agent, loop.Plan(100, 50, 0), 0)
    with pytest.raises(OSError, match="broken"):
        list(runner.run())
    assert runner.step == 6 * 2  # The second step of the third episode failed.


def test_first_episodes_of_every_row_count():
    counted = loop.FirstEpisodes(3, 5)
    result = {
        "done": np.array([[1, 0, 0], [1, 0, 1], [1, 1, 0], [0, 1, 0]], bool),
        "score": np.arange(12.0).reshape(4, 3),
        "length": np.arange(12).reshape(4, 3),
    }
    counted.add(result)
    assert counted.scores == [0, 3, 5, 7, 10]  # Of the first row, two of three.
    assert counted.lengths == [0, 3, 5, 7, 10]
    assert counted.complete
    counted.add(result)
    assert len(counted.scores) == 5


def test_rows_without_missing_episodes_are_not_waited_for():
    counted = loop.FirstEpisodes(4, 2)
    done = np.array([[False, True, True, True]])
    counted.add({"done": done, "score": done * 1.0, "length": done * 1})
    assert not counted.complete
    assert counted.scores == [1.0]
    done = ~done
    counted.add({"done": done, "score": done * 2.0, "length": done * 1})
    assert counted.complete
    assert counted.scores == [1.0, 2.0]


def test_means_are_taken_in_double_precision():
    scores = [1e8, 1.0] * 50_000
    assert loop.summary(scores, [1])["score"] == (1e8 + 1) / 2


class FunctionalNoise(functional.FunctionalEnv):
    """As `Noise`, of TensorFlow functions; the state is what decides."""

    observation_space, action_space = Noise.observation_space, Noise.action_space
    max_length = 9

    def initial(self, size, seed):
        return tf.random.stateless_normal([size, 2], seed)

    def transition(self, state, action, seed):
        return self.initial(state.shape[0], seed)

    def observation(self, state):
        return state[:, :1]

    def reward(self, state, action, next_state):
        return next_state[:, 1] + action[:, 0]

    def terminal(self, state):
        return state[:, 1] > 1.0


def noise_batch(kind):
    if kind == "compiled":
        return compiled.Compiled(FunctionalNoise(), 4)
    parts = [[Noise(), Noise()] for _ in range(2)]
    parts = parts if kind == "halves" else [sum(parts, [])]
    return tools.InGraphBatchEnv([tools.BatchEnv(part, True) for part in parts])


@pytest.mark.parametrize("kind", ["whole", "halves", "compiled"])
def test_nothing_but_the_length_of_calls_depends_on_the_clock(monkeypatch, kind):
    """Or runs with equal seeds would differ."""
    simulate = simulation.simulate

    def run(seconds):
        calls = []

        def record(envs, agent, steps, training):
            calls.append(steps)
            return simulate(envs, agent, steps, training)

        clock = itertools.count(0.0, seconds)
        monkeypatch.setattr(loop.time, "perf_counter", lambda: next(clock))
        monkeypatch.setattr(simulation, "simulate", record)
        agent = Learner(4)
        runner = loop.Loop(noise_batch(kind), agent, loop.Plan(400, 200, 8), 5)
        reports = [(x.phase, x.step, x.metrics) for x in finished(runner.run())]
        weights = agent.weight.numpy(), agent.generator.state.numpy().tolist()
        return calls, (reports, weights)

    (fast, expected), (slow, found) = run(0.01), run(5.0)
    assert fast[:2] == [16, 32]
    assert slow[:3] == [16, 8, 4]
    assert found == expected


def test_every_row_contributes_its_first_episodes():
    episodes = loop.FirstEpisodes(rows=2, episodes=3)
    done = np.array([[True, False], [True, False], [True, True], [True, True]])
    score = np.array([[1, 0], [2, 0], [3, 30], [4, 40]])
    episodes.add({"done": done[:3], "score": score[:3], "length": score[:3]})
    assert episodes.complete
    assert sorted(episodes.scores) == [1, 2, 30]


@pytest.mark.parametrize("name", ["score", "step", "upper_quartile"])
def test_metrics_with_names_of_reports_are_refused(name):
    agent = algorithm.Algorithm(("loss", name))
    with pytest.raises(loop.MetricError, match=f"cannot have a metric '{name}'"):
        loop.Loop(None, agent, loop.Plan(100, 50, 0), 0)
