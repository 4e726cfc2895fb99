"""Equality of MuJoCo's joint types and NumPy's integers."""

import mujoco
import numpy as np

from agents.environments.mujoco import enums


def test_joint_types_equal_the_same_numbers_on_both_sides():
    slide, hinge = mujoco.mjtJoint.mjJNT_SLIDE, mujoco.mjtJoint.mjJNT_HINGE
    number, key = slide.value, hash(slide)
    for _ in range(2):
        enums.repair()
        for kind in (int, np.int32, np.int64, np.uint8):
            same, other = kind(number), kind(hinge.value)
            assert slide == same
            assert same == slide
            assert slide != other
            assert (slide != same) is False
            assert same in (hinge, slide)
            assert same not in (hinge,)
        assert slide == slide
        assert slide != hinge
        assert slide not in (None, "slide", 2.5)
        assert hash(slide) == key
