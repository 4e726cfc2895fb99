"""Studies: searches for good values of a config by trials, stored in a directory."""

import contextlib
import pathlib
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from agents.experiments import config as experiment
from agents.experiments import runs
from agents.tools import config as config_
from agents.tools import config_files, errors, files, sections
from agents.tuning import space, trainer, trials


def require_optuna() -> None:
    """Raise RunError unless Optuna is installed; silence it."""
    try:
        import optuna
    except ModuleNotFoundError as error:
        if error.name != "optuna":
            raise
        raise runs.RunError(
            "tune needs Optuna, which is not installed; pip install 'agents-in-graph[tune]'."
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def prepare(
    directory: pathlib.Path, config: experiment.Config, space_: space.Space
) -> None:
    """Save the definition of a study, or check that it is unchanged.

    Raises:
      RunError: if the directory holds another study, or something else.
    """
    contents = {"space.yaml": space_.to_dict(), "config.yaml": sections.to_dict(config)}
    if (directory / "config.yaml").exists():
        for name, values in contents.items():
            if not (directory / name).exists():
                raise runs.RunError(f"{directory} is not a study: it has no {name}.")
            old = config_files.load_mapping(directory / name)
            changes = config_files.differences(old, values)
            if changes:
                raise runs.RunError(
                    f"{directory} was started with another {name}: "
                    f"{'; '.join(changes)}; use another --name."
                )
        return
    for name, values in contents.items():  # The config last, to mark completion.
        config_files.dump(values, directory / name)


class Study:
    """Trials of one config, stored in a file.

    A trial is a function of the study's seed and the finished trials before it, so an
    interrupted study continues as if it had not been interrupted.
    """

    def __init__(
        self,
        directory: pathlib.Path,
        config: experiment.Config,
        space_: space.Space,
        run_: Callable[..., contextlib.AbstractContextManager],
    ) -> None:
        """Open the study; interrupted trials will be repeated.

        Args:
          directory: Directory that `prepare` has filled.
          config: Config whose values are varied.
          space_: Values to vary.
          run_: Called like `trainer.train`, without its program.
        """
        self._directory, self._config, self._space = directory, config, space_
        self._run = run_
        self._study = self._open()
        self._repeat_interrupted()

    def search(self, total: int) -> None:
        """Run trials until this number of trials has finished."""
        import optuna

        states = optuna.trial.TrialState
        while len(self.finished()) < total:
            trial, scores = self._ask(), []
            state, reason = self._attempt(trial, scores)
            trial.set_user_attr("state", state)
            trial.set_user_attr("reason", reason)
            if state == trials.COMPLETE:
                self._study.tell(trial, trials.final_score(scores))
            else:  # Failed values are not worth another trial.
                self._study.tell(trial, state=states.PRUNED)
            self._print_last()

    def finished(self) -> list[trials.Trial]:
        """Return all finished trials, successful or not."""
        import optuna

        states = optuna.trial.TrialState
        over = self._study.get_trials(states=(states.COMPLETE, states.PRUNED))
        return [self._finished(number, trial) for number, trial in enumerate(over)]

    def _finished(self, number: int, trial: Any) -> trials.Trial:
        """Read the facts of a trial; raise RunError if the file is damaged.

        Optuna counts interrupted trials, too, but their repetitions have this number.
        """
        facts = {
            "reason": "",
            "steps": 0,
            "chosen": {},
            **trial.user_attrs,
            "number": number,
            "value": trial.value,
            "seconds": trial.duration.total_seconds(),
        }
        try:
            found = sections.build(trials.Trial, facts)
            whole = found.chosen.keys() == self._space.dimensions.keys()
        except config_.ConfigError:
            whole = False
        if not whole or found.state not in trials.STATES:
            raise runs.RunError(
                f"trial {number} of {self._directory} is damaged; use another --name."
            )
        return found

    def report(self) -> trials.Trial:
        """Print all trials, write the result files, and return the best trial.

        Raises:
          RunError: if the config accepts the values of no trial.
          Failure: if no trial is complete for another reason.
        """
        finished = self.finished()
        trials.print_table(finished)
        trials.write_csv(finished, self._directory / "trials.csv")
        trials.draw(finished, self._space, self._directory / "study.png")
        winner = trials.best(finished)
        if not winner:
            refused = all(trial.state == trials.REFUSED for trial in finished)
            kind = runs.RunError if refused else errors.Failure
            last = finished[-1].reason
            raise kind(f"no trial is complete, the last one: {last}")
        config = space.resolve(sections.to_dict(self._config), winner.chosen)
        config_files.dump(config, self._directory / "best.yaml")
        return winner

    def _open(self) -> Any:
        """Open the study in Optuna."""
        import optuna

        # Only this process runs; Optuna's own lock would outlive a killed process.
        lock = types.SimpleNamespace(acquire=lambda: True, release=lambda: None)
        path = self._directory / "study.journal"
        if path.exists():
            files.cut(path)  # Half a line would spoil the next.
        backend = optuna.storages.journal.JournalFileBackend(str(path), lock)
        warmup = self._config.train.steps // 3  # As long as the judged part.
        try:
            storage = optuna.storages.JournalStorage(backend)
            return optuna.create_study(
                study_name="study",
                storage=storage,
                pruner=optuna.pruners.MedianPruner(n_warmup_steps=warmup),
                direction="maximize",
                load_if_exists=True,
            )
        except Exception as error:  # Damaged files raise all kinds of errors.
            raise runs.RunError(
                f"{path} is damaged ({error}); use another --name."
            ) from error

    def _repeat_interrupted(self) -> None:
        """Enqueue interrupted trials again, with their run directories."""
        import optuna

        states = optuna.trial.TrialState
        for trial in self._study.get_trials(states=(states.RUNNING,)):
            self._study.tell(trial.number, state=states.FAIL)
            if {"chosen", "run"} <= trial.user_attrs.keys():
                attributes = {"run": trial.user_attrs["run"]}
                self._study.enqueue_trial(trial.params, attributes)

    def _ask(self) -> Any:
        """Ask for the next trial, with values for all keys and the name of its run."""
        import optuna

        count = len(self.finished())
        sequence = np.random.SeedSequence([self._config.seed, count])
        seed = int(sequence.generate_state(1)[0])
        self._study.sampler = optuna.samplers.TPESampler(seed=seed)
        trial = self._study.ask()
        trial.set_user_attr("chosen", self._space.suggest(trial))
        if "run" not in trial.user_attrs:
            name = f"trial-{count:04d}-{self._config.name}"
            trial.set_user_attr("run", name)
        return trial

    def _attempt(self, trial: Any, scores: list[float]) -> tuple[str, str]:
        """Run a trial and collect its scores; return its state with the reason."""
        chosen, name = trial.user_attrs["chosen"], trial.user_attrs["run"]
        every, reported = self._config.train.eval_every, 0
        try:
            space.resolve(sections.to_dict(self._config), chosen)
            with self._run(self._directory, name, chosen) as run_:
                for step, score in run_:
                    scores.append(score)
                    trial.set_user_attr("steps", step)
                    # Runs round steps up to multiples of their agents and unrolls; those
                    # near the same planned step are compared.
                    planned = max(round(step / every), 1) * every
                    if planned > reported:
                        trial.report(score, planned)
                    reported = planned
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
        """Print one line about the trial that has just finished."""
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
