"""Exported policies act like the originals."""

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces as gs

from agents import agent as agent_
from agents.experiments import policy as policy_
from agents.experiments import runs
from agents.preprocessing import preprocessed
from agents.tools import algorithm, calls, files
from agents.tools import rows as rows_

pytestmark = pytest.mark.xdist_group("exported")  # They share trained agents.

NESTED = gs.Dict(
    {"image": gs.Box(0, 255, (8, 8, 3), np.uint8), "x": gs.Box(-1, 1, (3,))}
)


ACTIONS = gs.Dict({"fire": gs.Discrete(3, start=1), "turn": gs.Box(-1, 2, (2,))})


BOX = gs.Box(-2, 1, (2,))


UNROLLS = {"memory": "unrolls", "unroll_length": 16, "jit": False}


REPLAY = {"start_size": 8, "batch_size": 8, "jit": False, "network": [8]}


KINDS = {
    "nested": (
        NESTED,
        ACTIONS,
        {
            "algorithm": {
                "type": "a2c",
                **UNROLLS,
                "chunk_length": 8,
                "network": {
                    "convolutions": [[4, 3, 2]],
                    "layers": [8, {"type": "lstm", "units": 5}],
                },
            },
            "preprocessing": {
                "image": [
                    "grayscale",
                    {"type": "image_resize", "height": 6, "width": 5},
                ],
                "x": ["normalize", {"type": "sequence", "length": 2}],
            },
        },
    ),
    "dqn": (
        NESTED["x"],
        gs.Discrete(3),
        {"type": "dqn", **REPLAY, "dueling": True, "atoms": 5, "noisy_std": 0.5},
    ),
    "sac": (
        NESTED["x"],
        BOX,
        {"type": "sac", **REPLAY, "normalize_observations": True},
    ),
    "td3": (NESTED["x"], BOX, {"type": "td3", **REPLAY}),
    "beta": (
        NESTED["x"],
        BOX,
        {"type": "a2c", **UNROLLS, "network": {"continuous": "beta"}},
    ),
}


@pytest.fixture(scope="module", params=KINDS)
def agent(request):
    """Agent that has learned a little, so that its statistics are not trivial."""
    observations, actions, config = KINDS[request.param]
    made = agent_.Agent.create(config, observations, actions)
    observations.seed(0)
    for step in range(33):
        made.act(observations.sample())
        made.observe(1.0, step % 7 == 6)
    return made


def steps(agent, size, count=3):
    """Inputs and outputs of the policy for some steps of episodes."""
    policy = policy_.ExportablePolicy(
        agent.algorithm, agent.observation_space, agent.action_space
    )
    space = gymnasium.vector.utils.batch_space(agent.observation_space, size)
    space.seed(size)
    state = tf.nest.flatten(agent.algorithm.initial_state(size))
    result = []
    for _ in range(count):
        seen = space.sample()
        seen = seen if isinstance(seen, dict) else {"": seen}
        inputs = {f"observation_{k}".strip("_"): v for k, v in seen.items()}
        inputs = {
            k: np.asarray(v, policy.inputs[k].dtype.name) for k, v in inputs.items()
        }
        inputs |= {f"state_{i}": np.asarray(x) for i, x in enumerate(state)}
        outputs = policy.act(**{k: tf.constant(v) for k, v in inputs.items()})
        state = [v for k, v in outputs.items() if k.startswith("next_state_")]
        result.append((inputs, {k: v.numpy() for k, v in outputs.items()}))
    return result


def compare(agent, call):
    """Let a function do the same steps."""
    for size in (1, 3, 17):
        for inputs, expected in steps(agent, size):
            outputs = call(inputs)
            assert set(outputs) == set(expected)
            for name, value in expected.items():
                np.testing.assert_allclose(outputs[name], value, atol=1e-5)


@pytest.mark.quick("dqn", "sac")
def test_policy_is_that_of_the_agent(agent):
    space = agent.observation_space
    (inputs, expected), *_ = steps(agent, 1)
    seen = {k.removeprefix("observation_"): v[0] for k, v in inputs.items()}
    observation = {k: seen[k] for k in space} if isinstance(space, gs.Dict) else None
    observation = seen["observation"] if observation is None else observation
    agent.reset()
    action = agent.act(observation, independent=True)
    parts = action if isinstance(action, dict) else {"": action}
    for name, value in parts.items():
        name = f"action_{name}".strip("_")
        np.testing.assert_allclose(expected[name][0], value, atol=1e-6)


@pytest.mark.quick("nested", "dqn", "sac")
def test_saved_model(agent, tmp_path):
    agent.export(tmp_path / "policy")
    loaded = tf.saved_model.load(str(tmp_path / "policy"))
    call = loaded.signatures["serving_default"]
    compare(
        agent, lambda inputs: call(**{k: tf.constant(v) for k, v in inputs.items()})
    )
    assert ("sample" in loaded.signatures) == agent.algorithm.stochastic
    state = tf.nest.flatten(agent.algorithm.initial_state(4))
    assert ("initial_state" in loaded.signatures) == bool(state)
    if state:
        begun = loaded.signatures["initial_state"](tf.constant(4))
        for index, value in enumerate(state):
            np.testing.assert_array_equal(begun[f"state_{index}"], value)
    if agent.algorithm.stochastic:
        inputs, _ = steps(agent, 17, 1)[0]
        inputs = {k: tf.constant(v) for k, v in inputs.items()}
        sample = loaded.signatures["sample"]
        first, again, other = (
            sample(seed=tf.constant(seed), **inputs)
            for seed in ([1, 2], [1, 2], [1, 3])
        )
        for name in first:
            np.testing.assert_array_equal(first[name], again[name])
        assert any(not np.array_equal(first[name], other[name]) for name in first)


def onnx(agent, directory):
    """The policy as ONNX Runtime calls it."""
    onnxruntime = pytest.importorskip("onnxruntime")
    agent.export(directory, "onnx")
    session = onnxruntime.InferenceSession(str(directory / "policy.onnx"))
    names = [x.name for x in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(None, inputs), strict=True))


def litert(agent, directory):
    """The policy as the LiteRT interpreter calls it."""
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    agent.export(directory, "litert")
    made = interpreter.Interpreter(str(directory / "policy.tflite"))
    runner = made.get_signature_runner()
    return lambda inputs: runner(**inputs)


@pytest.mark.quick("nested", "dqn", "sac")
def test_onnx(agent, tmp_path):
    compare(agent, onnx(agent, tmp_path / "policy"))


@pytest.mark.quick("nested", "dqn", "sac")
def test_litert(agent, tmp_path):
    compare(agent, litert(agent, tmp_path / "policy"))


def test_sequences_of_images(tmp_path):
    config = {"algorithm": {"type": "a2c", **UNROLLS}}
    config["preprocessing"] = [{"type": "sequence", "length": 2}]
    image = gs.Box(0, 255, (6, 6, 3), np.uint8)
    agent = agent_.Agent.create(config, image, gs.Discrete(2))
    compare(agent, litert(agent, tmp_path / "policy"))


SPACES = gs.Dict(
    {
        "bits": gs.MultiBinary(3),
        "choice": gs.Discrete(5, start=2),
        "choices": gs.MultiDiscrete([[2, 3], [4, 2]]),
        "flag": gs.Box(0, 1, (), bool),
        **{
            np.dtype(x).name: gs.Box(0, 9, (2,), x)
            for x in (np.int8, np.int16, np.uint16, np.int32, np.uint32, np.int64)
        },
        "float64": gs.Box(-1, 1, (2,), np.float64),
        "image": gs.Box(0, 255, (4, 4, 3), np.uint8),
    }
)


@pytest.mark.parametrize("write", [litert, onnx])
def test_every_space_is_exported(write, tmp_path):
    config = {
        "algorithm": {"type": "a2c", **UNROLLS, "network": [8]},
        "preprocessing": {"uint16": ["one_hot"]},
    }
    actions = gs.Dict({x: SPACES[x] for x in ("bits", "choice", "choices", "int16")})
    made = agent_.Agent.create(config, SPACES, actions)
    compare(made, write(made, tmp_path / "policy"))


@pytest.mark.slow
@pytest.mark.parametrize("write", [litert, onnx])
@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("kind", ["a2c", "dqn", "sac"])
def test_every_space_alone_is_exported(write, name, kind, tmp_path):
    settings = UNROLLS if kind == "a2c" else REPLAY
    config = {"type": kind, **settings, "network": [8]}
    made = agent_.Agent.create(config, SPACES[name], gs.Discrete(3, start=1))
    compare(made, write(made, tmp_path / "policy"))


@pytest.mark.parametrize("write", [litert, onnx])
def test_keys_may_have_any_characters(write, tmp_path):
    part = gs.Box(-1, 1, (2,))
    seen = gs.Dict({"my key": part, "ü": gs.Discrete(3), "a": gs.Dict({"b/c.d": part})})
    config = {"type": "a2c", **UNROLLS, "network": [8]}
    made = agent_.Agent.create(config, seen, gs.Dict({"turn left": gs.Discrete(2)}))
    call = write(made, tmp_path / "policy")
    inputs = {
        "observation_a_b_c_d": np.float32([[0.5, -0.5]]),
        "observation_my_key": np.float32([[0.1, 0.9]]),
        "observation__": np.array([2]),
    }
    action = made.act(
        {"my key": [0.1, 0.9], "ü": 2, "a": {"b/c.d": [0.5, -0.5]}}, 0, False
    )
    assert call(inputs)["action_turn_left"] == action["turn left"]


@pytest.mark.parametrize(
    "keys",
    [
        {"camera_left": "x", "camera": {"left": "y"}},
        {"a b": "x", "a_b": "y"},
        {"Left": "x", "left": "y"},  # TensorFlow ignores case.
    ],
)
def test_parts_that_would_have_the_same_name_are_refused(keys, tmp_path):
    def space(node):
        if isinstance(node, str):
            return gs.Discrete(3)
        return gs.Dict({key: space(child) for key, child in node.items()})

    config = {"type": "a2c", **UNROLLS, "network": [8]}
    one = gs.Discrete(2)
    for both in ((space(keys), one), (one, space(keys))):
        made = agent_.Agent.create(config, *both)
        with pytest.raises(runs.RunError, match="both would be named") as error:
            made.export(tmp_path / "policy")
        assert "\n" not in str(error.value)
        assert not (tmp_path / "policy").exists()


def test_unknown_format_leaves_no_directory(tmp_path):
    config = {"type": "a2c", **UNROLLS, "network": [8]}
    made = agent_.Agent.create(config, gs.Box(-1, 1, (3,)), gs.Discrete(2))
    message = "unknown format 'tflite'; use one of saved_model, onnx, litert"
    with pytest.raises(runs.RunError, match=message):
        made.export(tmp_path / "policy", "tflite")
    assert not (tmp_path / "policy").exists()


@pytest.mark.parametrize("kind", policy_.FORMATS)
def test_full_disk_is_one_line_and_leaves_nothing(tmp_path, full_disk, kind):
    config = {"type": "a2c", **UNROLLS, "network": [400]}
    made = agent_.Agent.create(config, gs.Box(-1, 1, (3,)), gs.Discrete(2))
    directory = tmp_path / "policy"
    with full_disk(3000), pytest.raises(files.WriteError) as error:
        made.export(directory, kind)
    assert str(error.value).startswith(f"cannot write {directory}: File too large; it ")
    assert "\n" not in str(error.value)
    assert not list(directory.iterdir())


def test_what_a_format_cannot_express_is_one_line(tmp_path):
    config = {
        "algorithm": {"type": "a2c", **UNROLLS},
        "preprocessing": [{"type": "function", "path": f"{__name__}:special"}],
    }
    made = agent_.Agent.create(config, gs.Box(-1, 1, (3,)), gs.Discrete(2))
    with pytest.raises(runs.RunError, match="onnx cannot express this policy") as error:
        made.export(tmp_path / "policy", "onnx")
    assert "\n" not in str(error.value)


def special(value):
    """Compute a function that ONNX has no operation for."""
    return tf.math.betainc(tf.ones_like(value), tf.ones_like(value), tf.sigmoid(value))


class Waiting(algorithm.Algorithm):
    """Acts by `perform`, which counts steps of the row if the last argument is true."""

    def __init__(self, *arguments):
        super().__init__()
        self._time = tf.Variable([0]) if arguments[-1] else None

    def perform(self, agent_indices, observation, training=True):
        if self._time is None:
            return tf.cast(observation[:, 0] > 0, tf.int64)
        time = tf.gather(self._time, agent_indices)
        self._time.scatter_nd_update(agent_indices[:, None], time + 1)
        return tf.cast(time % 2, tf.int64)


def test_perform_is_exported_only_if_it_remembers_nothing(tmp_path):
    found = gs.Box(-1, 1, (3,)), gs.Discrete(2)
    made = policy_.ExportablePolicy(Waiting(False), *found)
    made.write(tmp_path / "policy", "saved_model", {})
    model = tf.saved_model.load(str(tmp_path / "policy")).signatures["serving_default"]
    result = model(observation=tf.constant([[0.5, 0, 0], [-0.5, 0, 0]]))
    assert result["action"].numpy().tolist() == [1, 0]
    behind_stages = preprocessed.subclass(Waiting, ["center"])
    for agent in (Waiting(True), behind_stages(*found, 1, True)):
        remembering = policy_.ExportablePolicy(agent, *found)
        for kind in policy_.FORMATS:
            with pytest.raises(calls.AlgorithmError, match="decide.$") as raised:
                remembering.write(tmp_path / "other", kind, {})
            assert "changes variables" in str(raised.value)
            assert f"perform at {__file__}:" in str(raised.value)
            assert not list((tmp_path / "other").iterdir())


class Skilled(algorithm.Algorithm):
    """Acts by a skill of the episode, and by numbers that do not depend on the row."""

    def __init__(self):
        super().__init__()
        self._skill, self._order = tf.Variable([0, 1]), tf.Variable([1, 0])
        self.reads = lambda rows: tf.gather(self._skill, rows)

    def perform(self, agent_indices, observation, training=True):
        order = tf.gather(self._order, tf.cast(observation[:, 0] > 0, tf.int32))
        return tf.cast(self.reads(agent_indices) + order, tf.int64)


def test_perform_is_exported_only_if_it_knows_nothing_of_its_rows(tmp_path):
    found = gs.Box(-1, 1, (3,)), gs.Discrete(2)
    agent = Skilled()
    ways = [
        agent.reads,
        lambda rows: tf.gather_nd(agent._skill.read_value(), rows[:, None]),
        lambda rows: rows_.gather(agent._skill, rows),
    ]
    for agent.reads in ways:
        made = policy_.ExportablePolicy(agent, *found)
        text = "Skilled.perform at .* reads rows of variables, so .* decide.$"
        with pytest.raises(calls.AlgorithmError, match=text):
            made.write(tmp_path / "other", "saved_model", {})
        traced = tf.function(calls.decide, autograph=False)
        with pytest.raises(calls.AlgorithmError, match=text):
            traced(agent, tf.zeros([2, 3]), ())
    agent.reads = lambda rows: tf.gather(agent._skill, tf.zeros_like(rows))
    made = policy_.ExportablePolicy(agent, *found)
    made.write(tmp_path / "policy", "saved_model", {})


class Drawing(algorithm.Policy):
    """Acts by a function of the generator."""

    stochastic = True

    def __init__(self, draw):
        super().__init__()
        self._draw = draw

    def decide(self, observation, state, generator=None):
        zeros = tf.zeros_like(observation[:, :1])
        return zeros if generator is None else self._draw(generator, zeros), state


def test_policies_draw_by_functions_of_generators(tmp_path):
    found = gs.Box(-1, 1, (3,)), gs.Box(-1e3, 1e3, (1,))
    draws = {
        "normal": (lambda g, x: g.normal(tf.shape(x), x + 50, 2.0), 50, 2),
        "truncated": (lambda g, x: g.truncated_normal(tf.shape(x), 50, 2.0), 50, 1.76),
        "uniform": (lambda g, x: g.uniform(tf.shape(x), 20, 80), 50, 60 / 12**0.5),
    }
    for name, (draw, mean, deviation) in draws.items():
        made = policy_.ExportablePolicy(Drawing(draw), *found)
        made.write(tmp_path / name, "saved_model", {})
        sample = tf.saved_model.load(str(tmp_path / name)).signatures["sample"]
        many = tf.zeros([10_000, 3])
        drawn = sample(observation=many, seed=tf.constant([1, 2]))["action"].numpy()
        assert abs(drawn.mean() - mean) < 5 * deviation / 100
        assert abs(drawn.std() - deviation) < 0.05 * deviation
    made = policy_.ExportablePolicy(Drawing(lambda g, x: g.binomial([1], 1, 1)), *found)
    with pytest.raises(runs.RunError, match="draw by generator.normal.*, not binomial"):
        made.write(tmp_path / "other", "saved_model", {})


class Begun(Waiting):
    """Acts by `decide`, from a state that begins with ones."""

    def initial_state(self, size):
        return tf.ones([size, 2])

    def decide(self, observation, state, generator=None):
        return tf.cast(state[:, 0] > 0, tf.int64), state


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (
            "saved_model",
            "begins with the values that signature `initial_state` gives for an input "
            "`batch_size`, int32 [].\n",
        ),
        ("litert", "begins with [1.0, 1.0] as `state_0`.\n"),
    ],
)
def test_card_tells_the_first_state(tmp_path, kind, text):
    made = policy_.ExportablePolicy(Begun(False), gs.Box(-1, 1, (3,)), gs.Discrete(2))
    made.write(tmp_path / "policy", kind, {})
    assert text in (tmp_path / "policy" / "card.md").read_text()
