"""Every component conforms, and broken ones are caught."""

import functools

import gymnasium
import keras
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces as gs

from agents import exploration, memories, networks, preprocessing, returns, testing
from agents.memories import transfer
from agents.networks import action_values, kinds, squashed, twin_critics
from agents.testing import Call, Rows, Time, components
from agents.tools import spaces

BOX = gs.Box(-1, 1, (3,))
NUMBER = gs.Box(-1, 1, ())
FLAG = gs.Box(0, 1, (), bool)
IMAGE = gs.Box(0, 255, (8, 8, 3), np.uint8)
NESTED = gs.Dict(image=IMAGE, other=gs.Tuple((gs.Discrete(3, start=-1), BOX)))
CONFIG = networks.NetworkConfig(convolutions=((4, 4, 4),), layers=(8,))
ROWS = Rows(4)


def like(structure):
    """Spaces for a structure of tensors `[N, ...]`."""
    return tf.nest.map_structure(
        lambda x: gs.Box(0, 1, tuple(x.shape[1:]), x.dtype.as_numpy_dtype), structure
    )


@pytest.mark.quick("True-8", "True-last1", "False-8")
@pytest.mark.parametrize("last", [8, {"type": "lstm", "units": 4}])
@pytest.mark.parametrize("shared", [False, True])
def test_actor_critic(last, shared):
    config = networks.NetworkConfig(
        convolutions=((4, 4, 4),), layers=(8, last), shared=shared
    )
    network = networks.PolicyValueNetwork(NESTED, gs.Discrete(3), config, seed=0)
    state = like(network.initial_state(1))
    sequence = Call(Time(NESTED), state, Time(FLAG))
    methods = dict.fromkeys(("sequence", "policy", "value"), sequence)
    testing.check_component(network, {"step": Call(NESTED, state), **methods})


@pytest.mark.parametrize("noisy", [0.0, 0.5])
def test_action_values(noisy):
    actions = gs.MultiDiscrete([2, 3])
    options = {"dueling": True, "atoms": 5, "noisy_std": noisy}
    network = action_values.ActionValues(NESTED, actions, CONFIG, 0, **options)
    values = gs.Box(-1, 1, (5,))
    testing.check_component(
        network,
        {
            "__call__": Call(NESTED),
            "draw": Call(tf.random.Generator.from_seed(0)),
            "best": Call(values, NESTED),
            "chosen": Call(values, actions),
        },
    )


def test_soft_actor_critic():
    policy = squashed.SquashedPolicy(NESTED, BOX, CONFIG, 0)
    testing.check_component(policy, {"__call__": Call(NESTED), "action": Call(BOX)})
    critics = twin_critics.TwinCritics(NESTED, 3, CONFIG, 0, False)
    calls = {"__call__": Call(NESTED, BOX, leading=0)}
    testing.check_component(critics, calls)


class Acting(keras.layers.Layer):
    """All that a head and its distribution do, from features `[..., 4]`."""

    def __init__(self, space, continuous):
        super().__init__()
        config = networks.NetworkConfig(continuous=continuous)
        self._head = kinds.head(space, config, seed=0)
        self._head(tf.zeros([1, 4]))

    def act(self, features, generator):
        distribution = self._distribution(features)
        sample = distribution.sample(generator)
        return sample, self._head.action(sample), self._head.action(distribution.mode())

    def judge(self, features, generator):
        ours, theirs = self._distribution(features), self._distribution(features + 1.0)
        sample = ours.sample(generator)
        return theirs.log_prob(sample), ours.entropy(), ours.kl(theirs), ours.mode()

    def _distribution(self, features):
        return self._head.distribution(self._head(features))


@pytest.mark.parametrize(
    ("space", "continuous"),
    [
        (BOX, "normal"),
        (BOX, "tanh_normal"),
        (BOX, "beta"),
        (gs.Discrete(3, start=2), "normal"),
        (gs.MultiDiscrete([2, 3]), "normal"),
        (gs.MultiBinary(3), "normal"),
        (gs.Tuple((gs.Discrete(2), gs.Dict(x=BOX, y=gs.MultiBinary(2)))), "normal"),
    ],
)
def test_heads_and_distributions(space, continuous):
    features, generator = gs.Box(-1, 1, (4,)), tf.random.Generator.from_seed(0)
    calls = {"act": Call(features, generator), "judge": Call(Time(features), generator)}
    testing.check_component(Acting(space, continuous), calls)


def test_streaming_normalize():
    testing.check_component(
        preprocessing.StreamingNormalize([3], clip=2.0),
        {"update": Call(Time(BOX), Time(FLAG)), "__call__": Call(BOX)},
    )


def test_observations():
    testing.check_component(
        preprocessing.Observations(spaces.spec(NESTED), enabled=True),
        {"update": Call(Time(NESTED), Time(FLAG)), "__call__": Call(NESTED)},
    )


def test_preprocessing():
    frames = [
        {"type": "grayscale"},
        {"type": "image_resize", "height": 4, "width": 4},
        {"type": "sequence", "length": 3},
    ]
    component = preprocessing.Preprocessing(
        NESTED, {"image": frames, "other/0": ["one_hot"], "other/1": ["normalize"]}
    )
    state = like(component.initial_state(1))
    testing.check_component(component, {"__call__": Call(NESTED, state, FLAG)})


TRANSITION = {"observation": NESTED, "reward": NUMBER}
SPECS = spaces.transform(
    lambda x: tf.TensorSpec(x.shape, x.dtype),
    {"observation": spaces.spec(NESTED), "reward": spaces.spec(NUMBER)},
)


@pytest.mark.parametrize(
    ("memory", "more"),
    [
        (functools.partial(memories.Unrolls, SPECS, 4, 8), ()),
        (functools.partial(memories.Queue, SPECS, 4, 8, 2), ("oldest", "ready")),
        (functools.partial(memories.Episodes, SPECS, 4, 20, 8), ("take",)),
    ],
)
def test_memories_of_sequences(memory, more):
    rows = dict.fromkeys(("clear", "last_of_unroll", "end"), Call(ROWS))
    calls = {"append": Call(ROWS, TRANSITION), **rows}
    nothing = dict.fromkeys(("data", "full", *more), Call())
    testing.check_component(memory(), {**calls, **nothing})


class Giving(memories.Replay):
    """Replay memory whose transitions move by a method, as checks need it."""

    take = transfer.take


@pytest.mark.parametrize("selector", [memories.Uniform, memories.Prioritized])
def test_replay(selector):
    memory = Giving(
        *(SPECS["observation"], tf.TensorSpec([], tf.int64), 4, 40),
        selector=selector(),
        n_step=2,
    )
    step = (NESTED, gs.Discrete(3), NUMBER, FLAG, FLAG, NESTED)
    calls = {
        "append": Call(ROWS, *step, leading=0),
        "begin": Call(ROWS),
        "sample": Call(6, tf.constant([1, 2])),
        "update": Call(tf.constant([0, 1], tf.int64), tf.constant([0.5, 2.0])),
        "take": Call(tf.zeros([4], tf.int64)),
    }
    rows = tf.range(4)  # Something to draw.
    no, observation = tf.zeros([4], tf.bool), testing.conformance.samples(NESTED, 0, 4)
    zeros = tf.zeros([4], tf.int64), tf.zeros([4])
    memory.append(rows, observation, *zeros, no, ~no, observation)
    testing.check_component(memory, calls)


@pytest.mark.parametrize(
    ("component", "action"),
    [
        (exploration.Gaussian(3, 4, 0.1), BOX),
        (exploration.OrnsteinUhlenbeck(3, 4, 0.2), BOX),
        (exploration.EpsilonGreedy([3], 4, 0.5), gs.Discrete(3)),
        (exploration.EpsilonGreedy([2, 3], 4, 0.5), gs.MultiDiscrete([2, 3])),
    ],
)
def test_exploration(component, action):
    steps, generator = tf.constant(9, tf.int64), tf.random.Generator.from_seed(0)
    calls = {"begin": Call(ROWS), "__call__": Call(ROWS, action, steps, generator)}
    testing.check_component(component, calls)


def test_parameter_noise():
    layer, generator = dense(), tf.random.Generator.from_seed(0)
    component = exploration.ParameterNoise(layer, layer.variables, 4, 0.1)
    act = Call(ROWS, BOX, tf.constant(9, tf.int64), generator, BOX)
    testing.check_component(component, {"begin": Call(ROWS), "__call__": act})


def test_functions():
    row, ends = Time(NUMBER, 6), Time(FLAG, 6)
    testing.check_component(
        returns,
        {
            "next_values": Call(row, ends, row),
            "lambda_return": Call(row, row, ends, 0.9, 0.8),
            "advantage": Call(row, row, row, ends, 0.9, 0.8),
            "vtrace": Call(*[row] * 4, ends, 0.9, leading=2),
        },
    )


def dense(cls=keras.layers.Dense):
    layer = cls(3)
    layer.build([None, 3])
    return layer


def test_layers_of_keras():
    testing.check_component(dense(), {"__call__": Call(BOX)})


class KnowsItsSize(tf.Module):
    def __call__(self, value):
        return tf.concat([value[:i] for i in range(value.shape[0])], 0)


class Lazy(tf.Module):
    weight = None

    def __call__(self, value):
        if self.weight is None:
            self.weight = tf.Variable(2.0)
        return self.weight * value


class Baked(tf.Module):
    """Computes with Python what the graph then takes for a constant."""

    count = 0

    def __call__(self, value):
        self.count += 1
        return value * self.count


class FloatInGraphs(tf.Module):
    def __call__(self, value):
        return value if tf.executing_eagerly() else tf.cast(value, tf.float64)


class ListInGraphs(tf.Module):
    def __call__(self, value):
        return value if tf.executing_eagerly() else [value]


class ChangesInGraphs(tf.Module):
    def __init__(self):
        super().__init__()
        self.total = tf.Variable(0.0)

    def __call__(self, value):
        if not tf.executing_eagerly():
            self.total.assign_add(1.0)
        return value + self.total


class Flat(tf.Module):
    def __call__(self, value):
        return tf.reshape(value, [-1, 3])


class Hides(tf.Module):
    """Keeps a variable where checkpoints do not look."""

    def __init__(self):
        super().__init__()
        variable = tf.Variable(2.0)
        self._hidden = lambda: variable

    def __call__(self, value):
        return self._hidden() * value


class HidesLayer(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        layer = dense()
        self._hidden = lambda: layer
        self.built = True

    def call(self, value):
        return self._hidden()(value)


class Untracked:
    def __init__(self):
        self.weight = tf.Variable(2.0)

    def __call__(self, value):
        return self.weight * value


class Counts(tf.Module):
    """Remembers in Python what it did without graphs at last."""

    def __init__(self):
        super().__init__()
        self.weight, self.calls = tf.Variable(2.0), 0

    def __call__(self, value):
        if tf.executing_eagerly():
            self.calls += 1
        return value * self.weight + float(max(self.calls - 4, 0))


@pytest.mark.parametrize(
    ("cls", "argument", "rule", "text"),
    [
        (
            KnowsItsSize,
            BOX,
            components.UNKNOWN_SIZES,
            "expected a graph, got TypeError",
        ),
        (Lazy, BOX, components.ONE_TRACE, "expected 1 trace, got 2"),
        (Baked, BOX, components.GRAPH, r"__call__ .*\[0, 0\]: expected"),
        (FloatInGraphs, BOX, components.GRAPH, "expected float32 .1, 3.*float64"),
        (ListInGraphs, BOX, components.GRAPH, "parts"),
        (ChangesInGraphs, BOX, components.GRAPH, "expected .* got"),
        (Flat, Time(BOX), components.LEADING, r"expected \[1, 1\], got \[1, 3\]"),
        (Hides, BOX, components.CHECKPOINT, "variable 0 Variable:0.*expected 2.0"),
        (HidesLayer, BOX, components.CHECKPOINT, "variable 0 .*expected"),
        (Untracked, BOX, components.CHECKPOINT, "Untracked: expected a checkpoint"),
        (Counts, BOX, components.STATE, "__call__ again"),
    ],
)
def test_broken_components_are_caught(cls, argument, rule, text):
    with pytest.raises(testing.ConformanceError, match=f"^{rule}; .*{text}") as error:
        testing.check_component(cls(), {"__call__": Call(argument)})
    assert "\n" not in str(error.value)


def test_changes_of_variables_are_compared():
    """Also where results do not tell of them."""

    class Forgets(ChangesInGraphs):
        def __call__(self, value):
            super().__call__(value)
            return value

    with pytest.raises(testing.ConformanceError, match="changes 0 Variable:0"):
        testing.check_component(Forgets(), {"__call__": Call(BOX)})


def test_structures_of_arguments_are_passed_as_declared():
    seen = []

    class Component(tf.Module):
        def method(self, first, second, third):
            seen.append((first, second, third))
            return first["a"][0]

    first = {"a": [BOX, 3], "b": gymnasium.spaces.Dict(c=NUMBER)}
    call = Call(first, (Time(NUMBER), None), "text")
    assert call.leading == 2
    testing.check_component(
        Component(), {"method": Call(first, (Time(NUMBER), None), "text", leading=1)}
    )
    first, second, third = seen[-1]
    assert first["a"][0].shape == (3, 3)
    assert first["a"][1] == 3
    assert first["b"]["c"].shape == (3,)
    assert second[0].shape == (3, 5)
    assert second[1] is None
    assert third == "text"
