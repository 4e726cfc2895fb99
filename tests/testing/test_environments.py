"""Checks of batches of environments pass correct ones and catch broken ones."""

import functools

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces as gs

from agents import testing
from agents.environments import Environment, make
from agents.testing import environments, mocks
from agents.tools import batch_env, transitions

NESTED = gs.Dict(
    a=gs.Tuple((gs.Discrete(3, start=-1), gs.Box(-1, 1, (2,), np.float64))),
    b=gs.Dict(c=gs.MultiBinary(2), d=gs.MultiDiscrete([2, 3])),
    e=gs.Box(0, 255, (2, 2), np.uint8),
)
BOX = gs.Box(-1, 1, (2,))
RANDOM = functools.partial(mocks.RandomEnvironment, BOX, gs.Discrete(3))


def batch(env=RANDOM, cls=batch_env.BatchEnv):
    return cls([env() for _ in range(3)], blocking=True)


@pytest.mark.parametrize("space", [BOX, NESTED, gs.Box(-np.inf, np.inf, ())])
def test_random_environments_conform(space):
    env = functools.partial(mocks.RandomEnvironment, NESTED, space)
    testing.check_batch_env(lambda: batch(env), reference=env, steps=40)


@pytest.mark.parametrize("space", [gs.Discrete(1), gs.Box(0, 0, (2,))])
def test_environments_whose_observations_are_all_equal_conform(space):
    env = functools.partial(mocks.RandomEnvironment, space, gs.Discrete(3))
    testing.check_batch_env(lambda: batch(env), reference=env, steps=40)


def test_environments_that_count_their_episodes_conform_without_seeds():
    env = functools.partial(mocks.MockEnvironment, durations=[2, 5])
    testing.check_batch_env(lambda: batch(env), reference=env, seeded=False)
    with pytest.raises(testing.ConformanceError, match=environments.REPEATED):
        testing.check_batch_env(lambda: batch(env))


def test_envpool_conforms():
    pytest.importorskip("envpool")
    testing.check_batch_env(
        lambda: make.batch(Environment("Pendulum-v1", "envpool", 3, max_length=20)),
        steps=50,
    )


class Broken(batch_env.BatchEnv):
    """Does what it should but for one thing, which subclasses say."""


class Float64Rewards(Broken):
    def step(self, actions):
        observation, reward, *rest = super().step(actions)
        return observation, reward.astype(np.float64), *rest


class IntegerFlags(Broken):
    def step(self, actions):
        *first, truncated, info = super().step(actions)
        return *first, truncated.astype(int), info


class NoInfo(Broken):
    def step(self, actions):
        return super().step(actions)[:4]


class SqueezedReset(Broken):
    def reset(self, indices=None, seeds=None):
        observation = super().reset(indices, seeds)
        return observation[0] if len(observation) == 1 else observation


class NotFinite(Broken):
    def step(self, actions):
        observation, *rest = super().step(actions)
        return observation * np.float32(np.nan), *rest


class Buffers(Broken):
    """Returns the array that it writes."""

    def step(self, actions):
        observation, *rest = super().step(actions)
        self._buffer = getattr(self, "_buffer", observation)
        self._buffer[:] = observation
        return self._buffer, *rest


class ReusesNumbers(Broken):
    """Returns the array that it writes, but from `finish` only."""

    def finish(self):
        result = super().finish()
        buffer = vars(self).setdefault("_numbers", result.numbers)
        buffer[:] = result.numbers
        return result._replace(numbers=buffer)


class DoesNotSayDone(Broken):
    def finish(self):
        result = super().finish()
        return result._replace(done=np.zeros(len(self), bool))


class StepsAnything(Broken):
    """Resets what has not been reset."""

    def step(self, actions):
        if self._done.any():
            super().reset(np.flatnonzero(self._done))
        return super().step(actions)


class StepsDone(Broken):
    """Resets rows that are done, but not new ones."""

    def step(self, actions):
        if self._done.any() and not self._done.all():
            super().reset(np.flatnonzero(self._done))
        return super().step(actions)


class ClipsActions(Broken):
    def step(self, actions):
        return super().step(np.clip(actions, 0, 2))


class TakesAnyRows(Broken):
    def _rows(self, indices):
        return super()._rows(np.unique(np.asarray(indices, int) % len(self)))


class TakesAnySeeds(Broken):
    def reset(self, indices=None, seeds=None):
        rows = range(len(self)) if indices is None else indices
        return super().reset(
            indices, None if seeds is None else np.resize(seeds, len(rows)) % 2**32
        )


class StepsBeforeItRefuses(Broken):
    """Notices wrong actions when the first environment has been stepped."""

    def start(self, actions, restart=False):
        try:
            super().start(actions, restart)
        except ValueError:
            self._envs[1].np_random.normal()
            raise


class ForgetsSeeds(Broken):
    def reset(self, indices=None, seeds=None):
        return super().reset(indices)


class KnowsOneSeed(Broken):
    """Begins alike, whatever the seeds are."""

    def reset(self, indices=None, seeds=None):
        return super().reset(indices, None if seeds is None else np.minimum(seeds, 0))


class RemembersEpisodes(Broken):
    """First observations depend on how often it was reset with seeds."""

    count = 0

    def reset(self, indices=None, seeds=None):
        observation = super().reset(indices, seeds)
        self.count += seeds is not None
        return observation + np.float32(self.count > 1)


class Sorts(Broken):
    def reset(self, indices=None, seeds=None):
        indices = None if indices is None else np.sort(indices)
        return super().reset(indices, seeds)


class ResetsAll(Broken):
    """Resets more rows than it is told to, if it is told two."""

    def reset(self, indices=None, seeds=None):
        if seeds is None and indices is not None and list(indices) == [2, 0]:
            super().reset([1])
        return super().reset(indices, seeds)


class NextEpisode(Broken):
    """Shows the next episode where one ends."""

    def step(self, actions):
        observation, reward, terminated, truncated, info = super().step(actions)
        done = terminated | truncated
        self._next = None
        if done.any():
            observation[done] = self._next = super().reset(np.flatnonzero(done))
            self._done = done
        return observation, reward, terminated, truncated, info

    def reset(self, indices=None, seeds=None):
        if getattr(self, "_next", None) is None or seeds is not None:
            return super().reset(indices, seeds)
        self._done = self._done.copy()
        self._done[indices] = False
        following, self._next = self._next, None
        return following


class NoRestart(Broken):
    """Does not show the next episode where one ends."""

    def finish(self):
        result = super().finish()
        if result.restarted:
            half = (result.numbers.shape[1] - transitions.NUMBERS) // 2
            last, following = (transitions.NUMBERS, transitions.NUMBERS + half)
            result.numbers[:, following:] = result.numbers[:, last:following]
        return result


class ClosesOnce(Broken):
    closed = False

    def close(self):
        if self.closed:
            raise RuntimeError("closed")
        self.closed = True


@pytest.mark.parametrize(
    ("cls", "rule", "text"),
    [
        (Float64Rewards, environments.SHAPES, "step reward: .* got float64"),
        (IntegerFlags, environments.SHAPES, "step truncated: expected bool"),
        (NoInfo, environments.SHAPES, "a tuple of 5"),
        (SqueezedReset, environments.SHAPES, r"reset: .*\[1, 2\], got float32 \[2\]"),
        (NotFinite, environments.SHAPES, "finite numbers, got .nan"),
        (Buffers, environments.OWN, "call 1 observation"),
        (ReusesNumbers, environments.OWN, "call 1 observation"),
        (DoesNotSayDone, environments.RESTARTED, "finish done"),
        (StepsAnything, environments.REFUSED, "before the first reset: .* no error"),
        (StepsDone, environments.REFUSED, "which is done: .* got no error"),
        (ClipsActions, environments.REFUSED, "step with action 3: .* got no error"),
        (TakesAnyRows, environments.REFUSED, r"reset of rows \[3\]"),
        (TakesAnySeeds, environments.REFUSED, r"reset with seeds \[1\]"),
        (StepsBeforeItRefuses, environments.UNTOUCHED, "next step reward.1"),
        (ForgetsSeeds, environments.REPEATED, "first reset"),
        (KnowsOneSeed, environments.RANDOM, "expected a difference"),
        (RemembersEpisodes, environments.REPEATED, "first reset"),
        (Sorts, environments.ORDER, "rows 0 and 2"),
        (ResetsAll, environments.ROWS, "after it"),
        (NextEpisode, environments.TRUE_LAST, "got the same"),
        (NoRestart, environments.RESTARTED, "following"),
        (ClosesOnce, environments.CLOSE, "got RuntimeError"),
    ],
)
def test_broken_batches_are_caught(cls, rule, text):
    with pytest.raises(testing.ConformanceError, match=f"^{rule}; .*{text}") as error:
        testing.check_batch_env(lambda: batch(cls=cls), steps=40)
    assert "\n" not in str(error.value)


def test_what_differs_from_the_environment_alone_is_caught():
    """Truncation that is taken for termination; a row whose action is ignored."""

    class Terminates(Broken):
        def step(self, actions):
            observation, reward, terminated, truncated, info = super().step(actions)
            return observation, reward, terminated | truncated, truncated, info

    class Ignores(Broken):
        def step(self, actions):
            return super().step(np.ones_like(actions))

    for cls, leaf in ((Terminates, "terminated"), (Ignores, "reward")):
        with pytest.raises(
            testing.ConformanceError, match=f"^{environments.REFERENCE}; .* {leaf}"
        ):
            testing.check_batch_env(lambda cls=cls: batch(cls=cls), reference=RANDOM)


@pytest.mark.parametrize(
    ("create", "text"),
    [
        (lambda: batch_env.BatchEnv([RANDOM()] * 2, True), "3 or more rows, got 2"),
        (
            lambda: batch(functools.partial(mocks.MockEnvironment, durations=[999])),
            f"{environments.ENDS}; all rows in 100 steps",
        ),
        (
            lambda: batch(
                lambda: gymnasium.wrappers.TransformObservation(
                    mocks.RandomEnvironment(gs.Discrete(3), gs.Discrete(3)),
                    lambda x: x + 1,
                    gs.Discrete(3),
                )
            ),
            "observation is 3, outside of its space, which goes from 0 to 2",
        ),
    ],
)
def test_what_cannot_be_checked_is_refused(create, text):
    with pytest.raises(testing.ConformanceError, match=text):
        testing.check_batch_env(create)


def test_actions_of_all_integers_are_checked():
    largest = gs.Box(-(2**63), 2**63 - 1, (2,), np.int64)
    env = functools.partial(mocks.RandomEnvironment, BOX, largest)
    testing.check_batch_env(lambda: batch(env), steps=40)
