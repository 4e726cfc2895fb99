"""Policies as functions of named tensors, and exported files."""

import logging
import pathlib
import re
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

import gymnasium

from agents.experiments import runs
from agents.tools import calls, files, spaces

FORMATS = ("saved_model", "onnx", "litert")


class ExportablePolicy:
    """Policy of an algorithm as functions of named tensors.

    Inputs are the parts of observations, `[B, ...]`, and the state of episodes; outputs
    are the parts of actions, in the form for the environment, and the next state.
    Preprocessing and normalization are included.
    """

    def __init__(
        self,
        algorithm: Any,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
    ) -> None:
        """Wrap the functions `decide` and `initial_state` of an algorithm.

        Raises:
          RunError: if two parts of a space would get the same name.
        """
        import tensorflow as tf

        self._algorithm = algorithm
        self._observation = spaces.spec(observation_space)
        self._action = spaces.spec(action_space)
        self._spaces = {"observation": observation_space, "action": action_space}
        state = algorithm.initial_state(1)
        self._state = tf.nest.map_structure(
            lambda x: tf.TensorSpec([None, *x.shape[1:]], x.dtype), state
        )
        names = _names("observation", self._observation)
        _names("action", self._action)
        self.inputs = {
            name: tf.TensorSpec([None, *spec.shape], spec.dtype, name)
            for name, spec in zip(names, spaces.flatten(self._observation), strict=True)
        }
        for index, spec in enumerate(tf.nest.flatten(self._state)):
            name = f"state_{index}"
            self.inputs[name] = tf.TensorSpec(spec.shape, spec.dtype, name)

    def act(self, generator: Any = None, **inputs: Any) -> dict[str, Any]:
        """Return actions, sampled if a generator is given, and the next state."""
        import tensorflow as tf

        names = _names("observation", self._observation)
        leaves = [inputs[name] for name in names]
        state = [x for name, x in inputs.items() if name.startswith("state_")]
        observation = spaces.unflatten(self._observation, leaves)
        state = tf.nest.pack_sequence_as(self._state, state)
        action, state = calls.decide(self._algorithm, observation, state, generator)
        outputs = dict(
            zip(_names("action", self._action), spaces.flatten(action), strict=True)
        )
        following = enumerate(tf.nest.flatten(state))
        return {**outputs, **{f"next_state_{index}": x for index, x in following}}

    def write(self, directory: str | pathlib.Path, kind: str, facts: dict) -> None:
        """Write the policy in one of `FORMATS`, and `card.md` with some facts.

        Raises:
          RunError: if the format is unknown or cannot express the policy, the directory
            is not empty, or a package is missing.
          AlgorithmError: if the policy remembers something in variables.
          WriteError: if it cannot be written; then the directory is empty.
        """
        import tensorflow as tf

        directory = pathlib.Path(directory)
        writers = {
            "saved_model": self._write_saved_model,
            "onnx": self._write_onnx,
            "litert": self._write_litert,
        }
        if kind not in FORMATS:
            raise runs.RunError(
                f"unknown format {kind!r}; use one of {', '.join(FORMATS)}."
            )
        if directory.is_dir() and any(directory.iterdir()):
            raise runs.RunError(f"{directory} is not empty; give a new directory.")
        runs.make_writable(directory)
        try:
            file = writers[kind](directory)
            (directory / "card.md").write_text(self._card(file, kind, facts))
        except BaseException as error:
            written = sum(x.stat().st_size for x in directory.rglob("*"))
            for path in directory.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            if isinstance(error, OSError | tf.errors.OpError):
                needs = f"more than {files.size(written)}"
                raise files.write_error(directory, error, needs) from error
            raise

    def _function(self) -> Any:
        """Create a graph function of best actions, for any batch size."""
        import tensorflow as tf

        def act(*values):
            return self.act(**dict(zip(self.inputs, values, strict=True)))

        function = tf.function(act, list(self.inputs.values()), autograph=False)
        function.get_concrete_function()  # Mistakes show here, not in a converter.
        return function

    def _write_saved_model(self, directory: pathlib.Path) -> str:
        import tensorflow as tf

        module = tf.Module()
        module.act = self._function()
        functions = {"serving_default": module.act}
        if self._algorithm.stochastic:
            seed = tf.TensorSpec([2], tf.int32, "seed")

            def sample(seed, *values):
                inputs = dict(zip(self.inputs, values, strict=True))
                return self.act(Stateless(seed), **inputs)

            signature = [seed, *self.inputs.values()]
            module.sample = tf.function(sample, signature, autograph=False)
            functions["sample"] = module.sample
        if tf.nest.flatten(self._state):

            def begin(batch_size):
                state = tf.nest.flatten(self._algorithm.initial_state(batch_size))
                return {f"state_{index}": x for index, x in enumerate(state)}

            signature = [tf.TensorSpec([], tf.int32, "batch_size")]
            module.begin = tf.function(begin, signature, autograph=False)
            functions["initial_state"] = module.begin
        concrete = {k: f.get_concrete_function() for k, f in functions.items()}
        module.kept = [x for f in concrete.values() for x in f.graph.variables]
        tf.saved_model.save(module, str(directory), concrete)
        return "this directory"

    def _write_onnx(self, directory: pathlib.Path) -> str:
        try:
            import onnx
            import tf2onnx
        except ImportError as error:
            raise runs.RunError(
                "format onnx needs tf2onnx; install it by pip install 'agents-in-graph[onnx]'."
            ) from error
        logging.getLogger("tf2onnx").setLevel("CRITICAL")  # Errors are raised.
        path = directory / "policy.onnx"
        function, signature = self._function(), list(self.inputs.values())

        def convert():
            model, _ = tf2onnx.convert.from_function(function, signature)
            onnx.checker.check_model(model)  # Unknown operations are still there.
            return model

        onnx.save(_converted("onnx", convert), str(path))
        return path.name

    def _write_litert(self, directory: pathlib.Path) -> str:
        import tensorflow as tf

        with tempfile.TemporaryDirectory() as folder:
            self._write_saved_model(pathlib.Path(folder))
            converter = tf.lite.TFLiteConverter.from_saved_model(
                folder, signature_keys=["serving_default"]
            )
            content = _converted("litert", converter.convert)
        (directory / "policy.tflite").write_bytes(content)
        return "policy.tflite"

    def _card(self, file: str, kind: str, facts: dict) -> str:
        """Describe the policy and its use."""
        import tensorflow as tf

        lines = ["# Policy", "", f"Format {kind}, in {file}.", ""]
        lines += [f"- {name}: {value}" for name, value in facts.items()]
        lines += [f"- {name} space: {space}" for name, space in self._spaces.items()]
        lines += ["", "Inputs, of any batch size B:", ""]
        for name, spec in self.inputs.items():
            shape = ", ".join(["B", *map(str, spec.shape[1:])])
            lines.append(f"- `{name}`: {spec.dtype.name} [{shape}]")
        count = len(tf.nest.flatten(self._state))
        lines += ["", "Outputs: " + ", ".join(f"`{x}`" for x in self._outputs(count))]
        lines += ["", "Actions are those that the environment takes."]
        if count:
            lines += [
                "",
                "The policy remembers: give every output `next_state_` to the next call as "
                f"`state_`. An episode begins with {self._beginning(kind)}.",
            ]
        if kind == "saved_model":
            lines += ["", "Signature `serving_default` chooses the best actions."]
            if self._algorithm.stochastic:
                lines += [
                    "Signature `sample` draws them, by an input `seed`, int32 [2]."
                ]
        return "\n".join([*lines, ""])

    def _beginning(self, kind: str) -> str:
        """Describe the state at the beginning of episodes."""
        import tensorflow as tf

        leaves = tf.nest.flatten(self._algorithm.initial_state(1))
        zero = not any(x.numpy().any() for x in leaves)
        if kind == "saved_model":
            values = (
                "the values that signature `initial_state` gives for an input "
                "`batch_size`, int32 []"
            )
            return f"{values}, which are all zero" if zero else values
        if zero:
            return "zeros"
        each = (f"{x[0].numpy().tolist()} as `state_{i}`" for i, x in enumerate(leaves))
        return ", ".join(each)

    def _outputs(self, states: int) -> list[str]:
        return [
            *_names("action", self._action),
            *(f"next_state_{x}" for x in range(states)),
        ]


class Stateless:
    """Replacement of a `tf.random.Generator` that draws from a seed, int32 `[2]`."""

    def __init__(self, seed: Any) -> None:
        self._seed, self._count = seed, 0

    def _next(self) -> Any:
        self._count += 1
        return self._seed + [0, self._count * 1000003]

    def normal(
        self, shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = "float32"
    ) -> Any:
        """Draw normal numbers."""
        import tensorflow as tf

        return tf.random.stateless_normal(shape, self._next(), mean, stddev, dtype)

    def truncated_normal(
        self, shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = "float32"
    ) -> Any:
        """Draw normal numbers within two standard deviations of the mean."""
        import tensorflow as tf

        draw = tf.random.stateless_truncated_normal
        return draw(shape, self._next(), mean, stddev, dtype)

    def uniform(
        self, shape: Any, minval: Any = 0, maxval: Any = None, dtype: Any = "float32"
    ) -> Any:
        """Draw uniform numbers in [minval, maxval)."""
        import tensorflow as tf

        dtype = tf.as_dtype(dtype)
        if maxval is None and dtype.is_floating:
            maxval = 1
        return tf.random.stateless_uniform(shape, self._next(), minval, maxval, dtype)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise runs.RunError(
            "exported policies draw by generator.normal, truncated_normal or uniform, "
            f"not {name}; change the method decide."
        )


def _names(prefix: str, structure: Any) -> list[str]:
    """Name the leaves as arguments of functions, like `observation_camera_left`."""
    paths = spaces.paths(structure)
    full = [f"{prefix}_{x}" if x else prefix for x in paths]
    names = [re.sub("[^A-Za-z0-9]", "_", x) for x in full]
    alike = [x.lower() for x in names]  # TensorFlow takes them for equal.
    for index, name in enumerate(alike):
        if (first := alike.index(name)) < index:
            raise runs.RunError(
                f"cannot export parts {paths[first]!r} and {paths[index]!r} of the "
                f"{prefix}, as both would be named {names[index]!r}; rename one."
            )
    return names


def _converted(kind: str, convert: Callable[[], Any]) -> Any:
    """Call a converter; raise RunError if the format lacks an operation."""
    try:
        return convert()
    except Exception as error:  # Converters raise all kinds of errors.
        text = str(error).strip().split("\n")[0]
        raise runs.RunError(
            f"format {kind} cannot express this policy: {text}; use saved_model."
        ) from error
