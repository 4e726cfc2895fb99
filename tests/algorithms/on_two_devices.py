"""Tests that need two devices; `test_devices` runs this file in a separate process."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * 2,
)

from agents import optimizers  # noqa: E402
from agents.algorithms import policy_gradient  # noqa: E402
from agents.experiments import named, runs  # noqa: E402
from agents.optimizers import replicas  # noqa: E402
from agents.scripts import commands, evaluate, train  # noqa: E402
from agents.tools import config as config_  # noqa: E402
from agents.tools import devices, loop, placement  # noqa: E402

SGD = "{type: sgd, learning_rate: 0.1}"
SLOW = "{type: sgd, learning_rate: 0.01}"
MINIBATCHES = f"{{type: minibatch, epochs: 2, size: 48, optimizer: {SGD}}}"
UNROLLS = ("memory=unrolls", "unroll_length=32", f"optimizer={MINIBATCHES}")
REPLAY = ("start_size=50", "batch_size=33")
CASES = {
    "ppo": ("cartpole_clip", 256, *UNROLLS),
    "blocks": (
        *("cartpole", 300, "update_every=4", "epochs=2", "block_size=50"),
        *("jit=false", "minibatch_size=null", f"value_optimizer={SGD}"),
    ),
    "lstm": (
        *("cartpole_clip", 256, "memory=unrolls", "unroll_length=32"),
        *("network=gru", f"optimizer={SGD}", "max_failures=2"),
    ),
    "a2c": ("cartpole_a2c", 112, "unroll_length=7", "jit=false", f"optimizer={SGD}"),
    "vpg": (
        *("cartpole_vpg", 300, "update_every=5", f"optimizer={SGD}"),
        f"value_optimizer={SGD}",
    ),
    "trpo": ("cartpole_trpo", 256, "unroll_length=32", f"value_optimizer={SGD}"),
    "impala": (
        *("cartpole_impala", 200, "reduction=sum"),
        *("optimizer={type: sgd}", "learning_rate=1e-3"),
    ),
    "dqn": (
        *("cartpole_dqn", 100, *REPLAY, "prioritized=true", "jit=false"),
        *("optimizer={type: sgd}", "learning_rate=0.1"),
    ),
    "sac": (
        *("pendulum_sac", 80, *REPLAY, f"optimizer={SLOW}"),
        "learning_rate=3e-4",
        *(f"critic_optimizer={SLOW}", f"temperature_optimizer={SGD}"),
    ),
    "td3": (
        *("pendulum_td3", 80, *REPLAY, f"critic_optimizer={SLOW}"),
        f"optimizer={{type: multi_step, num_steps: 2, optimizer: {SLOW}}}",
    ),
}
"""Config, steps and settings; without Adam, which hides the scale of gradients."""


def load(name, *overrides):
    few = ("environment.backend=serial", "environment.num_agents=4")
    return named.load(name, [*few, *overrides])


def learn(name, steps, *settings, devices=()):
    """Train for some steps; returns the algorithm."""
    settings = [f"algorithm.{x}" for x in settings]
    config = load(name, *settings, *(f"devices.{x}" for x in devices))
    runs.require_devices(config)
    agent = runs.algorithm(config, runs.describe(config))
    env = runs.environments(config)
    schedule = loop.Plan(steps, steps, 0)
    assert list(loop.Loop(env, agent, schedule, 0, None).run())
    env.close()
    return agent


@functools.cache
def alone(case):
    return weights(learn(*CASES[case]))


def weights(agent):
    """Everything that was trained, and statistics."""
    kept = [x for x in agent.acting() if x.dtype in ("float32", tf.float32)]
    return [tf.convert_to_tensor(x).numpy() for x in kept]


def difference(left, right):
    return max(np.abs(x - y).max() for x, y in zip(left, right, strict=True))


def marked(cases, fast):
    """Cases of which all but a few are slow."""
    slow = pytest.mark.slow
    return [pytest.param(x, marks=[] if x in fast else slow) for x in cases]


def require_equal_replicas(agent, case):
    """On both devices are the weights that one device learns."""
    assert difference(weights(agent), alone(case)) < 1e-5
    mirrored = [x.value for x in agent.acting() if isinstance(x, keras.Variable)]
    assert mirrored
    for variable in mirrored:
        first, second = variable.values
        assert [first.device[-5:], second.device[-5:]] == ["CPU:0", "CPU:1"]
        np.testing.assert_array_equal(first.numpy(), second.numpy())


@pytest.mark.parametrize("case", marked(sorted(CASES.keys() - {"a2c"}), ["dqn"]))
def test_replicas_learn_what_one_device_learns(case):
    require_equal_replicas(learn(*CASES[case], devices=["replicas=2"]), case)


@pytest.mark.slow
def test_sums_in_place_of_means_would_be_seen(monkeypatch):
    monkeypatch.setattr(replicas, "_valid", lambda items: tf.constant(1.0))
    agent = learn(*CASES["a2c"], devices=["replicas=2"])
    assert difference(weights(agent), alone("a2c")) > 1e-3


def test_both_devices_compute_the_loss_of_their_part(monkeypatch):
    """And the replicas of a2c learn what one device learns."""
    seen = set()
    loss = policy_gradient.PolicyGradient.value_loss

    def value_loss(self, items):
        result = loss(self, items)
        seen.add((result[0].device[-5:], items["observation"].shape[0]))
        return result

    monkeypatch.setattr(policy_gradient.PolicyGradient, "value_loss", value_loss)
    agent = learn(*CASES["a2c"], "jit=true", devices=["replicas=2"])
    assert seen == {("CPU:0", 14), ("CPU:1", 14)}
    require_equal_replicas(agent, "a2c")


def regression(optimizer, items, places, steps=1):
    """Weights after steps of a masked regression, and the metrics of the last one."""
    with devices.use(replicas=places), placement.networks():
        variable = keras.Variable(tf.ones([3, 1]))
    optimizer.build([variable])

    def loss_fn(items):
        error = (tf.matmul(items["x"], variable.value)[:, 0] - items["y"]) ** 2
        loss = policy_gradient.mean(error, items["mask"])
        return loss, {"loss": loss}

    @tf.function(autograph=False)
    def step():
        seed = tf.constant([1, 2])
        return optimizer.step(loss_fn, [variable], items=items, seed=seed)

    for _ in range(steps):
        metrics = step()
    return variable.numpy(), {name: float(x) for name, x in metrics.items()}


def batch(mask):
    rng = np.random.default_rng(0)
    x = rng.normal(size=[len(mask), 3]).astype(np.float32)
    y = rng.normal(size=[len(mask)]).astype(np.float32)
    return {"x": tf.constant(x), "y": tf.constant(y), "mask": tf.constant(mask)}


MASKS = (
    [1.0] * 6,
    [1.0] * 7,  # Parts of different sizes,
    [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0],  # of different valid ones,
    [1.0, 1.0, 0.0, 0.0],  # without any
    [1.0],  # or empty.
    [0.0, 0.0],
)


@pytest.mark.parametrize(
    ("mask", "block"),
    [
        *((mask, None) for mask in MASKS),
        *((mask, 2) for mask in MASKS[1:4]),
        *(pytest.param(x, 2, marks=pytest.mark.slow) for x in MASKS[:1] + MASKS[4:]),
    ],
)
def test_parts_are_weighted_by_their_valid_items(mask, block):
    results = [
        regression(optimizers.Gradient("sgd", 0.1, block=block), batch(mask), places)
        for places in (1, 2)
    ]
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-5, atol=1e-6)
    assert results[0][1] == pytest.approx(results[1][1], rel=1e-5)


def test_gradients_are_clipped_after_they_are_averaged():
    rows = batch([1.0] * 9)
    descent = functools.partial(optimizers.Gradient, "sgd", 1.0, clip_norm=0.1)
    (single, _), (double, metrics) = (
        regression(descent(), rows, places) for places in (1, 2)
    )
    np.testing.assert_allclose(single, double, rtol=1e-5)
    assert metrics["gradient_norm"] > 0.1
    assert np.linalg.norm(double - 1.0) == pytest.approx(0.1, rel=1e-4)


def test_wrapped_optimizers_with_slots():
    def optimizer():
        inner = optimizers.Gradient("adam", 0.01)
        inner = optimizers.Clipped(optimizers.MultiStep(inner, 3), 0.02)
        return optimizers.Minibatch(inner, 2, 4)

    single, double = (
        regression(optimizer(), batch([1.0] * 11), places, 3)[0] for places in (1, 2)
    )
    np.testing.assert_allclose(single, double, rtol=1e-5)


@pytest.mark.parametrize(
    ("optimizer", "reason"),
    [
        (optimizers.Evolutionary(), "no gradients"),
        (optimizers.Gradient(keras.optimizers.SGD(0.1)), "made before"),
    ],
)
def test_optimizers_that_replicas_cannot_share(optimizer, reason):
    with pytest.raises(ValueError, match=reason):
        regression(optimizer, batch([1.0] * 4), 2)


@pytest.mark.parametrize("case", marked(["a2c", "blocks", "dqn", "sac"], ["a2c"]))
@pytest.mark.parametrize(
    "devices",
    [
        pytest.param(["memory=CPU:1"], marks=pytest.mark.slow),
        pytest.param(["policy=CPU:1"], marks=pytest.mark.slow),
        ["policy=CPU:1", "memory=CPU:0"],
    ],
)
def test_device_map(case, devices):
    agent = learn(*CASES[case], devices=devices)
    assert difference(weights(agent), alone(case)) < 1e-5
    chosen = dict(x.split("=") for x in devices)
    policy = chosen.get("policy", "CPU:0")
    memory = {id(x) for x in agent.memory.variables}
    assert memory
    for variable in agent.variables:
        place = chosen.get("memory", policy) if id(variable) in memory else policy
        assert variable.device.endswith(place), variable


@pytest.mark.parametrize(
    ("name", "overrides", "reason"),
    [
        ("debug", ["replicas=3"], "is 3, but of devices there is only CPU:0, CPU:1"),
        ("debug", ["replicas=0"], "must be positive"),
        ("debug", ["memory=GPU:0"], "'devices.memory' is 'GPU:0'"),
        ("debug", ["replicas=2", "policy=CPU:1"], "exclude each other"),
        ("debug", ["environment=CPU:1"], "run on the processor"),
        ("debug", ["network=CPU:1"], "unknown config key 'devices.network'"),
    ],
)
def test_mistakes(name, overrides, reason):
    overrides = [f"devices.{x}" for x in overrides]
    with pytest.raises(config_.ConfigError, match=reason):
        runs.require_devices(load(name, *overrides))


def test_compiled_environments_have_one_device():
    config = named.load("cartpole_compiled", ["devices.replicas=2"])
    with pytest.raises(config_.ConfigError, match="compiled environments"):
        runs.require_devices(config)


@pytest.mark.slow
def test_runs_go_on_with_other_devices(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(commands, "start_tensorflow", lambda debug=False: None)
    monkeypatch.setattr(commands, "use_threads", lambda config: None)

    def call(steps, replicas):
        return train.main(
            [
                *("--config", "debug", "--logdir", str(tmp_path), "--timestamp", "1"),
                *("--set", "environment.backend=serial", "--set", "train.steps=512"),
                *("--set", f"devices.replicas={replicas}"),
                *("--set", "algorithm.jit=false"),
            ]
        )

    assert call(512, 2) == 0
    assert evaluate.main(["--logdir", str(tmp_path / "1-debug")]) == 0
    assert call(512, 1) == 0
    assert call(512, 3) == 2
    assert capsys.readouterr().err.count("\n") == 1
