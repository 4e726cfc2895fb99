"""Several steps in a row."""

from agents.optimizers import items as items_
from agents.optimizers import optimizer as optimizer_
from agents.tools import bounds


class MultiStep(optimizer_.Wrapper):
    """Optimizer that repeats the steps of another one, with a new loss each time."""

    def __init__(self, optimizer: optimizer_.Optimizer, num_steps: int = 10) -> None:
        """Set the number of steps."""
        super().__init__(optimizer)
        bounds.require_options(bounds.POSITIVE, num_steps=num_steps)
        self._num_steps = num_steps

    def step(self, loss_fn, variables, **functions) -> optimizer_.Metrics:
        def step(index):
            inner = items_.fold(functions, index)
            return self.optimizer.step(loss_fn, variables, **inner)

        total = optimizer_.repeat(self._num_steps, step)
        return optimizer_.scale(total, 1.0 / self._num_steps)
