"""Mistakes in robots of users, and what is said of them."""

import functools

import gymnasium
import numpy as np
import pytest
import robots

from agents.environments import Environment, config, make
from agents.environments.mujoco import fields, functions, simulations
from agents.tools import batch_env, errors, processes

ACTIONS = np.random.default_rng(0).uniform(-1, 1, (60, 3, 1)).astype(np.float32)


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (lambda data: data.qpoz, "no field of MjData 'qpoz'; did you mean 'qpos'"),
        (lambda data: data.joint("hing"), "no joint 'hing'; did you mean 'hinge'"),
        (
            lambda data: data.body("x"),
            "no body 'x'; choose from ball, cart, pole, world",
        ),
        (lambda data: data.body("pole").mess, "no field of MjData 'body_mess'"),
        (lambda data: data.body("pole").qpos, "no field of MjData 'body_qpos'"),
        (lambda data: data.body("pole").mocap_pos, "no mocap_pos, as it is no mocap"),
        (lambda data: data.joint("hinge").xpos, "no field of MjData 'jnt_xpos'"),
        (lambda data: data.joint("free").ctrl, "no field of MjData 'jnt_ctrl'"),
        (lambda data: data.ncon, "Batches have no field ncon of MjData"),
        (lambda data: setattr(data, "qpos", 0), "qpos .* cannot be set.*read-only"),
    ],
)
def test_wrong_fields_are_mistakes(create, use, text):
    class Wrong(robots.CartPole):
        def observation(self, data):
            return use(data)

    with pytest.raises(fields.FieldError, match=text):
        create(Wrong())


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (lambda data: data.xpos, "no field of the state 'xpos'"),
        (lambda data: setattr(data, "qpos", np.ones(3)), r"qpos \[2, 9\].*array \[3\]"),
        (
            lambda data: setattr(data.joint("rail"), "qpos", np.ones((2, 1, 3))),
            r"qpos \[2\] cannot be set to an array \[2, 1, 3\]",
        ),
    ],
)
def test_wrong_beginnings_are_mistakes(create, use, text):
    class Wrong(robots.CartPole):
        def initial(self, data, random):
            use(data)

    with pytest.raises(fields.FieldError, match=text):
        create(Wrong(), 2)


@pytest.mark.parametrize(
    ("name", "result", "text"),
    [
        ("reward", lambda data: 0.0, r"float 0.0; expected numbers \[3\]"),
        ("reward", lambda data: data.qpos[:, :1], r"float64 \[3, 1\]; .*numbers \[3\]"),
        (
            "terminal",
            lambda data: data.qpos[:, 0],
            r"float64 \[3\]; expected bool \[3\]",
        ),
        ("observation", lambda data: data.qpos[0, 0], r"float64 .*expected floats \[N"),
        ("observation", lambda data: abs(data.qpos) > 1, "bool .*an observation_space"),
        (
            "control",
            lambda data: np.ones(3),
            r"float64 \[3\]; expected numbers \[3, 1\]",
        ),
    ],
)
def test_wrong_results_are_named(create, name, result, text):
    class Wrong(robots.CartPole):
        pass

    setattr(Wrong, name, lambda self, *args: result(create.data))
    create.data = create(robots.CartPole())[0]
    with pytest.raises(functions.ResultError, match=f"Wrong.{name} gives {text}") as e:
        create(Wrong())
    assert "\n" not in str(e.value)


def test_observations_must_keep_their_shape_and_fit_their_space(create):
    class Shrinking(robots.CartPole):
        def observation(self, data):
            return data.qpos[:, : 2 if data.time[0] > 0.05 else 3]

    batch = create(Shrinking(0.0))
    batch.reset()
    batch.step(ACTIONS[0])
    batch.step(ACTIONS[0])
    with pytest.raises(batch_env.EnvDataError, match=r"\[3, 2\].*float32 \[3, 3\]"):
        batch.step(ACTIONS[0])

    class Narrow(robots.CartPole):
        observation_space = gymnasium.spaces.Box(-1, 1, (2,))

    with pytest.raises(functions.ResultError, match=r"dict with keys.*float32 \[3, 2"):
        create(Narrow())


def test_observations_must_have_the_parts_of_their_space(create):
    class Renamed(robots.CartPole):
        box = gymnasium.spaces.Box(-np.inf, np.inf, (3,))
        observation_space = gymnasium.spaces.Dict(a_speed=box, b_place=box)

        def observation(self, data):
            ball = data.joint("free")
            return {"place": ball.qpos[:, :3], "speed": ball.qvel[:, :3]}

    with pytest.raises(
        functions.ResultError, match=r"\['place', 'speed'\]; expected .*"
    ):
        create(Renamed())


def test_exceptions_show_their_traceback(create):
    class Wrong(robots.CartPole):
        def reward(self, before, action, data):
            return 1 / 0

    with pytest.raises(processes.EnvError, match="Wrong raised ZeroDivisionError") as e:
        create(Wrong())
    assert "return 1 / 0" in str(e.value)
    with pytest.raises(errors.Mistake, match=r"Cannot construct .*ZeroDivision"):
        make.describe(Environment(Wrong))


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("<mujoco><worldbody><geom sise='1'/></worldbody></mujoco>", "sise.*line 1"),
        ("missing.xml", "missing.xml, does not load: .*missing.xml"),
        (3, "must be a file, XML or a mujoco.MjSpec, got int"),
    ],
)
def test_models_that_do_not_load_say_why(create, model, text):
    cls = type("Wrong", (robots.CartPole,), {"model": model})
    with pytest.raises(simulations.ModelError, match=f"model of Wrong.*{text}") as e:
        create(cls())
    assert "\n" not in str(e.value)


def test_actuators_need_a_range_or_a_space(create):
    free = robots.MODEL.replace('ctrlrange="-1 1"', "")
    with pytest.raises(functions.ResultError, match="actuator 0 without ctrlrange"):
        create(type("Free", (robots.CartPole,), {"model": free})())


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (1e9, "row 7: unstable .* step 2 of"),
        (1e30, "row 7: controls at step 2 of its episode are not finite or huge"),
    ],
)
def test_unstable_physics_name_row_and_step(create, action, text):
    class Wild(robots.CartPole):
        action_space = gymnasium.spaces.Box(-1e30, 1e30, (1,))
        model = robots.MODEL.replace('gear="5" ctrlrange="-1 1"', 'gear="500"')

    batch = create(Wild(0.0), 3, first_row=6)
    batch.reset()
    batch.step(np.zeros((3, 1)))
    with pytest.raises(batch_env.EnvDataError, match=text):
        batch.step([[0.0], [action], [0.0]])


def test_values_that_are_not_finite_name_the_row(create):
    class Infinite(robots.CartPole):
        def reward(self, before, action, data):
            return np.where(data.time > 0.03, np.arange(3) / 0.5 - 2, 1) ** -1.0

    batch = create(Infinite(0.0))
    batch.reset()
    batch.step(ACTIONS[0])
    with (
        np.errstate(divide="ignore"),
        pytest.raises(batch_env.EnvDataError, match="row 1: reward inf is not finite"),
    ):
        batch.step(ACTIONS[0])


def test_what_varies_must_be_declared(create):
    class Wrong(robots.Varied):
        varied = ("body_mass",)

    with pytest.raises(fields.FieldError, match="varied, 'body_inertia'"):
        create(Wrong())

    class Unknown(robots.Varied):
        varied = ("body_mas",)

    with pytest.raises(fields.FieldError, match="no field of MjModel 'body_mas'; did"):
        create(Unknown())

    class Faster(robots.Varied):
        varied = ("timestep",)

    with pytest.raises(fields.FieldError, match=r"timestep cannot vary.*data\.dt"):
        create(Faster())


def test_functions_that_are_no_robots_are_refused():
    with pytest.raises(config.BackendError, match="is not a robot.*Ant-v5.*workers"):
        make.batch(Environment("CartPole-v1", "mujoco", 2))
    with pytest.raises(config.BackendError, match="cannot move.*action_mask"):
        make.batch(Environment("Ant-v5", "mujoco", 2, action_mask=True))
    with pytest.raises(config.BackendError, match="is a robot; use backend mujoco"):
        make.batch(Environment(robots.CartPole, "vector", 2))
    make_robot = functools.partial(make.describe, Environment(robots.CartPole))
    assert make_robot().max_length == 30
    assert make_robot().action_space == gymnasium.spaces.Box(-1, 1, (1,))


def test_errors_of_mujoco_name_the_simulation(create):
    class Small(robots.CartPole):
        model = robots.MODEL.replace("<option", "<size memory='12K'/><option")

    batch = create(Small(0.0))
    batch.reset()

    def run():
        for _ in range(20):
            batch.step(np.zeros((3, 1)))

    with pytest.raises(processes.EnvError, match="RuntimeError: sim .: mj_stackAlloc"):
        run()


def test_episodes_after_unstable_physics_go_on(create):
    class Wild(robots.CartPole):
        action_space = gymnasium.spaces.Box(-1e30, 1e30, (1,))
        model = robots.MODEL.replace('gear="5" ctrlrange="-1 1"', 'gear="500"')

    batch = create(Wild(0.0))
    batch.reset()
    with pytest.raises(batch_env.EnvDataError, match="row 1: unstable"):
        batch.step([[0.0], [1e9], [0.0]])
    batch.reset()
    batch.step(np.zeros((3, 1)))
