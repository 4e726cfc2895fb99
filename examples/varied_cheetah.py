"""Gymnasium's HalfCheetah with a body and a floor that vary from episode to episode.

    agents train --config examples/varied_cheetah.yaml

Masses change by up to half, and friction by up to three quarters, so the learned policy
does not depend on their exact values. The seeds of the rows determine the values.
"""

from agents.environments.mujoco import walkers


class VariedCheetah(walkers.HalfCheetah):
    """HalfCheetah-v5 with masses and friction drawn for every episode."""

    varied = ("body_mass", "body_inertia", "geom_friction")

    def vary(self, model, random):
        mass = random.uniform(0.5, 1.5, (model.model.nbody, 1))
        model.body_mass *= mass[..., 0]
        model.body_inertia *= mass
        model.geom_friction *= random.uniform(0.25, 1.75, (1, 1))
