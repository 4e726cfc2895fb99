"""The command that lists and prints configs."""

import subprocess
import sys

import pytest

from agents.experiments import complete, named
from agents.scripts import configs
from agents.tools import config as config_
from agents.tools import config_files


def test_list_of_configs(capsys):
    assert configs.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(named.EXPERIMENTS)
    assert lines[0].split(maxsplit=1) == [
        "pendulum",
        "Swing a pendulum up and balance it.",
    ]


def test_printed_config_is_a_file_that_is_the_config(tmp_path, capsys):
    assert configs.main(["cartpole_dqn", "--set", "train.steps=123"]) == 0
    path = tmp_path / "printed.yaml"
    path.write_text(capsys.readouterr().out)
    assert named.load(str(path)) == named.load("cartpole_dqn", ["train.steps=123"])


def test_complete_configs_are_those_of_today():
    message = "run `python -m agents.experiments.complete`"
    assert complete.FILE.read_text() == complete.made(), message


def test_named_configs_are_printed_without_tensorflow(capsys):
    program = (
        "import sys; sys.modules['tensorflow'] = None\n"
        "from agents.scripts import configs; sys.exit(configs.main(['cheetah_clip']))"
    )
    printed = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert configs.main(["cheetah_clip", "--set", "seed=0"]) == 0
    assert capsys.readouterr().out == printed


def test_a_pipe_that_is_closed_early_is_no_error():
    command = [sys.executable, "-m", "agents.scripts.configs", "cheetah_clip"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


OWN = """
environment: {id: 'own_code:make'}
preprocessing: [{type: function, path: 'own_code:f'}, {type: 'own_code:Stage'}]
algorithm:
  ALGORITHM
  network:
    layers: ['own_code:Layer', {type: function, path: 'own_code:f'}, 5]
    streams: {x: ['own_code:Layer']}
    join: own_code:join
"""


@pytest.mark.parametrize("kind", ["type: ppo", "type: 'own_code:Algorithm'"])
def test_nothing_is_imported_to_print_a_config(tmp_path, monkeypatch, capsys, kind):
    (tmp_path / "own_code.py").write_text("raise SystemExit('It is imported.')")
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "mine.yaml"
    path.write_text(OWN.replace("ALGORITHM", kind))
    changes = ["--set", "environment.num_agents=3"]
    assert configs.main([str(path), *changes]) == 0
    assert "own_code" not in sys.modules
    printed = config_files.parse(capsys.readouterr().out, "printed")
    assert printed["environment"]["num_agents"] == 3
    assert printed["train"]["keep_checkpoints"] == 5
    assert printed["algorithm"]["network"]["join"] == "own_code:join"
    assert ("discount" in printed["algorithm"]) == (kind == "type: ppo")
    with pytest.raises(config_.ConfigError, match=r"SystemExit\(It is imported\."):
        named.load(str(path))


def test_what_cannot_be_printed(capsys):
    assert configs.main(["cartpol"]) == 2
    error = capsys.readouterr().err
    assert error == "error: unknown config 'cartpol'; did you mean 'cartpole'?\n"
