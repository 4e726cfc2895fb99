"""Videos, frame by frame."""

import re
import subprocess

import imageio_ffmpeg
import numpy as np


def read(path):
    """Frames per second of a video, and frames uint8 `[T, height, width, 3]`."""
    ffmpeg = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", path, "-f", "rawvideo"]
    result = subprocess.run(
        [*ffmpeg, "-pix_fmt", "rgb24", "-"], capture_output=True, check=True
    )
    pattern = r"Video: h264.*, (\d+)x(\d+).*, ([\d.]+) fps"
    width, height, fps = re.search(pattern, result.stderr.decode()).groups()
    frames = np.frombuffer(result.stdout, np.uint8)
    return float(fps), frames.reshape(-1, int(height), int(width), 3)
