"""Mistakes end in one line and exit code 2, before any process starts."""

import os
import signal

import psutil
import pytest

from agents.scripts import configs, evaluate, train, visualize
from agents.tools import config_files, loop, processes

HERE = "environments_for_tests"


@pytest.fixture
def no_process(monkeypatch):
    """Make it an error to start a process."""

    def fail(*_, **__):
        raise AssertionError("A process is started.")

    monkeypatch.setattr(processes, "Worker", fail)


def refused(answer):
    """The line of an answer that must be a refusal."""
    code, output, errors = answer
    assert (code, output) == (2, "")
    assert errors.startswith("error: ")
    assert errors.endswith("\n")
    assert errors.count("\n") == 1, errors
    return errors.strip()


@pytest.mark.usefixtures("no_process")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--config", "pendulun"],
            "unknown config 'pendulun'; did you mean 'pendulum'",
        ),
        (["--config", "missing.yaml"], "cannot read missing.yaml"),
        (["--timestamp", "../x"], "--timestamp is '../x', but directories are named"),
        (
            ["--timestamp", ""],
            "--timestamp is '', but directories are named by it; use",
        ),
        (["--timestamp", "/x"], "--timestamp is '/x', but directories are named by it"),
        (["--set", "name=../../x"], "config key 'name' is '../../x', but directories"),
        (
            ["--set", "name=a/b"],
            "config key 'name' is 'a/b', but directories are named",
        ),
        (
            ["--set", 'name="a\\nb"'],
            "config key 'name' is 'a\\nb', but directories are",
        ),
        (["--set", "trian.steps=5"], "key 'trian.steps'; did you mean 'train'?"),
        (["--set", "train.step=5"], "key 'train.step'; did you mean 'steps'?"),
        (["--set", "train.steps"], "--set takes key=value, got 'train.steps'"),
        (["--set", "train.steps=many"], "'train.steps' must be int, got 'many'"),
        (["--set", "train.steps=0"], "'train.steps' must be positive, got 0"),
        (["--set", "train.steps=[1"], "--set train.steps is not valid YAML"),
        (["--set", "train.steps=!!python/name:os.system"], "a tag that is not allowed"),
        (["--set", "algorithm.type=pop"], "'pop'; did you mean 'ppo'?"),
        (["--set", "algorithm.type=null"], "'algorithm.type' must be str, got None"),
        (["--set", "train.steps=-1"], "'train.steps' must be positive, got -1"),
        (["--set", "train.eval_episodes=-1"], "must be at least 0, got -1"),
        (["--set", "seed=-1"], "config key 'seed' must be at least 0, got -1"),
        (["--seed", "-1"], "--seed must be at least 0, got -1; see `agents train"),
        (["--seed", "x"], "--seed must be an integer, got 'x'"),
        (["--nonsense"], "unrecognized arguments: --nonsense; see `agents train"),
        (["--logdir", "x\udce4"], r"has the character '\udce4'"),
        (["--config", "a" * 5000], "cannot use 'aaaaaa"),
        (["--set", "environment.timeout=.inf"], "must be a finite float, got inf"),
        (["--set", "environment.timeout=1e7"], "must be at most 1,000,000, got"),
        (["--set", "algorithm.discount=.nan"], "must be a finite float, got nan"),
        (["--set", "algorithm.discount=2"], "'algorithm.discount' must be 0 to 1"),
        (
            ["--set", "algorithm.network.layers=[0]"],
            "'algorithm.network.layers' must be",
        ),
        (["--set", f"train.steps={10**30}"], "has an integer of more than 64 bits"),
        (["--set", "train.steps=2001-99-99"], "must be int, got '2001-99-99'"),
        (["--set", "train.steps=!!set {a}"], "a tag that is not allowed"),
        (["--set", f"train.steps={'[' * 9000}"], "nests values more than 50 levels"),
        (["--set", "train.steps=&a [*a]"], "stands for more than 10,000 values"),
        (["--set", "environment.kwargs={x: 1}"], "got an unexpected keyword argument"),
        (
            ["--set", "environment.kwargs={x: {type: lineer, from: 1, to: 2}}"],
            "'environment.kwargs.x.type' is 'lineer'; did you mean 'linear'?",
        ),
        (
            ["--set", "environment.kwargs={x: {type: linear, from: 1, to: 2}}"],
            "'environment.kwargs.x' is a schedule without 'over'",
        ),
        (
            ["--set", "environment.kwargs={x: {type: uniform, low: 1}}"],
            "'environment.kwargs.x' is uniform without 'high'",
        ),
        (
            ["--set", "environment.kwargs={x: {type: uniform, low: 1, high: 0}}"],
            "'environment.kwargs.x': low is above high",
        ),
        (
            ["--set", "environment.kwargs={gravty: {type: uniform, low: 1, high: 2}}"],
            "'environment.kwargs.gravty' is neither an argument nor an attribute of "
            "CartPoleEnv; did you mean 'gravity'?",
        ),
        (
            [
                *["--set", "environment.kwargs={g: {type: uniform, low: 1, high: 2}}"],
                *["--set", "environment.id=Pendulum-v1"],
                *["--set", "environment.backend=compiled"],
            ],
            "'environment.kwargs.g' is a schedule, which backend compiled cannot follow; "
            "use workers, process or serial.",
        ),
        (
            [
                "--set",
                "environment.kwargs={x: 1}",
                "--set",
                "environment.backend=compiled",
            ],
            "Cannot construct environment 'CartPole-v1'",
        ),
        (["--set", "algorithm.rate=1"], "unknown config key 'algorithm.rate'"),
        (
            ["--set", "algorithm.optimizer={type: line_serch}"],
            "'algorithm.optimizer.type' is 'line_serch'; did you mean 'line_search'?",
        ),
        (
            ["--set", "algorithm.optimizer={type: adam, rate: 1}"],
            "unknown config key 'algorithm.optimizer.rate'",
        ),
        (
            ["--set", "algorithm.value_optimizer={type: natural_gradient}"],
            "'algorithm.value_optimizer' has an optimizer that needs 'kl'",
        ),
        (["--set", "algorithm.network=tiny"], "tiny"),
        (["--set", "devices.replicas=2"], "'devices.replicas' is 2, but of devices"),
        (["--set", "devices.memory=GPU:7"], "is 'GPU:7', but there is only CPU:0"),
        (["--set", "devices.environment=GPU:0"], "environments run on the processor"),
        (["--set", "environment.backend=worker"], "did you mean 'workers'?"),
        (["--set", "environment.timeout=0"], "'environment.timeout' must be positive"),
        (["--set", "environment.start_timeout=.nan"], "be a finite float, got nan"),
        (
            ["--set", "environment.start_timeout=1e7"],
            "at most 1,000,000, got 10000000.0",
        ),
        (["--set", "environment.id=CartPol-v1"], "did you mean CartPole-v1"),
        (
            [
                "--set",
                "environment.backend=compiled",
                "--set",
                "environment.id=Blackjack-v1",
            ],
            "not a functional environment",
        ),
        (
            ["--set", "environment.backend=envpool", "--set", "environment.id=Nope-v1"],
            "EnvPool has no environment 'Nope-v1'",
        ),
        (
            [
                "--set",
                "environment.backend=compiled",
                "--set",
                f"environment.id={HERE}:Impure",
            ],
            "Impure changes its attribute 'calls'",
        ),
        (
            [
                "--set",
                "environment.action_lag=true",
                "--set",
                "environment.num_agents=3",
            ],
            "needs an even number of agents",
        ),
        (["--set", "environment.id=missing:make"], "there is no module 'missing'"),
        (["--set", f"environment.id={HERE}:cuonting"], "not found"),
        (["--set", f"environment.id={HERE}:unsupported_space"], "Text(1, 10"),
        (
            *[["--set", f"environment.id={HERE}:counting"]],
            "has no limit of episode length, which vpg needs to remember whole "
            "episodes; set environment.max_length, or algorithm.memory=unrolls",
        ),
    ],
)
def test_wrong_arguments(call, tmp_path, arguments, message):
    arguments = ["--config", "debug", "--logdir", tmp_path, *arguments]
    if message.startswith("has no limit"):
        arguments += ["--set", "environment.max_length=null"]
        arguments += ["--set", "algorithm.type=vpg"]
    assert message in refused(call(train, *arguments))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("no_process")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train: [1, 2", "is not valid YAML in line 1"),
        ("- train\n- steps\n", "is not a mapping of config keys"),
        ("only text", "is not a mapping of config keys"),
        ("\xff\xfe\x00", "is not valid YAML"),
        ("trian: {steps: 5}", "unknown config key 'trian'; did you mean 'train'?"),
        ("train: {step: 5}", "unknown config key 'train.step'; did you mean 'steps'?"),
        ("train: 5", "config key 'train' must be a mapping, got 5"),
        ("train: {steps: yes!}", "config key 'train.steps' must be int, got 'yes!'"),
        ("seed: 1", "config key 'environment.id' is missing"),
        ("seed: !!python/object/apply:os.system ['touch pwned']", "is not allowed"),
        ("seed: !!python/object:agents.Agent {}", "a tag that is not allowed"),
        ("seed: 2020-13-45", "config key 'seed' must be int, got '2020-13-45'"),
        ("preprocessing: &a [*a]", "own.yaml stands for more than 10,000 values"),
        (
            "{environment: {id: x}, algorithm: {type: [1]}}",
            "config key 'algorithm.type' must be str, got [1]",
        ),
        ("name: ../../x", "config key 'name' is '../../x', but directories are named"),
    ],
)
def test_wrong_config_file(call, tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.yaml").write_text(text)
    line = refused(call(train, "--config", "own.yaml"))
    assert "own.yaml" in line or "config key" in line
    assert message in line
    assert [path.name for path in tmp_path.iterdir()] == ["own.yaml"]


@pytest.mark.usefixtures("no_process")
@pytest.mark.parametrize("kind", ["directory", "pipe", "/dev/zero"])
def test_config_file_that_is_no_file(call, tmp_path, kind):
    path = tmp_path / "own.yaml"
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(kind)
    for script in (train, configs):
        arguments = ["--config", path] if script is train else [path]
        assert "own.yaml: it is not a regular file." in refused(
            call(script, *arguments)
        )


@pytest.mark.usefixtures("no_process")
@pytest.mark.parametrize(
    "override",
    [
        "environment.id={}:make",
        "environment.id={}:Registered-v0",
        "algorithm.type={}:make",
        "algorithm.network=[{{type: '{}:make'}}]",
        "algorithm.network.join={}:make",
        "preprocessing=['{}:make']",
    ],
)
def test_module_of_the_user_that_cannot_be_imported(
    call, tmp_path, monkeypatch, override
):
    monkeypatch.syspath_prepend(tmp_path)
    name = f"module_{override.split('=')[0].replace('.', '_')}_{len(override)}"
    (tmp_path / f"{name}.py").write_text("import sys\nsys.exit(undefined)\n")
    arguments = ["--config", "debug", "--logdir", tmp_path / "logdir", "--quiet"]
    code, output, errors = call(train, *arguments, "--set", override.format(name))
    assert (code, output) == (2, "")
    line, empty, header, *rest = errors.splitlines()
    assert line.startswith("error: ")
    assert line.endswith(": NameError: name 'undefined' is not defined")
    assert (empty, header) == ("", "Traceback (most recent call last):")
    assert rest[0].strip().startswith(f'File "{tmp_path / name}.py", line 2')


def test_config_file_that_is_no_text(call, tmp_path):
    (tmp_path / "own.yaml").write_bytes(b"\xff\xfe\x80")
    line = refused(call(train, "--config", tmp_path / "own.yaml"))
    assert f"cannot read {tmp_path / 'own.yaml'}: " in line


@pytest.mark.usefixtures("no_process")
def test_constructor_that_raises_shows_its_traceback(call, tmp_path):
    arguments = ["--config", "debug", "--logdir", tmp_path]
    code, output, errors = call(
        train, *arguments, "--set", f"environment.id={HERE}:raises"
    )
    assert (code, output) == (2, "")
    first, *rest = errors.splitlines()
    assert first.startswith("error: Cannot construct environment")
    assert "the constructor fails" in first
    assert "Traceback (most recent call last):" in rest
    assert any(line.endswith("in raises") for line in rest)
    assert rest[-1] == "" or "ZeroDivisionError: the constructor fails" in rest[-1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("no_process")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hangs", "TimeoutError: not done within 0.3 s"),
        ("exits", "it ends the process by SystemExit(4)."),
    ],
)
def test_constructor_that_does_not_return(call, tmp_path, name, message):
    code, output, errors = call(
        train,
        *("--config", "debug", "--logdir", tmp_path),
        *("--set", f"environment.id={HERE}:{name}"),
        *("--set", "environment.start_timeout=0.3"),
    )
    assert (code, output) == (2, "")
    first, blank, *rest = errors.splitlines()
    assert first == f"error: Cannot construct environment '{HERE}:{name}': {message}"
    assert not blank
    assert any(line.endswith(f"in {name}") for line in rest)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("no_process")
def test_log_directory_that_cannot_be_written(call, tmp_path, trained):
    (tmp_path / "file").touch()
    arguments = ["--config", "debug", "--logdir", tmp_path / "file"]
    assert "cannot write to" in refused(call(train, *arguments))
    arguments = ["--logdir", trained[0], "--outdir", tmp_path / "file"]
    assert "cannot write to" in refused(call(visualize, *arguments))
    if os.geteuid() != 0:  # Root may write everywhere.
        (tmp_path / "directory").mkdir(mode=0o555)
        arguments = ["--config", "debug", "--logdir", tmp_path / "directory"]
        assert "cannot write to" in refused(call(train, *arguments))


@pytest.mark.usefixtures("no_process")
def test_replay_memory_that_does_not_fit(call, tmp_path):
    arguments = ["--config", "cartpole_dqn", "--logdir", tmp_path, "--quiet"]
    change = ["--set", "algorithm.capacity=1000000000000"]
    line = refused(call(train, *arguments, *change))
    assert "a replay memory of 1000000000000 transitions needs" in line
    assert "are free; reduce its capacity." in line
    arguments = ["--config", "debug", "--logdir", tmp_path, "--quiet"]
    change = ["--set", "algorithm.unroll_length=1e9"]
    line = refused(call(train, *arguments, *change))
    assert "a memory of 4 times 1000000000 steps needs 192000000000 bytes, but" in line


@pytest.mark.usefixtures("no_process")
def test_resuming_with_another_config_prints_the_difference(call, trained):
    run, _, _ = trained
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    arguments = ["--config", "debug", "--logdir", run.parent, "--timestamp", 1]
    changes = ["--seed", 3, "--set", "algorithm.clip=0.5"]
    line = refused(call(train, *arguments, *changes))
    assert "seed: 0 -> 3" in line
    assert "algorithm.clip: 0.2 -> 0.5" in line
    after = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert after == before


@pytest.mark.usefixtures("no_process")
@pytest.mark.parametrize("script", [evaluate, visualize])
def test_run_that_cannot_be_loaded(script, call, fresh, trained, tmp_path):
    extra = ["--outdir", tmp_path / "videos"] if script is visualize else []
    line = refused(call(script, "--logdir", tmp_path / "missing", *extra))
    assert "is not a run: it has no config.yaml" in line
    run, _, _ = trained
    arguments = ["--logdir", run, *extra, "--checkpoint", "step-7"]
    line = refused(call(script, *arguments))
    assert "no checkpoint 'step-7'" in line
    assert "there are step-000000000256, step-000000000512, best." in line
    arguments = ["--logdir", run, *extra, "--num_episodes", 0]
    assert "--num_episodes must be positive" in refused(call(script, *arguments))
    run = fresh()
    checkpoint = run / "checkpoints" / "step-000000000000"
    data = checkpoint / "variables.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:100])
    line = refused(call(script, "--logdir", run, *extra))
    assert f"checkpoint {checkpoint}" in line
    (run / "checkpoints").rename(run / "elsewhere")
    line = refused(call(script, "--logdir", run, *extra))
    assert f"no checkpoint in {run / 'checkpoints'}" in line
    assert not (tmp_path / "videos").exists()


@pytest.fixture
def mismatched(fresh):
    """Run whose config has another network than its checkpoint."""
    run = fresh()
    run = run.rename(run.with_name("1-debug"))
    values = config_files.load(run / "config.yaml")
    assert values["algorithm"]["network"]["layers"] != [5]
    values["algorithm"]["network"]["layers"] = [5]
    config_files.dump(values, run / "config.yaml")
    return run


@pytest.mark.usefixtures("no_process")
def test_checkpoint_of_another_network(call, mismatched):
    message = "step-000000000000 does not fit this config: Received incompatible"
    config = ["--config", mismatched / "config.yaml", "--timestamp", 1, "--quiet"]
    line = refused(call(train, "--logdir", mismatched.parent, *config))
    assert message in line
    arguments = ["--logdir", mismatched, "--outdir", mismatched / "videos"]
    assert message in refused(call(visualize, *arguments))
    assert not (mismatched / "videos").exists()


def test_checkpoint_of_another_network_is_one_line_of_a_process(run, mismatched):
    assert "does not fit" in refused(run("evaluate", "--logdir", mismatched))


@pytest.mark.parametrize("what", ["reward", "observation"])
def test_number_that_is_not_finite(call, tmp_path, what):
    seed = loop.phase_seeds(0, 0, 4)[2]
    code, output, errors = call(
        train,
        *("--config", "debug", "--logdir", tmp_path, "--quiet"),
        *("--set", f"environment.id={HERE}:failing"),
        *("--set", f"environment.kwargs={{seed: {seed}, what: {what}}}"),
    )
    assert (code, output) == (1, "")
    assert errors.startswith(f"error: stopped at step 60: Environment row 2: {what} ")
    assert errors.endswith("is not finite.\n")
    assert errors.count("\n") == 1
    assert psutil.Process().children() == []


def test_environment_that_raises(call, tmp_path):
    seed = loop.phase_seeds(0, 0, 4)[3]
    code, output, errors = call(
        train,
        *("--config", "debug", "--logdir", tmp_path, "--quiet"),
        *("--set", f"environment.id={HERE}:failing"),
        *("--set", f"environment.kwargs={{seed: {seed}, what: exception}}"),
    )
    assert (code, output) == (1, "")
    first, *rest = errors.splitlines()
    assert first.startswith("error: Environment row 3: worker process ")
    assert "last command: step" in first
    assert "ZeroDivisionError: the step fails" in "\n".join(rest)
    assert psutil.Process().children() == []


ALGORITHMS = """
import dataclasses
import tensorflow as tf
from agents.tools import algorithm


@dataclasses.dataclass(frozen=True)
class Config:
    type: str


class Right(algorithm.Algorithm):
    def __init__(self, *args):
        super().__init__()

    def perform(self, agent_indices, observation, training):
        return tf.zeros([tf.size(agent_indices)], tf.int64)


class Branches(Right):
    def experience(self, agent_indices, observation, action, reward, *_):
        if tf.reduce_any(reward > 0.0):
            return


class Shape(Right):
    def perform(self, agent_indices, observation, training):
        return observation


class NotMade(Right):
    def __init__(self, observation_space, action_space):
        pass
"""


@pytest.mark.parametrize(
    ("name", "place", "reason"),
    [
        ("Branches", "experience", "OperatorNotAllowedInGraphError: Using a symbolic"),
        ("Shape", "perform", "must return int64 [2], got float32 [2, 2].\n"),
        ("NotMade", "__init__", "TypeError: NotMade.__init__() takes 3 positional"),
    ],
)
def test_mistake_in_an_algorithm(call, tmp_path, monkeypatch, name, place, reason):
    file = tmp_path / f"mine_{name.lower()}.py"
    file.write_text(ALGORITHMS)
    monkeypatch.syspath_prepend(str(tmp_path))
    config = tmp_path / "config.yaml"
    config.write_text(
        f"environment: {{id: '{HERE}:counting', max_length: 10, num_agents: 2}}\n"
        f"algorithm: {{type: '{file.stem}:{name}'}}\n"
        "train: {steps: 20, eval_every: 20}\n"
    )
    arguments = ["--config", config, "--logdir", tmp_path, "--quiet"]
    code, output, errors = call(train, *arguments)
    lines = ALGORITHMS.split("\n")
    start = lines.index(f"class {name}(Right):") + 1
    line = start + (2 if name == "Branches" else 1)
    before = place == "__init__"  # Of the first process, so a mistake.
    assert (code, output) == (2 if before else 1, "")
    assert errors.startswith(f"error: {name}.{place} at {file}:{line}: {reason}")
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("what", "message"),
    [("exception", "ZeroDivisionError: the step fails"), ("exit", "SystemExit: 4")],
)
def test_environment_that_raises_in_the_process_of_the_trainer(
    call, tmp_path, what, message
):
    seed = loop.phase_seeds(0, 0, 4)[3]
    code, output, errors = call(
        train,
        *("--config", "debug", "--logdir", tmp_path, "--quiet"),
        *("--set", "environment.backend=serial"),
        *("--set", f"environment.id={HERE}:failing"),
        *("--set", f"environment.kwargs={{seed: {seed}, what: {what}}}"),
    )
    assert (code, output) == (1, "")
    first, blank, *rest = errors.splitlines()
    assert first == f"error: Environment row 3 raised {message}; last command: step."
    assert not blank
    assert rest[0].startswith("Traceback")
    assert any(line.endswith("in step") for line in rest)
    assert len(rest) < 40


def test_observation_outside_of_its_space_is_noted_once(call, tmp_path):
    seed = loop.phase_seeds(0, 0, 4)[1]
    code, output, errors = call(
        train,
        *("--config", "debug", "--logdir", tmp_path),
        *("--set", "environment.action_lag=true"),
        *("--set", f"environment.id={HERE}:failing"),
        *("--set", f"environment.kwargs={{seed: {seed}, what: outside}}"),
    )
    assert (code, errors) == (0, "")
    assert output.count("outside of its space") == 1
    assert "Environment row 1: observation[1] is 2000.0, outside" in output


def test_loss_that_is_not_finite(call, tmp_path):
    code, output, errors = call(
        train,
        *("--config", "debug", "--logdir", tmp_path, "--quiet"),
        *("--set", "algorithm.learning_rate=1e30"),
    )
    assert (code, output) == (1, "")
    assert errors.startswith("error: stopped at step 128: PPO's ")
    assert "is not finite" in errors
    assert errors.count("\n") == 1
    assert psutil.Process().children() == []


def test_worker_that_is_killed(start, tmp_path):
    script = start(
        "train",
        *("--config", "debug", "--logdir", tmp_path, "--timestamp", 1, "--quiet"),
        *("--set", "train.steps=100000000", "--set", "train.eval_every=256"),
    )
    metrics = tmp_path / "1-debug" / "metrics.jsonl"
    script.wait_for(lambda: metrics.exists() and metrics.stat().st_size)
    workers = script.workers()
    assert workers
    victim = workers[-1]
    victim.send_signal(signal.SIGKILL)
    line = script.process.stderr.readline()
    assert line.startswith("error: Environment row")
    assert f"worker process {victim.pid}" in line
    assert "killed by SIGKILL" in line
    assert script.wait() == (1, "", "")
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert alive == []
