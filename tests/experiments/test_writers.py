"""Report files."""

import json
import os
import sys
import types
import unittest.mock

import pytest

from agents.experiments import writers
from agents.tools import config, files


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def events(logdir):
    """Pairs of step and value by name of scalar."""
    import tensorflow as tf
    from tensorboard.backend.event_processing import event_accumulator

    accumulator = event_accumulator.EventAccumulator(str(logdir))
    accumulator.Reload()
    return {
        tag: [
            (event.step, float(tf.make_ndarray(event.tensor_proto)))
            for event in accumulator.Tensors(tag)
        ]
        for tag in accumulator.Tags()["tensors"]
    }


def test_every_line_is_on_disk_at_once(tmp_path):
    path = tmp_path / "metrics.jsonl"
    writer = writers.JsonLines(path)
    writer.write({"step": 1, "score": None})
    assert read(path) == [{"step": 1, "score": None}]
    writer.write({"step": 2, "name": "größer"})
    assert read(path)[1] == {"step": 2, "name": "größer"}
    assert writer.offset() == path.stat().st_size
    writer.close()


def test_resumed_file_continues_behind_the_offset(tmp_path):
    path = tmp_path / "metrics.jsonl"
    writer = writers.JsonLines(path)
    writer.write({"step": 1})
    offset = writer.offset()
    writer.write({"step": 2})
    writer.write({"step": 3})
    writer.close()
    with path.open("a") as file:
        file.write('{"ste')  # What a killed process leaves.
    writer = writers.JsonLines(path, offset)
    assert writer.offset() == offset
    writer.write({"step": 20})
    writer.close()
    assert read(path) == [{"step": 1}, {"step": 20}]


def test_new_file_begins_empty(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text("old\n")
    writers.JsonLines(path).close()
    assert path.read_text() == ""


def test_file_that_is_shorter_than_the_offset_gets_no_zeros(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n')
    writer = writers.JsonLines(path, 1000)
    writer.write({"step": 2})
    writer.close()
    assert read(path) == [{"step": 1}, {"step": 2}]


@pytest.mark.parametrize(
    ("content", "kept"),
    [
        ('{"step": 1}\n', 1),  # Lines are missing.
        ('{"step": 1}\n{"st', 1),  # The end of a line is.
        ('{"step": 1}\n{"step": 2, "more": 5}\n', 1),  # It was changed.
        ("", 0),
    ],
)
def test_lost_reports_are_said_and_no_line_is_glued(tmp_path, caplog, content, kept):
    path = tmp_path / "metrics.jsonl"
    path.write_text(content)
    writer = writers.JsonLines(path, 24)
    writer.write({"step": 3})
    writer.close()
    assert read(path) == [{"step": 1}][:kept] + [{"step": 3}]
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage() == (
        f"{path} has lost reports: it goes on behind its first {12 * kept} bytes "
        "instead of 24, which are not there or end within a line."
    )


def test_nothing_is_said_where_nothing_is_lost(tmp_path, caplog):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"ste')
    writers.JsonLines(path, 24).close()
    assert read(path) == [{"step": 1}, {"step": 2}]
    assert not caplog.records


def test_full_disk_is_one_line_and_leaves_whole_ones(tmp_path, full_disk):
    path = tmp_path / "metrics.jsonl"
    writer = writers.JsonLines(path)
    writer.write({"step": 1})
    with full_disk(20), pytest.raises(files.WriteError) as error:
        writer.write({"step": 2})
    text = f"cannot write {path}: File too large; it needs 12 bytes, and "
    assert str(error.value).startswith(text)
    assert read(path) == [{"step": 1}]
    writer.write({"step": 3})
    assert writer.offset() == path.stat().st_size
    writer.close()
    assert read(path) == [{"step": 1}, {"step": 3}]


def test_offset_counts_what_is_on_disk(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda x: synced.append(os.fstat(x).st_size))
    writer = writers.JsonLines(tmp_path / "metrics.jsonl")
    synced.clear()
    for _ in range(2):
        writer.write({"step": 1})
        assert writer.offset() == synced[-1]
    writer.close()
    assert synced == [12, 24]


def test_event_files_on_a_full_disk_are_one_line(tmp_path):
    (tmp_path / "train").touch()  # Where they would have to be.
    with pytest.raises(files.WriteError) as error:
        writers.TensorBoard(tmp_path).write("train", 1, {"score": 1.0})
    text = f"cannot write {tmp_path / 'train'}: "
    assert str(error.value).startswith(text)
    assert "it needs a few kB, and " in str(error.value)
    assert "\n" not in str(error.value)


def test_scalars_stand_at_environment_steps_in_one_directory_per_phase(tmp_path):
    writer = writers.TensorBoard(tmp_path)
    writer.write("train", 1000, {"score": 1.0, "loss": 0.5})
    writer.write("evaluate", 1000, {"score": 2.0})
    writer.write("train", 50_000, {"score": 3.0, "loss": 0.25})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evaluate", "train"]
    assert events(tmp_path / "train") == {
        "score": [(1000, 1.0), (50_000, 3.0)],
        "loss": [(1000, 0.5), (50_000, 0.25)],
    }
    assert events(tmp_path / "evaluate") == {"score": [(1000, 2.0)]}
    writer.close()


def test_missing_package_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(
        config.ConfigError, match=r"pip install 'agents-in-graph\[wandb\]'"
    ):
        writers.WeightsAndBiases(tmp_path, "project")


def test_weights_and_biases_gets_explicit_steps_and_a_resumable_run(
    tmp_path, monkeypatch
):
    class Wandb:
        """Stands for the package and for a run of it."""

        def __init__(self):
            self.calls = []

        def init(self, **kwargs):
            self.calls.append(("init", kwargs))
            return self

        def define_metric(self, *args, **kwargs):
            self.calls.append(("define_metric", args, kwargs))

        def log(self, values):
            self.calls.append(("log", values))

        def finish(self):
            self.calls.append(("finish",))

    wandb = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    name = "today-pendulum"
    (tmp_path / name).mkdir()
    writer = writers.WeightsAndBiases(tmp_path / name, "mine")
    writer.write("train", 300, {"score": 1.0})
    writer.close()
    _, init = wandb.calls[0]
    assert init == {"project": "mine", "name": name, "resume": "allow"} | {
        "id": init["id"]
    }
    assert wandb.calls == [
        ("init", init),
        ("define_metric", ("*",), {"step_metric": "step"}),
        ("log", {"step": 300, "train/score": 1.0}),
        ("finish",),
    ]


def test_every_directory_has_a_run_of_its_own_at_weights_and_biases(
    tmp_path, monkeypatch
):
    wandb = unittest.mock.Mock()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    for parent in ("a", "b", "a"):  # The last one resumes the first.
        directory = tmp_path / parent / "trial-0000-debug"
        directory.mkdir(parents=True, exist_ok=True)
        writers.WeightsAndBiases(directory, "mine")
    first, second, resumed = (x.kwargs["id"] for x in wandb.init.call_args_list)
    assert first == resumed != second


def test_errors_of_weights_and_biases_are_one_line(tmp_path, monkeypatch):
    def init(**kwargs):
        raise RuntimeError("No API key configured.\nSee the manual.")

    init = types.FunctionType(init.__code__, {"__name__": "wandb.sdk"})
    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init))
    with pytest.raises(config.ConfigError) as error:
        writers.WeightsAndBiases(tmp_path, "mine")
    text = "config key 'train.wandb': RuntimeError: No API key configured."
    assert str(error.value) == text
