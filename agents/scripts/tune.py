"""Search for good values of a config: `tune --config NAME --space FILE.yaml`.

Each trial is a run with values that Optuna has chosen. Trials whose best score so far is
below the median of the others at the same step are stopped. The same command goes on
with a study that was interrupted.
"""

import argparse
import contextlib
import pathlib
import shlex
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from agents.scripts import (
    configs,
    experiment,
    runs,
    space,
    train,
    trainer,
    trials,
)
from agents.tools import config as config_
from agents.tools import files


@runs.reporting
def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line, search, and say what to type next."""
    args = parse(argv)
    require_optuna()
    runs.start_tensorflow()
    config = configs.load(args.config, args.set, args.seed)
    if not config.train.eval_episodes:
        raise config_.ConfigError(
            "config key 'train.eval_episodes' is 0, but evaluations decide which trial "
            "is better."
        )
    space_ = space.load(args.space)
    space_.require(config_.to_dict(config))
    runs.describe(config)
    name = args.name or f"{config.name}-study"
    config_.require_name(name, "--name")
    directory = pathlib.Path(args.logdir) / name
    with runs.alone(directory, "--name"):
        prepare(directory, config, space_)
        study = Study(directory, config, space_, trainer.train)
        try:
            study.search(args.trials)
        except KeyboardInterrupt:
            print(
                f"Stopped with {len(study.finished())} of {args.trials} trials "
                "finished. To go on, repeat the command."
            )
            return 130
        return study.report()


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Command line of the script."""
    parser = runs.Parser(
        "tune",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--config", required=True, metavar="NAME|FILE.yaml", help="what to train"
    )
    parser.add_argument(
        "--space",
        required=True,
        metavar="FILE.yaml",
        help="config keys with a range or list of choices, such as "
        "'algorithm.learning_rate: {low: 1e-5, high: 1e-2, log: true}'",
    )
    parser.add_argument(
        "--trials",
        required=True,
        type=runs.COUNT,
        metavar="N",
        help="finished ones in all",
    )
    parser.add_argument(
        "--logdir", default="logdir", metavar="DIR", help="parent of the study"
    )
    parser.add_argument(
        "--name", metavar="STUDY", help="directory in DIR (default: CONFIG-study)"
    )
    parser.add_argument(
        "--seed",
        type=runs.SEED,
        metavar="N",
        help="of the runs and of the choice of values",
    )
    configs.add_overrides(parser)
    return parser.parse_args(argv)


def require_optuna() -> None:
    """Make sure that Optuna is installed, and keep it silent."""
    try:
        import optuna
    except ModuleNotFoundError as error:
        if error.name != "optuna":
            raise
        raise runs.RunError(
            "tune needs Optuna, which is not installed; pip install 'agents[tune]'."
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def prepare(
    directory: pathlib.Path, config: experiment.Config, space_: space.Space
) -> None:
    """Save what a study is about, or make sure that it is the same as before."""
    contents = {"space.yaml": space_.to_dict(), "config.yaml": config_.to_dict(config)}
    if (directory / "config.yaml").exists():
        for name, values in contents.items():
            if not (directory / name).exists():
                raise runs.RunError(f"{directory} is no study, it has no {name}.")
            old = config_.load_mapping(directory / name)
            changes = config_.differences(old, values)
            if changes:
                raise runs.RunError(
                    f"{directory} was started with another {name}: "
                    f"{'; '.join(changes)}; use another --name."
                )
        return
    for name, values in contents.items():  # The config last, which says that all is.
        config_.dump(values, directory / name)


class Study:
    """Trials of one config, kept in a file.

    A trial is a function of the study's seed and the finished trials before it, so a
    study that was interrupted goes on as if it had not been.
    """

    def __init__(
        self,
        directory: pathlib.Path,
        config: experiment.Config,
        space_: space.Space,
        run_: Callable[..., contextlib.AbstractContextManager],
    ) -> None:
        """Open the study; trials that were interrupted will be repeated.

        Args:
          directory: What `prepare` has filled.
          config: Config of which values are replaced.
          space_: Which values.
          run_: Called as `trainer.train` is.
        """
        self._directory, self._config, self._space = directory, config, space_
        self._run = run_
        self._study = self._open()
        self._repeat_interrupted()

    def search(self, total: int) -> None:
        """Run trials until there are so many finished ones."""
        import optuna

        states = optuna.trial.TrialState
        while len(self.finished()) < total:
            trial, scores = self._ask(), []
            state, reason = self._attempt(trial, scores)
            trial.set_user_attr("state", state)
            trial.set_user_attr("reason", reason)
            if state == trials.COMPLETE:
                self._study.tell(trial, trials.final_score(scores))
            else:  # Whatever the reason is, such values are not worth another trial.
                self._study.tell(trial, state=states.PRUNED)
            self._print_last()

    def finished(self) -> list[trials.Trial]:
        """Trials that are over, whatever came of them."""
        import optuna

        states = optuna.trial.TrialState
        over = self._study.get_trials(states=(states.COMPLETE, states.PRUNED))
        return [self._finished(trial) for trial in over]

    def _finished(self, trial: Any) -> trials.Trial:
        """Facts about a trial; raises RunError where the file of the study is damaged."""
        facts = {
            "reason": "",
            "steps": 0,
            "chosen": {},
            **trial.user_attrs,
            "number": trial.number,
            "value": trial.value,
            "seconds": trial.duration.total_seconds(),
        }
        try:
            found = config_.build(trials.Trial, facts)
            whole = found.chosen.keys() == self._space.dimensions.keys()
        except config_.ConfigError:
            whole = False
        if not whole or found.state not in trials.STATES:
            raise runs.RunError(
                f"trial {trial.number} of {self._directory} is damaged; use another "
                "--name."
            )
        return found

    def report(self) -> int:
        """Write the results and say what to type next; returns the exit code."""
        finished = self.finished()
        trials.print_table(finished)
        trials.write_csv(finished, self._directory / "trials.csv")
        trials.draw(finished, self._space, self._directory / "study.png")
        winner = trials.best(finished)
        if not winner:
            print(
                f"error: no trial is complete, the last one: {finished[-1].reason}",
                file=sys.stderr,
            )
            refused = all(trial.state == trials.REFUSED for trial in finished)
            return 2 if refused else 1
        config = space.resolve(config_.to_dict(self._config), winner.chosen)
        config_.dump(config, self._directory / "best.yaml")
        path = shlex.quote(str(self._directory / "best.yaml"))
        print(
            f"Best is trial {winner.number}; the figure is "
            f"{self._directory / 'study.png'}. Next:\n"
            f"  {train.program('agents')} train --config {path}"
        )
        return 0

    def _open(self) -> Any:
        """Optuna's side of the study."""
        import optuna

        # We are alone; a lock of Optuna's own would outlive a process that is killed.
        lock = types.SimpleNamespace(acquire=lambda: True, release=lambda: None)
        path = self._directory / "study.journal"
        if path.exists():
            files.cut(path)  # A line that is half written would spoil the next one.
        backend = optuna.storages.journal.JournalFileBackend(str(path), lock)
        warmup = self._config.train.steps // 3  # As long as the part that is judged.
        try:
            storage = optuna.storages.JournalStorage(backend)
            return optuna.create_study(
                study_name="study",
                storage=storage,
                pruner=optuna.pruners.MedianPruner(n_warmup_steps=warmup),
                direction="maximize",
                load_if_exists=True,
            )
        except Exception as error:  # Damaged files meet all kinds of them.
            raise runs.RunError(
                f"{path} is damaged ({error}); use another --name."
            ) from error

    def _repeat_interrupted(self) -> None:
        """Enqueue what no process works on any more, in the same run directory."""
        import optuna

        states = optuna.trial.TrialState
        for trial in self._study.get_trials(states=(states.RUNNING,)):
            self._study.tell(trial.number, state=states.FAIL)
            if {"chosen", "run"} <= trial.user_attrs.keys():
                attributes = {"run": trial.user_attrs["run"]}
                self._study.enqueue_trial(trial.params, attributes)

    def _ask(self) -> Any:
        """Next trial, with values for all keys and the name of its run."""
        import optuna

        count = len(self.finished())
        sequence = np.random.SeedSequence([self._config.seed, count])
        seed = int(sequence.generate_state(1)[0])
        self._study.sampler = optuna.samplers.TPESampler(seed=seed)
        trial = self._study.ask()
        trial.set_user_attr("chosen", self._space.suggest(trial))
        if "run" not in trial.user_attrs:
            name = f"trial-{trial.number:04d}-{self._config.name}"
            trial.set_user_attr("run", name)
        return trial

    def _attempt(self, trial: Any, scores: list[float]) -> tuple[str, str]:
        """Run a trial, add its scores and return its state with the reason."""
        chosen, name = trial.user_attrs["chosen"], trial.user_attrs["run"]
        try:
            config = space.resolve(config_.to_dict(self._config), chosen)
            with self._run(self._directory, name, chosen) as run_:
                for step, score in run_:
                    scores.append(score)
                    trial.set_user_attr("steps", step)
                    # As planned: runs round steps up, by what they have of agents.
                    trial.report(score, len(scores) * config.train.eval_every)
                    if trial.should_prune():
                        return trials.PRUNED, "below the median"
        except config_.ConfigError as error:
            return trials.REFUSED, str(error)
        except trainer.TrialError as error:
            return error.state, str(error)
        if not scores:
            return trials.FAILED, "no evaluation has a score"
        return trials.COMPLETE, ""

    def _print_last(self) -> None:
        """One line about the trial that has just finished."""
        finished = self.finished()
        last, winner = finished[-1], trials.best(finished)
        parts = [f"trial {last.number:>4}  {last.state:<8}"]
        if last.value is not None:
            parts.append(f"value {last.value:>10,.1f}")
        if winner:
            parts.append(f"best {winner.value:,.1f} (trial {winner.number})")
        parts += [f"{last.seconds:,.0f} s", trials.describe(last.chosen)]
        if last.reason and last.state != trials.PRUNED:
            parts.append(f"({last.reason})")
        print("  ".join(parts), flush=True)


if __name__ == "__main__":
    sys.exit(main())
