"""Short runs whose results must stay equal, bit for bit, after restructuring.

    python benchmarks/golden.py record FILE [--only NAME ...]
    python benchmarks/golden.py compare FILE [--only NAME ...]

Trains every run below for a few thousand steps with the same seed. `record` writes
their metrics and hashes of the variables in their last checkpoints. `compare` trains
again and names the differences of each run; its exit code is 1 if there are any.
Variables are identified only by their values, so they may get other names.

Results hold for one machine: other processors round differently. So record on the
commit before the change, with the same installation.
"""

import argparse
import collections
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

CARTPOLE = {"id": "CartPole-v1", "num_agents": 8, "num_workers": 2}
PENDULUM = {"id": "Pendulum-v1", "num_agents": 8, "num_workers": 2}
UNROLLS = {"memory": "unrolls", "unroll_length": 32}
REPLAY = {"capacity": 2000, "start_size": 500, "batch_size": 32, "network": [32, 32]}
LAYERS = [{"type": "dense", "units": 32}]

RUNS = {
    "ppo_kl": (
        PENDULUM,
        {"type": "ppo", "update_every": 8, "epochs": 4, "minibatch_size": 500},
    ),
    "ppo_clip": (
        CARTPOLE,
        {"type": "ppo", "objective": "clip", "epochs": 3, "minibatch_size": 64}
        | {"clip_norm": 0.5, "value_clip": 0.2, "entropy_coef": 0.01, **UNROLLS}
        | {"learning_rate": {"type": "linear", "from": 1e-3, "to": 0, "over": 4096}},
    ),
    "ppo_gru": (
        CARTPOLE,
        {"type": "ppo", "objective": "clip", "epochs": 2, "chunk_length": 8, **UNROLLS}
        | {"network": [*LAYERS, {"type": "gru", "units": 16}]},
    ),
    "ppo_gru_episodes": (
        {**CARTPOLE, "max_length": 60},
        {"type": "ppo", "update_every": 16, "epochs": 2, "chunk_length": 8}
        | {"network": [*LAYERS, {"type": "gru", "units": 16}]},
    ),
    "trpo": (CARTPOLE, {"type": "trpo", "unroll_length": 32, "network": "small"}),
    "vpg": (CARTPOLE, {"type": "vpg", "network": "small"}),
    "a2c": (CARTPOLE, {"type": "a2c", "network": "small"}),
    "impala_lstm": (
        CARTPOLE,
        {"type": "impala", "unroll_length": 16}
        | {"network": [*LAYERS, {"type": "lstm", "units": 16}]},
    ),
    "dqn": (CARTPOLE, {"type": "dqn", "n_step": 2, **REPLAY}),
    "apex": (CARTPOLE, {"type": "apex", **REPLAY}),
    "sac": (PENDULUM, {"type": "sac", "replay_ratio": 0.25, **REPLAY}),
    "td3": (
        PENDULUM,
        {"type": "td3", "replay_ratio": 0.25, "normalize_observations": True, **REPLAY},
    ),
    "compiled": (
        {"id": "CartPole-v1", "num_agents": 8, "backend": "compiled"},
        {"type": "ppo", "objective": "clip", "epochs": 2, "minibatch_size": 64}
        | {**UNROLLS, "network": "small"},
    ),
    "halves": (
        {**CARTPOLE, "action_lag": True},
        {"type": "ppo", "objective": "clip", "epochs": 2, **UNROLLS},
    ),
    "preprocessing": (
        PENDULUM,
        {"type": "ppo", "epochs": 2, "normalize_observations": False, **UNROLLS},
    ),
    "dict": (
        {"id": "golden:Parts", "num_agents": 8, "num_workers": 2, "max_length": 40},
        {"type": "ppo", "epochs": 2, **UNROLLS},
    ),
}
"""Name to environment and algorithm; all else is the same."""

PREPROCESSING = {"preprocessing": ["normalize", {"type": "sequence", "length": 3}]}


def Parts(**kwargs):  # noqa: N802, named like the class that it makes.
    """An environment with structured observations and actions."""
    import gymnasium
    from gymnasium import spaces

    class Environment(gymnasium.Env):
        observation_space = spaces.Dict(
            position=spaces.Box(-10, 10, (2,)),
            kind=spaces.Discrete(3),
            image=spaces.Box(0, 255, (4, 4, 1), np.uint8),
        )
        action_space = spaces.Dict(
            move=spaces.Box(-1, 1, (2,)), choose=spaces.Discrete(2)
        )

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self._position = self.np_random.normal(size=2).astype(np.float32)
            return self._observe(), {}

        def step(self, action):
            self._position = np.clip(self._position + action["move"], -9, 9)
            self._position = self._position.astype(np.float32)
            distance = float(np.abs(self._position).sum())
            reward = float(action["choose"]) - distance
            return self._observe(), reward, distance > 15, False, {}

        def _observe(self):
            image = self.np_random.integers(0, 256, (4, 4, 1), np.uint8)
            kind = int(self.np_random.integers(3))
            return {"position": self._position, "kind": kind, "image": image}

    return Environment(**kwargs)


def main() -> int:
    """Record or compare."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("action", choices=["record", "compare"])
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--only", nargs="+", default=list(RUNS), choices=list(RUNS))
    args = parser.parse_args()
    before = json.loads(args.file.read_text()) if args.file.exists() else {}
    if args.action == "compare" and not before.keys() >= set(args.only):
        parser.error(f"{args.file} lacks {sorted(set(args.only) - before.keys())}.")
    differing = 0
    for name in args.only:
        found = train(name)
        if args.action == "record":
            args.file.write_text(json.dumps({**before, name: found}, indent=1) + "\n")
            before[name] = found
            message = f"{len(found['variables'])} variables"
        else:
            message = difference(before[name], found)
            differing += message != "same"
        print(f"{name:<18}{message}", flush=True)
    return int(differing > 0)


def train(name: str) -> dict:
    """Metrics, line by line, and sorted hashes of all variables of a run."""
    environment, algorithm = RUNS[name]
    config = {
        "name": name,
        "seed": 7,
        "environment": environment,
        "algorithm": algorithm,
        "train": {"steps": 4096, "eval_every": 2048, "eval_episodes": 8},
        **(PREPROCESSING if name == "preprocessing" else {}),
    }
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / f"{name}.json"
        file.write_text(json.dumps(config))
        command = [sys.executable, "-m", "agents.scripts.cli", "train", "--quiet"]
        command += ["--config", str(file), "--logdir", folder, "--timestamp", "1"]
        path = [str(pathlib.Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        path = os.pathsep.join(filter(None, path))
        subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": path})
        run = pathlib.Path(folder) / f"1-{name}"
        metrics = (run / "metrics.jsonl").read_text().splitlines()
        newest = max((run / "checkpoints").glob("step-*"))
        return {"metrics": metrics, "variables": sorted(map(digest, values(newest)))}


def values(checkpoint: pathlib.Path):
    """Yield the arrays of a checkpoint, padding of episodes as zeros."""
    import tensorflow as tf

    found = {}
    for file in sorted(checkpoint.glob("*.index")):
        reader = tf.train.load_checkpoint(str(file.with_suffix("")))
        names = set(reader.get_variable_to_shape_map()) - {
            "_CHECKPOINTABLE_OBJECT_GRAPH"
        }
        found |= {name: reader.get_tensor(name) for name in names}
    lengths = [x for name, x in found.items() if "finished/lengths" in name]
    for name, value in found.items():
        if "finished/_data" in name and lengths:
            value[np.arange(value.shape[1]) >= lengths[0][:, None]] = 0
        if "save_counter" not in name:
            yield np.asarray(value)


def digest(value: np.ndarray) -> str:
    """Type, shape and hash of an array."""
    data = hashlib.sha1(value.tobytes()).hexdigest()[:16]
    return f"{value.dtype}{list(value.shape)} {data}"


def difference(before: dict, after: dict) -> str:
    """One line about the differences, `same` if there are none."""
    parts = []
    pairs = zip(before["metrics"], after["metrics"], strict=False)
    rows = [i for i, (a, b) in enumerate(pairs) if a != b]
    lengths = [len(x["metrics"]) for x in (before, after)]
    if rows or lengths[0] != lengths[1]:
        first = min(rows, default=min(lengths))
        parts.append(f"metrics differ from line {first + 1} on")
    counts = [collections.Counter(x["variables"]) for x in (before, after)]
    gone, new = (sum((a - b).values()) for a, b in (counts, counts[::-1]))
    if gone or new:
        parts.append(f"{gone} variables gone, {new} new")
    return "; ".join(parts) or "same"


if __name__ == "__main__":
    sys.exit(main())
