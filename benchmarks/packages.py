"""Environments of other packages, each trained for 2,000 steps as a user would do it.

    python benchmarks/packages.py [--venvs DIR] [--ids ID ...]

Makes a virtual environment with this package, and on top of it one for each environment
with the packages that it needs; in a temporary directory, or in DIR, where they stay.
Then trains an agent by `agents train` in a process of its own. The config has the id,
the type of an algorithm, and at most one option; errors without it are reported, too.
Writes `docs/results/environments_of_others.json` after each of them, and the page
`docs/environments_of_others.md` from it; chosen ids replace only their rows.
"""

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import sysconfig
import tempfile
import textwrap
import venv
from collections.abc import Sequence

ROOT = pathlib.Path(__file__).parents[1]
PAGE = ROOT / "docs/environments_of_others.md"
RESULTS = ROOT / "docs/results/environments_of_others.json"
DISTRIBUTION = "agents-in-graph"
STEPS = 2_000
TIMEOUT = 3600.0  # Seconds; highway-v0 makes six steps per second.
WIDTH = 90
"""Characters in a line of the page."""
ALGORITHM = "algorithm.type=a2c"


@dataclasses.dataclass(frozen=True)
class Case:
    """An environment, the packages that it needs, and an option if it needs one.

    Attributes:
      option: Option that is added only if training fails without it.
      backend: Backend in the config.
    """

    id: str
    packages: tuple[str, ...] = ()
    option: str = ""
    backend: str = "auto"


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
    Case("CartPole-v1", backend="vector"),  # By `gymnasium.make_vec`.
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
    parser.add_argument("--venvs", type=pathlib.Path, metavar="DIR")
    cases = {case.id: case for case in CASES}
    parser.add_argument("--ids", nargs="+", choices=cases, default=list(cases))
    args = parser.parse_args(argv)
    chosen = [cases[id] for id in args.ids]
    with tempfile.TemporaryDirectory() as folder:
        venvs = (args.venvs or pathlib.Path(folder)).absolute()
        base = Venv(venvs / "base")
        if failure := base.install(str(ROOT)):
            raise RuntimeError(failure)
        results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        results |= {"date": str(datetime.date.today()), "versions": base.versions()}
        rows = results.setdefault("rows", {})
        for case in chosen:
            rows[case.id] = outcome(case, base)
            print(line(case, rows[case.id]), flush=True)
            RESULTS.write_text(json.dumps(results, indent=2) + "\n")
            PAGE.write_text(page(results))
    return 0 if all(rows[x.id]["works"] for x in chosen) else 1


def outcome(case: Case, base: "Venv") -> dict:
    """Install and train; return versions, errors, and the option if it is necessary."""
    place, found = base, {"packages": {}, "option": "", "said": ""}
    found |= {"works": False, "missing": False}
    if case.packages:
        name = re.sub(r"\W+", "-", case.id)
        place = Venv(base.folder.with_name(name), base)
        own = f"{DISTRIBUTION}=={base.version(DISTRIBUTION)}"
        if failure := place.install(own, *case.packages):
            return found | {"said": failure, "missing": True}
        found["packages"] = {x: place.version(x) for x in names(case.packages)}
    found["said"] = train(place, case)
    if found["said"] and case.option:
        found["option"] = case.option
        if again := train(place, case, case.option):
            return found | {"said": again}
    return found | {"works": not found["said"] or bool(found["option"])}


def line(case: Case, found: dict | None) -> str:
    """Return the line of the table about an environment."""
    id = f"`{case.id}`"
    if case.backend != "auto":
        id += f", `backend: {case.backend}`"
    if not found:
        return f"| {id} | | not run |"
    packages = ", ".join(f"{k} {v}" for k, v in found["packages"].items())
    if found["works"]:
        result = "works, with an option" if found["option"] else "works"
    else:
        result = "is not installed" if found["missing"] else "is refused"
    return f"| {id} | {packages} | {result} |"


def note(case: Case, found: dict | None) -> str:
    """Return what the page says below the table about an environment, if anything."""
    if not found or not found["said"]:
        return ""
    said = quote(found["said"].removeprefix("error: "))
    if found["missing"]:
        return f"`{case.id}` could not be installed here:\n\n{said}\n"
    if not found["works"]:
        return f"`{case.id}` is refused:\n\n{said}\n"
    option = f"--set '{found['option']}'"
    return (
        f"`{case.id}` needs this option:\n\n```\n{option}\n```\n\n"
        f"Without it, the command prints:\n\n{said}\n"
    )


def quote(text: str) -> str:
    """Return a block of the page that quotes an error."""
    return f"```text\n{textwrap.fill(text, WIDTH, break_on_hyphens=False)}\n```"


def names(packages: Sequence[str]) -> list[str]:
    """Return the names of packages, and of those that their extras install."""
    found = [re.fullmatch(r"([\w-]+)(?:\[(.*)\])?", x).groups() for x in packages]
    return [x for name, extra in found for x in (name, EXTRAS.get(extra)) if x]


EXTRAS = {
    "bsuite": "bsuite",
    "box2d": "box2d",
    "dm-control": "dm-control",
    "gym-v26": "gym",
}


@dataclasses.dataclass(frozen=True)
class Venv:
    """Virtual environment that also has the packages of the one below it."""

    folder: pathlib.Path
    below: "Venv | None" = None

    def install(self, *packages: str) -> str:
        """Install packages, making the environment if need be; return what fails."""
        if not self.folder.exists():
            venv.create(self.folder, with_pip=True)
        if self.below:
            path = pathlib.Path(self.packages, "below.pth")
            path.write_text(f"{self.below.packages}\n")
        command = [self.python, "-m", "pip", "install", "--quiet", *packages]
        result = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        errors = [x for x in result.stderr.splitlines() if x.startswith("ERROR: ")]
        return (errors or ["pip failed"])[-1] if result.returncode else ""

    @property
    def packages(self) -> str:
        """Return the directory where packages are installed."""
        places = {"base": str(self.folder), "platbase": str(self.folder)}
        return sysconfig.get_path("purelib", "venv", places)

    @property
    def python(self) -> str:
        """Return the path of the interpreter."""
        return str(self.folder / "bin/python")

    def versions(self) -> dict[str, str]:
        """Return the versions that all environments share."""
        packages = DISTRIBUTION, "gymnasium", "mujoco", "numpy", "tensorflow"
        python = ".".join(map(str, sys.version_info[:3]))
        return {"Python": python} | {x: self.version(x) for x in packages}

    def version(self, package: str) -> str:
        """Return the version of an installed package."""
        code = f"import importlib.metadata as m; print(m.version({package!r}))"
        return subprocess.check_output([self.python, "-c", code], text=True).strip()


def train(place: Venv, case: Case, *options: str) -> str:
    """Train in an environment; return the line that says why not, if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "old.py").write_text(OLD)
        text = f'environment: {{id: "{case.id}", backend: {case.backend}}}\n'
        pathlib.Path(folder, "mine.yaml").write_text(text)
        command = [place.python, "-m", "agents.scripts.cli", "train", "--quiet"]
        command += ["--config", "mine.yaml", "--logdir", ".", "--timestamp", "1"]
        short = f"train.steps={STEPS}", "train.eval_episodes=1"
        command += [f"--set={x}" for x in (ALGORITHM, *options, *short)]
        code, output = run(command, folder)
        if code is None:
            return f"not done after {TIMEOUT:.0f} s"
        if code:
            lines = [x for x in output.splitlines() if x.strip()]
            said = [x for x in lines if x.startswith("error: ")] or lines[-1:]
            said = (said or [f"exit code {code}"])[0]
            return re.sub(r"[^\s(']*/site-packages/", "", said)
        reports = pathlib.Path(folder, "1-mine/metrics.jsonl").read_text().splitlines()
    trained, evaluated = map(json.loads, reports)
    learned = trained["step"] >= STEPS and "policy_loss" in trained
    return "" if learned and "score" in evaluated else f"reports only {reports}"


def run(command: Sequence[str], folder: str) -> tuple[int | None, str]:
    """Run a program there; return its exit code, none if it is late, and its errors."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, output = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None, ""
    return process.returncode, output


def page(results: dict) -> str:
    """Return the page with the table."""
    versions = ", ".join(f"{k} {v}" for k, v in results["versions"].items())
    rows = results["rows"]
    table = "\n".join(line(x, rows.get(x.id)) for x in CASES)
    made = textwrap.fill(
        f"`python benchmarks/packages.py` made this page on {results['date']}. It "
        "installs the packages of each environment and trains in it for "
        f"{STEPS:,} steps with `agents train --config mine.yaml`. The file has the id, "
        f"and `--set` adds `{ALGORITHM}`, and an option where the table says so. All "
        f"rows share {versions}, unless a package brings another version.",
        WIDTH,
        break_on_hyphens=False,
    )
    notes = "\n".join(filter(None, (note(x, rows.get(x.id)) for x in CASES)))
    return f"""# Environments of other packages

{made}

| id | packages | result |
| --- | --- | --- |
{table}

{notes}"""


if __name__ == "__main__":
    sys.exit(main())
