"""RMSProp whose first steps need not be large."""

import keras


class RMSprop(keras.optimizers.RMSprop):
    """Keras' RMSProp with a choice of the mean square at the beginning.

    Beginning at zero, as Keras does, the first step may move every variable by
    `learning_rate / sqrt(1 - rho)`, however small its gradient: ten times the rate with
    `rho` 0.99. The RMSProp of TensorFlow 1, which IMPALA's authors used, begins at one.

    Args:
      initial_square: Mean of squared gradients before the first step.
      **options: Options of Keras.
    """

    def __init__(self, *, initial_square: float = 0.0, **options) -> None:
        super().__init__(**options)
        self.initial_square = initial_square

    def build(self, var_list) -> None:
        """Create the variables of the optimizer."""
        new = not self.built
        super().build(var_list)
        if new:
            for square in self._velocities:
                square.assign(keras.ops.full_like(square, self.initial_square))
