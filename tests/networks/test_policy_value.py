"""Policy and value function together."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces as gs

from agents import networks
from agents.networks import modes, parts
from agents.tools import spaces

OBSERVATION = gs.Box(-1, 1, (3,))
ACTIONS = {"box": gs.Box(-1, 1, (2,)), "discrete": gs.Discrete(4)}
NETWORKS = {
    "dense": {"layers": (6,)},
    "shared": {"layers": (6,), "shared": True},
    "gru": {"layers": (6, {"type": "gru", "units": 5})},
    "lstm": {"layers": (6, {"type": "lstm", "units": 5})},
    "shared lstm": {
        "layers": ({"type": "lstm", "units": 5},),
        "shared": True,
    },
}


def make(name, action="box", seed=0):
    network = networks.NetworkConfig(**NETWORKS[name])
    return networks.PolicyValueNetwork(OBSERVATION, ACTIONS[action], network, seed)


def random(*shape, seed=0):
    return tf.random.stateless_normal(shape, [seed, 0])


def values(variables):
    return [variable.numpy() for variable in variables]


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("name", NETWORKS)
def test_sequences_equal_step_by_step(name, action):
    network = make(name, action)
    x = random(2, 7, 3)
    first = tf.constant([[False] * 3 + [True] + [False] * 3, [False] * 7])
    state = start = network.initial_state(2)
    sequence = network.policy(x, start, first)
    sequence_value = network.value(x, start, first)
    together, value_together, states = network.sequence(x, start, first)
    for step in range(7):
        kept = 1.0 - tf.cast(first[:, step, None], tf.float32)
        state = tf.nest.map_structure(lambda s, k=kept: s * k, state)
        parameters, value, state = network.step(x[:, step], state)
        assert set(sequence) == set(parameters)
        for key, expected in parameters.items():
            np.testing.assert_allclose(sequence[key][:, step], expected, atol=1e-5)
            np.testing.assert_allclose(together[key][:, step], expected, atol=1e-5)
        np.testing.assert_allclose(sequence_value[:, step], value, atol=1e-5)
        np.testing.assert_allclose(value_together[:, step], value, atol=1e-5)
        after = tf.nest.map_structure(lambda x, t=step: x[:, t], states)
        tf.nest.map_structure(
            lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5), after, state
        )
    assert value.shape == (2,)


@pytest.mark.parametrize("name", ["dense", "gru"])
def test_separate_parts_share_nothing(name):
    network = make(name)
    policy, value = network.policy_variables, network.value_variables
    assert not {id(v) for v in policy} & {id(v) for v in value}
    everything = {id(v) for v in network.trainable_variables}
    assert {id(v) for v in policy} | {id(v) for v in value} == everything
    for ours, theirs in zip(values(policy), values(value), strict=False):
        if ours.shape == theirs.shape and ours.any():
            assert not np.allclose(ours, theirs)


@pytest.mark.parametrize("name", ["shared", "shared lstm"])
def test_shared_torso_belongs_to_both_parts(name):
    network = make(name)
    policy = {id(v) for v in network.policy_variables}
    value = {id(v) for v in network.value_variables}
    assert policy & value
    assert policy | value == {id(v) for v in network.trainable_variables}
    assert len(value - policy) == 2  # Kernel and bias of the value.
    assert len(policy - value) == 3  # And of the mean, and the deviation.


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_reach_their_own_variables_only(name):
    network = make(name)
    x, first = random(4, 6, 3), tf.zeros([4, 6], tf.bool)
    state = network.initial_state(4)
    variables = [v.value for v in network.trainable_variables]

    def reached(function):
        with tf.GradientTape() as tape:
            loss = function()
        gradients = tape.gradient(loss, variables)
        return {
            id(v)
            for v, gradient in zip(network.trainable_variables, gradients, strict=True)
            if gradient is not None
        }

    value = reached(lambda: tf.reduce_sum(network.value(x, state, first)))
    assert value == {id(v) for v in network.value_variables}

    def entropy_and_mode():
        made = network.head.distribution(network.policy(x, state, first))
        return tf.reduce_sum(made.entropy()) + tf.reduce_sum(made.mode())

    assert reached(entropy_and_mode) == {id(v) for v in network.policy_variables}


def test_state_of_a_shared_torso_is_kept_once():
    assert [len(part) for part in make("lstm").initial_state(3)] == [2, 2]
    assert [len(part) for part in make("shared lstm").initial_state(3)] == [2, 0]
    assert [len(part) for part in make("dense").initial_state(3)] == [0, 0]


def test_images_stay_integers_until_the_network():
    space = gs.Box(0, 255, (16, 16, 3), np.uint8)
    network = networks.NetworkConfig(convolutions=((4, 4, 4),), layers=(8,))
    made = networks.PolicyValueNetwork(space, ACTIONS["discrete"], network, 0)
    image = tf.constant(np.random.default_rng(0).integers(0, 256, (5, 16, 16, 3)))
    parameters, value, _ = made.step(tf.cast(image, tf.uint8), made.initial_state(5))
    assert parameters["logits"].shape == (5, 4)
    scaled = gs.Box(0, 1, (16, 16, 3))
    other = networks.PolicyValueNetwork(scaled, ACTIONS["discrete"], network, 0)
    image = tf.cast(image, tf.float32) / 255
    expected = other.step(image, other.initial_state(5))
    np.testing.assert_allclose(parameters["logits"], expected[0]["logits"], atol=1e-5)
    np.testing.assert_allclose(value, expected[1], atol=1e-5)


def test_seed_decides_all_weights():
    for name in NETWORKS:
        first, again, other = (
            values(make(name, seed=seed).trainable_variables) for seed in (3, 3, 4)
        )
        for a, b, c in zip(first, again, other, strict=True):
            np.testing.assert_array_equal(a, b)
            if a.ndim == 2 and a.any():
                assert not np.allclose(a, c)


def masked_space(mask, **others):
    others = others or {"sensors": OBSERVATION}
    return gs.Dict({"action_mask": mask, **others})


MASKS = {
    "int8": (gs.Discrete(4), gs.Box(0, 1, (4,), np.int8)),
    "binary": (gs.Discrete(4, start=3), gs.MultiBinary(4)),
    "bool": (gs.Discrete(4), gs.Box(0, 1, (4,), bool)),
    "uint8": (gs.Discrete(4), gs.Box(0, 1, (4,), np.uint8)),
    "float": (gs.Discrete(4), gs.Box(0, 1, (4,), np.float32)),
    "multi": (gs.MultiDiscrete([2, 2]), gs.Box(0, 1, (4,), np.int8)),
    "tuple": (
        gs.MultiDiscrete([2, 2]),
        gs.Tuple([gs.MultiBinary(2), gs.Box(0, 1, (2,), np.float32)]),
    ),
}


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("name", ["dense", "shared lstm"])
def test_masks_of_observations_are_obeyed_and_not_seen(kind, name):
    actions, mask = MASKS[kind]
    config = networks.NetworkConfig(**NETWORKS[name])
    network = networks.PolicyValueNetwork(masked_space(mask), actions, config, 0)
    plain = networks.PolicyValueNetwork(
        gs.Dict({"sensors": OBSERVATION}), actions, config, 0
    )
    allowed = np.array([[1, 0, 1, 1], [1, 1, 0, 1]] * 3).reshape(2, 3, 4)

    def observe(allowed):
        if kind == "tuple":
            leaves = (
                tf.constant(allowed[..., :2], tf.int8),
                tf.constant(allowed[..., 2:], tf.float32),
            )
        else:
            leaves = tf.constant(allowed, mask.dtype)
        return {"action_mask": leaves, "sensors": x}

    x, first = random(2, 3, 3), tf.zeros([2, 3], tf.bool)
    state = network.initial_state(2)
    observation = observe(allowed)
    parameters = network.policy(observation, state, first)
    raw = plain.policy({"sensors": x}, state, first)["logits"].numpy()
    expected = np.where(allowed, raw, parts.FORBIDDEN)
    np.testing.assert_allclose(parameters["logits"], expected, rtol=1e-5, atol=1e-6)
    value = network.value(observation, state, first)
    expected_value = plain.value({"sensors": x}, state, first)
    np.testing.assert_allclose(value, expected_value, rtol=1e-5, atol=1e-6)
    for step in range(3):
        now = tf.nest.map_structure(lambda leaf, s=step: leaf[:, s], observation)
        single, value, state = network.step(now, state)
        np.testing.assert_allclose(
            single["logits"], expected[:, step], rtol=1e-4, atol=1e-5
        )
        np.testing.assert_allclose(value, expected_value[:, step], atol=1e-5)


def test_masks_compile():
    actions, mask = MASKS["tuple"]
    config = networks.NetworkConfig(layers=(6,))
    network = networks.PolicyValueNetwork(masked_space(mask), actions, config, 0)
    generator = tf.random.Generator.from_seed(0, alg="philox")

    @tf.function(jit_compile=True)
    def act(observation):
        parameters, _, _ = network.step(observation, network.initial_state(1000))
        return network.head.distribution(parameters).sample(generator)

    left, right = np.zeros([2, 1000, 2])
    left[:, 1] = right[:, 0] = 1
    observation = {
        "action_mask": (tf.constant(left, tf.int8), tf.constant(right, tf.float32)),
        "sensors": random(1000, 3),
    }
    np.testing.assert_array_equal(act(observation), [[1, 0]] * 1000)


@pytest.mark.parametrize(
    ("mask", "actions", "message"),
    [
        (gs.MultiBinary(3), gs.Discrete(4), r"shape \(4,\) for Discrete.*got \(3,\)"),
        (gs.MultiBinary([1, 4]), gs.Discrete(4), r"\(4,\).*got \(1, 4\)"),
        (gs.Discrete(4), gs.Discrete(4), r"\(4,\).*got \(\)"),
        (gs.Tuple([gs.MultiBinary(4)]), gs.Discrete(4), r"\(4,\).*got Tuple"),
        (
            gs.MultiBinary(2),
            gs.MultiDiscrete([2, 3]),
            r"\(5,\) or a Tuple of \(2,\), \(3,\) for.*got \(2,\)",
        ),
        (
            gs.Tuple([gs.MultiBinary(3), gs.MultiBinary(2)]),
            gs.MultiDiscrete([2, 3]),
            "or a Tuple of.*got Tuple",
        ),
        (gs.MultiBinary(2), gs.Box(-1, 1, (2,)), "needs a Discrete .* got Box"),
        (gs.MultiBinary(2), gs.MultiBinary(2), "needs a Discrete"),
        (gs.MultiBinary(2), gs.Dict({"a": gs.Discrete(2)}), "needs a Discrete"),
    ],
    ids=str,
)
def test_masks_that_do_not_fit_are_refused(mask, actions, message):
    config = networks.NetworkConfig(layers=(6,))
    with pytest.raises(spaces.UnsupportedSpaceError, match=message) as caught:
        networks.PolicyValueNetwork(masked_space(mask), actions, config, 0)
    assert "\n" not in str(caught.value)


def test_a_mask_alone_is_no_observation():
    space = gs.Dict({"action_mask": gs.MultiBinary(4)})
    with pytest.raises(spaces.UnsupportedSpaceError, match="nothing but action_mask"):
        networks.PolicyValueNetwork(space, gs.Discrete(4), networks.NetworkConfig(), 0)


def test_masks_below_the_top_are_features():
    """Only the top level names masks; elsewhere the key is a name like others."""
    space = gs.Dict({"inner": gs.Dict({"action_mask": gs.Box(0, 1, (4,))})})
    config = networks.NetworkConfig(layers=(6,))
    network = networks.PolicyValueNetwork(space, gs.Discrete(4), config, 0)
    observation = {"inner": {"action_mask": tf.zeros([2, 4])}}
    parameters, _, _ = network.step(observation, network.initial_state(2))
    assert (parameters["logits"].numpy() > parts.FORBIDDEN).all()


@pytest.mark.parametrize("continuous", ["tanh_normal", "beta"])
def test_squashed_policies_of_sequences_equal_step_by_step(continuous):
    config = networks.NetworkConfig(layers=(6,), continuous=continuous)
    network = networks.PolicyValueNetwork(OBSERVATION, ACTIONS["box"], config, 0)
    x, first = random(2, 3, 3), tf.zeros([2, 3], tf.bool)
    sequence = network.policy(x, network.initial_state(2), first)
    for step in range(3):
        parameters, _, _ = network.step(x[:, step], network.initial_state(2))
        for key, expected in parameters.items():
            np.testing.assert_allclose(sequence[key][:, step], expected, atol=1e-5)


class Sums(keras.layers.Layer):
    """A torso without layers, whose only feature is the sum of what is observed."""

    def __init__(self, space, config, seed, action_size=0):
        super().__init__()

    def initial_state(self, size):
        return ()

    def step(self, observation, state, action=None):
        return tf.reduce_sum(observation, 1, keepdims=True), ()

    def sequence(self, observation, state, first):
        return tf.reduce_sum(observation, 2, keepdims=True), ()

    def unroll(self, observation, state, first):
        return self.sequence(observation, state, first)[0]


def test_torsos_are_found_by_import_path():
    config = networks.NetworkConfig(torso=f"{__name__}:Sums")
    box = gs.Box(-1, 1, (3,))
    net = networks.PolicyValueNetwork(box, gs.Discrete(2), config, 0)
    x = tf.constant([[0.1, 0.2, 0.3], [0.3, 0.3, 0.0]])
    parameters, value, _ = net.step(x, net.initial_state(2))
    for result in (value, parameters["logits"]):  # The same sum, the same result.
        np.testing.assert_allclose(result[0], result[1], rtol=1e-5)
    _, values, _ = net.sequence(x[None], net.initial_state(1), tf.fill([1, 2], False))
    np.testing.assert_allclose(values[0], value, rtol=1e-5)
    with pytest.raises(ValueError, match="torso is 'layer'; did you mean 'layers'"):
        networks.NetworkConfig(torso="layer")


@pytest.mark.parametrize("initializer", ["scaled", "orthogonal"])
def test_output_scale_is_that_of_the_policy_only(initializer):
    values = []
    for scale in (0.01, 1.0):
        config = networks.NetworkConfig(
            layers=(6,), output_scale=scale, initializer=initializer
        )
        net = networks.PolicyValueNetwork(OBSERVATION, ACTIONS["box"], config, 0)
        values.append(net.step(random(5, 3), net.initial_state(5))[1])
    assert np.abs(values[0]).max() > 0.1
    np.testing.assert_array_equal(*values)


def test_penalties_on_activities_are_those_of_the_part_that_is_learned():
    part = {"type": "dense", "units": 6, "activity_regularizer": "l2"}
    config = networks.NetworkConfig(layers=(part,))
    net = networks.PolicyValueNetwork(OBSERVATION, ACTIONS["discrete"], config, 0)
    x, first, state = random(4, 2, 3), tf.zeros([4, 2], tf.bool), net.initial_state(4)

    def loss():
        return tf.reduce_sum(net.value(x, state, first)), {}

    alone, _ = modes.learning(loss, net)()
    net.policy(x, state, first)
    np.testing.assert_array_equal(modes.learning(loss, net)()[0], alone)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_acting_is_a_step_without_values(cell):
    """The state of the critic goes on, too."""
    config = networks.NetworkConfig(layers=({"type": cell, "units": 5},))
    net = networks.PolicyValueNetwork(OBSERVATION, ACTIONS["discrete"], config, 0)
    state = found = net.initial_state(2)
    for step in range(3):
        x = random(2, 3, seed=step)
        expected, _, state = net.step(x, state)
        parameters, found = net.act(x, found)
        np.testing.assert_array_equal(parameters["logits"], expected["logits"])
        tf.nest.map_structure(np.testing.assert_array_equal, found, state)
