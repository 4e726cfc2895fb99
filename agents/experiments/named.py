"""Named configs, one short function each."""

import dataclasses
import functools
import pathlib
from collections.abc import Iterable
from typing import Any

from agents.environments import Environment
from agents.experiments import config as experiment
from agents.experiments import goals
from agents.experiments.config import Config, Train
from agents.tools import config as config_
from agents.tools import config_files, sections


def load(source: str, overrides: Iterable[str] = (), seed: int | None = None) -> Config:
    """Load the config of a name or a YAML file, with overrides applied.

    Raises:
      ConfigError: if it is wrong.
    """
    if source in EXPERIMENTS:
        values = sections.to_dict(EXPERIMENTS[source]())
    elif source.endswith(config_files.ENDINGS) or pathlib.Path(source).is_file():
        values = config_files.load_mapping(source)
        values.setdefault("name", pathlib.Path(source).stem)
    else:
        hint = config_.did_you_mean(source, EXPERIMENTS)
        raise config_.ConfigError(f"unknown config {source!r}; {hint}")
    config = experiment.override(values, overrides)
    return config if seed is None else dataclasses.replace(config, seed=seed)


def _to_zero(start: float, over: float) -> dict:
    """Declare a value that falls to zero linearly over these environment steps."""
    return {"type": "linear", "from": start, "to": 0, "over": over}


# PPO of the TensorFlow Agents paper, with its settings except for the first two.


def _paper(
    id: str, steps: int, *, num_agents: int = 25, eval_every=250_000, **algorithm: Any
) -> Config:
    """KL penalty on whole episodes of one environment."""
    from agents.algorithms import ppo

    return Config(
        name="",
        environment=Environment(id=id, num_agents=num_agents),
        train=Train(steps=steps, eval_every=eval_every),
        algorithm=ppo.Config(**algorithm),
    )


def pendulum() -> Config:
    """Swing a pendulum up and balance it."""
    return _paper(
        "Pendulum-v1",
        300_000,
        eval_every=50_000,
        discount=0.95,
        gae_lambda=0.95,
        learning_rate=3e-4,
        minibatch_size=1000,
    )


def cartpole() -> Config:
    """Balance a pole on a cart."""
    return _paper(
        "CartPole-v1",
        300_000,
        eval_every=30_000,
        discount=0.99,
        gae_lambda=0.95,
        learning_rate=3e-4,
        normalize_rewards="return",
    )


def reacher() -> Config:
    """Reach a target with a two-link arm."""
    return _paper("Reacher-v5", 5_000_000, discount=0.985, update_every=60)


def cheetah() -> Config:
    """Run with a two-legged robot."""
    return _paper("HalfCheetah-v5", 10_000_000, discount=0.99)


def walker() -> Config:
    """Walk with a two-legged robot.

    Gradients are clipped: a single one that is far larger than the others otherwise
    fills the second moments of Adam, and the policy stands still for a million steps or
    more.
    """
    return _paper("Walker2d-v5", 10_000_000, clip_norm=1.0)


def hopper() -> Config:
    """Hop with a one-legged robot; gradients are clipped as in `walker`."""
    return _paper("Hopper-v5", 10_000_000, update_every=60, clip_norm=1.0)


def ant() -> Config:
    """Walk with a four-legged robot; gradients are clipped as in `walker`."""
    return _paper("Ant-v5", 20_000_000, clip_norm=1.0)


def humanoid() -> Config:
    """Walk with a humanoid robot; gradients are clipped as in `walker`."""
    return _paper("Humanoid-v5", 50_000_000, update_every=60, clip_norm=1.0)


def swimmer() -> Config:
    """Swim with a three-link robot."""
    return _paper("Swimmer-v5", 10_000_000)


# The clipped objective, tuned for sample efficiency.


def _clip(
    id: str, steps: int = 1_000_000, *, num_agents: int = 16, **algorithm: Any
) -> Config:
    """Clipped objective on short unrolls of one environment."""
    from agents.algorithms import ppo

    steps_per_update = num_agents * 128
    settings = {
        "memory": "unrolls",
        "unroll_length": 128,
        "discount": 0.99,
        "gae_lambda": 0.95,
        "normalize_rewards": "return",
        "objective": "clip",
        "epochs": 10,
        "minibatch_size": 64,
        "learning_rate": _to_zero(3e-4, steps),
        "value_learning_rate": None,
        "adam_epsilon": 1e-5,
        "clip_norm": 0.5,
        "network": "small",
    }
    return Config(
        name="",
        environment=Environment(id=id, num_agents=num_agents),
        train=Train(steps=steps, eval_every=max(24 * steps_per_update, steps // 20)),
        algorithm=sections.build(ppo.Config, {**settings, **algorithm}),
    )


def cheetah_clip() -> Config:
    """Run with a two-legged robot, in a million steps."""
    return _with_network(_clip("HalfCheetah-v5", gae_lambda=0.9), initial_std=0.37)


def _upright(id: str, *, units: int, rate: float) -> Config:
    """Clipped objective on a robot that can fall, for a million steps in few phases.

    Its episodes end at different steps. A phase begins with a reset, which brings all of
    them to the same step, so that the next batches only show one part of them. The more
    dimensions the actions have, the more a rate changes their probability.
    """
    config = _clip(id, learning_rate=_to_zero(rate, 1_000_000))
    config = _with_network(config, layers=(units, units))
    return _with(config, "train", eval_every=200_000)


def walker_clip() -> Config:
    """Walk with a two-legged robot, in a million steps."""
    return _upright("Walker2d-v5", units=256, rate=2e-4)


def hopper_clip() -> Config:
    """Hop with a one-legged robot, in a million steps."""
    return _upright("Hopper-v5", units=64, rate=3e-4)


def ant_clip() -> Config:
    """Walk with a four-legged robot, in a million steps."""
    return _upright("Ant-v5", units=256, rate=1e-4)


def humanoid_clip() -> Config:
    """Walk with a humanoid robot, in a million steps."""
    return _upright("Humanoid-v5", units=256, rate=1e-4)


def swimmer_clip() -> Config:
    """Swim with a three-link robot, in a million steps."""
    return _clip("Swimmer-v5", discount=0.9999)


def reacher_clip() -> Config:
    """Reach a target with a two-link arm, in a million steps."""
    return _clip("Reacher-v5")


def pendulum_clip() -> Config:
    """Swing a pendulum up and balance it, in few steps."""
    return _clip(
        "Pendulum-v1",
        300_000,
        discount=0.95,
        normalize_rewards="reward",
        learning_rate=_to_zero(5e-4, 300_000),
    )


def cartpole_clip() -> Config:
    """Balance a pole on a cart, in few steps."""
    return _clip("CartPole-v1", 100_000, minibatch_size=256)


def cartpole_compiled() -> Config:
    """Balance a pole in one XLA program with the algorithm."""
    config = _clip("CartPole-v1", 500_000, num_agents=4, minibatch_size=128, epochs=4)
    return _on_backend(config, "compiled")


def pendulum_compiled() -> Config:
    """Swing a pendulum up in one XLA program with the algorithm."""
    config = _clip(
        "Pendulum-v1",
        2_000_000,
        num_agents=64,
        minibatch_size=512,
        discount=0.95,
        learning_rate=1e-3,
    )
    return _on_backend(config, "compiled")


# Other policy gradients.


def _trust(id: str, steps: int = 1_000_000) -> Config:
    """Trust region on unrolls of one environment."""
    from agents.algorithms import trpo

    algorithm = {"unroll_length": 64, "network": "small"}
    return Config(
        name="",
        environment=Environment(id=id, num_agents=32),
        train=Train(steps=steps, eval_every=steps // 20),
        algorithm=sections.build(trpo.Config, algorithm),
    )


def cartpole_trpo() -> Config:
    """Balance a pole within a trust region."""
    return _trust("CartPole-v1", 100_000)


def cheetah_trpo() -> Config:
    """Run with a two-legged robot within a trust region."""
    return _with_network(_trust("HalfCheetah-v5"), initial_std=0.37)


def hopper_trpo() -> Config:
    """Hop with a one-legged robot within a trust region."""
    return _trust("Hopper-v5")


def walker_trpo() -> Config:
    """Walk with a two-legged robot within a trust region that becomes smaller.

    It begins twice as large as the default, and its steps are closer to the natural
    gradient: else some seeds lose their entropy before they have learned to walk.
    """
    from agents.algorithms import trpo

    falling = {"type": "linear", "from": 0.02, "to": 0.001, "over": 1_000_000}
    region = trpo.trust_region(falling, cg_max_iterations=20)
    return _with(_trust("Walker2d-v5"), "algorithm", optimizer=region)


def cartpole_vpg() -> Config:
    """Balance a pole by the vanilla policy gradient."""
    from agents.algorithms import vpg

    return Config(
        name="",
        environment=Environment(id="CartPole-v1", num_agents=16),
        train=Train(steps=200_000, eval_every=20_000),
        algorithm=sections.build(vpg.Config, {"network": "small"}),
    )


def cartpole_a2c() -> Config:
    """Balance a pole by an advantage actor-critic."""
    return _actor_critic("CartPole-v1", 300_000)


def cheetah_a2c() -> Config:
    """Run with a two-legged robot by an advantage actor-critic."""
    return _actor_critic("HalfCheetah-v5", 1_000_000, entropy_coef=0.0)


def _actor_critic(id: str, steps: int, **algorithm: Any) -> Config:
    """Short unrolls of many agents in one environment."""
    from agents.algorithms import a2c

    settings = {"network": "small", **algorithm}
    return Config(
        name="",
        environment=Environment(id=id, num_agents=16),
        train=Train(steps=steps, eval_every=steps // 20),
        algorithm=sections.build(a2c.Config, settings),
    )


def cartpole_impala() -> Config:
    """Balance a pole by an actor-critic that learns from delayed data.

    The run has one phase: a reset brings all episodes to the same step, so that small
    batches only show one part of them, and good policies are lost again.
    """
    config = _late(
        "CartPole-v1",
        150_000,
        num_agents=8,
        unroll_length=10,
        vtrace_lambda=0.95,
        entropy_coef=0.001,
    )
    return dataclasses.replace(config, train=Train(steps=150_000, eval_every=150_000))


def cheetah_impala() -> Config:
    """Run with a two-legged robot by an actor-critic that learns from delayed data."""
    rate = _to_zero(7e-4, 1_000_000)
    return _late("HalfCheetah-v5", 1_000_000, learning_rate=rate)


def memory_impala() -> Config:
    """Choose at the end of an episode the cue that was shown at its beginning."""
    return _late(
        "agents.environments.functional:Recall",
        200_000,
        num_agents=32,
        entropy_coef=0.01,
        network={"layers": [{"type": "lstm", "units": 32}]},
    )


def memory_impala_forward() -> Config:
    """Choose the cue without a memory, which does not suffice; for comparison."""
    config = memory_impala()
    network = type(config.algorithm.network).preset("small")
    return _with(config, "algorithm", network=network)


def _late(id: str, steps: int, *, num_agents: int = 16, **algorithm: Any) -> Config:
    """Actor-critic on unrolls that wait in a queue before training."""
    from agents.algorithms import impala

    settings = {
        "normalize_rewards": "return",
        "reward_clip": 10.0,
        "reduction": "mean",
        "entropy_coef": 0.0,
        "learning_rate": _to_zero(2e-3, steps),
        "optimizer": {"type": "adam", "epsilon": 1e-5, "clip_norm": 0.5},
        "network": "small",
        **algorithm,
    }
    return Config(
        name="",
        environment=Environment(id=id, num_agents=num_agents),
        train=Train(steps=steps, eval_every=steps // 20),
        algorithm=sections.build(impala.Config, settings),
    )


def cartpole_evolutionary() -> Config:
    """Balance a pole by a policy that learns without derivatives."""
    return _clip(
        "CartPole-v1",
        200_000,
        optimizer={
            "type": "multi_step",
            "num_steps": 20,
            "optimizer": {
                "type": "evolutionary",
                "learning_rate": 0.01,
                "num_samples": 32,
                "std": 0.05,
            },
        },
        minibatch_size=256,
    )


# Replay.


def _replay(
    kind: str, id: str, steps: int, *, num_agents: int = 4, **algorithm: Any
) -> Config:
    """Off-policy algorithm on few environments, which need no processes."""
    cls = experiment.algorithm_config(kind)
    return Config(
        name="",
        environment=Environment(id=id, num_agents=num_agents, backend="serial"),
        train=Train(steps=steps, eval_every=steps // 20),
        algorithm=sections.build(cls, algorithm),
    )


def cartpole_dqn() -> Config:
    """Balance a pole by deep Q-learning."""
    return _replay(
        "dqn",
        "CartPole-v1",
        50_000,
        batch_size=128,
        n_step=6,
        normalize_observations=True,
        replay_ratio=0.5,
        epsilon={"type": "linear", "from": 1.0, "to": 0.04, "over": 8_000},
        huber_delta=10.0,
        target_period=100,
        network={"layers": [256, 256]},
        learning_rate=_to_zero(1e-3, 50_000),
    )


def bit_flipping() -> Config:
    """Make bits equal to a goal, by Q-learning in hindsight; `hindsight.share=0` fails.

    The task of Andrychowicz et al. (2017), section 3.1.
    """
    config = _replay(
        "dqn",
        "agents.environments.goals:BitFlipping",
        60_000,
        batch_size=128,
        discount=0.98,
        replay_ratio=0.5,
        epsilon={"type": "linear", "from": 0.5, "to": 0.02, "over": 20_000},
        target_period=1,
        target_tau=0.05,
        network={"layers": [256]},
        learning_rate=1e-3,
    )
    return dataclasses.replace(
        config,
        environment=dataclasses.replace(config.environment, max_length=15),
        hindsight=goals.HindsightConfig(share=0.8),
    )


def cartpole_apex() -> Config:
    """Balance a pole by Q-learning of agents that explore to different degrees."""
    config = _replay(
        "apex",
        "CartPole-v1",
        150_000,
        num_agents=16,
        capacity=50_000,
        batch_size=128,
        start_size=2_000,
        n_step=6,
        normalize_observations=True,
        replay_ratio=0.125,
        huber_delta=10.0,
        target_period=100,
        network={"layers": [256, 256]},
        learning_rate=_to_zero(1e-3, 150_000),
        optimizer={"type": "adam", "clip_norm": 10.0},
    )
    train = Train(steps=150_000, eval_every=15_000)
    return _on_backend(dataclasses.replace(config, train=train), "serial")


def lunarlander_dqn() -> Config:
    """Land on the moon by deep Q-learning; needs the extra [box2d]."""
    return _replay(
        "dqn",
        "LunarLander-v3",
        300_000,
        capacity=100_000,
        batch_size=128,
        n_step=3,
        replay_ratio=0.5,
        epsilon={"type": "linear", "from": 1.0, "to": 0.05, "over": 50_000},
        target_period=250,
        learning_rate=_to_zero(6e-4, 3e5),
        optimizer={"type": "adam", "clip_norm": 10.0},
        network={"layers": [256, 256]},
    )


def pendulum_sac() -> Config:
    """Swing a pendulum up by a soft actor-critic."""
    return _replay(
        "sac",
        "Pendulum-v1",
        20_000,
        capacity=20_000,
        start_size=500,
        learning_rate=1e-3,
    )


def pendulum_td3() -> Config:
    """Swing a pendulum up by a deterministic policy gradient."""
    return _replay("td3", "Pendulum-v1", 20_000, capacity=20_000, start_size=500)


def cheetah_sac() -> Config:
    """Run with a two-legged robot by a soft actor-critic."""
    return _replay("sac", "HalfCheetah-v5", 1_000_000)


def hopper_sac() -> Config:
    """Hop with a one-legged robot by a soft actor-critic."""
    return _replay("sac", "Hopper-v5", 1_000_000)


def walker_sac() -> Config:
    """Walk with a two-legged robot by a soft actor-critic."""
    return _replay("sac", "Walker2d-v5", 1_000_000)


def ant_sac() -> Config:
    """Walk with a four-legged robot by a soft actor-critic."""
    return _replay("sac", "Ant-v5", 1_000_000)


# Images.


def atari_pong() -> Config:
    """Play Pong from pixels.

    The network is the smaller one of Mnih et al. (2013), and updates make fewer epochs
    than in `atari_breakout`, which makes training faster on processors.
    """
    steps = 4_096_000
    return _atari(
        "ALE/Pong-v5",
        steps,
        num_agents=16,
        epochs=3,
        learning_rate=_to_zero(5e-4, steps),
        entropy_coef=_to_zero(0.01, steps),
        network="convolutional",
    )


def atari_breakout() -> Config:
    """Play Breakout from pixels."""
    return _atari("ALE/Breakout-v5")


def atari_pong_dqn() -> Config:
    """Play Pong from pixels by deep Q-learning.

    The network is the smaller one of Mnih et al. (2013).
    """
    return _atari_replay(
        "ALE/Pong-v5",
        normalize_observations=True,
        batch_size=32,
        target_period=1_000,
        n_step=3,
        dueling=True,
        learning_rate=_to_zero(2.5e-4, 2_000_000),
        optimizer={"type": "adam"},
        network="convolutional",
    )


def atari_pong_apex() -> Config:
    """Play Pong from pixels by agents that explore to different degrees.

    The network is the smaller one of Mnih et al. (2013). Sixteen agents explore less than
    the hundreds of the paper, whose many random actions they would have to share.
    """
    config = _atari_replay(
        "ALE/Pong-v5",
        "apex",
        batch_size=32,
        normalize_observations=True,
        target_period=1_000,
        epsilon=0.1,
        priority_beta={"type": "linear", "from": 0.4, "to": 1.0, "over": 400_000},
        learning_rate=_to_zero(2.5e-4, 2_000_000),
        optimizer={"type": "adam", "clip_norm": 40.0},
        network={"convolutions": [[16, 8, 4], [32, 4, 2]], "layers": [256]},
    )
    return _with(config, "environment", num_agents=16)


def atari_pong_rainbow() -> Config:
    """Play Pong from pixels by all improvements of deep Q-learning.

    Only the last layer has noise and separate streams of values and advantages.
    """
    return _atari_replay(
        "ALE/Pong-v5",
        batch_size=32,
        target_period=2_000,
        n_step=3,
        dueling=True,
        noisy_std=0.5,
        atoms=51,
        prioritized=True,
        priority_alpha=0.5,
        priority_beta={"type": "linear", "from": 0.4, "to": 1.0, "over": 2e6},
        optimizer={"type": "adam", "epsilon": 1.5e-4},
    )


def atari_pong_impala() -> Config:
    """Play Pong from pixels by an actor-critic with truncated importance weights.

    The network is the shallow one of Espeholt et al. (2018), `residual` the deep one. The
    paper takes 200 million frames; here updates use their data three times. One process
    has no need to wait and learns from unrolls at once, because delays slow learning
    down. Rewards are rare, so advantages are small, and so is the weight of the entropy.
    """
    config = atari_pong()
    steps = config.train.steps
    late = _late(
        "ALE/Pong-v5",
        steps,
        normalize_rewards="clip",
        reward_clip=1.0,
        learning_rate=_to_zero(5e-4, steps),
        unroll_length=128,
        queue_size=0,
        vtrace_lambda=0.95,
        value_coef=1.0,
        entropy_coef=_to_zero(0.006, steps),
        jit=False,
        network="convolutional",
    )
    adam = late.algorithm.optimizer
    minibatch = {"type": "minibatch", "epochs": 3, "size": 2, "optimizer": adam}
    late = _with(late, "algorithm", optimizer=minibatch)
    return dataclasses.replace(config, algorithm=late.algorithm)


def cartpole_masked() -> Config:
    """Balance a pole without observing velocities, which requires a memory."""
    return _clip(
        "agents.environments.masked:cartpole",
        200_000,
        minibatch_size=512,
        network="gru",
    )


def cartpole_masked_forward() -> Config:
    """Balance a pole without velocities or memory, which fails; for comparison."""
    config = cartpole_masked()
    network = type(config.algorithm.network).preset("small")
    return _with(config, "algorithm", network=network)


def _with_network(config: Config, **fields: Any) -> Config:
    network = dataclasses.replace(config.algorithm.network, **fields)
    return _with(config, "algorithm", network=network)


def _on_backend(config: Config, backend: str) -> Config:
    return _with(config, "environment", backend=backend)


def _with(config: Config, section: str, **fields: Any) -> Config:
    """Replace fields of one section of a config."""
    values = dataclasses.replace(getattr(config, section), **fields)
    return dataclasses.replace(config, **{section: values})


def _atari(
    id: str, steps: int = 10_000_000, *, num_agents: int = 8, **algorithm: Any
) -> Config:
    """Clipped objective on images; sticky actions as in Machado et al. (2018).

    Other settings are from Huang et al. (2022), "The 37 Implementation Details of PPO".
    """
    settings = {
        "epochs": 4,
        "minibatch_size": 256,
        "learning_rate": _to_zero(2.5e-4, steps),
        "clip": 0.1,
        "entropy_coef": 0.01,
        "normalize_rewards": "clip",
        "reward_clip": 1.0,
        "network": "nature",
        "jit": False,
    }
    config = _clip(id, steps, **{**settings, **algorithm})
    environment = Environment(
        id=id,
        num_agents=num_agents,
        max_length=27_000,
        kwargs={
            "frameskip": 4,
            "stack_num": 4,
            "img_height": 84,
            "img_width": 84,
            "grayscale": True,
            "maxpool": True,
            "noop_max": 0,
            "repeat_action_probability": 0.25,
            "full_action_space": False,
            "use_fire_reset": False,
            "episodic_life": False,
            "reward_clipping": False,
        },
    )
    train = Train(steps=steps, eval_every=256_000, eval_episodes=8)
    return dataclasses.replace(config, environment=environment, train=train)


def _atari_replay(id: str, kind: str = "dqn", **algorithm: Any) -> Config:
    """Q-learning on images, in the environments of the other algorithms."""
    environment = _atari(id).environment
    settings = {
        "capacity": 200_000,
        "start_size": 20_000,
        "threads": "within",
        "replay_ratio": 0.25,
        "stack": 4,
        "reward_clip": 1.0,
        "learning_rate": 1e-4,
        "optimizer": {"type": "adam"},
        "jit": False,
        "network": {
            "convolutions": [[32, 8, 4], [64, 4, 2], [64, 3, 1]],
            "layers": [512],
        },
        **algorithm,
    }
    if "noisy_std" not in settings:  # Noise explores, too.
        falling = {"type": "linear", "from": 1.0, "to": 0.01, "over": 200_000}
        settings.setdefault("epsilon", falling)
    config = _replay(kind, id, 2_000_000, **settings)
    train = Train(steps=2_000_000, eval_every=100_000, eval_episodes=8)
    return dataclasses.replace(config, environment=environment, train=train)


def debug() -> Config:
    """Execute every line in seconds, without learning or compilation."""
    config = _clip("CartPole-v1", 512, unroll_length=32, epochs=2, jit=False)
    return dataclasses.replace(
        config,
        environment=Environment(id="CartPole-v1", num_agents=4, max_length=40),
        train=Train(steps=512, eval_every=256, eval_episodes=4),
    )


def _named(function) -> Any:
    """Set the name of a function's config to that of the function."""

    @functools.wraps(function)
    def named():
        return dataclasses.replace(function(), name=function.__name__)

    return named


EXPERIMENTS = {
    function.__name__: _named(function)
    for function in (
        pendulum,
        cartpole,
        reacher,
        cheetah,
        walker,
        hopper,
        ant,
        humanoid,
        swimmer,
        pendulum_clip,
        cartpole_clip,
        reacher_clip,
        cheetah_clip,
        walker_clip,
        hopper_clip,
        ant_clip,
        humanoid_clip,
        swimmer_clip,
        cartpole_trpo,
        cheetah_trpo,
        hopper_trpo,
        walker_trpo,
        cartpole_vpg,
        cartpole_a2c,
        cheetah_a2c,
        cartpole_impala,
        cheetah_impala,
        memory_impala,
        memory_impala_forward,
        cartpole_evolutionary,
        cartpole_dqn,
        cartpole_apex,
        lunarlander_dqn,
        pendulum_sac,
        pendulum_td3,
        cheetah_sac,
        hopper_sac,
        walker_sac,
        ant_sac,
        cartpole_compiled,
        pendulum_compiled,
        atari_pong,
        atari_breakout,
        atari_pong_dqn,
        atari_pong_apex,
        atari_pong_rainbow,
        atari_pong_impala,
        cartpole_masked,
        cartpole_masked_forward,
        bit_flipping,
        debug,
    )
}
"""Functions that create a config, by name."""
