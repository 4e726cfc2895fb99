"""Speed of simulating or training a config, its bottleneck, and the parts of a step.

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
from agents.experiments import display, runs
from agents.tools import actions, batch_env, channels, processes, spaces, transitions

SECONDS = 2.0
"""Duration of the measurement of one part."""

PATIENCE = 20.0
"""Seconds to wait for the first update."""

LENGTH = 1000
"""Steps of episodes that nothing else limits."""


def measure(
    config: experiment.Config,
    training: bool,
    steps: int | None = None,
    say: Callable[[str], Any] = display.silent,
) -> dict[str, Any]:
    """Measure all rates of a config; keys as printed, plus `limit` and `advice`.

    The parts of a step, in microseconds per step of the batch, are measured one by one,
    each on top of the last one: the environments alone, the crossing into the graph and
    back, acting, remembering, learning. All but the first and the last use environments
    that do nothing. In a compiled environment there is no crossing. If the parts add up
    to more than the whole step, the environments and the graph worked in parallel for
    the difference. `say` is called with the name of each part.
    """
    environment = config.environment
    backend = make.choose(environment)
    description = runs.describe(config)
    say("Compiling and measuring the whole")
    total, rest = _end_to_end(config, description, training, steps)
    say("Measuring the environments")
    limit_text, limit = _limit(config, backend)
    say("Measuring the parts of a step")
    parts = _parts(config, backend, description, training)
    if training:
        parts["learning"] = max(total["step"] - rest, 0.0)
    size = environment.num_agents
    env, end_to_end = size / parts["environment"], size / total["step"]
    limit = limit or env
    return {
        "config": config.name,
        "mode": "train" if training else "simulate",
        "backend": backend,
        "num_agents": size,
        "steps": total["steps"],
        "seconds": round(total["seconds"], 6),
        "env_steps_per_s": round(env),
        "end_to_end_steps_per_s": round(end_to_end),
        "limit_steps_per_s": round(limit),
        "fraction_of_limit": round(end_to_end / limit, 3),
        "compile_seconds": round(total["compile_seconds"], 2),
        "step_us": round(1e6 * total["step"]),
        "parts_us": {name: round(1e6 * x) for name, x in parts.items()},
        "limit": limit_text,
        "advice": _advice(parts, total["step"], environment),
    }


def _end_to_end(
    config, description: make.Description, training: bool, steps: int | None
) -> tuple[dict[str, float], float]:
    """Measure `simulate`: all of it, and seconds per step without learning."""
    agent = runs.algorithm(config, description)
    batch = runs.environments(config)
    try:
        total = _whole(batch, agent, training, steps)
        rest = _simulated(batch, config, description, True) if training else 0.0
    finally:
        batch.close()
    return total, rest


def _whole(
    batch: Any, agent: Any, training: bool, steps: int | None
) -> dict[str, float]:
    """Measure steps and seconds of `simulate`, and the extra time of first calls."""
    from agents.tools import simulation

    size, unit = len(batch), agent.batch_steps

    def run(count):
        start = time.perf_counter()
        simulation.simulate(batch, agent, count, training)
        return time.perf_counter() - start

    begun, warm = 0, 0.0  # The first update may be late, and it compiles.
    while not begun or (training and not _has_learned(agent) and warm < PATIENCE):
        warm += run(unit)
        begun += unit
    taken, seconds, count = 0, 0.0, unit
    if steps:
        count = max(round(steps / size / unit), 1) * unit
    while taken == 0 or (not steps and seconds < 5.0):
        duration = run(count)
        taken, seconds = taken + count, seconds + duration
        if duration < 0.5:
            count *= 2
    step = seconds / taken
    return {
        "steps": taken * size,
        "seconds": seconds,
        "step": step,
        "compile_seconds": max(warm - begun * step, 0.0),
    }


def _has_learned(agent: Any) -> bool:
    """Return whether an algorithm has made an update, if it counts updates."""
    return int(getattr(agent, "updates", 1)) > 0


def _parts(
    config, backend: str, description: make.Description, training: bool
) -> dict[str, float]:
    """Measure the seconds per step of all parts but learning."""
    from agents.tools import in_graph_batch_env

    if backend == "compiled":
        batch = runs.environments(config)
        environment = crossed = _constant(batch, description)
    else:
        nothing = _Nothing(description, config.environment.num_agents)
        batch = in_graph_batch_env.InGraphBatchEnv(nothing)
        environment = _environments(config)
        crossed = _constant(batch, description)
    acted = _simulated(batch, config, description, False)
    parts = {"environment": environment, "acting": acted - crossed}
    if backend != "compiled":
        parts = {"environment": environment, "crossing": crossed, **parts}
    if training:
        remembered = _simulated(batch, config, description, True)
        parts["remembering"] = remembered - acted
    return {name: max(x, 0.0) for name, x in parts.items()}


def _environments(config) -> float:
    """Measure the backend with random, allowed actions, without TensorFlow."""
    batch = make.batch(config.environment)
    drawn = itertools.cycle(_random(batch.action_space, len(batch)))
    columns = transitions.Columns(batch.observation_space)
    random = np.random.default_rng(0)

    def step():
        batch.start(next(drawn), restart=True)
        batch.finish()

    def obey():
        nonlocal observation
        before = time.perf_counter()
        mask = observation[spaces.ACTION_MASK]
        action = actions.sample_allowed(batch.action_space, mask, random)
        drawing = time.perf_counter() - before
        batch.start(action, restart=True)
        result = batch.finish()
        others = result.observation, result.following
        observation = columns.structure(
            columns.split(result.numbers, *others).following
        )
        return drawing

    try:
        observation = batch.reset()
        masked = spaces.mask_sizes(batch.observation_space, batch.action_space)
        return _seconds(obey if masked else step)
    finally:
        batch.close()


def _simulated(
    batch: Any, config, description: make.Description, training: bool
) -> float:
    """Measure `simulate` with an algorithm that does not learn."""
    from agents.tools import simulation

    agent = runs.algorithm(config, description)
    agent.learning = False
    steps = agent.batch_steps if agent.batch_steps > 1 else _calls(batch)

    def run():
        simulation.simulate(batch, agent, steps, training)
        if agent.batch_steps > 1:  # There is no room for more.
            agent.memory.clear_data()

    return _seconds(run) / steps


def _constant(batch: Any, description: make.Description) -> float:
    """Measure `simulate` with constant actions."""
    import tensorflow as tf

    from agents.tools import algorithm, simulation

    (action,) = _random(description.action_space, len(batch), 1)
    action = tf.nest.map_structure(tf.constant, action)

    class Constant(algorithm.Algorithm):
        def perform(self, agent_indices, observation, training=True):
            return action

    agent, steps = Constant(), _calls(batch)

    def run():
        simulation.simulate(batch, agent, steps, False)

    return _seconds(run) / steps


def _calls(batch: Any) -> int:
    """Return enough steps to make the cost of calling `simulate` negligible."""
    from agents.tools import simulation

    return simulation.COMPILED_STEPS if batch.compiled else 128


class _Nothing(batch_env.Backend):
    """Batch whose environments do nothing until their episodes are cut off."""

    def __init__(self, description: make.Description, length: int):
        found = description.observation_space, description.action_space
        buffers = transitions.Buffers.create(*found, length)
        (observation,) = _random(description.observation_space, length, 1)
        if spaces.mask_sizes(*found):
            mask = observation[spaces.ACTION_MASK]
            observation[spaces.ACTION_MASK] = spaces.transform(np.ones_like, mask)
        for target, leaf in zip(
            buffers.observation, spaces.flatten(observation), strict=True
        ):
            target[...] = leaf
        for target, leaf in zip(buffers.following, buffers.observation, strict=True):
            target[...] = leaf
        super().__init__(*found, buffers)
        self._length = description.max_length or LENGTH
        self._time = np.arange(length) * self._length // length

    def __getitem__(self, index: int) -> None:
        return None

    def close(self):
        pass

    def _start(self, restart: bool):
        pass

    def _finish(self, restart: bool) -> dict:
        self._time += 1
        over = self._time == self._length
        self._buffers.numbers[:, transitions.TRUNCATED] = over
        self._time[over] = 0
        return {}

    def _reset(self, rows: np.ndarray, seeds: np.ndarray | None):
        pass


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
    drawn = itertools.cycle([space.sample() for _ in range(1000)])
    masked = spaces.mask_sizes(envs[0].observation_space, space)
    random = np.random.default_rng(0)
    observations = [env.reset(seed=seed)[0] for seed, env in enumerate(envs)]
    channel.send(channels.DONE)
    channel.receive()
    turns = itertools.cycle(range(share))
    count, start = 0, time.perf_counter()
    while (duration := time.perf_counter() - start) < seconds:
        for index in itertools.islice(turns, 50):
            env, action = envs[index], next(drawn)
            if masked:
                before = time.perf_counter()
                mask = observations[index][spaces.ACTION_MASK]
                action = actions.sample_allowed(space, mask, random)
                start += time.perf_counter() - before
            observation, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                observation, _ = env.reset()
            observations[index] = observation
        count += 50
    channel.send(channels.RESULT, count / duration)
    channel.receive()


def _advice(parts: dict[str, float], step: float, environment: Environment) -> str:
    """Name the part of a step that takes the most time, and a remedy."""
    worst = max(parts, key=parts.get)
    hint = {
        "environment": f"use more processors, or {_faster(environment)}",
        "crossing": "use more agents, so that a call does more",
        "acting": "use a smaller network, or more agents per call",
        "remembering": "use more agents, so that a call does more",
        "learning": "use fewer epochs, larger minibatches, or a smaller network",
    }[worst]
    share = min(parts[worst] / step, 1)
    return f"{worst} takes most ({share:.0%} of a step); {hint}."


def _faster(environment: Environment) -> str:
    """Name a way to step an environment faster than its backend does."""
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


def _seconds(function: Callable[[], float | None]) -> float:
    """Measure the mean seconds of a call, except for those that it returns."""
    for _ in range(3):
        function()
    count, start = 0, time.perf_counter()
    while (duration := time.perf_counter() - start) < SECONDS:
        start += function() or 0.0
        count += 1
    return duration / count
