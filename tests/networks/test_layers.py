"""Networks that are declared layer by layer."""

import functools
import json
import re

import gymnasium
import keras
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces as gs

from agents import agent as agent_
from agents import networks
from agents.algorithms import a2c, dqn, ppo
from agents.experiments import config as experiment
from agents.networks import layers, modes, torsos
from agents.networks.config import NetworkConfig
from agents.tools import config, errors, sections

VECTOR = gs.Box(-1, 1, (3,))
IMAGE = gs.Box(0, 255, (8, 8, 3), np.uint8)
CAPTION = gs.Box(0, 49, (5,), np.int64)
BOTH = gs.Dict({"caption": CAPTION, "image": IMAGE})


def make(space, seed=0, **values):
    return torsos.Torso(space, sections.build(NetworkConfig, values), seed)


def features(torso, observation):
    size = tf.nest.flatten(observation)[0].shape[0]
    return torso.step(observation, torso.initial_state(size))[0]


def random(*shape, seed=0):
    return tf.random.stateless_normal(shape, [seed, 0])


class Scale(keras.layers.Layer):
    """Layer of a user."""

    def __init__(self, factor=2.0):
        super().__init__()
        self.factor = factor

    def call(self, value):
        return self.factor * value


class Pair(keras.layers.Layer):
    """Joins the parts of an observation."""

    def call(self, parts):
        image = tf.reduce_sum(parts["image"], [1, 2])
        return tf.concat([tf.cast(parts["caption"], tf.float32), image], -1)


def model(units=4):
    """Model of Keras."""
    return keras.Sequential([keras.layers.Dense(units, "tanh")])


def negate(value):
    return -value


HERE = __name__


def test_image_and_caption_by_streams():
    """The network of the post: convolutions and a recurrent caption, multiplied."""
    torso = make(
        BOTH,
        streams={
            "image": [
                {"type": "conv2d", "filters": 6, "kernel_size": 3},
                {"type": "max_pooling2d", "pool_size": 2},
                {"type": "pooling", "by": "mean"},
            ],
            "caption": [
                {"type": "embedding", "output_dim": 7},
                {"type": "lstm", "units": 6, "over": "sequence"},
                "pooling",
            ],
        },
        join="product",
        layers=[4],
    )
    observation = {
        "caption": tf.constant([[0, 1, 2, 3, 49], [4, 4, 4, 4, 4]], tf.int64),
        "image": tf.cast(tf.reshape(tf.range(2 * 192) % 256, [2, 8, 8, 3]), tf.uint8),
    }
    got = features(torso, observation)
    table, *cell, kernel, bias, dense, offset = torso.trainable_variables
    lstm = keras.layers.LSTM(6, return_sequences=True)
    words = tf.gather(tf.convert_to_tensor(table), observation["caption"])
    lstm(words)
    lstm.set_weights([x.numpy() for x in cell])
    image = tf.cast(observation["image"], tf.float32) / 255.0
    image = tf.nn.relu(tf.nn.conv2d(image, kernel, 1, "VALID") + bias)
    image = tf.reduce_mean(tf.nn.max_pool2d(image, 2, 2, "VALID"), [1, 2])
    joined = image * tf.reduce_mean(lstm(words), 1)
    np.testing.assert_allclose(got, tf.nn.relu(joined @ dense + offset), atol=1e-5)


@pytest.mark.parametrize(
    ("join", "expected"),
    [("sum", [3.0, 6.0]), ("product", [2.0, 8.0]), ("mean", [1.5, 3.0])],
)
def test_joins(join, expected):
    space = gs.Dict({"a": gs.Box(-9, 9, (2,)), "b": gs.Box(-9, 9, (2,))})
    torso = make(space, join=join, layers=[])
    observation = {"a": tf.constant([[1.0, 2.0]]), "b": tf.constant([[2.0, 4.0]])}
    np.testing.assert_allclose(features(torso, observation), [expected])


def test_joins_of_unequal_shapes_are_refused():
    space = gs.Dict({"a": gs.Box(-9, 9, (2,)), "b": gs.Box(-9, 9, (3,))})
    torso = make(space, join="sum", layers=[])
    with pytest.raises(config.ConfigError, match=r"\(2,\), \(3,\); make them equal"):
        features(torso, {"a": tf.zeros([1, 2]), "b": tf.zeros([1, 3])})


def test_a_class_joins_what_is_observed_as_it_is():
    torso = make(BOTH, join=f"{HERE}:Pair", layers=[])
    observation = {
        "caption": tf.constant([[1, 2, 3, 4, 5]], tf.int64),
        "image": 255 * tf.ones([1, 8, 8, 3], tf.uint8),
    }
    np.testing.assert_allclose(
        features(torso, observation), [[1, 2, 3, 4, 5, 64, 64, 64]], rtol=1e-6
    )


def test_parts_without_a_stream_are_flat_numbers():
    torso = make(
        gs.Dict({"image": IMAGE, "turn": gs.Discrete(3, start=1)}),
        streams={"image": ["pooling"]},
        layers=[],
    )
    observation = {
        "image": 51 * tf.ones([1, 8, 8, 3], tf.uint8),
        "turn": tf.constant([2], tf.int64),
    }
    expected = [[0.2, 0.2, 0.2, 0, 1, 0]]
    np.testing.assert_allclose(features(torso, observation), expected, rtol=1e-6)


def test_the_first_layer_decides_what_it_is_given():
    dense = make(IMAGE, layers=[2])
    features(dense, tf.zeros([1, 8, 8, 3], tf.uint8))
    assert dense.trainable_variables[0].shape == (192, 2)
    declared = make(IMAGE, layers=["flatten"])
    image = tf.constant(np.arange(192).reshape([1, 8, 8, 3]), tf.uint8)
    np.testing.assert_allclose(
        features(declared, image), np.arange(192)[None] / 255, rtol=1e-6
    )


@pytest.mark.parametrize("middle", [0, 2**40])
def test_embedding_counts_from_the_lowest_value(middle):
    space = gs.Box(middle - 2, middle + 2, (3,), np.int64)
    torso = make(space, layers=[{"type": "embedding", "output_dim": 2}, "flatten"])
    got = features(torso, middle + tf.constant([[-2, 2, 0]], tf.int64))
    (table,) = torso.trainable_variables
    assert table.shape == (5, 2)
    table = tf.convert_to_tensor(table)
    np.testing.assert_array_equal(got, tf.reshape(tf.gather(table, [0, 4, 2]), [1, 6]))


def test_embedding_refuses_normalized_observations():
    space = gs.Box(0, 255, (2, 3), np.uint8)
    torso = make(space, layers=[{"type": "embedding", "output_dim": 2}, "flatten"])
    with pytest.raises(
        config.ConfigError, match="set algorithm.normalize_observations=false"
    ):
        features(torso, tf.zeros([1, 2, 3]))


def test_layers_behind_a_recurrent_one_and_two_of_them():
    cells = [{"type": "gru", "units": 4}, {"type": "lstm", "units": 3}]
    torso = make(VECTOR, layers=[5, cells[0], "layer_normalization", cells[1], 2])
    assert [x.shape for x in torso.initial_state(2)] == [(2, 4), (2, 3), (2, 3)]
    x = random(2, 6, 3)
    first = tf.constant([[False] * 3 + [True] + [False] * 2, [False] * 6])
    state, expected = torso.initial_state(2), []
    for step in range(6):
        begins = first[:, step, None]
        state = tuple(tf.where(begins, 0.0, s) for s in state)
        out, state = torso.step(x[:, step], state)
        expected.append(out)
    got, states = torso.sequence(x, torso.initial_state(2), first)
    np.testing.assert_allclose(got, tf.stack(expected, 1), atol=1e-5)
    for ours, last in zip(states, state, strict=True):
        np.testing.assert_allclose(ours[:, -1], last, atol=1e-5)


@pytest.mark.parametrize(
    "layer",
    [
        "layer_normalization",
        "batch_normalization",
        {"type": "dropout", "rate": 0.5},
        {"type": "dense", "units": 3, "use_bias": False, "activation": "elu"},
        {"type": f"{HERE}:Scale", "factor": 3.0},
        {"type": f"{HERE}:model", "units": 3},
        {"type": "function", "path": f"{HERE}:negate"},
        f"{HERE}:Scale",
    ],
)
def test_layers_of_vectors(layer):
    torso = make(VECTOR, layers=[layer])
    got = features(torso, random(4, 3))
    assert got.shape == (4, 3)
    again = make(VECTOR, layers=[layer])
    if "model" not in str(layer):  # What a user makes has seeds of its own.
        np.testing.assert_array_equal(got, features(again, random(4, 3)))


@pytest.mark.parametrize(
    "layer",
    [
        {"type": "attention", "num_heads": 2, "key_dim": 3},
        {"type": "conv1d", "filters": 4, "kernel_size": 2, "padding": "same"},
        {"type": "gru", "units": 4, "over": "sequence"},
    ],
)
def test_layers_of_sequences(layer):
    torso = make(gs.Box(-1, 1, (5, 4)), layers=[layer, "pooling"])
    got = features(torso, random(2, 5, 4))
    assert got.shape == (2, 4)
    other = make(gs.Box(-1, 1, (5, 4)), 1, layers=[layer, "pooling"])
    assert not np.allclose(got, features(other, random(2, 5, 4)))


def test_seeds_make_all_layers_equal():
    declared = [
        {"type": "attention", "num_heads": 2, "key_dim": 3},
        {"type": "conv1d", "filters": 3, "kernel_size": 2},
        "pooling",
        4,
    ]
    nets = [make(gs.Box(-1, 1, (5, 4)), seed, layers=declared) for seed in (3, 3, 4)]
    first, again, other = (features(net, random(2, 5, 4)) for net in nets)
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)


def from_file(file):
    """Network that the config of a run names by a file."""
    values = {"algorithm": {"network": str(file)}, "environment": {"id": "x"}}
    return experiment.resolve({"name": "x", "train": {}, **values}).algorithm.network


def test_a_list_a_file_and_a_preset_name_are_networks(tmp_path):
    declared = [{"type": "dense", "units": 32}, {"type": "lstm", "units": 32}]
    listed = sections.build(ppo.Config, {"network": declared}).network
    assert listed == NetworkConfig(layers=tuple(declared))
    assert listed.recurrent
    file = tmp_path / "network.json"
    file.write_text(json.dumps(declared))
    assert from_file(file) == listed
    file.write_text(json.dumps({"layers": declared, "shared": True}))
    shared = from_file(file)
    assert shared == NetworkConfig(layers=tuple(declared), shared=True)
    again = sections.build(ppo.Config, sections.to_dict(ppo.Config(network=shared)))
    assert again.network == shared


def test_dropout_is_for_learning_only():
    torso = make(VECTOR, layers=[{"type": "dropout", "rate": 0.5}])
    x = tf.ones([100, 3])
    np.testing.assert_array_equal(features(torso, x), x)
    with modes.training():
        dropped = features(torso, x)
    assert set(np.unique(dropped)) == {0.0, 2.0}
    np.testing.assert_array_equal(features(torso, x), x)


def test_regularization_is_part_of_the_loss():
    layer = {"type": "dense", "units": 2, "kernel_regularizer": {"type": "l2"}}
    layer["kernel_regularizer"]["l2"] = 0.5
    torso = make(VECTOR, layers=[layer])
    features(torso, random(1, 3))
    kernel = torso.trainable_variables[0].numpy()
    loss = modes.learning(lambda: (tf.constant(1.0), {"loss": 3.0}), torso)
    value, metrics = loss()
    np.testing.assert_allclose(value, 1.0 + 0.5 * np.sum(kernel**2), rtol=1e-6)
    assert metrics == {"loss": 3.0}


def test_regularization_shrinks_the_weights_that_are_learned():
    space = gs.Dict({"x": gs.Box(-1, 1, (2,))})
    sizes = []
    for strength in (0.0, 10.0):
        layer = {"type": "dense", "units": 8, "kernel_regularizer": {"type": "l2"}}
        layer["kernel_regularizer"]["l2"] = strength
        settings = {"start_size": 8, "batch_size": 8, "capacity": 64, "jit": False}
        values = {**settings, "replay_ratio": 4.0, "network": [layer]}
        learner = dqn.DQN(
            space, gs.Discrete(2), 4, 10, sections.build(dqn.Config, values)
        )
        rows = tf.range(4)
        observation = {"x": tf.ones([4, 2])}
        flags = tf.zeros([4], tf.bool)
        learner.begin_episodes(rows)
        for _ in range(20):
            action = learner.perform(rows, observation)
            reward = tf.ones([4])
            following = (reward, flags, flags, observation)
            learner.experience(rows, observation, action, *following)
        kernels = [v for v in learner.network.trainable_variables if v.shape == (2, 8)]
        sizes.append(np.abs(kernels[0].numpy()).sum())
    assert sizes[1] < 0.9 * sizes[0]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"layers": ["flaten"]}, "unknown layer 'flaten'; did you mean 'flatten'"),
        (
            {"layers": [{"type": "dense", "unit": 3}]},
            "unknown argument 'unit' of layer dense; did you mean 'units'",
        ),
        ({"layers": [{"units": 3}]}, "mapping with a 'type'"),
        ({"layers": [{"type": "dense"}]}, "layer dense: missing 1 required"),
        ({"layers": [{"type": "dropout", "rate": 7}]}, "layer dropout: "),
        ({"layers": ["no_such_module:Layer"]}, "cannot import 'no_such_module:Layer'"),
        ({"layers": [f"{HERE}:Nothing"]}, "cannot import .*Nothing"),
        ({"layers": [f"{HERE}:HERE"]}, "is neither a class nor a function"),
        (
            {"layers": [{"type": "dense", "units": 1, "kernel_regularizer": "l3"}]},
            "kernel_regularizer 'l3' is unknown; did you mean 'l[12]'",
        ),
        ({"join": "concatenate"}, "join is 'concatenate'; did you mean 'concat'"),
        ({"streams": {"x": "nature"}}, "stream 'x' must be a list, got 'nature'"),
        ({"streams": {"x": 32}}, "stream 'x' must be a list, got 32"),
        ({"streams": {"x": ["lstm"]}}, "layer lstm: missing 1 required"),
        (
            {"streams": {"x": [{"type": "lstm", "units": 3}]}},
            "only 'layers' may have; give it 'over: sequence'",
        ),
    ],
)
def test_mistakes_are_one_line(values, message):
    with pytest.raises(config.ConfigError, match=message) as error:
        sections.build(NetworkConfig, values)
    assert "\n" not in str(error.value)


def test_streams_of_what_is_not_observed_are_refused():
    with pytest.raises(config.ConfigError, match="'imag'; did you mean 'image'"):
        make(BOTH, streams={"imag": ["pooling"]})


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (["max_pooling1d"], r"layer max_pooling1d\w* cannot take .* \(8, 8, 3\)"),
        (
            [{"type": "conv2d", "filters": 2, "kernel_size": 3}],
            r"network .* \(6, 6, 2\)",
        ),
    ],
)
def test_streams_that_do_not_fit_are_named(stream, message):
    torso = make(BOTH, streams={"image": stream})
    observation = {
        "caption": tf.zeros([1, 5], tf.int64),
        "image": tf.zeros([1, 8, 8, 3]),
    }
    with pytest.raises(config.ConfigError, match=f"stream 'image': {message}"):
        features(torso, observation)


@pytest.mark.parametrize(
    ("space", "declared", "message"),
    [
        (IMAGE, [{"type": "conv2d", "filters": 2, "kernel_size": 3}], "add 'flatten'"),
        (VECTOR, [{"type": "conv2d", "filters": 2, "kernel_size": 3}], r"shape \(3,\)"),
    ],
)
def test_layers_that_do_not_fit_are_refused(space, declared, message):
    values = sections.build(NetworkConfig, {"layers": declared})
    with pytest.raises(config.ConfigError, match=message) as error:
        networks.PolicyValueNetwork(space, gs.Discrete(2), values, 0)
    assert "\n" not in str(error.value)


class Broken(keras.layers.Layer):
    """Layer of a user, with a mistake."""

    def call(self, value):
        raise ValueError("no such thing")


def test_what_a_layer_of_a_user_says_is_told():
    values = sections.build(NetworkConfig, {"layers": [f"{HERE}:Broken"]})
    with pytest.raises(config.ConfigError) as error:
        networks.PolicyValueNetwork(VECTOR, gs.Discrete(2), values, 0)
    pattern = r"layer broken\w* cannot take what has the shape \(3,\): no such thing"
    line, _, below = str(error.value).partition("\n\n")
    assert re.fullmatch(pattern, line)
    assert below.startswith("Traceback")
    assert __file__ in below


@pytest.mark.parametrize("layer", ["gru", "lstm"])
@pytest.mark.parametrize("option", ["dropout", "recurrent_dropout"])
def test_dropout_is_refused_in_layers_that_remember_steps(layer, option):
    declared = {"type": layer, "units": 4, option: 0.5}
    with pytest.raises(config.ConfigError, match=f"has no {option} while"):
        layers.create(declared, 0)
    layers.create({**declared, option: 0.0}, 0)
    layers.create({**declared, "over": "sequence"}, 0)


def test_queries_keys_and_values_of_attention_begin_differently():
    layer = layers.create({"type": "attention", "num_heads": 2, "key_dim": 4}, 3)
    layer(tf.ones([1, 5, 4]))
    query, key, value = (x for x in layer.get_weights() if x.shape == (4, 2, 4))
    assert not np.allclose(query, key)
    assert not np.allclose(key, value)


@pytest.mark.parametrize(
    "layer",
    [
        "batch_normalization",
        {"type": "batch_normalization", "momentum": 0.9},
        "keras.layers:BatchNormalization",
        "keras:layers.BatchNormalization",
    ],
    ids=str,
)
def test_batch_normalization_is_refused_with_target_networks(layer):
    with pytest.raises(config.ConfigError, match="use layer_normalization"):
        sections.build(dqn.Config, {"network": [8, layer]})


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("layer", ["lstm", "dense"])
def test_batch_normalization_is_refused_where_it_would_count_padding(layer, jit):
    layers = [{"type": layer, "units": 8}, "batch_normalization"]
    build = functools.partial(sections.build, a2c.Config)
    build({"network": layers, "jit": jit, "memory": "unrolls"})
    if layer == "dense" and not jit:
        build({"network": layers, "jit": jit, "memory": "episodes"})
        return
    with pytest.raises(config.ConfigError, match="use layer_normalization, or memory"):
        build({"network": layers, "jit": jit, "memory": "episodes"})


def test_policy_gradients_train_on_declared_networks():
    env = gymnasium.make("CartPole-v1")
    declared = [8, {"type": "dropout", "rate": 0.1}, "batch_normalization", 4]
    values = {"memory": "unrolls", "unroll_length": 8, "epochs": 2, "network": declared}
    learner = ppo.PPO(
        env.observation_space,
        env.action_space,
        2,
        500,
        sections.build(ppo.Config, values),
    )
    rows, flags = tf.range(2), tf.zeros([2], tf.bool)
    before = [x.numpy() for x in learner.network.variables]
    learner.begin_episodes(rows)
    for step in range(8):
        seen = random(2, 4, seed=step)
        action = learner.perform(rows, seen)
        learner.experience(rows, seen, action, tf.ones([2]), flags, flags, seen)
    after = [x.numpy() for x in learner.network.variables]
    changed = [not np.array_equal(x, y) for x, y in zip(before, after, strict=True)]
    assert all(changed)


def test_penalties_on_activities_are_those_of_the_call():
    part = {"type": "dense", "units": 8, "activity_regularizer": "l2"}
    torso = make(VECTOR, layers=[part])
    value, other = random(5, 3), random(7, 3, seed=1)
    features(torso, other)

    def loss():
        return tf.reduce_sum(features(torso, value)), {}

    penalty = 0.01 * tf.reduce_sum(features(torso, value) ** 2) / 5
    expected = tf.reduce_sum(features(torso, value)) + penalty
    np.testing.assert_allclose(modes.learning(loss, torso)()[0], expected, rtol=1e-6)


def kernel(agent):
    """Weights of the first layer."""
    return next(x for x in agent.get_weights() if x.shape == (3, 8))


@pytest.mark.quick("agents.algorithms.dqn")
@pytest.mark.parametrize("cls", [ppo, a2c, dqn])
def test_penalties_on_activities_train(cls):
    part = {"type": "dense", "units": 8, "activity_regularizer": "l2"}
    values = {"network": {"layers": [part]}, "optimizer": {"type": "adam"}}
    kind = cls.__name__.rpartition(".")[2]
    replay = {"start_size": 8, "batch_size": 8, "capacity": 64}
    unrolls = {"memory": "unrolls", "unroll_length": 8} if cls is ppo else {}
    values |= replay if cls is dqn else unrolls
    agent = agent_.Agent.create({"type": kind, **values}, VECTOR, gs.Discrete(2))
    before = kernel(agent)
    for step in range(17):
        agent.act(np.full(3, step / 17, np.float32))
        agent.observe(1.0, step % 5 == 4)
    assert (kernel(agent) != before).any()


def test_attention_needs_sequences():
    part = {"type": "attention", "num_heads": 2, "key_dim": 3}
    with pytest.raises(config.ConfigError, match=r"needs sequences \[L, F\]") as caught:
        features(make(VECTOR, layers=[part]), random(2, 3))
    assert "\n" not in str(caught.value)


class Block(keras.layers.Layer):
    """Layer of a user with statistics of batches inside."""

    def __init__(self):
        super().__init__()
        self.inner = keras.layers.BatchNormalization()

    def build(self, shape):
        self.inner.build(shape)

    def call(self, x, training=False):
        return self.inner(x, training=training)


@pytest.mark.parametrize("kind", ["dqn", "sac"])
def test_statistics_in_layers_of_users_are_refused_with_target_networks(kind):
    settings = {"type": kind, "network": [8, f"{__name__}:Block"], "start_size": 300}
    with pytest.raises(errors.Mistake, match="must not have batch statistics"):
        agent_.Agent.create(settings, VECTOR, gs.Discrete(2))


@pytest.mark.parametrize("over", ["sequences", 3, None])
def test_recurrent_layers_go_over_steps_or_a_sequence(over):
    layer = {"type": "lstm", "units": 4, "over": over}
    with pytest.raises(config.ConfigError, match="goes over .*choose from steps, seq"):
        make(CAPTION, layers=(layer, 4))


@pytest.mark.parametrize(
    ("space", "declared", "message"),
    [
        (gs.Box(0, 255, (4,), np.uint8), ["flatten"], "declare it as the first layer"),
        (VECTOR, [], r"needs integers, but these observations are Box\(-1.0"),
    ],
)
def test_embeddings_get_integers(space, declared, message):
    embedding = {"type": "embedding", "input_dim": 256, "output_dim": 2}
    seen = tf.zeros([1, *space.shape], space.dtype)
    with pytest.raises(config.ConfigError, match=message):
        make(space, layers=(*declared, embedding, "flatten")).step(seen, ())


def test_weights_of_one_layer_draw_different_numbers():
    layer = layers.create(
        {"type": "separable_conv1d", "filters": 2, "kernel_size": 2}, 0
    )
    layer(tf.zeros([1, 4, 3]))
    depthwise, pointwise, _ = (np.ravel(x) for x in layer.weights)
    assert depthwise.shape == pointwise.shape
    assert np.abs(np.corrcoef(depthwise, pointwise)[0, 1]) < 0.99
