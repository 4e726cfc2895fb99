"""Order of resets, steps and callbacks in episodes of known lengths."""

import gc
import weakref

import gymnasium
import numpy as np
import pytest
import tensorflow as tf

from agents import tools
from agents.testing import mock_algorithm, mocks
from agents.tools import algorithm, calls, simulation

DURATIONS = (1, 2, 3, 4)
decode = mocks.MockEnvironment.decode


@pytest.fixture(params=["graph", "eager"])
def _mode(request):
    tf.config.run_functions_eagerly(request.param == "eager")
    yield
    tf.config.run_functions_eagerly(False)


def batch(*envs):
    return tools.InGraphBatchEnv(tools.BatchEnv(list(envs), blocking=True))


def mock_batch(durations=DURATIONS, **kwargs):
    return batch(*(mocks.MockEnvironment(durations=(d,), **kwargs) for d in durations))


def mock_pair(durations=DURATIONS, **kwargs):
    envs = mock_batch(durations, **kwargs)
    return envs, mock_algorithm.MockAlgorithm(envs.action_space)


def expected_calls(steps, training=True, start=0, durations=DURATIONS):
    """Names and rows of all calls, for episodes that began at step 0."""
    everyone = list(range(len(durations)))
    calls = []
    for step in range(start, start + steps):
        begin = [row for row in everyone if step % durations[row] == 0]
        end = [row for row in everyone if (step + 1) % durations[row] == 0]
        calls += [("begin_episodes", begin)] if begin else []
        calls += [("perform", everyone)]
        if training:
            calls += [("experience", everyone)]
            calls += [("end_episodes", end)] if end else []
    return calls


def names_and_rows(agent):
    return [(call.name, call.agent_indices) for call in agent.calls]


def transitions(agent):
    return [call.arrays for call in agent.calls if call.name == "experience"]


@pytest.mark.usefixtures("_mode")
@pytest.mark.parametrize("truncate", [False, True])
def test_calls_and_arrays_are_exactly_those_of_the_durations(truncate):
    envs, agent = mock_pair(truncate=truncate)
    result = tools.simulate(envs, agent, 12)
    assert names_and_rows(agent) == expected_calls(12)
    durations = np.array(DURATIONS)
    for step, arrays in enumerate(transitions(agent)):
        time, episode = step % durations, step // durations
        done = time + 1 == durations
        before = decode(arrays["observation"])
        after = decode(arrays["next_observation"])
        np.testing.assert_array_equal(before[0], np.stack([episode] * 2, 1))
        np.testing.assert_array_equal(before[1], np.stack([time] * 2, 1))
        np.testing.assert_array_equal(after[0], np.stack([episode] * 2, 1))
        np.testing.assert_array_equal(after[1], np.stack([time + 1] * 2, 1))
        np.testing.assert_array_equal(arrays["reward"], time + 1)
        np.testing.assert_array_equal(arrays["terminated"], done & (not truncate))
        np.testing.assert_array_equal(arrays["truncated"], done & truncate)
        np.testing.assert_array_equal(result["done"][step], done)
        score = np.where(done, durations * (durations + 1) / 2, 0)
        np.testing.assert_array_equal(result["score"][step], score)
        np.testing.assert_array_equal(result["length"][step], done * durations)


def test_first_calls_written_out():
    _, agent = envs, agent = mock_pair((1, 2))
    tools.simulate(envs, agent, 3)
    assert names_and_rows(agent) == [
        ("begin_episodes", [0, 1]),
        ("perform", [0, 1]),
        ("experience", [0, 1]),
        ("end_episodes", [0]),
        ("begin_episodes", [0]),
        ("perform", [0, 1]),
        ("experience", [0, 1]),
        ("end_episodes", [0, 1]),
        ("begin_episodes", [0, 1]),
        ("perform", [0, 1]),
        ("experience", [0, 1]),
        ("end_episodes", [0]),
    ]


def test_result_written_out():
    envs, agent = mock_pair((1, 2))
    result = tools.simulate(envs, agent, 3)
    assert {name: value.dtype for name, value in result.items()} == {
        "done": tf.bool,
        "score": tf.float32,
        "length": tf.int32,
    }
    assert result["done"].numpy().tolist() == [
        [True, False],
        [True, True],
        [True, False],
    ]
    assert result["score"].numpy().tolist() == [[1, 0], [1, 3], [1, 0]]
    assert result["length"].numpy().tolist() == [[1, 0], [1, 2], [1, 0]]


def test_durations_that_change_from_episode_to_episode():
    env = mocks.MockEnvironment(durations=(2, 1, 3))
    envs = batch(env)
    result = tools.simulate(envs, mock_algorithm.MockAlgorithm(envs.action_space), 9)
    ends = np.flatnonzero(result["done"].numpy()[:, 0])
    assert ends.tolist() == [1, 2, 5, 7, 8]
    assert result["length"].numpy()[ends, 0].tolist() == [2, 1, 3, 2, 1]
    assert result["score"].numpy()[ends, 0].tolist() == [3, 1, 6, 3, 1]
    assert env.lengths == [2, 1, 3, 2, 1, 0]  # The next one begins in the same step.


@pytest.mark.usefixtures("_mode")
def test_every_action_reaches_the_environment_and_its_transition():
    made = [mocks.MockEnvironment(durations=(d,)) for d in DURATIONS]
    envs = batch(*made)
    agent = mock_algorithm.MockAlgorithm(envs.action_space)
    tools.simulate(envs, agent, 10)
    stored = np.stack([arrays["action"] for arrays in transitions(agent)])
    applied = np.stack([env.actions for env in made], 1)
    np.testing.assert_array_equal(stored, applied)
    assert len(np.unique(stored)) == stored.size
    assert [sum(env.lengths) for env in made] == [10] * len(made)


@pytest.mark.usefixtures("_mode")
def test_evaluation_only_begins_and_performs():
    envs, agent = mock_pair()
    result = tools.simulate(envs, agent, 7, training=False)
    assert names_and_rows(agent) == expected_calls(7, training=False)
    assert [c.training for c in agent.calls if c.name == "perform"] == [False] * 7
    assert result["length"].numpy()[3].tolist() == [1, 2, 0, 4]
    agent.clear()
    tools.simulate(envs, agent, 2, training=True)
    assert [c.training for c in agent.calls if c.name == "perform"] == [True] * 2


def test_episodes_go_on_between_calls():
    envs, agent = mock_pair()
    parts = [tools.simulate(envs, agent, steps) for steps in (1, 4, 2, 5)]
    assert names_and_rows(agent) == expected_calls(12)
    whole_envs, whole_agent = mock_pair()
    whole = tools.simulate(whole_envs, whole_agent, 12)
    for name, value in whole.items():
        joined = np.concatenate([part[name] for part in parts])
        np.testing.assert_array_equal(joined, value)


@pytest.mark.usefixtures("_mode")
def test_forced_reset_begins_all_rows_and_ends_none():
    made = [mocks.MockEnvironment(durations=(d,)) for d in (2, 5)]
    envs = batch(*made)
    agent = mock_algorithm.MockAlgorithm(envs.action_space)
    tools.simulate(envs, agent, 3)
    agent.clear()
    result = tools.simulate(envs, agent, 2, reset=True)
    assert names_and_rows(agent)[:3] == [
        ("begin_episodes", [0, 1]),
        ("perform", [0, 1]),
        ("experience", [0, 1]),
    ]
    for arrays in transitions(agent):
        before, after = (arrays[k] for k in ("observation", "next_observation"))
        np.testing.assert_array_equal(decode(before)[0], decode(after)[0])
    assert [env.lengths for env in made] == [[2, 1, 2, 0], [3, 2]]
    # Scores are those of the new episode, without what was abandoned.
    assert result["done"].numpy().tolist() == [[False, False], [True, False]]
    assert result["score"].numpy().tolist() == [[0, 0], [3, 0]]
    assert result["length"].numpy().tolist() == [[0, 0], [2, 0]]


def test_episodes_are_for_training_or_for_evaluation():
    """Otherwise steps between would be missing in what is learned from."""
    envs, agent = mock_pair(durations=(4, 6))
    for training, steps in ((True, 3), (True, 2), (False, 3), (False, 1), (True, 1)):
        agent.clear()
        tools.simulate(envs, agent, steps, training)
        began = [call.agent_indices for call in agent.calls if "begin" in call.name]
        again = (training, steps) in ((True, 2), (False, 1))
        assert (began[:1] == [[0, 1]]) != again


def test_no_transition_crosses_an_episode_for_random_durations():
    rng = np.random.default_rng(0)
    made = [mocks.MockEnvironment(durations=rng.integers(1, 6, 7)) for _ in range(5)]
    envs = batch(*made)
    agent = mock_algorithm.MockAlgorithm(envs.action_space)
    for steps in (3, 11, 1, 30):
        tools.simulate(envs, agent, steps, reset=bool(rng.integers(2)))
    count = 0
    for arrays in transitions(agent):
        episode, time = decode(arrays["observation"][:, 0])
        next_episode, next_time = decode(arrays["next_observation"][:, 0])
        np.testing.assert_array_equal(next_episode, episode)
        np.testing.assert_array_equal(next_time, time + 1)
        np.testing.assert_array_equal(arrays["reward"], time + 1)
        count += len(episode)
    assert count == sum(sum(env.lengths) for env in made) == 45 * 5


def graph_of(envs, agent, body=simulation._graph):
    """The graph function of a pair that `simulate` calls."""
    return simulation._traced(body, envs, agent)


def test_one_trace_for_training_and_one_for_evaluation():
    envs, agent = mock_pair()
    for steps in (1, 2, 3, 5, 4, tf.constant(2), np.int64(3), np.int32(1)):
        for training in (True, False):
            for reset in (False, True, tf.constant(True)):
                tools.simulate(envs, agent, steps, training, reset)
    assert graph_of(envs, agent).experimental_get_tracing_count() == 2


def test_many_pairs_in_one_process_are_not_taken_for_one_that_is_traced_again(caplog):
    """As when a program evaluates one run after the other."""
    logger = tf.get_logger()
    logger.addHandler(caplog.handler)
    try:
        for _ in range(8):
            tools.simulate(*mock_pair(), 1, training=False)
    finally:
        logger.removeHandler(caplog.handler)
    assert not caplog.messages


def test_number_of_steps_may_be_any_integer():
    envs, agent = mock_pair()
    for steps in (2, np.int64(2), tf.constant(2, tf.int64)):
        assert tools.simulate(envs, agent, steps)["done"].shape == (2, 4)
    assert tools.simulate(envs, agent, 0)["done"].shape == (0, 4)


def test_calls_return_early_on_request_but_not_in_evaluation():
    envs, agent = mock_pair()
    seen = tf.Variable(0)

    def until():
        return seen.assign_add(1) % 3 == 0

    for training, taken in ((True, 3), (True, 3), (False, 7)):
        before = envs.steps
        result = tools.simulate(envs, agent, 7, training, until=until)
        assert envs.steps - before == taken * len(envs)
        assert result["done"].shape == (7, len(envs))
        assert not result["done"].numpy()[taken:].any()
    assert int(seen) == 6
    assert simulation.traces(envs, agent) == {"begin": 2, "graph": 2}


class Ignorant(algorithm.Algorithm):
    """Acts without looking, so that nothing but the flags orders reset and step."""

    def perform(self, agent_indices, observation, training=True):
        return tf.zeros([len(DURATIONS), 1])


def test_graphs_are_forgotten_with_their_algorithm():
    """And with them the memory of all variables that they use."""
    envs, agent = mock_batch(), Ignorant()
    tools.simulate(envs, agent, 3)
    kept = [weakref.ref(graph_of(envs, agent)), weakref.ref(agent)]
    del agent
    gc.collect()
    assert [x() for x in kept] == [None, None]
    assert tools.simulate(envs, Ignorant(), 3)["done"].numpy().any()


def test_environments_are_forgotten():
    """With their shared memory; TensorFlow remembers all functions that graphs call."""
    envs, agent = mock_batch(), Ignorant()
    tools.simulate(envs, agent, 3)
    kept = weakref.ref(envs), weakref.ref(envs._envs[0])
    del envs
    gc.collect()
    assert [x() for x in kept] == [None, None]


@pytest.mark.parametrize("training", [True, False])
def test_reset_comes_before_the_step_of_an_algorithm_that_ignores_observations(
    training,
):
    made = [mocks.MockEnvironment(durations=(d,)) for d in DURATIONS]
    envs, agent = batch(*made), Ignorant()
    for _ in range(5):  # A wrong order raises in the environment.
        tools.simulate(envs, agent, 20, training)
    assert [env.lengths for env in made] == [
        [1] * 100 + [0],
        [2] * 50 + [0],
        [3] * 33 + [1],
        [4] * 25 + [0],
    ]


def test_one_call_into_python_per_step_and_one_at_the_beginning():
    envs, agent = mock_batch(), Ignorant()
    step = envs.begin()
    for body, *arguments in (
        (simulation._begin, True),
        (simulation._graph, tf.constant(1), True, step),
    ):
        traced = graph_of(envs, agent, body)
        concrete = traced.get_concrete_function(envs, agent, *arguments)
        graph = concrete.graph.as_graph_def()
        nodes = [*graph.node, *(n for f in graph.library.function for n in f.node_def)]
        # TensorFlow keeps a second copy of the branches it lowers, so count names.
        names = {node.attr["token"].s for node in nodes if "PyFunc" in node.op}
        assert len(names) == 1


class BrokenError(Exception):
    """An error that takes two arguments, as careless ones do."""

    def __init__(self, first, second):
        super().__init__(f"{first} {second}")


class Broken(mocks.MockEnvironment):
    """Raises once at a step, or at a reset."""

    def __init__(self, step=None, reset=None):
        super().__init__(durations=(3,))
        self._broken_step, self._broken_reset = step, reset

    def step(self, action):
        if sum(self.lengths) == self._broken_step:
            self._broken_step = None
            raise BrokenError("broken", "step")
        return super().step(action)

    def reset(self, *, seed=None, options=None):
        if len(self.lengths) == self._broken_reset:
            self._broken_reset = None
            raise BrokenError("broken", "reset")
        return super().reset(seed=seed, options=options)


@pytest.mark.usefixtures("_mode")
@pytest.mark.parametrize("where", ["step", "reset"])
def test_error_of_an_environment_keeps_its_type(where):
    envs = batch(mocks.MockEnvironment(durations=(2,)), Broken(**{where: 1}))
    agent = mock_algorithm.MockAlgorithm(envs.action_space)
    with pytest.raises(BrokenError, match=f"broken {where}") as caught:
        tools.simulate(envs, agent, 10)
    assert any("row 1" in note for note in caught.value.__notes__)
    agent.clear()
    tools.simulate(envs, agent, 4, reset=True)  # And it can go on.
    assert names_and_rows(agent) == expected_calls(4, durations=(2, 3))


def test_error_of_the_algorithm_is_not_mistaken_for_one_of_the_environment():
    class Failing(Ignorant):
        def experience(self, agent_indices, observation, action, reward, *_):
            tf.debugging.assert_less(reward, 3.0, "Too much reward.")

    envs = batch(Broken(step=1), *(mocks.MockEnvironment() for _ in DURATIONS[1:]))
    with pytest.raises(BrokenError):
        tools.simulate(envs, Ignorant(), 10)
    with pytest.raises(calls.AlgorithmError, match="Too much reward"):
        tools.simulate(envs, Failing(), 10, reset=True)


def test_wrong_data_of_an_environment_surfaces_as_such():
    class Infinite(mocks.MockEnvironment):
        def step(self, action):
            observation, _, *rest = super().step(action)
            return observation, float("nan"), *rest

    envs = batch(mocks.MockEnvironment(), Infinite())
    agent = mock_algorithm.MockAlgorithm(envs.action_space)
    with pytest.raises(ValueError, match="row 1.*reward nan"):
        tools.simulate(envs, agent, 10)


def test_structured_spaces_go_through():
    space = gymnasium.spaces.Dict(
        {
            "b": gymnasium.spaces.Box(0, 255, (2, 2, 1), np.uint8),
            "a": gymnasium.spaces.Tuple(
                [
                    gymnasium.spaces.Discrete(5, start=-2),
                    gymnasium.spaces.MultiBinary(3),
                ]
            ),
        }
    )

    class Structured(gymnasium.Env):
        observation_space = action_space = space

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self._echo = {
                "b": np.full((2, 2, 1), 7, np.uint8),
                "a": (-2, np.array([1, 0, 1], np.int8)),
            }
            return self._echo, {}

        def step(self, action):
            assert self.action_space.contains(action)
            self._echo = action
            return action, 0.0, False, False, {}

    envs = batch(Structured(), Structured())
    agent = mock_algorithm.MockAlgorithm(envs.action_space)
    tools.simulate(envs, agent, 3)
    performs = [c.arrays["observation"] for c in agent.calls if c.name == "perform"]
    assert performs[0]["b"].tolist() == np.full((2, 2, 2, 1), 7).tolist()
    assert performs[0]["b"].dtype == np.uint8
    assert performs[0]["a"][0].tolist() == [-2, -2]
    for arrays in transitions(agent):
        tf.nest.map_structure(
            np.testing.assert_array_equal, arrays["action"], arrays["next_observation"]
        )


def mock_halves(durations=DURATIONS, **kwargs):
    made = [mocks.MockEnvironment(durations=(d,), **kwargs) for d in durations]
    size = len(made) // 2
    envs = tools.InGraphBatchEnv(
        [tools.BatchEnv(made[i : i + size], True, i) for i in (0, size)]
    )
    return made, envs, mock_algorithm.MockAlgorithm(envs.action_space)


def by_row(agent, rows):
    """List all that each row saw, in order: names of calls, and arrays of transitions."""
    calls, arrays = [[] for _ in range(rows)], [[] for _ in range(rows)]
    for call in agent.calls:
        for index, row in enumerate(call.agent_indices):
            calls[row].append(call.name)
            if call.name == "experience":
                found = {k: v[index].tolist() for k, v in call.arrays.items()}
                found.pop("action")  # The mock numbers its actions.
                arrays[row].append(found)
    return calls, arrays


@pytest.mark.usefixtures("_mode")
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("parts", [(12,), (1, 4, 2, 0, 5)])
def test_halves_see_what_the_whole_batch_sees(training, parts):
    _, envs, agent = mock_halves()
    whole_envs, whole_agent = mock_pair()
    results = [tools.simulate(envs, agent, steps, training) for steps in parts]
    whole = tools.simulate(whole_envs, whole_agent, 12, training)
    for name, value in whole.items():
        joined = np.concatenate([result[name] for result in results])
        np.testing.assert_array_equal(joined, value)
    calls, arrays = by_row(whole_agent, 4)
    for row in (0, 1):  # At the end of every call, the first half has acted already.
        calls[row] += ["begin_episodes", "perform"]
    assert by_row(agent, 4) == (calls, arrays)
    for one in (agent, whole_agent):
        names = ("begin_episodes", "perform")
        told = [(x.name, x.training) for x in one.calls if x.name in names]
        assert set(told) == {(name, training) for name in names}


@pytest.mark.parametrize("half", [False, True])
def test_episodes_are_of_one_algorithm(half):
    if half:
        _, envs, agent = mock_halves()
    else:
        envs, agent = mock_pair()
    other = mock_algorithm.MockAlgorithm(envs.action_space)
    tools.simulate(envs, agent, 3)
    tools.simulate(envs, other, 3)
    begun = set()
    for call in other.calls:
        if call.name == "begin_episodes":
            begun |= set(call.agent_indices)
        assert set(call.agent_indices) <= begun


@pytest.mark.usefixtures("_mode")
@pytest.mark.parametrize("parts", [(2,), (1, 1)])
def test_halves_act_one_after_the_other(parts):
    made, envs, agent = mock_halves((2, 2, 2, 2))
    for steps in parts:
        tools.simulate(envs, agent, steps)
    first, second = [0, 1], [2, 3]
    assert names_and_rows(agent) == [
        ("begin_episodes", first),
        ("perform", first),
        ("begin_episodes", second),
        ("perform", second),
        ("experience", first),
        ("perform", first),
        ("experience", second),
        ("perform", second),
        ("experience", first),
        ("end_episodes", first),
        ("begin_episodes", first),
        ("perform", first),
        ("experience", second),
        ("end_episodes", second),
    ]
    stored = {tuple(x) for arrays in transitions(agent) for x in arrays["action"]}
    assert stored == {tuple(x) for env in made for x in env.actions}


def test_halves_reset_by_force():
    made, envs, agent = mock_halves((2, 5, 2, 5))
    tools.simulate(envs, agent, 3)
    agent.clear()
    result = tools.simulate(envs, agent, 2, reset=True)
    assert result["done"].numpy().tolist() == [[False] * 4, [True, False] * 2]
    assert result["score"].numpy()[1].tolist() == [3, 0, 3, 0]
    assert [env.lengths for env in made] == [[2, 1, 2, 0], [3, 2]] * 2


def test_error_in_one_half_keeps_its_type_and_the_run_can_go_on():
    made, envs, agent = mock_halves((2, 3, 2, 3))
    step = made[3].step
    made[3].step = lambda action: (_ for _ in ()).throw(BrokenError("broken", "step"))
    with pytest.raises(BrokenError) as caught:
        tools.simulate(envs, agent, 10)
    assert any("row 3" in note for note in caught.value.__notes__)
    made[3].step = step
    agent.clear()
    result = tools.simulate(envs, agent, 4, reset=True)
    assert result["done"].numpy()[:, 3].tolist() == [False, False, True, False]


class Strict(tools.BatchEnv):
    """Must not be asked for anything else while it steps, as environments elsewhere."""

    stepping = False

    def _start(self, restart):
        self.stepping = True

    def _finish(self, restart):
        self.stepping = False
        return super()._finish(restart)

    def _reset(self, rows, seeds):
        assert not self.stepping
        super()._reset(rows, seeds)


def test_where_an_algorithm_fails_while_a_half_steps_all_episodes_begin_anew():
    class Failing(Ignorant):
        limit = tf.Variable(3.0, trainable=False)

        def perform(self, agent_indices, observation, training=True):
            return tf.zeros([2, 1])

        def experience(self, agent_indices, observation, action, reward, *_):
            tf.debugging.assert_less(reward, self.limit, "Too much reward.")

    made = [mocks.MockEnvironment(durations=(9,)) for _ in range(4)]
    envs = tools.InGraphBatchEnv([Strict(made[:2], True), Strict(made[2:], True, 2)])
    agent = Failing()
    with pytest.raises(calls.AlgorithmError, match="Too much reward"):
        tools.simulate(envs, agent, 10)
    agent.limit.assign(10.0)
    result = tools.simulate(envs, agent, 9)
    assert result["length"].numpy()[8].tolist() == [9] * 4


def test_halves_are_traced_once():
    _, envs, agent = mock_halves()
    for steps in (1, 2, 7):
        tools.simulate(envs, agent, steps)
    assert graph_of(envs, agent).experimental_get_tracing_count() == 1
