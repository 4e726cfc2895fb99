"""Formats of videos, text on frames, and grids."""

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


def test_grid_keeps_last_frames_and_leaves_other_cells_black(tmp_path):
    levels = [[50, 100, 150], [200], [80, 120]]
    films = [
        write(tmp_path, f"episode-{number}_return_0.0.mkv", row)
        for number, row in enumerate(levels)
    ]
    joined = videos.join(tmp_path, films, "mp4")
    assert joined == [{**entry, "file": "grid.mp4"} for entry in films]
    assert [path.name for path in tmp_path.iterdir()] == ["grid.mp4"]
    videos.require_whole(tmp_path, joined)
    fps, frames = read(tmp_path / "grid.mp4")
    assert fps == 25
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


def test_grid_may_be_a_gif(tmp_path):
    films = [
        write(tmp_path, f"episode-{level}_return_0.0.mkv", [level] * 3)
        for level in (37, 201)
    ]
    joined = videos.join(tmp_path, films, "gif")
    videos.require_whole(tmp_path, joined)
    with Image.open(tmp_path / "grid.gif") as image:
        assert (image.n_frames, image.size) == (3, (60, 20))
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


def test_incomplete_gif_is_removed(tmp_path):
    entry = write(tmp_path, "episode-0_return_0.0.gif", [50, 100, 150])
    with pytest.raises(files.WriteError, match="it got 3 of 6 frames"):
        videos.require_whole(tmp_path, [{**entry, "length": 5}])
    assert list(tmp_path.iterdir()) == []


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
    with pytest.raises(film.RenderError, match=r"^there is no display.*--outdir") as e:
        film.window(None)
    assert "\n" not in str(e.value)
