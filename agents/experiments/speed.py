"""Speed of simulation or training of a config, and its bottleneck.

Rates are environment steps per second of the whole batch.
"""

import dataclasses
import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from agents.environments import Environment, make, workers
from agents.experiments import config as experiment
from agents.experiments import runs
from agents.tools import batch_env, channels, processes, spaces, transitions

SECONDS = 2.0
"""Duration of the measurement of one part."""


def measure(
    config: experiment.Config, training: bool, steps: int | None = None
) -> dict[str, Any]:
    """Measure all rates of a config; keys as printed, plus `limit` and `advice`."""
    environment = config.environment
    backend = make.choose(environment)
    description = runs.describe(config)
    agent = runs.algorithm(config, description)
    limit_text, limit = _limit(config, backend)
    batch = runs.environments(config)
    try:
        total = _end_to_end(batch, agent, training, steps)
    finally:
        batch.close()
    rates = {
        "env": _environments(config, backend, description),
        "policy": _policy(config, description, training, batch.compiled),
        "transport": None if batch.compiled else _transport(config, description),
        "end_to_end": total["steps"] / total["seconds"],
    }
    limit = limit or rates["env"]
    return {
        "config": config.name,
        "mode": "train" if training else "simulate",
        "backend": backend,
        "num_agents": len(batch),
        "steps": total["steps"],
        "seconds": round(total["seconds"], 6),
        **{f"{k}_steps_per_s": v and round(v) for k, v in rates.items()},
        "limit_steps_per_s": round(limit),
        "fraction_of_limit": round(rates["end_to_end"] / limit, 3),
        "compile_seconds": round(total["compile_seconds"], 2),
        "limit": limit_text,
        "advice": _advice(rates, environment, training),
    }


def _end_to_end(
    batch: Any, agent: Any, training: bool, steps: int | None
) -> dict[str, float]:
    """Measure steps and seconds of `simulate`, and the extra time of first calls."""
    from agents.tools import simulation

    size, unit = len(batch), agent.batch_steps

    def run(count):
        start = time.perf_counter()
        simulation.simulate(batch, agent, count, training)
        return time.perf_counter() - start

    first = run(unit) + run(unit)
    steady = run(unit)
    count = unit
    while (duration := run(count)) < 0.5:
        count *= 2
    wanted = steps / size if steps else 5.0 / (duration / count)
    wanted = max(round(wanted / unit), 1) * unit
    return {
        "steps": wanted * size,
        "seconds": run(wanted),
        "compile_seconds": max(first - 2 * steady, 0.0),
    }


def _environments(config, backend: str, description: make.Description) -> float:
    """Measure the backend's rate with random actions, without TensorFlow."""
    environment = config.environment
    size = environment.num_agents
    if backend == "compiled":
        from agents.tools import simulation

        steps = simulation.COMPILED_STEPS
        return _constant(runs.environments(config), description, steps)
    batch = make.batch(environment)
    actions = _random(batch.action_space, size)
    index = iter(range(10**12))

    def step():
        batch.start(actions[next(index) % len(actions)], restart=True)
        batch.finish()

    try:
        batch.reset()
        return _rate(step, size)
    finally:
        batch.close()


def _policy(
    config, description: make.Description, training: bool, compiled: bool
) -> float:
    """Measure the policy's rate on constant observations, in a graph loop."""
    import tensorflow as tf

    agent = runs.algorithm(config, description)
    size = config.environment.num_agents
    specs = spaces.spec(description.observation_space)
    everyone = tf.range(size)
    agent.begin_episodes(everyone, training)

    @tf.function(autograph=False, jit_compile=compiled or None)
    def run():
        def body(index, total):
            observation = spaces.transform(  # Constants would be hoisted.
                lambda x: tf.fill([size, *x.shape], tf.cast(index, x.dtype)), specs
            )
            action = agent.perform(everyone, observation, training)
            used = [
                tf.reduce_sum(tf.cast(x, tf.float32)) for x in tf.nest.flatten(action)
            ]
            return index + 1, total + tf.add_n(used)

        return tf.while_loop(lambda i, _: i < 20, body, (0, 0.0), parallel_iterations=1)

    return _rate(run, 20 * size)


class _Nothing(batch_env.Backend):
    """Batch whose environments do nothing."""

    def __init__(self, description: make.Description, length: int):
        found = description.observation_space, description.action_space
        buffers = transitions.Buffers.create(*found, length)
        (observation,) = _random(description.observation_space, length, 1)
        for target, leaf in zip(
            buffers.observation, spaces.flatten(observation), strict=True
        ):
            target[...] = leaf
        super().__init__(*found, buffers)

    def __getitem__(self, index: int) -> None:
        return None

    def close(self):
        pass

    def _start(self, restart: bool):
        pass

    def _finish(self, restart: bool) -> dict:
        return {}

    def _reset(self, rows: np.ndarray, seeds: np.ndarray | None):
        pass


def _transport(config, description: make.Description) -> float:
    """Measure `simulate` with environments and an algorithm that do nothing."""
    from agents.tools import in_graph_batch_env

    nothing = _Nothing(description, config.environment.num_agents)
    batch = in_graph_batch_env.InGraphBatchEnv(nothing)
    return _constant(batch, description, 20)


def _constant(batch: Any, description: make.Description, steps: int) -> float:
    """Measure `simulate` with constant actions, `steps` batch steps per call."""
    import tensorflow as tf

    from agents.tools import algorithm, simulation

    (action,) = _random(description.action_space, len(batch), 1)
    action = tf.nest.map_structure(tf.constant, action)

    class Constant(algorithm.Algorithm):
        def perform(self, agent_indices, observation, training=True):
            return action

    agent = Constant()
    return _rate(
        lambda: simulation.simulate(batch, agent, steps, False), steps * len(batch)
    )


def _limit(config, backend: str) -> tuple[str, float | None]:
    """Describe the limit; return its rate if it is not the backend itself."""
    if backend not in ("workers", "process", "serial"):
        return f"the environments alone, by backend {backend}", None
    environment = config.environment
    constructor = make.constructor(environment)
    count, rate = bare(constructor, SECONDS)
    return f"a bare environment on each of {count} processors", rate


def bare(
    constructor: Callable[[], Any], seconds: float, num_agents: int | None = None
) -> tuple[int, float]:
    """Measure bare environments on all processors; return their number and the rate.

    Each processor steps one environment, or an equal share of `num_agents` in turn.
    """
    count = workers.num_cpus()
    share = max((num_agents or 0) // count, 1)
    running = [
        processes.Worker(
            _bare, constructor, seconds, share, name=lambda: "Bare environment"
        )
        for _ in range(count)
    ]
    try:
        for worker in running:
            worker.receive()
        for worker in running:
            worker.send(channels.STEP)
        return count, sum(worker.receive()[1] for worker in running)
    finally:
        processes.close(running)


def _bare(
    channel: channels.Channel, _, constructor: Callable, seconds: float, share: int
) -> None:
    """Step environments in turn in a separate process; send the rate."""
    envs = [constructor() for _ in range(share)]
    space = envs[0].action_space
    space.seed(0)
    actions = [space.sample() for _ in range(1000)]
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
    channel.send(channels.DONE)
    channel.receive()
    turns = itertools.cycle(envs)
    count, start = 0, time.perf_counter()
    while (duration := time.perf_counter() - start) < seconds:
        for action in actions[:50]:
            env = next(turns)
            *_, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        actions = actions[50:] + actions[:50]
        count += 50
    channel.send(channels.RESULT, count / duration)
    channel.receive()


def _advice(
    rates: dict[str, float | None], environment: Environment, training: bool
) -> str:
    """Name the slowest part of a step, and a remedy."""
    times = {k: 1 / v for k, v in rates.items() if v and k != "end_to_end"}
    rest = 1 / rates["end_to_end"] - sum(times.values())
    if training:
        times["learning"] = max(rest, 0.0)
    worst = max(times, key=times.get)
    share = times[worst] * rates["end_to_end"]
    hints = {
        "env": f"use more processors, or {_faster(environment)}",
        "policy": "use a smaller network, or more agents per call",
        "transport": "use more agents, so that a call does more",
        "learning": "use fewer epochs, larger minibatches, or a smaller network",
    }
    names = {"env": "the environments take", "policy": "the policy takes"}
    names |= {"transport": "the way to Python takes", "learning": "learning takes"}
    return f"{names[worst]} most ({min(share, 1):.0%} of a step); {hints[worst]}."


def _faster(environment: Environment) -> str:
    """Name what may step an environment faster than its backend."""
    backend = make.choose(environment)
    best = make.choose(dataclasses.replace(environment, backend="auto"))
    if backend in ("serial", "process", "workers") and best != backend:
        return f"backend {best}"
    if backend in ("process", "workers"):
        return "a backend that is native: envpool, vector or compiled"
    return "simpler environments"


def _random(space: Any, size: int, count: int = 100) -> list[Any]:
    """Sample structures of arrays `[size, ...]` from a space, such as actions."""
    structure = spaces.spec(space)
    space.seed(0)
    batches = []
    for _ in range(count):
        rows = [spaces.flatten(space.sample()) for _ in range(size)]
        leaves = [
            np.stack([np.asarray(x) for x in column]).astype(spec.dtype)
            for column, spec in zip(
                zip(*rows, strict=True), spaces.flatten(structure), strict=True
            )
        ]
        batches.append(spaces.unflatten(structure, leaves))
    return batches


def _rate(function: Callable[[], Any], steps: int) -> float:
    """Measure the steps per second of a function that takes `steps` per call."""
    for _ in range(3):
        function()
    count, start = 0, time.perf_counter()
    while (duration := time.perf_counter() - start) < SECONDS:
        function()
        count += 1
    return count * steps / duration
