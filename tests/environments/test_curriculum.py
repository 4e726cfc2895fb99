"""Arguments that change from episode to episode: which values, where and when."""

import gymnasium
import numpy as np
import pytest
from environments_for_tests import Growing, Told

from agents import tools
from agents.environments import Environment, config, curriculum, film, make
from agents.testing import mock_algorithm
from agents.tools import checks, processes, schedules
from agents.tools import config as config_

LINEAR = {"type": "linear", "from": 0, "to": 1000, "over": 1000}
"""Schedule whose value is the step."""
UNIFORM = {"type": "uniform", "low": 2, "high": 5}


def started(elapsed, kwargs, backend="serial", halves=False, seeds=None):
    """Batch of four environments in the graph that begins a phase."""
    num_workers = 2 if backend == "workers" else None
    envs = make.in_graph(
        Environment(Told, backend, 4, num_workers=num_workers, kwargs=kwargs), halves
    )
    envs.elapsed = elapsed
    envs.discontinue(np.arange(4) if seeds is None else seeds)
    return envs


def play(envs, steps, training=True):
    """Scores `[steps, 4]`, and observations `[steps, 4, 4]` before acting."""
    agent = mock_algorithm.MockAlgorithm(envs.action_space)
    parts = steps if isinstance(steps, list) else [steps]
    scores = [tools.simulate(envs, agent, x, training)["score"].numpy() for x in parts]
    envs.close()
    seen = [[] for _ in range(len(envs))]
    for call in agent.calls:
        if call.name == "perform":
            for place, row in enumerate(call.agent_indices):
                seen[row].append(call.arrays["observation"][place])
    seen = np.stack([x[: sum(parts)] for x in seen], 1)
    return np.concatenate(scores), seen


BACKENDS = [
    ("serial", False),
    ("process", False),
    ("workers", False),
    ("workers", True),
]


@pytest.mark.quick(
    "level-serial-False",
    "level-workers-True",
    "wind-serial-False",
    "wind-process-False",
    "wind-workers-False",
)
@pytest.mark.parametrize(("backend", "halves"), BACKENDS)
@pytest.mark.parametrize("name", ["level", "wind"])
def test_episodes_have_the_value_of_the_step_at_which_they_begin(backend, halves, name):
    _, seen = play(started(100, {name: LINEAR}, backend, halves), 9)
    found = seen[..., ["level", "wind"].index(name)]
    # Four environments make four steps at a time; episodes begin at every third.
    expected = np.repeat([100, 112, 124], 3)
    np.testing.assert_array_equal(found, np.stack([expected] * 4, 1))


@pytest.mark.parametrize(("backend", "halves"), BACKENDS)
def test_scores_are_those_of_the_values(backend, halves):
    envs = started(50, {"level": LINEAR}, backend, halves)
    scores, _ = play(envs, 9)
    assert scores[2::3].tolist() == [[3 * x] * 4 for x in (50, 62, 74)]
    assert not scores[[0, 1, 3, 4, 6, 7]].any()


def test_evaluation_keeps_the_value_of_the_present_step():
    envs = started(50, {"level": LINEAR})
    scores, _ = play(envs, 9, training=False)
    assert scores[2::3].tolist() == [[150] * 4] * 3


@pytest.mark.parametrize(("backend", "halves"), [BACKENDS[0], BACKENDS[3]])
def test_cutting_changes_nothing(backend, halves):
    kwargs = {"level": UNIFORM, "wind": LINEAR}
    whole, _ = play(started(7, kwargs), 12)
    scores, _ = play(started(7, kwargs, backend, halves), [1, 2, 4, 5])
    np.testing.assert_array_equal(scores, whole)


def test_values_are_drawn_for_every_episode_from_the_seed_of_the_row():
    whole, seen = play(started(0, {"level": UNIFORM, "wind": UNIFORM}), 30)
    levels, winds = seen[::3, :, 0], seen[::3, :, 1]
    np.testing.assert_allclose(whole[2::3], 3 * levels, rtol=1e-6)
    for values in (levels, winds):
        assert len(np.unique(values)) == values.size == 40
        assert 2 <= values.min() < 2.3
        assert 4.7 < values.max() <= 5
    assert not np.intersect1d(levels, winds).size
    own = seen[0, :, 2]  # First random number of the environment.
    assert not np.isclose((levels[0] - 2) / 3, own, atol=1e-6).any()
    again, _ = play(started(0, {"wind": UNIFORM, "level": UNIFORM}), 30)
    np.testing.assert_array_equal(again, whole)
    seeds = np.array([1, 0, 2, 9])
    swapped, _ = play(started(0, {"level": UNIFORM, "wind": UNIFORM}, seeds=seeds), 30)
    np.testing.assert_array_equal(swapped[:, [1, 0, 2]], whole[:, :3])
    assert (swapped[2::3, 3] != whole[2::3, 3]).all()


def test_randomness_of_the_environment_stays_a_function_of_the_seed():
    """Also of one that is made anew within the phase, as after a resumption."""
    kwargs = {"level": {"type": "piecewise", "values": [1, 2], "boundaries": [24]}}
    envs = started(0, kwargs)
    _, whole = play(envs, 18)
    other = started(0, kwargs)
    agent = mock_algorithm.MockAlgorithm(other.action_space)
    tools.simulate(other, agent, 13)  # A phase before, at whose end the level is two.
    other.elapsed = 0
    other.discontinue(np.arange(4))
    _, again = play(other, 18)
    np.testing.assert_array_equal(again[..., :3], whole[..., :3])
    randoms = whole[..., 2]
    assert len(np.unique(randoms)) == randoms.size  # A new one does not repeat it.


def test_environments_are_made_anew_only_if_a_value_has_changed():
    kwargs = {"level": {"type": "piecewise", "values": [1, 2], "boundaries": [24]}}
    envs = started(0, kwargs)
    before = Told.made
    _, seen = play(envs, 18)
    assert Told.made == before + 4
    assert seen[:, 0, 0].tolist() == [1] * 6 + [2] * 12
    envs = started(0, {"wind": LINEAR})
    before = Told.made
    play(envs, 18)
    assert Told.made == before


def test_environments_are_closed_before_others_are_made(monkeypatch):
    closed = []
    monkeypatch.setattr(Told, "close", lambda self: closed.append(self.level))
    kwargs = {"level": {"type": "piecewise", "values": [1, 2], "boundaries": [24]}}
    envs = started(0, kwargs)
    closed.clear()  # Without those that were only described.
    play(envs, 18)
    assert closed == [1] * 4 + [2] * 4


def test_without_seeds_values_differ():
    draws = {"level": curriculum.Draw(0.0, 1.0)}
    envs = [curriculum.Curriculum(lambda x: Told(**x), draws, None) for _ in range(2)]
    assert len({env.reset()[0][0] for env in envs}) == 2


def test_values_may_not_change_actions():
    class Able(Told):
        def __init__(self, size):
            super().__init__()
            self.action_space = gymnasium.spaces.Discrete(size)

    pieces = schedules.Schedule("piecewise", values=(1.0, 2.0), boundaries=(5.0,))
    env = curriculum.Curriculum(lambda x: Able(**x), {"size": pieces}, {"size"})
    env.begin_phase(5, 1)
    with pytest.raises(checks.EnvDataError, match="change the spaces"):
        env.reset()


def test_whole_numbers_of_pieces_are_integers():
    kwargs = {"length": {"type": "piecewise", "values": [3, 2], "boundaries": [9]}}
    scores, _ = play(started(0, {**kwargs, "level": 1.0}), 9)
    assert scores[:, 0].tolist() == [0, 0, 3, 0, 2, 0, 2, 0, 2]
    random = np.random.default_rng(0)
    (schedule,) = curriculum.schedules_of(kwargs).values()
    found = curriculum._value(schedule, np.float64(9), random)
    assert (type(found), found) == (int, 2)


def test_wrappers_are_around_the_new_environment():
    wrappers = [{"type": "gymnasium.wrappers:TimeLimit", "max_episode_steps": 2}]
    environment = Environment(
        Told, "serial", 1, kwargs={"level": LINEAR}, wrappers=wrappers
    )
    assert make.describe(environment).max_length == 2
    envs = make.in_graph(environment)
    envs.discontinue(np.arange(1))
    scores, _ = play(envs, 6)
    assert scores[:, 0].tolist() == [0, 0, 0, 4, 0, 8]


def test_gravity_of_gymnasiums_environments():
    """An attribute of cartpole; an argument of the pendulum, behind its wrappers."""
    for id, name in (("CartPole-v1", "gravity"), ("Pendulum-v1", "g")):
        environment = Environment(id, "serial", 2, kwargs={name: LINEAR})
        batch = make.batch(environment)
        curriculum.preparation(environment.kwargs, [batch])(7, 1)
        batch.reset(seeds=[0, 1])
        assert [getattr(env.unwrapped, name) for env in (batch[0], batch[1])] == [7, 7]
        plain = gymnasium.make(id)
        if name == "gravity":
            plain.unwrapped.gravity = 7
        else:
            plain = gymnasium.make(id, g=7)
        expected, _ = plain.reset(seed=1)
        np.testing.assert_array_equal(batch.reset([1], [1])[0], expected)
        action = plain.action_space.sample()
        observation, *_ = batch.step(np.stack([action, action]))
        np.testing.assert_array_equal(observation[1], plain.step(action)[0])
        batch.close()


class Old:
    """Environment as of Gym 0.21, which observes an attribute."""

    observation_space = gymnasium.spaces.Box(0, 10, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.gain = 1.0

    def reset(self):
        return np.full(1, self.gain, np.float32)

    def step(self, action):
        return self.reset(), 0.0, True, {}

    def render(self, mode="human"):
        return np.full((8, 8, 3), 9, np.uint8) if mode == "rgb_array" else True


def old(render_mode=None):
    return Old()


def test_attributes_of_old_environments_change():
    kwargs = {"gain": UNIFORM}
    for limit in (None, 5):
        batch = make.batch(
            Environment(old, "serial", 1, max_length=limit, kwargs=kwargs)
        )
        seen = [batch.reset(seeds=[seed])[0].item() for seed in range(5)]
        assert len(set(seen)) == 5
        assert all(2 <= x <= 5 for x in seen)
    with pytest.raises(config_.ConfigError, match="attribute of Old; .*'gain'"):
        make.describe(Environment(old, "serial", kwargs={"gian": UNIFORM}))


def test_old_environments_are_rendered_in_the_mode_of_their_argument():
    kwargs = {"render_mode": "rgb_array", "gain": UNIFORM}
    env = make.constructor(Environment(old, "serial", kwargs=kwargs))()
    env.reset()
    assert film.frame(env).shape == (8, 8, 3)


def test_other_mappings_are_arguments():
    kwargs = {
        "goal": {"type": "Goal", "size": 3},
        "kind": {"type": "Kinematics"},
        "bounds": {"low": 1, "high": 2},
        "level": LINEAR,
    }
    assert set(curriculum.schedules_of(kwargs)) == {"level"}


def test_objects_are_schedules_too():
    made = schedules.Schedule("constant", 2.0), curriculum.Draw(1.0, 3.0)
    kwargs = dict(zip("ab", made, strict=True))
    assert curriculum.schedules_of(kwargs) == kwargs


def test_automatic_backend_is_one_that_follows():
    for id in ("HalfCheetah-v5", "ALE/Pong-v5", "CartPole-v1"):
        assert make.choose(Environment(id, kwargs={"x": UNIFORM})) == "workers"


def test_mistakes():
    for backend in {*config.BACKENDS} - {*config.FOLLOWING}:
        with pytest.raises(config_.ConfigError, match=f"backend {backend} cannot fol"):
            Environment("HalfCheetah-v5", backend, kwargs={"x": LINEAR})
    with pytest.raises(
        config_.ConfigError, match="'environment.kwargs.x.unit' must be"
    ):
        Environment(Told, kwargs={"x": {**LINEAR, "unit": "updates"}})
    with pytest.raises(config_.ConfigError, match="x.low' must be float, got 'a'"):
        Environment(Told, kwargs={"x": {**UNIFORM, "low": "a"}})
    with pytest.raises(config_.ConfigError, match="wend' is neither .* mean 'wind'"):
        make.describe(Environment(Told, kwargs={"wend": LINEAR}))


@pytest.mark.parametrize("backend", ["serial", "workers"])
def test_values_that_change_spaces_or_are_refused_at_last(backend):
    sizes = {"type": "piecewise", "values": [1, 2], "boundaries": [5]}
    environment = Environment(Growing, backend, 1, kwargs={"size": sizes})
    batch = make.batch(environment)
    curriculum.preparation(environment.kwargs, [batch])(5, 1)
    with pytest.raises(
        checks.EnvDataError, match=r"^Environment row 0.*change the spa"
    ):
        batch.reset()
    batch.close()
    sizes = {"type": "piecewise", "values": [1, -2], "boundaries": [5]}
    environment = Environment(Growing, backend, 1, kwargs={"size": sizes})
    batch = make.batch(environment)
    curriculum.preparation(environment.kwargs, [batch])(5, 1)
    with pytest.raises(processes.EnvError, match="Environment row 0"):
        batch.reset()
    batch.close()


def test_pieces_that_are_not_all_whole_stay_floats():
    schedule = schedules.Schedule("piecewise", values=(2.0, 0.5), boundaries=(9.0,))
    random = np.random.default_rng(0)
    found = [curriculum._value(schedule, np.float64(x), random) for x in (0, 9)]
    assert [(type(x), x) for x in found] == [(float, 2.0), (float, 0.5)]


def test_ends_of_what_is_drawn_may_be_equal():
    random = np.random.default_rng(0)
    assert curriculum._value(curriculum.Draw(2.0, 2.0), np.float64(0), random) == 2.0
