"""Warnings of MuJoCo, which concern every simulation of this process."""

import re
import sys


def print_once():
    """Print one warning of MuJoCo of each kind, without those about its own models.

    By default MuJoCo repeats them for every environment, and writes them to a file.
    """
    import mujoco

    if mujoco.get_mju_user_warning() is not None:
        return
    seen = set()

    def warn(text: str):
        kind = re.sub(r"\d", "", text)  # Numbers are those of time and joint.
        if kind not in seen and "is deprecated" not in text:
            print(f"MuJoCo warning: {text}", file=sys.stderr)
        seen.add(kind)

    mujoco.set_mju_user_warning(warn)
