"""Runs that act in Ray's actors and learn in this process."""

import contextlib
from typing import Any

from agents.distributed import actor, cluster, learner, phases, shards, workers
from agents.environments import curriculum, make
from agents.tools import checkpoint, loop, steps


def topology(algorithm: actor.Divisible) -> type[phases.Phase]:
    """Return the class of phases that divides acting and training for the memory.

    Raises:
      DistributedError: if the algorithm cannot be divided.
    """
    memory, name = getattr(algorithm, "memory", None), type(algorithm).__name__
    if getattr(getattr(algorithm, "preprocessing", None), "learns", False):
        raise cluster.DistributedError(
            "preprocessing 'normalize' learns where it acts, so it cannot run on Ray; "
            "set algorithm.normalize_observations=true instead of it."
        )
    kind = getattr(memory, "topology", None)
    if kind in phases.TOPOLOGIES:
        missing = [x for x in ("steps", "generator") if not hasattr(algorithm, x)]
        if missing or not algorithm.acting():
            what = f"the attribute {missing[0]}" if missing else "variables in acting()"
            raise cluster.DistributedError(
                f"{name} cannot run on Ray without {what}; see what "
                "distributed.actor.Divisible lists."
            )
        return phases.TOPOLOGIES[kind]
    held = "without a" if memory is None else f"with {type(memory).__name__} as its"
    raise cluster.DistributedError(
        f"{name} cannot run on Ray {held} memory; only Episodes, Unrolls, Queue and Replay "
        "divide acting and training. Train without --executor ray."
    )


class RayLoop(loop.Loop):
    """Loop of a local run with training phases by workers.

    Evaluation happens here, by the learning algorithm in other environments.
    """

    def __init__(
        self,
        config: actor.RunConfig,
        description: make.Description,
        sizes: list[int],
        batch_env: steps.Environments,
        algorithm: actor.Divisible,
        *arguments: Any,
        options: phases.Options | None = None,
    ) -> None:
        """Start the workers.

        Args:
          config: Config from which workers create environments and algorithms.
          description: Description of an environment.
          sizes: Rows of each worker.
          batch_env: Environments of evaluation.
          algorithm: Learning algorithm, without a memory if that is in shards.
          *arguments: Further arguments of `tools.loop.Loop`.
          options: Coordination of workers and learner.

        Raises:
          DistributedError: if the algorithm cannot be divided, or workers cannot start.
        """
        if curriculum.schedules_of(config.environment.kwargs):
            raise cluster.DistributedError(
                "environment.kwargs has schedules, which workers on Ray cannot follow; "
                "train without --executor ray."
            )
        if config.environment.action_lag:
            raise cluster.DistributedError(
                "environment.action_lag lets two halves take turns, which workers on Ray "
                "do not; leave it out, or train without --executor ray."
            )
        super().__init__(batch_env, algorithm, *arguments)
        self._topology = topology(algorithm)
        self._options = options = options or phases.Options()
        self._division = {}
        if options.shards:
            self._division = {"shards": options.shards, "workers": len(sizes)}
        self._shards: shards.Shards | None = None
        self._learner: learner.Learner
        with contextlib.ExitStack() as stack:
            if options.shards:
                self._shards = self._divide(config, description, sizes)
                stack.callback(self._shards.close)
                self._learner = shards.ShardedLearner(algorithm, self._shards)
            else:
                self._learner = learner.Learner(algorithm)
            self._workers = workers.RayWorkers(
                config, description, sizes, options.steps, bool(options.shards)
            )
            stack.callback(self._workers.close)
            self._stack = stack.pop_all()

    def _divide(
        self, config: actor.RunConfig, description: make.Description, sizes: list[int]
    ) -> shards.Shards:
        """Create shards, and restore them from the newest checkpoint."""
        if self._topology is not phases.Replaying:
            name = type(self._algorithm).__name__
            raise cluster.DistributedError(
                f"{name} has no replay memory that could be divided; leave out "
                "--num_shards."
            )
        if self._algorithm.observations.persistent:
            raise cluster.DistributedError(
                "normalize_observations learns from all observations, which shards "
                "keep apart; leave out --num_shards, or set "
                "algorithm.normalize_observations=false."
            )
        options = self._options
        divided = shards.Shards(
            *(config, description, sizes, options.shards, options.prefetch)
        )
        if self._checkpoints and self._checkpoints.names():
            name = self._checkpoints.names()[-1]
            divided.restore(self._checkpoints.directory, name)
        return divided

    def close(self) -> None:
        """End workers and shards."""
        self._stack.close()

    def state(self) -> dict[str, Any]:
        """Return the JSON values of a checkpoint, with the division of the memory."""
        return {**super().state(), **self._division}

    def resume(self, state: dict) -> None:
        """Continue from a checkpoint, with other workers than those that filled it."""
        super().resume(state)
        if self.step and self._topology is phases.Replaying and not self._shards:
            self._learner.detach(0, len(self._batch_env))

    def save(self, checkpoints: checkpoint.Checkpoints) -> None:
        """Write a checkpoint, after those of the shards, of which one more is kept."""
        if self._shards:
            keep = checkpoints.keep + 1
            self._shards.save(checkpoints.directory, keep, self.step)
        super().save(checkpoints)

    def training(self) -> loop.Progress:
        """Create the progress of a training phase on Ray."""
        return self._topology(
            self._learner, self._workers, self._options, self._seed, self.phase
        )


class RayExecutor:
    """Trainer of a config on Ray; afterwards the algorithm can be used here.

        with RayExecutor(named.load("cartpole_impala"), num_workers=2) as executor:
            reports = executor.run(50_000)
            executor.algorithm.perform(...)

    Attributes:
      algorithm: The one that learns.
    """

    def __init__(
        self,
        config: actor.RunConfig,
        num_workers: int | None = None,
        address: str | None = None,
        options: phases.Options | None = None,
    ) -> None:
        """Connect, and start workers and the environments of evaluation.

        Args:
          config: Config of `experiments.named`.
          num_workers: Number of workers; by default one per free CPU.
          address: Address of a cluster as `host:port`; none to start Ray here, or to
            use an existing connection of this process.
          options: Coordination of workers and learner.

        Raises:
          DistributedError: if the config or the request cannot run on Ray.
        """
        environment = config.environment
        description = make.describe(environment)
        self._config = config
        learning = config
        if options and options.shards:
            learning = config.without_memory(environment.num_agents)
        self.algorithm = learning.create_learner(description)
        with contextlib.ExitStack() as stack:
            sizes = stack.enter_context(
                cluster.connected(address, num_workers, environment.num_agents)
            )
            env = actor.environments(environment, environment.num_agents)
            stack.callback(env.close)
            plan = loop.Plan(0, 1, 0)
            self._loop = RayLoop(
                *(config, description, sizes, env, self.algorithm, plan, config.seed),
                options=options,
            )
            stack.callback(self._loop.close)
            self._stack = stack.pop_all()

    def __enter__(self) -> "RayExecutor":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def run(self, steps: int) -> list[loop.Report]:
        """Train for this number of further environment steps; return phase reports.

        Like a local run, it ends once an evaluation has reached `train.stop_at`, and
        does not go on afterwards.
        """
        train = self._config.train
        last = self._loop.step + steps
        self._loop.plan = loop.Plan(
            last, train.eval_every, train.eval_episodes, train.stop_at
        )
        return [report for report in self._loop.run() if report.finished]

    def save(self, directory: str) -> None:
        """Write a checkpoint of the algorithm for `tools.checkpoint.Checkpoints`."""
        self._loop.save(checkpoint.Checkpoints(directory))

    def close(self) -> None:
        """End the workers, and Ray if it was started here."""
        self._stack.close()
