"""The command that exports policies."""

import subprocess
import sys

from agents.scripts import export


def test_command_writes_a_policy_for_tensorflow_alone(trained, call, tmp_path):
    out = tmp_path / "policy"
    code, output, errors = call(export, "--logdir", trained[0], "--outdir", out)
    assert (code, errors) == (0, "")
    assert output == f"Wrote {out}; {out / 'card.md'} says what it is.\n"
    card = (out / "card.md").read_text()
    for text in (
        "ppo",
        "CartPole-v1",
        "512 environment steps",
        "`observation`: float32",
    ):
        assert text in card
    program = f"""
import sys, tensorflow as tf
policy = tf.saved_model.load({str(out)!r}).signatures["serving_default"]
action = policy(observation=tf.zeros([3, 4]))["action"].numpy()
assert action.shape == (3,) and set(action) <= {{0, 1}}
assert not {{"agents", "gymnasium"}} & set(sys.modules)
from tensorflow.python.tools import saved_model_cli  # The command of this name.
saved_model_cli.main()
"""
    arguments = ["run", "--dir", out, "--tag_set", "serve"]
    arguments += ["--signature_def", "serving_default"]
    arguments += ["--input_exprs", "observation=[[0.0, 0.0, 0.0, 0.0]]"]
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Result for output key action" in done.stdout


def test_bad_input(trained, call, tmp_path, monkeypatch):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    arguments = ["--logdir", trained[0], "--outdir"]
    code, _, errors = call(export, *arguments, tmp_path / "full")
    assert code == 2
    assert errors.endswith("full is not empty; give a new directory.\n")
    assert (tmp_path / "full" / "file").read_text() == "mine"
    code, _, errors = call(export, *arguments, tmp_path / "full" / "file")
    assert code == 2
    assert errors.startswith(f"error: cannot write to {tmp_path / 'full' / 'file'}: ")
    code, _, errors = call(export, "--logdir", tmp_path, "--outdir", tmp_path / "new")
    assert code == 2
    assert "is not a run: it has no config.yaml" in errors
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    code, _, errors = call(export, *arguments, tmp_path / "onnx", "--format", "onnx")
    assert code == 2
    assert "pip install 'agents-in-graph[onnx]'" in errors
    assert not list((tmp_path / "onnx").iterdir())
