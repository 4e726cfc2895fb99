"""Random mistakes: config files, overrides, directories, command lines, modules."""

import copy
import dataclasses
import functools
import json
import os
import pathlib
import random
import shutil
from collections.abc import Callable, Iterable
from typing import Any

from agents.experiments import config as experiment
from agents.experiments import named
from agents.tools import config_files, sections

CONFIGS = (
    "debug",
    "cartpole_masked",
    "cartpole_compiled",
    "cartpole_trpo",
    "cartpole_vpg",
    "cartpole_a2c",
    "cartpole_impala",
    "cartpole_evolutionary",
    "cartpole_dqn",
    "cartpole_apex",
    "pendulum",
    "pendulum_sac",
    "pendulum_td3",
    "memory_impala",
)
"""Configs that are mutated: every algorithm and kind of optimizer, small networks."""

NESTED = "[" * 3000 + "]" * 3000
ALIASES = (
    "{"
    + ", ".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9) if n else 'x'}]"
        for n in range(12)
    )
    + "}"
)
MERGES = (
    "{"
    + ", ".join(
        f"a{n}: &a{n} {{{'<<: [' + ', '.join([f'*a{n - 1}'] * 9) + ']' if n else 'x: 1'}}}"
        for n in range(12)
    )
    + "}"
)

VALUES = (
    *("null", "~", "true", "false", "yes", "''", "' '", "abc", "ü", "'\\n'"),
    *("0", "-1", "1", "2", "3", "7", "0.5", "-0.5", "1.5", "1e-9", "1e-400", "-0.0"),
    *(".inf", "-.inf", ".nan", "inf", "nan", "1e309", "1e300", "-1e300", "1e38"),
    *("1e6", "1e9", "1e12", "1e18", "2147483647", "2147483648", "4294967296"),
    *("9223372036854775807", "9223372036854775808", "1" + "0" * 30, "9" * 400),
    *("9" * 5000, "-" + "9" * 5000, "0x" + "f" * 5000, "0o777", "1_000", "1e1_0"),
    *("a" * 300, "a" * 5000, '"\\0"', '"\\x1b[31m"', '"\\ud800"', '"\\u2028"'),
    *('"two\\nlines"', "..", "../..", "/", "a/b", "~root", "-", "--help", "%s %d {}"),
    *("[]", "{}", "[[]]", "[null]", "[1, a]", "{a: b}", "{1: 2}", "{null: 1}"),
    *("{[1]: 2}", "{type: x}", "{type: null}", "{type: [1]}", "{type: 5, from: 1}"),
    *("{type: linear, from: 1, to: 0, over: .inf}", "{type: constant, from: .nan}"),
    *("{type: piecewise, values: [1, .inf], boundaries: [1]}", "{type: linear}"),
    *("{type: polynomial, from: 1, to: 0, over: 1, power: 1e400}",),
    *("{type: exponential, from: 1, to: 1e-320, over: 1}",),
    *("2001-01-01", "2001-99-99", "2001-01-01 25:61:00", "!!timestamp 2001-99-99"),
    *("!!set {a}", "!!binary aGk=", "!!binary '='", "!!omap [a: 1]", "!!pairs [a: 1]"),
    *("!!int abc", "!!float abc", "!!bool abc", "!!int ''", "!!null abc", "!!str 5"),
    *("!!python/name:os.system", "!!python/object/apply:os.getcwd []", "!mine 5"),
    *("!!seq {a: b}", "!!map [a]", "!<tag:x> y", "!!float", "&a [*a]", "*missing"),
    *(NESTED, ALIASES, MERGES, "&a {b: *a}", "{<<: 5}", "{a: 1, a: 2}", "[" * 50),
    *("small", "gru", "nature", "missing.yaml", "os:getcwd", "os:path", "os", ":"),
    *("nothing:Here", ":x", "x:", "a:b:c", "agents.returns:gae", "math:nan", "..:x"),
    *("[64, 64]", "[0]", "[-1]", "[64, null]", "[1000000000]", "[dense]", "[lstm, 8]"),
    *("{layers: [{type: dense}]}", "{layers: [{type: dense, units: -5}]}"),
    *("{layers: [{type: dropout, rate: 7}]}", "{streams: {x: [1]}}", "{streams: 5}"),
    *("{layers: [{type: conv2d, filters: 8, kernel_size: 3}]}", "{join: abc}"),
    *("adam", "{type: adam, learning_rate: -1}", "{type: adam, learning_rate: abc}"),
    *("{type: adam, beta_1: 5}", "{type: multi_step, optimizer: adam, num_steps: 0}"),
    *("{type: line_search, optimizer: {type: natural_gradient}}", "line_search"),
    *("[grayscale]", "[normalize]", "[{type: clip, low: 1, high: .nan}]", "[flatten]"),
    *("[{type: sequence, length: 1000000000}]", "[{type: sequence, length: 4}]"),
    *("{'': [normalize]}", "{a: [normalize]}", "[center, one_hot]", "[[normalize]]"),
    *("CartPole-v1", "Pendulum-v1", "CartPole", "Blackjack-v1", "Taxi-v3", "ALE/X-v5"),
    *("workers", "serial", "process", "vector", "envpool", "compiled", "auto"),
    *("clip", "kl", "episodes", "unrolls", "return", "beta", "tanh_normal", "GPU:0"),
    *("CPU:0", "CPU:7", "tanh", "nonsense_activation", "orthogonal"),
    *experiment.ALGORITHMS,
)
"""YAML texts of which few are what a key takes."""

NUMBERS = (
    *("0", "-1", "1", "2", "3", "5", "17", "100", "0.5", "-0.5", "1.5", "0.999999"),
    *("1e-30", "1e-9", "1e30", "1e38", "1e39", "-1e30", "1e300", "1e6", "1e9", "1e12"),
    *("2147483647", "2147483648", "9223372036854775807", ".inf", "-.inf", ".nan"),
    *("true", "null", "'5'", "[1]", "{type: linear, from: 1, to: 0, over: 10}"),
    *("{type: constant, from: -1}", "{type: cosine, from: 1e30, to: 0, over: 1e-9}"),
    *("{type: piecewise, values: [0.1, 0.2], boundaries: [5]}",),
    *("{type: linear, from: 0, to: 1, over: 10, unit: updates}",),
)
"""YAML texts for what was a number."""

TEXTS = tuple(
    x for x in VALUES if not x.startswith(("[", "{", "!", "&", "*")) and len(x) < 100
)
"""YAML texts for what was text."""

WORDS = (
    *("", " ", "-", "--", "-1", "0", "1", "3", "1.5", "nan", "inf", "1e3", "abc", "ü"),
    *("2147483648", "9223372036854775808", "1" + "0" * 30, "9" * 5000, "a" * 300),
    *("a" * 5000, "a/" * 3000, "..", ".", "/", "/dev/null", "/dev/zero", "/proc/self"),
    *("\0", "x\0y", "\udce4\udcff", "\x1b[31m", "two\nlines", "~", "*", "%s", "{}"),
    *("--help", "--seed", "--set", "--config", "--unknown", "-x", "--=", "@file"),
    *("debug", "cartpole", "missing.yaml", "config.yaml", "run", "empty", "file"),
    *("fifo", "loop", "dangling", "train", "simulate", "onnx", "litert", "steps"),
    *("localhost:1", "auto", "ray", "local", "step-000000000000"),
)
"""Arguments of command lines of which few are what an option takes."""

COMMANDS = {
    "configs": ["debug"],
    "train": ["--config", "debug", "--timestamp", "1", "--seed", "1", "--quiet"],
    "tune": ["--config", "debug", "--space", "space.yaml", "--trials", "1"],
    "evaluate": ["--logdir", "run", "--num_episodes", "2", "--seed", "1"],
    "visualize": ["--logdir", "run", "--outdir", "out", "--num_episodes", "1"],
    "export": ["--logdir", "run", "--outdir", "out", "--format", "saved_model"],
    "plot": ["run", "--outfile", "out.png", "--x", "steps", "--phase", "evaluate"],
    "report": ["run", "--outdir", "out"],
    "benchmark": ["train", "--config", "debug", "--steps", "1", "--num_agents", "4"],
}
"""Complete command lines of all subcommands."""

OPTIONS = {
    "train": ["--executor", "--num_workers", "--num_shards", "--ray_address"],
    "tune": ["--name", "--logdir", "--seed", "--set"],
    "evaluate": ["--checkpoint"],
    "visualize": ["--checkpoint", "--seed"],
    "export": ["--checkpoint"],
    "benchmark": ["--backend", "--set"],
}
"""Further options of some, which take a value."""

SPACE = """\
algorithm.learning_rate: {low: 1e-5, high: 1e-2, log: true}
algorithm.epochs: {low: 5, high: 30, int: true, step: 5}
algorithm.network: [small, {layers: [8, 8]}]
"""


@dataclasses.dataclass(frozen=True)
class Case:
    """A command line, run in a directory that holds what it names."""

    kind: str
    arguments: list[str]
    foreign: bool = False
    """Whether it names code of the user, whose traceback may follow."""


@functools.cache
def _complete(name: str) -> dict:
    """Complete mapping of a config, with an environment in this process."""
    values = sections.to_dict(named.load(name))
    if name != "cartpole_compiled":
        values["environment"]["backend"] = "serial"
    return values


def make(seed: int, index: int, directory: pathlib.Path, runs: pathlib.Path) -> Case:
    """Case number `index` of a seed, whose files are written into an empty directory.

    `runs` holds a run of some policy gradient, one with a replay memory, and a study;
    `run` in the directory is a copy of one of them if the case needs any.
    """
    rng = random.Random(f"{seed} {index}")
    kind = ORDER[index % len(ORDER)]
    arguments, foreign = KINDS[kind](rng, directory, runs)
    return Case(kind, arguments, foreign)


# Configs.


def _paths(node: Any, path: tuple = ()) -> list[tuple]:
    """Paths of everything in nested mappings and lists."""
    found = [path] if path else []
    items = node.items() if isinstance(node, dict) else ()
    items = enumerate(node) if isinstance(node, list) else items
    return [*found, *(y for key, x in items for y in _paths(x, (*path, key)))]


def _at(node: Any, path: Iterable) -> Any:
    """Return the node at a path."""
    for key in path:
        node = node[key]
    return node


class _Text(str):
    """YAML that stands in a tree as it is."""


def _yaml(node: Any) -> str:
    """Flow style of a tree."""
    if isinstance(node, _Text):
        return str(node)
    if isinstance(node, dict):
        pairs = [f"{_yaml(key)}: {_yaml(x)}" for key, x in node.items()]
        return "{" + ", ".join(pairs) + "}"
    if isinstance(node, list):
        return "[" + ", ".join(map(_yaml, node)) + "]"
    if isinstance(node, float):
        return repr(node) if "e" not in repr(node) else f"{node:.30f}"
    return json.dumps(node)


def _spoil(rng: random.Random, tree: dict) -> None:
    """Change one place of a tree."""
    *parents, key = rng.choice(_paths(tree))
    node = _at(tree, parents)
    change = rng.randrange(10)
    if change < 6:
        like = NUMBERS if isinstance(node[key], int | float | None) else VALUES
        like = TEXTS if isinstance(node[key], str) else like
        node[key] = _Text(rng.choice(VALUES if change < 2 else like))
    elif change == 6:
        del node[key]
    elif change == 7:
        node[key] = rng.choice(([node[key]], {"type": node[key]}, {"": node[key]}))
    elif change == 8 and isinstance(node, dict):
        name = list(str(key)) or [""]
        name[rng.randrange(len(name))] = rng.choice("abcxyz._ 1")
        node["".join(name)] = node.pop(key)
    else:
        node[key] = copy.deepcopy(_at(tree, rng.choice(_paths(tree))))


def _command(rng: random.Random, config: str) -> list[str]:
    """Any command that takes a config."""
    command = rng.choice(("configs", "train", "train", "train", "tune", "benchmark"))
    if command == "configs":
        return [command, config]
    return [command, *_with_config(command, config)]


def _with_config(command: str, config: str) -> list[str]:
    arguments = list(COMMANDS[command])
    arguments[arguments.index("--config") + 1] = config
    return arguments


def _config_file(rng: random.Random, directory: pathlib.Path, runs: pathlib.Path):
    """Config with values, keys or sections that are wrong."""
    tree = copy.deepcopy(_complete(rng.choice(CONFIGS)))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        _spoil(rng, tree)
    (directory / "config.yaml").write_text(_yaml(tree))
    (directory / "space.yaml").write_text("train.eval_episodes: [1, 2]\n")
    return _command(rng, "config.yaml"), False


def _config_text(rng: random.Random, directory: pathlib.Path, runs: pathlib.Path):
    """Config whose bytes were damaged, or that is something else."""
    path = directory / "config.yaml"
    config_files.dump(_complete(rng.choice(CONFIGS)), path)
    _damage(rng, path)
    (directory / "space.yaml").write_text("train.eval_episodes: [1, 2]\n")
    return _command(rng, "config.yaml"), False


def _overrides(rng: random.Random, directory: pathlib.Path, runs: pathlib.Path):
    """`--set` of wrong keys or values."""
    name = rng.choice(CONFIGS)
    tree = _complete(name)
    arguments = _command(rng, name)
    (directory / "space.yaml").write_text("train.eval_episodes: [1, 2]\n")
    for _ in range(rng.choice((1, 1, 1, 2))):
        path = rng.choice(_paths(tree))
        key = ".".join(map(str, path))
        change = rng.randrange(12)
        if change == 0:
            key = rng.choice(
                ("", ".", "..", ".seed", "seed.", "train..steps", "a." * 3000 + "b")
            )
        elif change == 1:
            key = rng.choice(
                (f"{key}.more", key[:-1], key.upper(), f" {key}", "\udce4")
            )
        like = NUMBERS if isinstance(_at(tree, path), int | float | None) else VALUES
        value = rng.choice((*VALUES, *WORDS) if change < 4 else like)
        text = f"{key}={value}" if change != 2 else rng.choice((key, f"{key}:{value}"))
        arguments += rng.choice((["--set", text], [f"--set={text}"]))
    return arguments, False


def _space_file(rng: random.Random, directory: pathlib.Path, runs: pathlib.Path):
    """Space of `tune` that is wrong."""
    path = directory / "space.yaml"
    path.write_text(SPACE)
    if rng.random() < 0.3:
        _damage(rng, path)
    else:
        tree = config_files.load(path)
        for _ in range(rng.choice((1, 1, 2))):
            _spoil(rng, tree)
        path.write_text(_yaml(tree))
    return ["tune", *COMMANDS["tune"]], False


# Files.


def _damage(rng: random.Random, path: pathlib.Path, named: bool = True) -> None:
    """Make something else of a file or directory, which may be a pipe if it is named."""
    content = path.read_bytes() if path.is_file() else b""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
    at = rng.randrange(len(content) + 1)
    change = rng.randrange(22)
    texts = (
        b"",
        content[:at],
        content[:at] + bytes(rng.randrange(256) for _ in range(8)) + content[at + 8 :],
        content[:at] + bytes(rng.randrange(256) for _ in range(4)) + content[at:],
        content[:at] + rng.choice(VALUES).encode(errors="replace") + content[at:],
        content[:at] + content[at + rng.randrange(1, 40) :],
        content * 2,
        b"\xef\xbb\xbf" + content,
        content.decode(errors="replace").encode("utf-16"),
        content.replace(b"\n", b"\r\n"),
        content.replace(b"\n", b"\n\t", 3),
        b"\0" * 1000,
        bytes(rng.randrange(256) for _ in range(300)),
        rng.choice(VALUES).encode(errors="replace"),
        json.dumps(rng.choice(({}, [], 5, None, "x", {"step": "x"}, [[1]]))).encode(),
        b"a: &x [" + b"*x, " * 5 + b"1]",
        b"x: '" + b"y" * 3_000_000 + b"'",
    )
    if change < len(texts):
        path.write_bytes(texts[change])
    elif change == len(texts):
        path.mkdir()
    elif change == len(texts) + 1:
        path.symlink_to("nowhere")
    elif change == len(texts) + 2:
        path.symlink_to(path.name)
    elif change == len(texts) + 3 and named:
        os.mkfifo(path)


def _spoil_json(rng: random.Random, path: pathlib.Path) -> None:
    """Change the values of a line of JSON."""
    lines = path.read_text().splitlines()
    number = rng.randrange(len(lines))
    row = json.loads(lines[number])
    values = ("null", '"x"', "-1", "1e400", "NaN", "[]", "{}", "true", "9" * 5000)
    values += ("1" + "0" * 30, '"\\ud800"', NESTED, "0.5", "9223372036854775808")
    if row:
        row[rng.choice(list(row))] = "CHANGE"
    lines[number] = json.dumps(row).replace('"CHANGE"', rng.choice(values))
    path.write_text("\n".join(lines) + "\n")


def _run_directory(rng: random.Random, directory: pathlib.Path, runs: pathlib.Path):
    """Run with a damaged file, that is evaluated, filmed, exported, drawn, resumed."""
    source = rng.choice(("gradient", "gradient", "replay"))
    run = directory / f"1-{source}"
    shutil.copytree(runs / source, run, symlinks=True)
    paths = sorted(path for path in run.rglob("*"))
    json_paths = [x for x in paths if x.suffix in (".json", ".jsonl")]
    change = rng.randrange(10)
    if change < 4:
        _spoil_json(rng, rng.choice(json_paths))
    elif change < 6:
        tree = config_files.load(run / "config.yaml")
        _spoil(rng, tree)
        (run / "config.yaml").write_text(_yaml(tree))
    else:
        _damage(rng, rng.choice(paths), named=False)
    names = ("evaluate", "visualize", "export", "plot", "report", "train")
    name = rng.choice(names)
    arguments = [x.replace("run", run.name) for x in COMMANDS[name]]
    if name == "train":
        arguments = ["--config", str(runs / source / "config.yaml"), "--logdir", "."]
        arguments += ["--timestamp", "1", "--set", "train.steps=1000", "--quiet"]
    if name == "plot":
        arguments[-1] = rng.choice(("evaluate", "train"))
        arguments[-3] = rng.choice(("steps", "seconds"))
    return [name, *arguments], False


def _study_directory(rng: random.Random, directory: pathlib.Path, runs: pathlib.Path):
    """Study with a damaged file, that goes on."""
    shutil.copytree(runs / "study", directory / "study", symlinks=True)
    (directory / "space.yaml").write_text(SPACE)
    paths = sorted(path for path in (directory / "study").rglob("*"))
    path = rng.choice([*paths, directory / "study"])
    if path.suffix == ".journal" and rng.random() < 0.5:
        _spoil_json(rng, path)
    else:
        _damage(rng, path, named=False)
    arguments = [*COMMANDS["tune"], "--logdir", ".", "--name", "study"]
    return ["tune", *arguments], False


# Command lines.


def _command_line(rng: random.Random, directory: pathlib.Path, runs: pathlib.Path):
    """Command line with wrong, missing, repeated or unknown arguments."""
    shutil.copytree(runs / "gradient", directory / "run", symlinks=True)
    config_files.dump(_complete("debug"), directory / "config.yaml")
    (directory / "space.yaml").write_text(SPACE)
    (directory / "empty").mkdir()
    (directory / "file").write_text("x")
    (directory / "dangling").symlink_to("nowhere")
    (directory / "loop").symlink_to("loop")
    os.mkfifo(directory / "fifo")
    name = rng.choice(list(COMMANDS))
    words = list(COMMANDS[name])
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(len(words) + 1)
        change = rng.randrange(10)
        values = [n for n, x in enumerate(words) if not x.startswith("-")]
        if change < 5 and values:
            words[rng.choice(values)] = rng.choice(WORDS)
        elif change == 5 and at < len(words):
            del words[at]
        elif change == 6:
            words.insert(at, rng.choice(WORDS))
        elif change == 7 and at < len(words):
            words.insert(at, words[at])
        elif change == 8 and at < len(words):
            words[at] = words[at][:-1]
        else:
            option = rng.choice(OPTIONS.get(name, ["--set"]))
            words += [option, rng.choice((*WORDS, "seed=1", "train.steps=7"))]
    if rng.random() < 0.05:
        name = rng.choice(WORDS)
    return ([name, *words] if rng.random() < 0.98 else words), False


# Own modules.

MODULES = {
    "syntax": "def make(:\n",
    "name": "undefined_name\n",
    "import": "import missing_package_of_mine\n",
    "import_name": "from os import missing_name\n",
    "exit": "import sys\nsys.exit('not a library')\n",
    "exit_silently": "raise SystemExit\n",
    "several_lines": "raise RuntimeError('first\\n\\nsecond')\n",
    "no_text": "class E(Exception):\n    def __str__(self): return 1/0\nraise E\n",
    "base": "class E(BaseException): pass\nraise E('mine')\n",
    "empty_text": "raise ValueError\n",
    "assertion": "assert False\n",
    "recursion": "def f(): return f()\nf()\n",
    "attribute": "import os\nos.missing\n",
    "not_text": "PLACE_BYTES",
    "nothing": "",
    "number": "make = Config = 5\n",
    "none": "def make(*args, **kwargs): pass\nclass Config: pass\n",
    "raises": "def make(*args, **kwargs):\n    return {}['key']\nConfig = make\n",
    "exits": "def make(*args, **kwargs):\n    raise SystemExit(3)\nConfig = make\n",
    "needs": "def make(one, two): pass\n",
    "class": "class make:\n    def __init__(self, *a, **k): self.x = self.y\n",
    "prints": "print('noise')\nundefined\n",
    "no_space": """
import gymnasium
def make(**kwargs):
    return gymnasium.Env()
""",
    "bad_space": """
import gymnasium
class make(gymnasium.Env):
    observation_space = 5
    action_space = 'left'
    spec = None
    def __init__(self, **kwargs): pass
""",
    "infinite_space": """
import gymnasium, numpy as np
class make(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (0,))
    action_space = gymnasium.spaces.Discrete(1)
    def __init__(self, **kwargs): pass
    def reset(self, seed=None, options=None): return np.zeros(0, np.float32), {}
""",
    "close": """
import gymnasium
from gymnasium.envs.classic_control import cartpole
class make(cartpole.CartPoleEnv):
    def close(self): raise RuntimeError('cannot be closed')
""",
    "config": """
import dataclasses
@dataclasses.dataclass
class Config:
    type: str = 'x'
    rate: int = dataclasses.field(default_factory=lambda: 1 / 0)
def make(*args, **kwargs): raise KeyError('mine')
""",
    "config_checks": """
import dataclasses
@dataclasses.dataclass
class Config:
    type: str = 'x'
    def __post_init__(self): raise KeyError('mine')
def make(*args, **kwargs): pass
""",
    "config_hint": """
import dataclasses
@dataclasses.dataclass
class Config:
    type: 'Missing' = 'x'
def make(*args, **kwargs): pass
""",
    "algorithm": """
import dataclasses
@dataclasses.dataclass
class Config:
    type: str = 'x'
def make(*args, **kwargs): raise IndexError('mine')
""",
    "functional": """
from agents.environments import functional
class make(functional.CartPole):
    def initial(self, size, seed): return undefined
""",
    "functional_init": """
from agents.environments import functional
class make(functional.CartPole):
    def __init__(self, **kwargs): raise KeyError('mine')
""",
}
"""Sources of modules with mistakes; `make` is what configs name."""

PLACES = (
    ("debug", "environment.id={}:make"),
    ("debug", "environment.id={}:missing"),
    ("debug", "environment.id={}:Registered-v0"),
    ("cartpole_compiled", "environment.id={}:make"),
    ("debug", "algorithm.type={}:make"),
    ("debug", "algorithm.network=[{{type: '{}:make'}}]"),
    ("debug", "algorithm.network.join={}:make"),
    ("debug", "algorithm.network=[{{type: function, path: '{}:make'}}]"),
    ("debug", "preprocessing=[{{type: '{}:make'}}]"),
    ("debug", "preprocessing=[{{type: function, path: '{}:make'}}]"),
)
"""Where configs name modules: config and override."""


def _own_module(rng: random.Random, directory: pathlib.Path, runs: pathlib.Path):
    """Config that names a module with a mistake."""
    name = f"own_module_{rng.randrange(10**12)}"
    source = rng.choice(list(MODULES.values()))
    path = directory / f"{name}.py"
    path.write_bytes(b"\xff\xfe" if source == "PLACE_BYTES" else source.encode())
    config, override = rng.choice(PLACES)
    override = override.format(name)
    command = rng.choice(("train", "train", "train", "benchmark", "tune", "configs"))
    arguments = [config] if command == "configs" else _with_config(command, config)
    arguments += ["--set", override]
    if override.startswith("environment") and config == "debug":
        backend = rng.choice(("auto", "serial", "workers", "vector", "compiled"))
        arguments += ["--set", f"environment.backend={backend}"]
    if rng.random() < 0.2:
        arguments += ["--set", "environment.kwargs={no_such_argument: 1}"]
    (directory / "space.yaml").write_text("train.eval_episodes: [1, 2]\n")
    return [command, *arguments], True


KINDS: dict[str, Callable] = {
    "config file: values and keys": _config_file,
    "config file: text and bytes": _config_text,
    "--set": _overrides,
    "space file": _space_file,
    "run directory": _run_directory,
    "study directory": _study_directory,
    "command line": _command_line,
    "own modules": _own_module,
}
"""Kinds of input, and what makes them."""

ORDER = tuple(
    kind
    for turn in range(5)
    for kind, share in zip(KINDS, (5, 3, 5, 2, 4, 1, 3, 2), strict=True)
    if turn < share
)
"""Kinds take turns, in these shares."""
