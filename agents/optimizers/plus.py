"""Different optimizers for different parts of the variables."""

from typing import Any

from agents.optimizers import items as items_
from agents.optimizers import optimizer as optimizer_


class Plus(optimizer_.Optimizer):
    """Optimizer of several losses, each with its own variables and optimizer.

    `step` takes dicts of losses and of variables by the names of the parts. A repeated
    name of a metric gets the name of its part as a prefix.
    """

    def __init__(self, **parts: optimizer_.Optimizer) -> None:
        """Set the optimizer of each part."""
        super().__init__()
        self._parts = parts
        names = {}
        for part, optimizer in parts.items():
            names = self._merge(names, part, dict.fromkeys(optimizer.metric_names))
        self.metric_names = tuple(names)
        self.needs = frozenset({"parts"}).union(*(x.needs for x in parts.values()))

    def build(self, variables: dict[str, list]) -> None:
        for part, optimizer in self._parts.items():
            optimizer.build(variables[part])

    def schedule(self, time: Any) -> None:
        for optimizer in self._parts.values():
            optimizer.schedule(time)

    def step(self, loss_fn, variables, **functions) -> optimizer_.Metrics:
        result = {}
        for index, (part, optimizer) in enumerate(self._parts.items()):
            inner = items_.fold(functions, index)
            metrics = optimizer.step(loss_fn[part], variables[part], **inner)
            result = self._merge(result, part, metrics)
        return result

    @staticmethod
    def _merge(previous: dict, part: str, metrics: dict) -> dict[str, Any]:
        """Add the metrics of one more part."""
        new = {
            f"{part}_{name}" if name in previous else name: value
            for name, value in metrics.items()
        }
        return {**previous, **new}
