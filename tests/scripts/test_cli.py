import importlib
import subprocess
import sys
import time
import types

import pytest

import agents
from agents.scripts import cli, commands


def run(*arguments):
    """Run a Python command to its end."""
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False
    )


def test_help_lists_the_subcommands(capsys):
    assert cli.main(["--help"]) == 0
    output = capsys.readouterr().out
    for name in (
        "configs",
        "train",
        "tune",
        "evaluate",
        "visualize",
        "export",
        "plot",
        "report",
        "benchmark",
    ):
        assert f"\n  {name} " in output


def test_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"{agents.__version__}\n"


def test_without_subcommand(capsys):
    assert cli.main([]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == "error: no subcommand; see `agents --help`.\n"


def test_unknown_subcommand_suggests_the_nearest(capsys):
    assert cli.main(["trian", "--config", "pendulum"]) == 2
    error = capsys.readouterr().err
    assert error == "error: unknown subcommand 'trian'; did you mean 'train'?\n"
    assert cli.main(["xyz"]) == 2
    error = capsys.readouterr().err
    assert error == "error: unknown subcommand 'xyz'; see `agents --help`.\n"


def test_arguments_and_exit_code_are_passed_on(monkeypatch):
    calls = []
    module = types.ModuleType("agents.scripts.train")
    module.main = lambda argv: calls.append(argv) or 3
    monkeypatch.setitem(sys.modules, "agents.scripts.train", module)
    assert cli.main(["train", "--config", "pendulum", "--quiet"]) == 3
    assert calls == [["--config", "pendulum", "--quiet"]]


def test_modules_of_the_working_directory_can_be_imported(tmp_path, monkeypatch):
    (tmp_path / "cli_test_environment.py").write_text("answer = 42\n")
    module = types.ModuleType("agents.scripts.train")
    module.main = lambda argv: importlib.import_module(argv[0]).answer
    monkeypatch.setitem(sys.modules, "agents.scripts.train", module)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", "cli_test_environment"]) == 42


def test_modules_of_the_working_directory_come_before_all_others(tmp_path, monkeypatch):
    module = types.ModuleType("agents.scripts.train")
    module.main = lambda argv: importlib.import_module(argv[0]).answer
    monkeypatch.setitem(sys.modules, "agents.scripts.train", module)
    for name, answer in (("installed", 1), ("mine", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cli_test_twice.py").write_text(f"answer = {answer}\n")
    path = [str(tmp_path / "installed"), str(tmp_path / "mine"), *sys.path]
    monkeypatch.setattr(sys, "path", path)
    monkeypatch.chdir(tmp_path / "mine")
    assert cli.main(["train", "cli_test_twice"]) == 2


def test_help_imports_no_library():
    heavy = {"tensorflow", "keras", "matplotlib", "gymnasium", "numpy"}
    program = (
        "import sys; from agents.scripts import cli; cli.main(['--help']); "
        f"sys.exit(str({heavy} & set(sys.modules) or ''))"
    )
    result = run("-c", program)
    assert result.stderr.strip() == ""
    assert "usage: agents" in result.stdout


def test_every_subcommand_is_a_module_that_explains_itself():
    for name in cli.SUBCOMMANDS:
        result = run("-m", f"agents.scripts.{name}", "--help")
        assert result.returncode == 0, result.stderr
        assert f"usage: agents {name}" in result.stdout


@pytest.mark.parametrize("terminal", [False, True])
def test_terminals_show_what_is_done(monkeypatch, capsys, terminal):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    with commands.status("Starting") as say:
        say("Measuring the environments")
        time.sleep(0.3)
    output, errors = capsys.readouterr()
    assert output == ""
    assert ("Measuring the environments" in errors) == terminal
    assert terminal or errors == ""


def test_output_may_be_closed(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert commands.reporting(lambda argv: 0)() == 0


def test_full_disk_behind_the_output_is_one_line(capsys):
    def main(argv):
        with open("/dev/full", "w") as file:
            file.write("text")
        return 0

    assert commands.reporting(main)() == 1
    assert capsys.readouterr().err == "error: cannot write: No space left on device.\n"
