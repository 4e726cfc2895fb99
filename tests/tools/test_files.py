"""Files are replaced as a whole, and directories have one process at a time."""

import contextlib
import errno
import fcntl
import os
import pathlib
import re
import signal
import socket
import stat
import subprocess
import sys

import pytest

from agents.tools import files

ROOT = pathlib.Path(__file__).parents[2]


def test_directory_that_is_no_run_names_one_inside(tmp_path):
    assert (
        files.absence(tmp_path, "a.txt") == f"{tmp_path} is not a run: it has no a.txt."
    )
    for name in ("1-run", "2-run", "other"):
        (tmp_path / name).mkdir()
    for name in ("1-run", "2-run"):
        (tmp_path / name / "a.txt").touch()
    line = files.absence(tmp_path, "a.txt")
    assert line.endswith(f"name one of the runs inside, such as {tmp_path}/2-run.")


def start(program, *arguments):
    """Start a Python program that knows `files` and a directory; it says when to go on."""
    program = f"import os, sys\nfrom agents.tools import files\n{program}"
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


OWNER = """
import subprocess
with files.alone(sys.argv[1]):
    child = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL)
    print(child.pid, flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def owner(tmp_path):
    """Process that works in a directory and has started another one, and that's id."""
    process = start(OWNER, tmp_path)
    child = int(process.stdout.readline())
    yield process, child
    process.kill()
    process.communicate()
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)


def test_new_contents_take_the_place_of_old_ones(tmp_path):
    path = tmp_path / "file"
    for text in ("größer", "2"):
        files.write(path, text)
        assert path.read_text(encoding="utf-8") == text
        assert list(tmp_path.iterdir()) == [path]


def test_what_fails_while_writing_changes_nothing(tmp_path):
    path = tmp_path / "file"
    for before in ([], [path]):
        with pytest.raises(TypeError), files.whole(path) as partial:
            partial.write_text("half") + "more"
        assert list(tmp_path.iterdir()) == before
        files.write(path, "old")
    assert path.read_text() == "old"


def test_no_room_is_one_line_and_changes_nothing(tmp_path, full_disk):
    path = tmp_path / "file"
    files.write(path, "old")
    with full_disk(5000), pytest.raises(files.WriteError) as error:
        files.write(path, "x" * 9000)
    free = r"\d[\d.]* (GB|MB|kB|bytes)"
    text = "File too large; it needs more than 5.0 kB, and"
    assert re.fullmatch(
        f"cannot write {path}: {text} {free} are free.", str(error.value)
    )
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_devices_and_links_stay_what_they_are(tmp_path):
    with pytest.raises(files.WriteError, match="cannot write /dev/full: No space left"):
        files.write("/dev/full", "text")
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "file")
    files.write(link, "text")
    assert link.is_symlink()
    assert (tmp_path / "file").read_text() == "text"


def test_contents_are_on_disk_before_they_get_their_name(tmp_path, monkeypatch):
    calls = []

    def wrap(name):
        function = getattr(os, name)

        def wrapper(*args):
            target = args[0]
            if isinstance(target, int):
                target = os.readlink(f"/proc/self/fd/{target}")
            calls.append((name, pathlib.Path(target).name))
            return function(*args)

        monkeypatch.setattr(os, name, wrapper)

    wrap("fsync")
    wrap("replace")
    files.write(tmp_path / "file", "text")
    partial = ".partial-file"
    assert calls == [("fsync", partial), ("replace", partial), ("fsync", tmp_path.name)]


def test_files_keep_their_mode_and_their_neighbors(tmp_path):
    (tmp_path / ".file").write_text("other")
    files.write(tmp_path / "file", "old")
    (tmp_path / "file").chmod(0o640)
    files.write(tmp_path / "file", "new")
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "file").read_text() == "new"
    assert (tmp_path / ".file").read_text() == "other"


def test_sizes():
    sizes = {0: "0 bytes", 999: "999 bytes", 1000: "1.0 kB", 147456: "147.5 kB"}
    sizes |= {3_300_000: "3.3 MB", 7_000_000_000: "7.0 GB"}
    assert {number: files.size(number) for number in sizes} == sizes


def test_lines_that_are_cut_off(tmp_path):
    path = tmp_path / "lines"
    for end, left in ((None, 6), (100, 6), (6, 6), (5, 3), (3, 3), (2, 0), (0, 0)):
        path.write_text("12\n45\n7")
        assert files.cut(path, end) == left
        assert path.read_text() == "12\n45\n"[:left]


def test_another_process_is_kept_away(tmp_path, owner):
    process, _ = owner
    for _ in range(2):
        with pytest.raises(files.InUseError) as error, files.alone(tmp_path):
            pass
    name = f"pid {process.pid} on {socket.gethostname()}"
    assert str(error.value) == f"another process works on {tmp_path} ({name})"
    process.communicate("done\n")
    assert list(tmp_path.iterdir()) == []
    with files.alone(tmp_path):
        again = files.alone(tmp_path)
        with pytest.raises(files.InUseError, match=f"pid {os.getpid()} on"), again:
            pass
        with files.alone(tmp_path.parent):
            pass


def test_lock_ends_with_its_owner_though_children_live_on(tmp_path, owner):
    process, child = owner
    process.kill()
    process.wait()
    assert (tmp_path / files.LOCK).exists()
    os.kill(child, 0)
    with files.alone(tmp_path):
        text = (tmp_path / files.LOCK).read_text()
    assert text == f"pid {os.getpid()} on {socket.gethostname()}"


def test_lock_that_was_left_behind_by_a_process_of_the_same_id(tmp_path):
    text = f"pid {os.getppid()} on {socket.gethostname()}"  # Of one that lives.
    (tmp_path / files.LOCK).write_text(text)
    with files.alone(tmp_path):
        pass


def test_failure_inside_gives_the_directory_free(tmp_path):
    with pytest.raises(ZeroDivisionError), files.alone(tmp_path):
        raise ZeroDivisionError
    with files.alone(tmp_path):
        pass


TURNS = """
import pathlib
path = pathlib.Path(sys.argv[1]) / "count"
sys.stdin.readline()
for _ in range(200):
    with files.alone(path.parent, wait=True):
        count = int(path.read_text())
        path.write_text(str(count + 1))
"""


def test_processes_that_wait_take_turns(tmp_path):
    (tmp_path / "count").write_text("0")
    running = [start(TURNS, tmp_path) for _ in range(3)]
    for process in running:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in running:
        process.communicate()
        assert process.returncode == 0
    assert (tmp_path / "count").read_text() == "600"


@pytest.mark.parametrize("number", files.NO_LOCKS)
def test_file_systems_without_locks_keep_nobody_away(tmp_path, monkeypatch, number):
    def fail(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", fail)
    with files.alone(tmp_path), files.alone(tmp_path):
        pass


def test_other_errors_of_locks_are_raised(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(OSError, match="Input/output"), files.alone(tmp_path):
        pass
