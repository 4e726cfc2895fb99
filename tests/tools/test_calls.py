"""Mistakes in algorithms of users give one line with their place."""

import inspect
import json
import pickle
import traceback

import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces as gs

from agents import networks, tools
from agents.algorithms import dqn
from agents.testing import mocks
from agents.tools import algorithm, calls

BOX = gs.Box(-1, 1, (1,))


class Right(algorithm.Algorithm):
    """Does nothing, without a mistake."""

    def begin_episodes(self, agent_indices, training):
        pass

    def perform(self, agent_indices, observation, training):
        return tf.zeros([tf.size(agent_indices), 1])


class Missing(algorithm.Algorithm):
    pass


class OneArgument(Right):
    def begin_episodes(self, agent_indices):
        pass


class FewArguments(Right):
    def experience(self, agent_indices, observation):
        pass


class OtherSignature(algorithm.Algorithm):
    def explore(self, observation):
        pass


class Branch(Right):
    def experience(self, agent_indices, observation, action, reward, *_):
        if tf.reduce_any(reward > 0.0):  # Here.
            return


class Loop(Right):
    def end_episodes(self, agent_indices):
        for _ in agent_indices:  # Here.
            pass


class Autograph(Right):
    @tf.function
    def matrix(self, x):
        if x > 0.0:
            return tf.zeros([3, 3]) @ tf.zeros([2])
        return x

    def end_episodes(self, agent_indices):
        self.matrix(tf.constant(1.0))  # Here.


class Deep(Right):
    def end_episodes(self, agent_indices):
        self.helper()

    def helper(self):
        self.metrics.update({"los": 1.0})  # Here.


class Nothing(Right):
    def perform(self, *args):
        super().perform(*args)


class Structure(Right):
    def perform(self, *args):
        return {"a": super().perform(*args)}


class Shape(Right):
    def perform(self, *args):
        return super().perform(*args)[:, 0]


class Rows(Right):
    def perform(self, *args):
        return tf.zeros([5, 1])


class Kind(Right):
    def perform(self, *args):
        return tf.cast(super().perform(*args), tf.string)


class Outside(Right):
    def perform(self, *args):
        return super().perform(*args) + 2.0


def line(cls, text="# Here."):
    """Number of a line of the class."""
    lines, first = inspect.getsourcelines(cls)
    return first + next(i for i, x in enumerate(lines) if text in x)


def simulate(agent, size=2):
    envs = [mocks.MockEnvironment((1,)) for _ in range(size)]
    envs = tools.InGraphBatchEnv(tools.BatchEnv(envs, blocking=True))
    return tools.simulate(envs, agent, steps=3)


CASES = [
    (
        Missing,
        "perform",
        "class",
        "NotImplementedError: it must be defined, as perform",
    ),
    (OneArgument, "begin_episodes", "def", "called with (agent_indices, training)."),
    (FewArguments, "experience", "def", "it is called with (agent_indices, observa"),
    (
        OtherSignature,
        "perform",
        "def",
        "takes 2 positional arguments but 3 were given.",
    ),
    (Branch, "experience", "# Here", "bool` is not allowed; use tf.where, tf.cond"),
    (Loop, "end_episodes", "# Here", "is not allowed; use tf.where, tf.cond or"),
    (Autograph, "end_episodes", "# Here", ": ValueError: Shape must be rank 2 but"),
    (Deep, "end_episodes", "# Here", ": KeyError: \"Metrics ['los'] were not declared"),
    (Nothing, "perform", "def", "must return float32 [2, 1], got nothing."),
    (Structure, "perform", "def", "float32 [2, 1], got {a: float32 [2, 1]}."),
    (Shape, "perform", "def", "must return float32 [2, 1], got float32 [2]."),
    (Rows, "perform", "def", "must return float32 [2, 1], got float32 [5, 1]."),
    (Kind, "perform", "def", "must return float32 [2, 1], got string [2, 1]."),
    (Outside, "perform", "def", "row 0: action [2.] is not finite or not between"),
]


@pytest.mark.parametrize(("cls", "name", "where", "text"), CASES)
def test_mistakes_are_one_line_that_says_where(cls, name, where, text):
    with pytest.raises(calls.AlgorithmError) as error:
        simulate(cls())
    said = str(error.value)
    place = f"{cls.__name__}.{name} at {__file__}:{line(cls, where)}: "
    assert said.startswith(place)
    assert text in said
    assert "\n" not in said
    again = pickle.loads(pickle.dumps(error.value))
    assert str(again) == said


class Far(Right):
    def __init__(self):
        super().__init__()
        self.returns = tf.Variable([0.0])

    def experience(self, agent_indices, observation, action, reward, *_):
        self.returns.scatter_nd_add(agent_indices[:, None], reward)  # Here.


class InBranch(Right):
    def __init__(self):
        super().__init__()
        self.total = tf.Variable(0.0)

    def end_episodes(self, agent_indices):
        self.train_when(tf.size(agent_indices) > 0)

    def train(self):
        size = tf.random.uniform([], 4, 5, tf.int32)
        self.total.assign_add(tf.reshape(tf.zeros([3]), [size])[0])  # Here.


class InCondition(InBranch):
    def train(self):
        size = tf.random.uniform([], 4, 5, tf.int32)

        def change():
            return tf.reshape(tf.zeros([3]), [size])[0]  # Here.

        self.total.assign_add(tf.cond(self.total < 1, change, lambda: 0.0))


class InFunction(InBranch):
    def train(self):
        size = tf.random.uniform([], 4, 5, tf.int32)

        @tf.function
        def gather():
            return tf.gather(tf.zeros([3]), size)  # Here.

        self.total.assign_add(gather())


class Python(Right):
    def perform(self, agent_indices, observation, training):
        def divide(x):
            return x / np.float32(int(x.sum()) // 0)  # Here.

        action = super().perform(agent_indices, observation, training)
        return tf.ensure_shape(tf.numpy_function(divide, [action], tf.float32), [2, 1])


class NoNumber(Right):
    def __init__(self):
        super().__init__(("loss",))

    def experience(self, agent_indices, observation, action, reward, *_):
        self.report({"loss": tf.reduce_mean(tf.math.log(-reward))})  # Here.


LATE = [
    (Far, "experience", "indices[1] = [1] does not index into shape [1]."),
    (InBranch, "end_episodes", "tensor with 3 values, but the requested shape has 4."),
    (InCondition, "end_episodes", "but the requested shape has 4."),
    (InFunction, "end_episodes", "indices = 4 is not in [0, 3)."),
    (Python, "perform", ": ZeroDivisionError: integer division or modulo by zero."),
    (NoNumber, "experience", ": NoNumber's loss is not finite."),
]


@pytest.mark.parametrize(("cls", "name", "text"), LATE)
def test_mistakes_of_running_graphs_say_where_too(cls, name, text):
    with pytest.raises(calls.AlgorithmError) as error:
        simulate(cls())
    said = str(error.value)
    assert said.startswith(f"{cls.__name__}.{name} at {__file__}:{line(cls, '# Here')}")
    assert said.endswith(text)
    assert "\n" not in said
    assert "Error" in error.value.__notes__[0]


def test_lines_of_other_algorithms_are_not_told():
    class Other(InBranch):
        def train(self):
            size = tf.random.uniform([], 3, 4, tf.int32)
            self.total.assign_add(tf.reshape(tf.zeros([3]), [size])[0])

    other = Other()  # Its graphs have operations of the same names.
    simulate(other)
    with pytest.raises(calls.AlgorithmError) as error:
        simulate(InBranch())
    assert " or " not in str(error.value)


def test_lines_of_the_standard_library_are_not_told():
    class Text(Right):
        def perform(self, *args):
            return json.loads("{")  # Here.

    with pytest.raises(calls.AlgorithmError) as error:
        simulate(Text())
    assert f"Text.perform at {__file__}:{line(Text)}: " in str(error.value)


def test_both_lines_are_told_if_branches_name_their_operations_alike():
    class Twice(InBranch):
        def begin_episodes(self, agent_indices, training):
            size = tf.random.uniform([], 3, 4, tf.int32)
            self.total.assign_add(tf.reshape(tf.zeros([3]), [size])[0])  # Here.

    with pytest.raises(calls.AlgorithmError) as error:
        simulate(Twice())
    said = str(error.value)
    for cls in (Twice, InBranch):
        assert f"{__file__}:{line(cls)}" in said


def test_failures_without_a_line_of_a_user_stay_what_they_are():
    agent = Right()
    simulate(agent)
    for node in ("nowhere", "while"):  # The loop of `simulate` is not a user's.
        text = f"It failed.\n\t [[{{{{node {node}}}}}]]"
        calls.locate(agent, tf.errors.InvalidArgumentError(None, None, text))


def test_what_was_raised_is_shown_below():
    with pytest.raises(calls.AlgorithmError) as error:
        simulate(Deep())
    shown = "".join(traceback.format_exception(error.value))
    below = shown[shown.rindex(str(error.value)) :]
    assert "self.helper()" in below
    assert "KeyError" in below


def test_right_algorithms_run_in_halves_too():
    envs = [
        tools.BatchEnv([mocks.MockEnvironment((1,))], blocking=True) for _ in range(2)
    ]
    result = tools.simulate(tools.InGraphBatchEnv(envs), Right(), steps=3)
    np.testing.assert_array_equal(result["done"][2], [True, True])
    with pytest.raises(calls.AlgorithmError, match="float32 .1, 1., got float32 .1.,?"):
        tools.simulate(tools.InGraphBatchEnv(envs), Shape(), steps=3)


def test_eager_exceptions_stay_what_they_are():
    tf.config.run_functions_eagerly(True)
    try:
        with pytest.raises(KeyError, match="were not declared"):
            simulate(Deep())
        with pytest.raises(calls.AlgorithmError, match="got nothing"):
            simulate(Nothing())
    finally:
        tf.config.run_functions_eagerly(False)


def test_mistakes_of_this_package_stay_what_they_are():
    class Broken(dqn.DQN):
        pass

    config = dqn.Config(
        network=networks.NetworkConfig(layers=(4,)),
        **{"start_size": 4, "batch_size": 4, "capacity": 8, "jit": False},
    )
    for cls, error in ((dqn.DQN, TypeError), (Broken, calls.AlgorithmError)):
        agent = cls(BOX, gs.Discrete(2), 2, 5, config)
        agent.observations = None
        envs = [
            mocks.RandomEnvironment(BOX, gs.Discrete(2), max_length=5) for _ in range(2)
        ]
        envs = tools.InGraphBatchEnv(tools.BatchEnv(envs, blocking=True))
        with pytest.raises(error, match="NoneType"):
            tools.simulate(envs, agent, steps=1)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("plain"), "plain"),
        (
            ValueError(
                "Graph execution error:\n\nFile x\n\nIt broke.\n\t [[{{node}}]]"
            ),
            "It broke.",
        ),
        (
            ValueError(
                "Graph execution error:\n\nDetected at node x\nDetected unsupported "
                "operations when trying to compile graph x_0[] on XLA_CPU_JIT: Unique "
                "(No registered 'Unique' OpKernel)\n\nFile x, line 3, in step"
            ),
            "XLA cannot compile the operation Unique; use others in functional "
            "environments, and set algorithm.jit=false for the rest.",
        ),
        (
            ValueError(
                "Detected unsupported operations x: StringFormat (No registered"
            ),
            "XLA cannot compile tf.print; use others in functional environments, and "
            "set algorithm.jit=false for the rest.",
        ),
        (ValueError("{{function_node __x}} It broke. [Op:Check] name: "), "It broke."),
    ],
)
def test_reason_of_an_error(error, line):
    assert calls.graph_reason(error) == line


@pytest.mark.parametrize(
    ("space", "given", "fits"),
    [
        (gs.Discrete(3), tf.zeros([4], tf.int32), True),
        (gs.Discrete(3), tf.zeros([4]), False),
        (BOX, tf.zeros([4, 1], tf.float64), True),
        (BOX, tf.zeros([4, 1], tf.int64), True),
        (gs.MultiBinary(2), tf.zeros([4, 2], tf.bool), True),
        (gs.Tuple((BOX, BOX)), (tf.zeros([4, 1]),) * 2, True),
        (gs.Tuple((BOX, BOX)), tf.zeros([4, 1]), False),
        (gs.Dict(a=BOX), {"a": np.zeros([4, 1])}, True),
        (gs.Dict(a=BOX), {"a": 0.0}, False),
        (gs.Dict(a=BOX), {"b": tf.zeros([4, 1])}, False),
        (gs.Dict(a=BOX), {"a": None}, False),
    ],
)
def test_actions_that_environments_take_are_fine(space, given, fits):
    class Given(Right):
        def perform(self, *args):
            return given

    agent = Given()
    arguments = agent, tf.range(4), None, True, space
    if fits:
        assert calls.perform(*arguments) is given
        return
    with pytest.raises(calls.AlgorithmError, match="must return"):
        calls.perform(*arguments)
