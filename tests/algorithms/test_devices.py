"""Several devices divide the work and give the same results."""

import pathlib
import subprocess
import sys

import pytest


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "speed", ["not slow", pytest.param("slow", marks=pytest.mark.slow)]
)
def test_on_two_devices(speed):
    """TensorFlow must know of its devices before it starts."""
    tests = pathlib.Path(__file__).with_name("on_two_devices.py")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", speed, str(tests)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-5000:]
    assert " passed" in result.stdout
