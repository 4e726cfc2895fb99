"""Adam in one operation per variable."""

import keras
import tensorflow as tf


class Adam(keras.optimizers.Adam):
    """Keras' Adam with equal results, in one operation per variable, not a dozen."""

    def update_step(self, gradient, variable, learning_rate) -> None:
        """Move one variable; AMSGrad needs the step of Keras."""
        if self.amsgrad:
            super().update_step(gradient, variable, learning_rate)
            return
        index = self._get_variable_index(variable)
        step = tf.cast(tf.convert_to_tensor(self.iterations) + 1, variable.dtype)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=tf.pow(tf.cast(self.beta_1, variable.dtype), step),
            beta2_power=tf.pow(tf.cast(self.beta_2, variable.dtype), step),
            lr=tf.cast(learning_rate, variable.dtype),
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=gradient,
        )
