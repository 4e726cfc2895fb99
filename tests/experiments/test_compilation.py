"""Compiled programs that later processes use again."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from agents.experiments import compilation

SCRIPT = """
from agents.experiments import compilation
compilation.keep()
import tensorflow as tf

@tf.function(jit_compile=True)
def function(x):
    for _ in range(20):
        x = tf.math.tanh(x @ x)
    return tf.reduce_sum(x)

print(float(function(tf.random.stateless_normal([9, 9], [1, 2]))).hex())
"""


@pytest.fixture
def folder(tmp_path):
    """Directory of this machine's programs."""
    return compilation.directory({compilation.VARIABLE: str(tmp_path)})


def programs(folder):
    """Names and contents of the programs for later processes."""
    return {path.name: path.read_bytes() for path in folder.glob("*.pb")}


def run(arguments, tmp_path, **variables):
    """Output of a process that keeps its programs in a directory."""
    environ = {**os.environ, compilation.VARIABLE: str(tmp_path), **variables}
    done = subprocess.run(
        [sys.executable, *arguments], env=environ, capture_output=True, check=True
    )
    return done.stdout


def test_second_process_compiles_nothing_and_computes_the_same(tmp_path):
    place = tmp_path / "of Jane Doe"
    folder = compilation.directory({compilation.VARIABLE: str(place)})
    first = run(["-c", SCRIPT], place)
    kept = programs(folder)
    assert len(kept) == 1
    assert run(["-c", SCRIPT], place) == first
    assert programs(folder) == kept
    assert [path.suffix for path in folder.iterdir()] == [".pb"]


@pytest.mark.slow
def test_nothing_is_kept_if_off_or_the_user_has_a_directory(folder, tmp_path):
    run(["-c", SCRIPT], tmp_path, AGENTS_COMPILED="off")
    (tmp_path / "own").mkdir()
    run(["-c", SCRIPT], tmp_path, TF_XLA_FLAGS=f"{compilation.FLAG}={tmp_path / 'own'}")
    assert not folder.exists()
    assert len(programs(tmp_path / "own")) == 1


@pytest.mark.slow
def test_a_directory_that_cannot_be_made_keeps_nothing(tmp_path):
    (tmp_path / "file").touch()
    assert run(["-c", SCRIPT], tmp_path / "file")


@pytest.mark.parametrize("missing", ["home", "room"])
def test_nothing_is_kept_without_home_or_room(missing, tmp_path, monkeypatch):
    for name in ("TF_XLA_FLAGS", compilation.VARIABLE, "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    if missing == "home":

        def home():
            raise RuntimeError("Could not determine home directory.")

        monkeypatch.setattr(pathlib.Path, "home", home)
    else:
        monkeypatch.setenv(compilation.VARIABLE, str(tmp_path))
        monkeypatch.setattr(compilation, "FREE_BYTES", 2**62)
    compilation.keep()
    assert "TF_XLA_FLAGS" not in os.environ
    assert not list(tmp_path.rglob("process-*"))


def test_programs_of_a_killed_process_are_dropped(folder):
    killed = subprocess.Popen(["true"])
    killed.wait()
    left = folder / f"process-{killed.pid}-x"
    left.mkdir(parents=True)
    (left / "incomplete.pb").write_bytes(b"1")
    own = compilation.borrow(folder)
    assert list(folder.iterdir()) == [own]
    assert not programs(own)


def test_programs_of_a_running_process_are_left_alone(folder):
    other = compilation.borrow(folder)
    (other / "begun.pb").write_bytes(b"1")
    own = compilation.borrow(folder)
    assert not programs(own)
    compilation.give_back(folder, own, os.getpid())
    assert list(folder.iterdir()) == [other]
    compilation.give_back(folder, other, os.getpid())
    assert programs(folder) == {"begun.pb": b"1"}
    again = compilation.borrow(folder)
    assert programs(again) == {"begun.pb": b"1"}


def test_children_do_not_end_the_directory_of_their_parent(folder):
    own = compilation.borrow(folder)
    compilation.give_back(folder, own, os.getpid() + 1)
    assert own.exists()


def test_oldest_programs_beyond_the_largest_size_are_removed(folder, monkeypatch):
    monkeypatch.setattr(compilation, "MOST_BYTES", 25)
    own = compilation.borrow(folder)
    for age, name in enumerate("abc"):
        path = own / f"{name}.pb"
        path.write_bytes(bytes(10))
        os.utime(path, (100 - age, 100 - age))
    compilation.give_back(folder, own, os.getpid())
    assert sorted(programs(folder)) == ["a.pb", "b.pb"]


@pytest.mark.slow
def test_run_with_kept_programs_is_the_same(tmp_path):
    command = ["-m", "agents.scripts.train", "--config", "cartpole_compiled"]
    command += ["--set", "train.steps=20000", "--quiet", "--logdir", str(tmp_path)]
    for name in ("first", "second"):
        run([*command, "--timestamp", name], tmp_path / "programs")
    files = [tmp_path / f"{x}-cartpole_compiled" for x in ("first", "second")]
    ours, theirs = (pathlib.Path(x, "metrics.jsonl").read_text() for x in files)
    assert ours == theirs
    assert json.loads(ours.splitlines()[-1])["step"] >= 20000
