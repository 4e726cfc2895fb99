"""The command that reports on runs, and its page in a real browser."""

import base64
import json
import re
import subprocess
import sys
import time

import browser
import pytest
from written_runs import make_run

from agents.experiments import evaluation
from agents.scripts import report
from agents.tools import errors

pytestmark = pytest.mark.usefixtures("headless")


@pytest.fixture(scope="session")
def filmed(trained, tmp_path_factory):
    """Report with a video of a finished run, and the output of the command."""
    outdir = tmp_path_factory.mktemp("report")
    program = [sys.executable, "-m", "agents.scripts.report"]
    result = subprocess.run(
        [*program, trained[0], "--outdir", outdir],
        capture_output=True,
        text=True,
        check=False,
    )
    return outdir / "index.html", (result.returncode, result.stdout, result.stderr)


def test_page_of_a_run_with_video(filmed, trained):
    page, result = filmed
    assert result == (0, f"Wrote {page}\n", "")
    text = page.read_text()
    (video,) = re.findall(r'src="data:video/mp4;base64,([^"]*)"', text)
    assert base64.b64decode(video)[4:8] == b"ftyp"
    run = trained[0]
    assert json.loads((run / "origin.json").read_text())["command"] in text
    assert (run / "versions.txt").read_text().splitlines()[-1] in text
    assert "Training: value loss" in text
    assert "No video" not in text
    without_video = len(text) - len(video)
    assert without_video < 3_000_000
    names = [path.name for path in page.parent.iterdir()]
    assert names == ["index.html"]


def test_page_without_video_is_made_quickly(trained, run, tmp_path):
    start = time.perf_counter()
    arguments = trained[0], "--outdir", tmp_path, "--no_video"
    code, output, complaints = run("report", *arguments)
    assert (code, complaints) == (0, "")
    assert output == f"Wrote {tmp_path / 'index.html'}\n"
    assert time.perf_counter() - start < 20  # 1.5 on an idle machine.


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (errors.Mistake("cannot film: no display."), "cannot film: no display."),
        (errors.Failure("a process\nended"), "a process"),
        (RuntimeError("no ffmpeg"), "RuntimeError: no ffmpeg"),
    ],
)
def test_page_says_why_there_is_no_video(call, monkeypatch, tmp_path, error, reason):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(evaluation, "visualize", fail)
    run = make_run(tmp_path, "1-a", {0: 1.0, 100: 2.0})
    code, _, complaints = call(report, run, "--outdir", tmp_path)
    assert (code, complaints) == (0, "")
    assert f"<p>No video of a: {reason}</p>" in (tmp_path / "index.html").read_text()


def test_missing_ffmpeg_is_named(trained, call, tmp_path, monkeypatch):
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", "/nowhere/ffmpeg")
    code, _, complaints = call(report, trained[0], "--outdir", tmp_path)
    assert (code, complaints) == (0, "")
    (text,) = re.findall(
        "No video of debug: (.*?)<", (tmp_path / "index.html").read_text()
    )
    assert "/nowhere/ffmpeg" in text


def test_bad_input_is_one_line_and_exit_code_2(call, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    good = make_run(tmp_path, "1-a", {0: 1.0})
    broken = make_run(tmp_path, "2-a", {0: 1.0})
    (broken / "metrics.jsonl").write_text('{"phase":\n{"phase": "train"}\n')
    cases = [
        (
            [empty, "--outdir", tmp_path / "x"],
            f"{empty} is not a run: it has no metrics",
        ),
        ([good, empty, "--outdir", tmp_path / "x"], "it has no metrics.jsonl"),
        ([tmp_path / "none", "--outdir", tmp_path / "x"], "it has no metrics.jsonl"),
        ([broken, "--outdir", tmp_path / "x"], "line 1: expected a JSON object"),
        ([good], "required: --outdir"),
        ([good, "--outdir", good / "metrics.jsonl", "--no_video"], "metrics.jsonl"),
    ]
    for arguments, message in cases:
        code, output, complaints = call(report, *arguments)
        assert (code, output) == (2, "")
        assert complaints.startswith("error: ")
        assert message in complaints
        assert complaints.count("\n") == 1
    assert not (tmp_path / "x").exists()


COLORED = """
[...document.querySelectorAll('[data-chart] canvas')].map(canvas => {
  const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  const name = getComputedStyle(document.documentElement).getPropertyValue('--line-0');
  const color = [1, 3, 5].map(i => parseInt(name.trim().slice(i, i + 2), 16));
  let count = 0;
  for (let i = 0; i < data.length; i += 4)
    count += data[i + 3] == 255 && color.every((value, j) => data[i + j] == value);
  return count;
})
"""


@pytest.mark.skipif(not browser.PROGRAM, reason="needs Chromium")
@pytest.mark.parametrize("dark", [False, True])
def test_page_in_a_browser(filmed, dark):
    with browser.Browser() as view:
        view.open(filmed[0], dark)
        counts = view.evaluate(COLORED)
        assert len(counts) >= 10
        assert min(counts) > 20
        paper = view.evaluate("getComputedStyle(document.body).backgroundColor")
        assert paper == ("rgb(20, 23, 28)" if dark else "rgb(255, 255, 255)")
        view.evaluate("document.querySelector('video').scrollIntoView()")
        view.wait("document.querySelector('video').played.length > 0")
        assert view.evaluate("document.querySelector('video').videoWidth") == 600
        assert view.evaluate("document.querySelector('video').error") is None

        place = "document.querySelector('.u-over').getBoundingClientRect()"
        view.evaluate("scrollTo(0, 0)")
        left, top = (view.evaluate(f"{place}.{x}") for x in ("left", "top"))
        view.move(left + 20, top + 20)
        view.move(left + 25, top + 25)
        text = view.evaluate("document.querySelector('.values').textContent")
        assert re.fullmatch(r"debug: [\d.]+ \([\d.]+ to [\d.]+\) at 256", text)

        view.evaluate("document.querySelector('.key').click()")
        assert max(view.evaluate(COLORED)) == 0
        view.evaluate("document.querySelector('.key').click()")
        assert view.evaluate(COLORED) == counts
        assert view.complaints() == []
        assert view.requests() == [filmed[0].as_uri()]


@pytest.mark.skipif(not browser.PROGRAM, reason="needs Chromium")
def test_browser_refuses_requests_of_a_page(filmed, tmp_path):
    """The rule in the page works, and the test above would see what breaks it."""
    text = filmed[0].read_text()
    page = tmp_path / "index.html"
    page.write_text(text.replace("</main>", '<img src="https://example.com/a.png">'))
    with browser.Browser() as view:
        view.open(page)
        assert any("example.com" in json.dumps(x) for x in view.complaints())
        assert len(view.requests()) == 2
        failed = [x for x in view.events if x.get("method") == "Network.loadingFailed"]
        assert [x["params"]["blockedReason"] for x in failed] == ["csp"]
