"""Training of runs."""

import pytest

from agents.experiments import named, training
from agents.tools import config_files, sections


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("plain"), "plain"),
        (
            ValueError(
                "Graph execution error:\n\nFile x\n\nIt broke.\n\t [[{{node}}]]"
            ),
            "It broke.",
        ),
        (ValueError("{{function_node __x}} It broke. [Op:Check] name: "), "It broke."),
    ],
)
def test_reason_of_an_error(error, line):
    assert training._reason(error) == line


def test_new_directory_holds_the_complete_config(tmp_path):
    config = named.load("debug", ["train.steps=77"], seed=5)
    training.prepare(tmp_path / "run", config)
    values = config_files.load(tmp_path / "run" / "config.yaml")
    assert values == sections.to_dict(config)
    assert values["train"]["steps"] == 77
    assert values["seed"] == 5
    training.prepare(tmp_path / "run", config)  # The same config may go on.
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "config.yaml",
        "versions.txt",
    ]
