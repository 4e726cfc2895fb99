"""Formats of videos, text on frames, and grids."""

import functools
import pathlib

import numpy as np
import pytest
from PIL import Image
from videos import read

from agents.environments import film, videos
from agents.tools import files


def write(directory, name, brightnesses, fps=25):
    """Write a video of even frames, `[20, 30, 3]`; return its entry."""
    frames = [np.full((20, 30, 3), level, np.uint8) for level in brightnesses]
    path = directory / name
    video = videos.Video(directory / f".unfinished-{name}", frames[0], fps)
    for frame in frames[1:]:
        video.write(frame)
    video.finish(path)
    return {"file": name, "return": 0.0, "length": len(frames) - 1}


@pytest.mark.parametrize("fps", [15, 25, 29.97, 67])
def test_grid_keeps_last_frames_and_leaves_other_cells_black(tmp_path, fps):
    levels = [[50, 100, 150], [200], [80, 120]]
    films = [
        write(tmp_path, f"episode-{number}_return_0.0.mkv", row, fps)
        for number, row in enumerate(levels)
    ]
    joined = videos.join(tmp_path, films, "mp4")
    assert joined == [{**entry, "file": "grid.mp4"} for entry in films]
    assert [path.name for path in tmp_path.iterdir()] == ["grid.mp4"]
    videos.require_whole(tmp_path, joined)
    found, frames = read(tmp_path / "grid.mp4")
    assert found == fps
    assert frames.shape == (3, 40, 60, 3)
    cells = frames.reshape(3, 2, 20, 2, 30, 3).mean((2, 4, 5)).reshape(3, 4)
    expected = [[50, 200, 80, 0], [100, 200, 120, 0], [150, 200, 120, 0]]
    np.testing.assert_allclose(cells, expected, atol=3)


def test_grid_that_fails_leaves_nothing(tmp_path):
    films = [write(tmp_path, f"episode-{i}_return_0.0.mkv", [50, 100]) for i in (0, 1)]
    (tmp_path / films[1]["file"]).write_bytes(b"no video")
    with pytest.raises(files.WriteError, match=r"grid\.mp4") as raised:
        videos.join(tmp_path, films, "mp4")
    assert "\n" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("fps", "length"), [(25, 3), (30, 5), (30, 20)])
def test_grid_may_be_a_gif(tmp_path, fps, length):
    films = [
        write(tmp_path, f"episode-{level}_return_0.0.mkv", [level] * count, fps)
        for level, count in ((37, 3), (201, length))
    ]
    joined = videos.join(tmp_path, films, "gif")
    videos.require_whole(tmp_path, joined)
    with Image.open(tmp_path / "grid.gif") as image:
        assert (image.n_frames, image.size) == (length, (60, 20))
        left, right = np.hsplit(np.asarray(image.convert("RGB")), 2)
    assert abs(left.mean() - 37) < 3
    assert abs(right.mean() - 201) < 3


def test_grid_of_one_episode_is_its_video(tmp_path):
    films = [write(tmp_path, "episode-0_return_0.0.mkv", [50, 100])]
    videos.join(tmp_path, films, "mp4")
    _, frames = read(tmp_path / "grid.mp4")
    np.testing.assert_allclose(frames.mean((1, 2, 3)), [50, 100], atol=3)


def test_gif_has_every_frame(tmp_path):
    entry = write(tmp_path, "episode-0_return_0.0.gif", [50, 100, 150])
    videos.require_whole(tmp_path, [entry])
    with Image.open(tmp_path / entry["file"]) as image:
        assert (image.n_frames, image.size) == (3, (30, 20))
        for number, level in enumerate([50, 100, 150]):
            image.seek(number)
            assert abs(np.asarray(image.convert("RGB")).mean() - level) < 3


def filmed(directory, style, fps, length):
    """Film one episode whose brightness is ten times the step; return its entry."""
    reel = videos.Reel(directory, range(1), style, fps)
    reel.begin(lambda: np.zeros((20, 30, 3), np.uint8))
    for step in range(1, length + 1):
        draw = functools.partial(np.full, (20, 30, 3), 10 * step, np.uint8)
        reel.step(1.0, step == length, draw)
    return reel.films


@pytest.mark.parametrize("grid", [False, True])
@pytest.mark.parametrize(
    ("fps", "steps"),
    [(50, range(9)), (60, [0, 2, 4, 6, 8]), (125, [0, 3, 6, 8])],
)
def test_gif_skips_frames_that_viewers_would_show_slowly(
    tmp_path, capfd, grid, fps, steps
):
    films = filmed(tmp_path, videos.Style("gif", grid=grid), fps, 8)
    every = {"steps_per_frame": steps[1]} if steps[1] > 1 else {}
    name = f"episode-0_return_8.0.{'mkv' if grid else 'gif'}"
    assert films == [{"file": name, "return": 8.0, "length": 8, **every}]
    if grid:
        films = videos.join(tmp_path, films, "gif")
    videos.require_whole(tmp_path, films)
    assert capfd.readouterr().err == ""
    with Image.open(tmp_path / films[0]["file"]) as image:
        assert image.n_frames == len(steps)
        durations = []
        for number, step in enumerate(steps):
            image.seek(number)
            durations.append(image.info["duration"])
            assert abs(np.asarray(image.convert("RGB")).mean() - 10 * step) < 3
    assert min(durations) >= 20
    assert abs(np.mean(durations) - 1000 * steps[1] / fps) < 4


def test_other_formats_have_every_frame_at_any_rate(tmp_path):
    (entry,) = filmed(tmp_path, videos.PLAIN, 125, 8)
    assert entry == {"file": "episode-0_return_8.0.mp4", "return": 8.0, "length": 8}
    fps, frames = read(tmp_path / entry["file"])
    assert (fps, len(frames)) == (125, 9)


def test_pictures_that_change_their_size_are_refused(tmp_path):
    path = tmp_path / ".unfinished-0.mp4"
    video = videos.Video(path, np.zeros((20, 30, 3), np.uint8), 25)
    message = r"images of one size, got \[22, 30, 3\] after \[20, 30, 3\]$"
    with pytest.raises(videos.RenderError, match=message):
        video.write(np.zeros((22, 30, 3), np.uint8))
    video.discard()
    assert list(tmp_path.iterdir()) == []


def test_directories_may_have_a_colon(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    directory = pathlib.Path("vid:x")
    directory.mkdir()
    films = filmed(directory, videos.Style(grid=True), 25, 3)
    for made in (
        filmed(directory, videos.PLAIN, 25, 3),
        videos.join(directory, films, "mp4"),
    ):
        videos.require_whole(directory, made)
    assert len(list(directory.iterdir())) == 2


def test_incomplete_gif_is_removed(tmp_path):
    entry = write(tmp_path, "episode-0_return_0.0.gif", [50, 100, 150])
    with pytest.raises(files.WriteError, match="it got 3 of 6 frames"):
        videos.require_whole(tmp_path, [{**entry, "length": 5}])
    assert list(tmp_path.iterdir()) == []


def test_all_incomplete_videos_are_removed(tmp_path):
    names = [f"episode-{number}_return_0.0.gif" for number in range(3)]
    made = [write(tmp_path, name, [50, 100, 150]) for name in names]
    made = [
        {**entry, "length": entry["length"] + 3 * (i != 1)}
        for i, entry in enumerate(made)
    ]
    with pytest.raises(files.WriteError, match="episode-0_return"):
        videos.require_whole(tmp_path, made)
    assert [path.name for path in tmp_path.iterdir()] == [names[1]]


def test_overlay_writes_into_the_upper_left_corner_only():
    image = np.full((200, 300, 3), 128, np.uint8)
    result = videos.inscribed(image, "step 3  return 1.0")
    assert (result.shape, result.dtype) == (image.shape, np.uint8)
    changed = (result != image).any(-1)
    assert changed[:40].any()
    assert not changed[40:].any()
    assert (image == 128).all()


@pytest.mark.parametrize(
    ("channels", "expected"),
    [(1, [0, 0, 0]), (2, [1, 1, 1]), (4, [3, 3, 3]), (3, [0, 1, 2]), (12, [9, 10, 11])],
)
def test_newest_of_stacked_frames(channels, expected):
    images = np.broadcast_to(np.arange(channels, dtype=np.uint8), (2, 5, 4, channels))
    result = videos.newest(images)
    assert (result.shape, result.dtype) == ((2, 5, 4, 3), np.uint8)
    assert (result == expected).all()


@pytest.mark.parametrize(
    ("size", "factor"),
    [((84, 84), 4), ((5, 5), 64), ((210, 160), 2), ((10, 320), 1), ((400, 600), 1)],
)
def test_small_pictures_are_enlarged_by_a_whole_number(size, factor):
    image = np.random.default_rng(0).integers(256, size=(*size, 3), dtype=np.uint8)
    result = videos.enlarged(image)
    assert result.shape == (factor * size[0], factor * size[1], 3)
    assert max(result.shape) >= 320
    np.testing.assert_array_equal(result[::factor, ::factor], image)
    np.testing.assert_array_equal(result[factor - 1 :: factor, ::factor], image)


def test_window_needs_a_display(monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(
        videos.RenderError, match=r"^there is no display.*--outdir"
    ) as e:
        film.window(None)
    assert "\n" not in str(e.value)
