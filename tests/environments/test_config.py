"""Settings of environments."""

import pytest

from agents.environments import Environment
from agents.environments.config import BACKENDS
from agents.tools import config, sections


@pytest.mark.parametrize(
    ("field", "value", "used"),
    [
        ("num_workers", 2, {"auto", "workers", "envpool", "mujoco"}),
        ("action_lag", True, {*BACKENDS} - {"compiled"}),
        ("timeout", 9.0, {*BACKENDS}),  # Films are made by processes, whatever it is.
        ("kwargs", {"a": 1}, {*BACKENDS}),
    ],
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_what_a_backend_has_no_use_for_is_refused(backend, field, value, used):
    values = {"id": "CartPole-v1", "backend": backend, field: value}
    if backend in used:
        assert getattr(Environment(**values), field) == value
        return
    with pytest.raises(config.ConfigError) as caught:
        sections.build(Environment, values, "environment")
    assert str(caught.value) == (
        f"config key 'environment.{field}' is {value!r} but has no effect with backend "
        f"{backend}; leave it out, or at None."
    )


def test_limits_of_ids_have_one_name():
    values = {"id": "CartPole-v1", "kwargs": {"max_episode_steps": 50}}
    with pytest.raises(config.ConfigError, match=r"'environment.max_length' sets"):
        Environment(**values)
    Environment(
        **{**values, "id": "mine:function"}
    )  # It may mean something else there.
