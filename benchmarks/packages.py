"""Environments of other packages, each trained for 2,000 steps as a user would do it.

    python benchmarks/packages.py [--venv DIR] [--ids ID ...]

Installs this package and the others into a new virtual environment, or into that of DIR,
one after the other, and trains an agent in each environment by `agents train`, in a
process of its own. The config is its id, the type of an algorithm, and at most one
option; what is said without the option is told, too. Writes `docs/environments.md`,
unless only some ids are chosen.
"""

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence

ROOT = pathlib.Path(__file__).parents[1]
PAGE = ROOT / "docs/environments.md"
STEPS = 2_000
TIMEOUT = 900.0
ALGORITHM = "algorithm.type=a2c"


@dataclasses.dataclass(frozen=True)
class Case:
    """An environment, the packages that it needs, and an option if it needs one."""

    id: str
    packages: tuple[str, ...] = ()
    option: str = ""


CASES = (
    Case(
        "MiniGrid-Empty-5x5-v0",
        ("minigrid",),
        "environment.wrappers=[{type: gymnasium.wrappers:FilterObservation, "
        "filter_keys: [direction, image]}]",
    ),
    Case("highway-v0", ("highway-env",)),
    Case("FetchReach-v4", ("gymnasium-robotics",)),
    Case("dm_control/cartpole-swingup-v0", ("shimmy[dm-control]",)),
    Case("PandaReach-v3", ("panda-gym",)),
    Case("gym_pusht/PushT-v0", ("gym-pusht",)),
    Case("FlappyBird-v0", ("flappy-bird-gymnasium",)),
    Case("CarRacing-v3", ("gymnasium[box2d]",)),
    Case("Blackjack-v1"),
    Case("Taxi-v4"),
    Case("bsuite/catch-v0", ("shimmy[bsuite]",)),
    Case(
        "GymV26Environment-v0",
        ("shimmy[gym-v26]",),
        "environment.kwargs={env_id: CartPole-v1}",
    ),
    Case("gym:make", ("gym",), "environment.kwargs={id: CartPole-v1}"),
    Case("old:Corridor"),
    Case("CartPole-v1", (), "environment.backend=vector"),
)

OLD = '''
import gymnasium as gym
import numpy as np


class Corridor:
    """Environment with the old interface: four values from step, one from reset."""

    observation_space = gym.spaces.Box(0.0, 9.0, (1,))
    action_space = gym.spaces.Discrete(2)

    def seed(self, seed=None):
        pass

    def reset(self):
        self.place, self.time = 0, 0
        return np.float32([self.place])

    def step(self, action):
        self.place = max(0, self.place + 2 * action - 1)
        self.time += 1
        done = self.place == 9 or self.time == 50
        return np.float32([self.place]), float(self.place == 9), done, {}
'''


def main(argv: Sequence[str] | None = None) -> int:
    """Install and train everything; print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--venv", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--ids", nargs="+", choices=[case.id for case in CASES])
    args = parser.parse_args(argv)
    lines, works = [], []
    with tempfile.TemporaryDirectory() as folder:
        place = Place(pathlib.Path(folder), args.venv or pathlib.Path(folder, "venv"))
        place.create()
        for case in CASES:
            if args.ids is None or case.id in args.ids:
                worked, line = row(place, case)
                print(line, flush=True)
                lines.append(line)
                works.append(worked)
        if args.ids is None:
            PAGE.write_text(page(place, lines))
    return 0 if all(works) else 1


def row(place: "Place", case: Case) -> tuple[bool, str]:
    """Return whether an environment works, and its line of the table."""
    failure = place.install(case.packages)
    versions = place.versions(case.packages) if not failure else "none"
    said = failure or place.train(case, ())
    result, works = said and f"refused: `{said}`", not said
    if said and case.option and not failure:
        again = place.train(case, (case.option,))
        works = not again
        result = f"refused: `{again}`" if again else f"works; without it: `{said}`"
    option = f"`{case.option}`" if case.option else ""
    if works and not said:
        result, option = "works", option and f"{option}, not needed"
    return works, f"| `{case.id}` | {versions} | {option} | {result} |"


@dataclasses.dataclass(frozen=True)
class Place:
    """A virtual environment, and a directory to train in."""

    folder: pathlib.Path
    venv: pathlib.Path

    def create(self) -> None:
        """Make the virtual environment unless it is there, and install this package."""
        if not self.venv.exists():
            venv.create(self.venv, with_pip=True)
        if failure := self.install([str(ROOT)]):
            raise RuntimeError(failure)
        (self.folder / "old.py").write_text(OLD)

    def install(self, packages: Sequence[str]) -> str:
        """Install packages beside this one, whose bounds hold; return what fails."""
        own = [] if str(ROOT) in packages else [f"agents=={self.version('agents')}"]
        if not packages:
            return ""
        command = [self.program("python"), "-m", "pip", "install", "--quiet", *own]
        result = self.run([*command, *packages])
        errors = [x for x in result.stderr.splitlines() if x.startswith("ERROR: ")]
        return (errors or ["pip failed"])[-1] if result.returncode else ""

    def train(self, case: Case, options: Sequence[str]) -> str:
        """Train in an environment; return the line that says why not, if it fails."""
        logdir = tempfile.mkdtemp(dir=self.folder)
        (self.folder / "mine.yaml").write_text(f'environment: {{id: "{case.id}"}}\n')
        short = f"train.steps={STEPS}", "train.eval_episodes=1"
        command = [self.program("agents"), "train", "--config", "mine.yaml", "--quiet"]
        command += ["--logdir", logdir, "--timestamp", "1"]
        command += [f"--set={x}" for x in (ALGORITHM, *options, *short)]
        try:
            result = self.run(command)
        except subprocess.TimeoutExpired:
            return f"not done after {TIMEOUT:.0f} s"
        if result.returncode:
            lines = [x for x in result.stderr.splitlines() if x.strip()]
            said = [x for x in lines if x.startswith("error: ")] or lines[-1:]
            return (said or [f"exit code {result.returncode}"])[0]
        reports = (pathlib.Path(logdir) / "1-mine/metrics.jsonl").read_text()
        rows = [json.loads(x) for x in reports.splitlines()]
        (trained,) = (x for x in rows if x["phase"] == "train")
        learned = trained["step"] >= STEPS and trained.get("policy_loss") is not None
        return "" if learned else f"trained only {trained}"

    def versions(self, packages: Sequence[str]) -> str:
        """Return names and versions of packages, and what their extras brought."""
        names = [re.sub(r"\[.*", "", x) for x in packages] or ["gymnasium"]
        extras = [x for x in packages for x in re.findall(r"\[(.*)\]", x)]
        names += [EXTRAS[x] for x in extras]
        return ", ".join(f"{x} {self.version(x)}" for x in names)

    def version(self, package: str) -> str:
        """Return the installed version of a package."""
        code = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"
        return self.run([self.program("python"), "-c", code, package]).stdout.strip()

    def run(self, command: Sequence[str]) -> subprocess.CompletedProcess:
        """Run a program in the directory, without the variables of this process."""
        environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        return subprocess.run(
            command,
            cwd=self.folder,
            env=environ,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )

    def program(self, name: str) -> str:
        """Return the path of a program of the virtual environment."""
        return str(self.venv.absolute() / "bin" / name)


EXTRAS = {
    "bsuite": "bsuite",
    "box2d": "box2d",
    "dm-control": "dm-control",
    "gym-v26": "gym",
}
"""Packages that extras of others install."""


def page(place: Place, lines: Sequence[str]) -> str:
    """Return the page with the table."""
    python = ".".join(map(str, sys.version_info[:3]))
    found = [f"Python {python}", *map(place.versions, [["agents"], ["gymnasium"]])]
    found += [place.versions(["numpy", "mujoco", "tensorflow"])]
    table = "\n".join(lines)
    return f"""# Environments of other packages

Made by `python benchmarks/packages.py` on {datetime.date.today()}, with
{", ".join(found)}. Each environment was trained in for {STEPS:,}
steps by `agents train --config mine.yaml`, where the file says `environment.id`,
`{ALGORITHM}` and the option of the row.

| id | packages | option | result |
| --- | --- | --- | --- |
{table}
"""


if __name__ == "__main__":
    sys.exit(main())
