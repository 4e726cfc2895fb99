"""Robots of users: how they move, their fields, models and variation."""

import copy
import pathlib

import mujoco
import numpy as np
import pytest
import robots
from gymnasium.utils import seeding

from agents import testing
from agents.environments import Environment, make
from agents.environments.mujoco import fields, robot_env, simulations

ACTIONS = np.random.default_rng(0).uniform(-1, 1, (60, 3, 1)).astype(np.float32)


class Alone:
    """One row of a robot by MuJoCo's own functions."""

    def __init__(self, robot, seed):
        self._robot, self._random = robot, np.random.default_rng(seed)
        self.model = mujoco.MjModel.from_xml_string(robots.MODEL)
        self.data = mujoco.MjData(self.model)
        self._nominal = self.model.body_mass.copy(), self.model.body_inertia.copy()
        self._gear = self.model.actuator_gear.copy()

    def reset(self):
        random, model, data = self._random, self.model, self.data
        if self._robot.varied:
            pole = model.body("pole").id
            factor = random.uniform(0.5, 2)
            model.body_mass[pole] = self._nominal[0][pole] * factor
            model.body_inertia[pole] = self._nominal[1][pole] * factor
            model.geom("floor").friction[0] = random.uniform(0.1, 1)
            model.actuator_gear[0, 0] = self._gear[0, 0] + random.normal()
            mujoco.mj_setConst(model, data)
        mujoco.mj_resetData(model, data)
        data.joint("rail").qpos = random.uniform(-1, 1)
        data.joint("hinge").qpos = random.normal(0, 0.5)
        data.joint("free").qpos[2] = 0.3
        data.qvel += random.uniform(-0.5, 0.5, model.nv)
        mujoco.mj_forward(model, data)
        return self._observation()

    def step(self, action):
        before = self.data.site("tip").xpos[0]
        self.data.ctrl[:] = action
        mujoco.mj_step(self.model, self.data, nstep=2)
        speed = (self.data.site("tip").xpos[0] - before) / 0.02
        angle = self.data.joint("hinge").qpos[0]
        reward = np.cos(angle) - abs(speed) - action[0] ** 2
        return self._observation(), reward, abs(angle) > 1.2

    def _observation(self):
        place = self.data.sensor("place").data - self.data.body("ball").xpos
        return np.concatenate([self.data.qpos, self.data.qvel]), place


@pytest.mark.parametrize("cls", [robots.CartPole, robots.Varied])
def test_robots_move_as_by_plain_mujoco(create, cls):
    batch = create(cls())
    rows = [Alone(cls(), seed) for seed in (4, 5, 6)]

    def same(found, expected):
        state, place = (np.float32(x) for x in zip(*expected, strict=True))
        np.testing.assert_array_equal(found["state"], state)
        np.testing.assert_array_equal(found["place"], place)

    same(batch.reset(seeds=[4, 5, 6]), [row.reset() for row in rows])
    ends = 0
    for time, action in enumerate(ACTIONS):
        observation, reward, terminated, truncated, _ = batch.step(action)
        expected = [row.step(x) for row, x in zip(rows, action, strict=True)]
        same(observation, [x[0] for x in expected])
        np.testing.assert_array_equal(reward, np.float32([x[1] for x in expected]))
        assert terminated.tolist() == [x[2] for x in expected]
        done = np.flatnonzero(terminated | truncated)
        ends += len(done)
        if len(done):
            same(batch.reset(done), [rows[row].reset() for row in done])
        elif time == 20:
            same(batch.reset([2, 0]), [rows[row].reset() for row in (2, 0)])
    assert ends >= 3


def test_limits_truncate_and_are_replaced(create):
    for limit, length in ((None, 30), (4, 4)):
        batch = create(robots.CartPole(0.0), max_length=limit)
        batch.reset()
        flags = [batch.step(np.zeros((3, 1)))[3].tolist() for _ in range(length)]
        assert flags == [[False] * 3] * (length - 1) + [[True] * 3]


@pytest.mark.parametrize("backend_", ["mujoco", "workers", "serial"])
@pytest.mark.parametrize("cls", [robots.CartPole, robots.Switch, robots.Varied])
def test_robots_conform_on_every_backend(backend_, cls):
    if backend_ == "workers" and cls is not robots.Varied:
        return
    workers = None if backend_ == "serial" else 2
    environment = Environment(cls, backend_, 3, workers, kwargs={"scale": 0.3})
    testing.check_batch_env(
        lambda: make.batch(environment),
        reference=make.constructor(environment),
        steps=50,
    )


def test_halves_are_parts_of_the_whole():
    environment = Environment(robots.Varied, num_agents=4, num_workers=2)
    whole, parts = make.batch(environment), make.halves(environment)
    seeds = np.arange(4)
    expected = whole.reset(seeds=seeds)["state"]
    found = [x.reset(seeds=y)["state"] for x, y in zip(parts, (seeds[:2], seeds[2:]))]  # noqa: B905
    np.testing.assert_array_equal(np.concatenate(found), expected)
    for time in range(40):
        action = ACTIONS[time, :1].repeat(4, 0)
        whole.start(action, restart=True)
        for part in parts:
            part.start(action[:2], restart=True)
        numbers = [part.finish().numbers for part in reversed(parts)][::-1]
        np.testing.assert_array_equal(np.concatenate(numbers), whole.finish().numbers)
    for batch in (whole, *parts):
        batch.close()


def test_fields_have_the_names_of_mujoco(create):
    batch, row = create(robots.CartPole()), Alone(robots.CartPole(), 2)
    batch.reset(seeds=[1, 2, 3])
    row._random = seeding.np_random(2)[0]
    row.reset()
    batch.step(ACTIONS[0])
    row.step(ACTIONS[0, 1])
    data, row = batch[0], row.data
    for kind, name, quantities in (
        ("body", "pole", ("xpos", "xquat", "cvel", "subtree_com", "xfrc_applied")),
        ("geom", "rod", ("xpos", "xmat")),
        ("site", "tip", ("xpos",)),
        ("joint", "free", ("qpos", "qvel", "qacc", "qfrc_bias", "xanchor")),
        ("actuator", "push", ("force", "ctrl")),
    ):
        ours, theirs = getattr(data, kind)(name), getattr(row, kind)(name)
        for quantity in quantities:
            found, expected = getattr(ours, quantity), getattr(theirs, quantity)
            assert len(found) == 3
            np.testing.assert_array_equal(found[1], np.squeeze(expected))
    np.testing.assert_array_equal(data.joint("free").cdof[1], row.cdof[2:])
    assert data.joint("hinge").qpos.shape == data.actuator("push").force.shape == (3,)
    assert data.sensor("angle").shape == (3,)
    assert data.sensor("place").shape == (3, 3)
    assert data.joint(0).qvel.tolist() == data.qvel[:, 0].tolist()
    assert data.dt == 0.02
    assert len(data) == 3


def test_fields_that_are_read_late_change_nothing(create):
    """Whenever a field is read first, episodes with the same seeds are the same."""

    class Rarely(robots.Calm):
        frame_skip = 5

        def observation(self, data):
            late = data.time[0] > 0.5
            height = data.geom("rod").xpos[:, 2] if late else np.zeros(len(data))
            return np.concatenate([data.body("ball").xpos, height[:, None]], 1)

    batch, episodes = create(Rarely()), []
    for _ in range(2):
        batch.reset(seeds=[1, 2, 3])
        for action in ACTIONS[:4]:
            batch.step(action)
        batch.reset([1])  # A row that was not stepped.
        episodes.append([batch.step(action)[:2] for action in ACTIONS[4:20]])
    heights = [observation[:, 3].any() for (observation, _) in episodes[0]]
    assert heights == sorted(heights)
    assert not heights[0]
    assert heights[-1]
    for one, two in zip(*episodes, strict=True):
        np.testing.assert_array_equal(one[0], two[0])
        np.testing.assert_array_equal(one[1], two[1])


def test_mocap_bodies_and_constraints_are_those_that_are_written(create):
    class Held(robots.CartPole):
        model = robots.MODEL.replace(
            "</worldbody>",
            '<body name="a" mocap="true"/><body name="b" mocap="true"/></worldbody>'
            '<equality><weld body1="ball" body2="cart"/></equality>',
        )

        def initial(self, data, random):
            super().initial(data, random)
            assert data.eq_active.all()
            data.eq_active = False
            data.body("b").mocap_pos = [1.0, 2.0, 3.0]

        def observation(self, data):
            held = data.eq_active[:, :1].astype(np.float32)
            return np.concatenate([held, data.body("b").mocap_pos], 1)

    batch = create(Held())
    for _ in range(3):
        expected = [[0.0, 1.0, 2.0, 3.0]] * 3
        assert batch.reset().tolist() == expected
        assert batch.step(ACTIONS[0])[0].tolist() == expected


def test_single_robots_seed_their_wrappers():
    env = robot_env.RobotEnv(robots.CartPole())
    numbers = []
    for _ in range(2):
        env.reset(seed=3)
        numbers.append(env.np_random.uniform())
    env.close()
    assert numbers[0] == numbers[1]


def test_models_are_files_next_to_the_class_or_specs(create, tmp_path):
    path = tmp_path / "model.xml"
    path.write_text(robots.MODEL)
    spec = mujoco.MjSpec.from_string(robots.MODEL)
    for model in (str(path), pathlib.Path(path), spec, spec):
        cls = type("Mine", (robots.CartPole,), {"model": model})
        assert create(cls()).reset()["state"].shape == (3, 17)
    path.write_text("<mujoco>\n<nonsense/></mujoco>")
    with pytest.raises(simulations.ModelError, match=r"model.xml, does not.*line 2"):
        create(type("Mine", (robots.CartPole,), {"model": str(path)})())


def test_relative_files_are_next_to_the_class_that_names_them(create, tmp_path):
    folder = pathlib.Path(robots.__file__).parent

    class Near(robots.CartPole):
        model = "near.xml"

    class Heir(Near):
        pass

    Heir.__module__, Near.__module__ = __name__, "robots"
    for cls in (Near, Heir):
        with pytest.raises(simulations.ModelError, match=str(folder / "near.xml")):
            create(cls())


def test_gravity_varies(create):
    class Light(robots.CartPole):
        varied = ("gravity",)

        def vary(self, model, random):
            model.gravity *= random.uniform(0, 1, 1)

    batch = create(Light(0.0))
    batch.reset(seeds=[1, 2, 3])
    batch.step(np.zeros((3, 1)))
    shares = batch.simulations.varied["gravity"][:, 2] / -9.81
    assert len(set(shares)) == 3
    speed = batch[0].joint("free").qvel[:, 2]
    np.testing.assert_allclose(speed, -9.81 * 0.02 * shares)


def test_pictures_show_what_varies(create):
    class Colored(robots.CartPole):
        varied = ("geom_rgba", "gravity")

        def vary(self, model, random):
            model.geom_rgba *= random.uniform(0, 1, 1)[..., None]
            model.gravity *= random.uniform(0, 1, 1)

    batch = create(Colored(0.0))
    batch.reset(seeds=[1, 2, 3])
    simulated, shown = batch.simulations, copy.copy(batch.simulations.model)
    for row in (0, 2, 1):
        simulated.copy(row, shown)
        color, gravity = (simulated.varied[x][row] for x in Colored.varied)
        np.testing.assert_array_equal(shown.geom_rgba, color)
        np.testing.assert_array_equal(shown.opt.gravity, gravity)
    assert (shown.geom_rgba != simulated.model.geom_rgba).any()
    assert simulated.model.opt.gravity[2] == -9.81


@pytest.mark.parametrize("wrong", [0, -1, 2.5, None])
def test_steps_take_time(create, wrong):
    class Still(robots.CartPole):
        frame_skip = wrong

    with pytest.raises(
        simulations.ModelError, match="Still must be a positive integer"
    ):
        create(Still(0.0))


def test_forces_are_those_of_the_last_time_step(create):
    class Touching(robots.CartPole):
        forces = True

        def observation(self, data):
            return np.stack([data.cfrc_ext, data.cacc, data.cfrc_int], 1)

    batch = create(Touching(0.0))
    assert not batch.reset(seeds=[0, 1, 2]).any()
    row = Alone(robots.CartPole(0.0), 1)
    row._random = np.random.default_rng(1)
    row.reset()
    row.data.qvel[:] = 0
    row.data.qpos[1] = 0
    mujoco.mj_forward(row.model, row.data)
    for _ in range(20):
        found = batch.step(np.ones((3, 1)))[0]
        row.data.ctrl[:] = 1
        mujoco.mj_step(row.model, row.data, nstep=2)
        mujoco.mj_rnePostConstraint(row.model, row.data)
        parts = row.data.cfrc_ext, row.data.cacc, row.data.cfrc_int
        np.testing.assert_array_equal(found[1], np.float32(parts))
    assert found[1, 0].any()
    before = batch[0].cfrc_ext.copy()
    batch.reset([0])
    np.testing.assert_array_equal(batch[0].cfrc_ext[1:], before[1:])
    assert not batch[0].cfrc_ext[0].any()


def test_sensors_make_forces_known_at_the_beginning(create):
    class Sensing(robots.CartPole):
        model = robots.MODEL.replace(
            "<sensor>", '<sensor><accelerometer name="pull" site="tip"/>'
        )

        def observation(self, data):
            return data.cacc[:, 0]

    expected = [0, 0, 0, 0, 0, np.float32(9.81)]  # The world opposes gravity.
    assert create(Sensing(0.0)).reset().tolist() == [expected] * 3


def test_rows_vary_by_their_seeds_alone(create):
    def masses(batch, seeds):
        batch.reset(seeds=seeds)
        return batch.simulations.varied["body_mass"][:, 2].copy()

    few, many = create(robots.Varied(), 3), create(robots.Varied(), 5)
    first = masses(few, [7, 8, 9])
    assert len(set(first)) == 3
    assert masses(many, [1, 9, 8, 7, 2])[1:4].tolist() == first[::-1].tolist()
    few.reset([1])
    after = few.simulations.varied["body_mass"][:, 2]
    assert (after == first).tolist() == [True, False, True]
    assert masses(few, [7, 8, 9]).tolist() == first.tolist()


def test_single_environments_render(headless):
    env = make.constructor(Environment(robots.CartPole, kwargs={"scale": 1.0}))()
    assert env.metadata == {"render_modes": ["rgb_array"], "render_fps": 50}
    assert env.render() is None
    observation, info = env.reset(seed=3)
    assert env.observation_space.contains(observation)
    assert info == {}
    env.close()


def test_constants_that_derive_from_what_varies_are_updated(create):
    class Heavy(robots.CartPole):
        varied = ("body_mass",)

        def vary(self, model, random):
            model.body("ball").mass *= random.uniform(2, 3)

    batch = create(Heavy(0.0))
    batch.reset(seeds=[1, 2, 3])
    ball = batch[0].body("ball")  # Its center is a sum divided by its mass.
    np.testing.assert_allclose(ball.subtree_com, ball.xpos)
    shown = batch.simulations.copy(1, copy.copy(batch.simulations.model))
    np.testing.assert_allclose(shown.body("ball").subtree_com, shown.body("ball").xpos)


def test_joints_and_tendons_have_their_own_columns():
    model = mujoco.MjModel.from_xml_string(
        """<mujoco><worldbody>
          <body><freejoint name="free"/><geom size="1"/></body>
          <body><joint name="ball" type="ball"/><geom size="1"/>
            <body><joint name="hinge"/><geom size="1"/></body></body>
        </worldbody><tendon><fixed name="rope"><joint joint="hinge" coef="1"/></fixed>
        </tendon></mujoco>"""
    )
    loaded = []

    def load(name):
        loaded.append(name)
        return np.arange(12)[None]

    data = fields.Fields(model, 0.01, 1, load)
    joints = [data.joint(x) for x in ("free", "ball", "hinge")]
    qpos, qvel = ([getattr(x, y)[0].tolist() for x in joints] for y in ("qpos", "qvel"))
    assert qpos == [[*range(7)], [*range(7, 11)], 11]
    assert qvel == [[*range(6)], [*range(6, 9)], 9]
    assert data.tendon("rope").length == data.tendon("rope").stiffness == [0]
    assert loaded == ["qpos", "qvel", "ten_length", "tendon_stiffness"]


def test_rows_without_seeds_differ(create):
    place = create(robots.CartPole()).reset()["state"][:, 0]
    again = create(robots.CartPole()).reset()["state"][:, 0]
    assert len({*place, *again}) == 6


def test_fields_that_are_first_read_at_a_beginning_are_those_of_its_state(create):
    class Late(robots.Calm):
        late = False

        def observation(self, data):
            height = data.geom("rod").xpos[:, 2] if self.late else np.zeros(len(data))
            return np.concatenate([data.qpos, height[:, None]], 1)

    found = []
    for late in (True, False):
        robot = Late()
        robot.late = late
        batch = create(robot)
        batch.reset(seeds=[1, 2, 3])
        for action in ACTIONS[:4]:
            batch.step(action)
        robot.late = True
        found.append([batch.reset([1]), *(batch.step(x)[0] for x in ACTIONS[4:20])])
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)


def test_warnings_have_the_numbers_of_mujoco():
    kinds = mujoco.mjtWarning
    assert kinds.mjWARN_BADQPOS == simulations._UNSTABLE
    assert simulations._BAD_CONTROL == kinds.mjWARN_BADCTRL == kinds.mjNWARNING - 1
