"""Whether two runs are the same, bit for bit."""

import json

import numpy as np
import tensorflow as tf


def variables(run):
    """All variables of the newest checkpoint; padding of episodes is zero."""
    newest = max((run / "checkpoints").glob("step-*"))
    values = {}
    for file in ("variables", "memory"):
        reader = tf.train.load_checkpoint(str(newest / file))
        names = reader.get_variable_to_shape_map().keys()
        for name in sorted(names - {"_CHECKPOINTABLE_OBJECT_GRAPH"}):
            values[name] = np.asarray(reader.get_tensor(name))
    for name, entry in json.loads((newest / "blocks.json").read_text()).items():
        data = b"".join((newest / block).read_bytes() for block in entry["blocks"])
        values[name] = np.frombuffer(data, np.uint8)
    suffix = "/.ATTRIBUTES/VARIABLE_VALUE"
    lengths = values.get(f"memory/finished/lengths{suffix}")
    for name, value in values.items():
        if name.startswith("memory/finished/_data/"):
            value[np.arange(value.shape[1]) >= lengths[:, None]] = 0
    return values


def state(run):
    """State of the newest checkpoint, without wall time."""
    newest = max((run / "checkpoints").glob("step-*"))
    values = json.loads((newest / "state.json").read_text())
    return {key: values[key] for key in ("step", "phase", "metrics")}


def differences(one, other):
    """Names of what differs in any byte: metrics, state, variables."""
    metrics = [(run / "metrics.jsonl").read_bytes() for run in (one, other)]
    names = ["metrics.jsonl"] * (metrics[0] != metrics[1])
    names += ["state"] * (state(one) != state(other))
    ours, theirs = variables(one), variables(other)
    missing = object()
    return names + [
        name
        for name in sorted(ours.keys() | theirs.keys())
        if _content(ours.get(name, missing)) != _content(theirs.get(name, missing))
    ]


def _content(value):
    """All of an array that can be compared, or the object."""
    if not isinstance(value, np.ndarray):
        return value
    return value.dtype, value.shape, value.tobytes()


def assert_same(resumed, whole):
    """Same metrics byte by byte, and same checkpoint bit by bit."""
    assert len(variables(whole)) > 20
    assert not differences(resumed, whole)
