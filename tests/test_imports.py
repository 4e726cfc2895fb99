"""Direction of imports between packages, and their costs."""

import ast
import os
import pathlib
import subprocess
import sys
import tomllib

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PARTS = {
    "preprocessing",
    "networks",
    "memories",
    "optimizers",
    "exploration",
    "returns",
}
ALLOWED = {
    "lazy": set(),
    "namesakes": set(),
    "quiet": set(),
    "tools": set(),
    "environments": {"tools"},
    **{part: {"tools"} for part in PARTS},
    "algorithms": {"tools"} | PARTS,
    "distributed": {"tools", "environments"} | PARTS,
    "testing": {"tools", "environments", "algorithms"} | PARTS,
    "experiments": {"tools", "environments", "algorithms", "distributed"} | PARTS,
    "tuning": {"tools", "experiments"},
    "offline": {"tools", "algorithms"} | PARTS,
    "pretraining": {"offline", "tools"},
    "agent": {"offline", "tools", "environments", "experiments"},
    "runner": {"agent", "tools", "environments", "experiments"},
    "scripts": {"tools", "distributed", "experiments", "tuning"},
}
# An algorithm may build on the one whose paper it extends.
EXTENDS = {
    **dict.fromkeys(("a2c", "ppo", "trpo", "vpg"), {"policy_gradient"}),
    **dict.fromkeys(("impala", "policy_gradient"), {"actor_critic"}),
    **dict.fromkeys(("dqn", "sac", "td3"), {"off_policy"}),
    "apex": {"dqn"},
}
VAGUE_NAMES = {"utils", "util", "common", "base", "misc", "helpers", "helper"}
WITHOUT_TENSORFLOW = (
    "agents.tools.arrays",
    "agents.tools.batch_env",
    "agents.tools.processes",
    "agents.tools.spaces",
    "agents.tools.wrappers",
    "agents.testing.mocks",
    "agents.environments.make",
    "agents.environments.serial",
    "agents.environments.workers",
)


def imports(source, module, is_package):
    """Full names in the package `agents` that the source of a module imports."""
    package = module if is_package else module.rpartition(".")[0]
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                origin = ".".join([*parents, origin]).rstrip(".")
            found += [f"{origin}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func).rpartition(".")[2]
            if name in ("import_module", "__import__"):
                constants = [arg for arg in node.args if isinstance(arg, ast.Constant)]
                found += [constant.value for constant in constants]
    return [name for name in found if name.split(".")[0] == "agents"]


def violations(source, module, is_package=False):
    """List the mistakes in the name and the imports of a module."""
    names = module.split(".")
    if VAGUE_NAMES & set(names):
        return [f"{module} has a name that says nothing"]
    if len(names) == 1:  # The package itself exports from everywhere, lazily.
        return []
    part = names[1]
    if part not in ALLOWED:
        return [f"{module} has no place in the layout"]
    found = []
    for imported in imports(source, module, is_package):
        target = imported.split(".")[1:]
        if target == ["__version__"] or target[:1] == ["lazy"]:
            continue
        if not target and part != "scripts":
            found.append(f"{module} imports all of agents")
        elif target and target[0] != part and target[0] not in ALLOWED[part]:
            found.append(f"{module} imports {imported}")
        elif target and part == target[0] == "algorithms" and not is_package:
            siblings = EXTENDS.get(names[2], set()) | {names[2]}
            if not set(target[1:2]) <= siblings:
                found.append(f"{module} imports {imported}")
    return found


def endings(source):
    """List the places that end the process or parse a command line in the source of a module."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name == "argparse"]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [x for x in names if x.startswith(("argparse.", "sys.exit"))]
        elif isinstance(node, ast.Raise) and node.exc:
            found += [x for x in [ast.unparse(node.exc)] if x.startswith("SystemExit")]
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            found += [name] if name in ("sys.exit", "exit", "quit") else []
    return found


def run(program, *, path=None):
    """Output of a Python program in a process of its own."""
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(path or "")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def loaded(module, names, path=None):
    """Which of the top-level modules are loaded after importing a module."""
    program = f"import sys, {module}; print(*({set(names)} & set(sys.modules)))"
    return set(run(program, path=path).split())


def test_imports_point_down():
    files = sorted((ROOT / "agents").rglob("*.py"))
    assert len(files) > 10
    found = []
    for file in files:
        is_package = file.name == "__init__.py"
        path = file.parent if is_package else file.with_suffix("")
        module = ".".join(path.relative_to(ROOT).parts)
        found += violations(file.read_text(), module, is_package)
    assert not found, "\n".join(found)


def test_libraries_never_end_the_process_nor_parse_a_command_line():
    files = sorted((ROOT / "agents").rglob("*.py"))
    commands = ROOT / "agents" / "scripts"
    found = {
        str(file.relative_to(ROOT)): endings(file.read_text())
        for file in files
        if commands not in file.parents
    }
    assert {file: names for file, names in found.items() if names} == {}


def replaced(source):
    """Functions of other objects that the source of a module replaces by lambdas."""
    return [
        ast.unparse(target)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda)
        for target in node.targets
        if isinstance(target, ast.Attribute) and ast.unparse(target.value) != "self"
    ]


def test_functions_of_other_objects_are_not_replaced():
    files = sorted((ROOT / "agents").rglob("*.py"))
    found = [name for file in files for name in replaced(file.read_text())]
    # Keras would sum equal gradients of replicas, and has no switch for it.
    assert found == ["self.optimizer._all_reduce_sum_gradients"]
    assert replaced("memory.begin = lambda rows: None") == ["memory.begin"]
    assert replaced("self.size = lambda: 3") == []


@pytest.mark.parametrize(
    "source",
    [
        "import argparse",
        "from argparse import ArgumentParser",
        "import sys\nsys.exit(2)",
        "from sys import exit",
        "def f():\n    raise SystemExit(2)",
        "def f():\n    raise SystemExit",
        "exit()",
    ],
)
def test_endings_are_found(source):
    assert len(endings(source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("agents.tools.loop", "from agents import environments"),
        ("agents.tools.loop", "import agents.memories.sequences as sequences"),
        ("agents.tools.loop", "from agents.memories import sequences"),
        ("agents.tools.loop", "from ..memories import sequences"),
        ("agents.tools.loop", "def run():\n    from agents.algorithms import ppo"),
        ("agents.tools.loop", "importlib.import_module('agents.algorithms.ppo')"),
        ("agents.tools.loop", "import agents"),
        ("agents.networks.heads", "from agents import optimizers"),
        ("agents.returns", "from agents import networks"),
        ("agents.algorithms.ppo", "from agents import environments"),
        ("agents.algorithms.ppo", "from agents.environments.workers import Workers"),
        ("agents.algorithms.ppo", "from agents.algorithms import dqn"),
        ("agents.algorithms.ppo", "from . import dqn"),
        ("agents.algorithms.apex", "from agents.algorithms import ppo"),
        ("agents.distributed.actors", "from agents.algorithms import impala"),
        ("agents.testing", "from agents.scripts import train"),
        ("agents.agent", "from agents.scripts import train"),
        ("agents.tuning.trainer", "from agents.scripts import train"),
        ("agents.experiments.runs", "from agents.tuning import study"),
        ("agents.tools.utils", ""),
        ("agents.helpers.strings", ""),
        ("agents.strings", ""),
    ],
)
def test_violations_are_found(module, source):
    assert len(violations(source, module)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("agents.tools.loop", "from agents.tools import metrics\nimport tensorflow"),
        ("agents.tools.loop", "from . import metrics"),
        ("agents.networks.heads", "from agents import tools\nfrom agents import lazy"),
        ("agents.algorithms.ppo", "from agents import memories, networks, returns"),
        ("agents.algorithms.apex", "from agents.algorithms import dqn"),
        ("agents.scripts.train", "import agents\nfrom agents.scripts import plot"),
        ("agents.tuning.study", "from agents.experiments import runs"),
    ],
)
def test_permitted_imports_are_not_flagged(module, source):
    assert violations(source, module) == []


def test_import_is_fast_and_light():
    heavy = {"tensorflow", "keras", "gymnasium", "mujoco", "numpy", "matplotlib"}
    assert loaded("agents", heavy) == set()
    program = (
        "import time; start = time.process_time(); import agents; "
        "print(time.process_time() - start)"
    )
    assert float(run(program)) < 0.2


@pytest.mark.parametrize("module", WITHOUT_TENSORFLOW)
def test_worker_modules_leave_tensorflow_and_mujoco_out(module):
    assert loaded(module, {"tensorflow", "keras", "mujoco", "mjbatch"}) == set()


def test_optional_packages_are_imported_only_when_asked_for(tmp_path):
    optional = {"ray", "ale_py", "envpool", "wandb", "optuna"}
    for name in optional:  # Installed or not, they can be imported here.
        (tmp_path / f"{name}.py").touch()
    assert loaded("ray", optional, path=tmp_path) == {"ray"}
    for script in ("train", "tune"):
        assert loaded(f"agents.scripts.{script}", optional, path=tmp_path) == set()


def test_no_class_name_stands_for_two_things():
    files = sorted((ROOT / "agents").rglob("*.py"))
    trees = [ast.parse(file.read_text()) for file in files]
    names = [x.name for y in trees for x in y.body if isinstance(x, ast.ClassDef)]
    assert len(names) > 200
    twice = {x for x in names if names.count(x) > 1 and not x.startswith("_")}
    assert twice == {"Config"}  # Each algorithm has one, and so has a run.


def test_only_one_package_imports_ray():
    files = sorted((ROOT / "agents").rglob("*.py"))
    found = {
        file.relative_to(ROOT / "agents").parts[0]
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (getattr(node, "module", None), *(x.name for x in node.names))
        if name and name.split(".")[0] == "ray"
    }
    assert found == {"distributed"}


def test_every_export_exists():
    program = """
import importlib, pkgutil, agents
packages = [agents, *(
    importlib.import_module(f"agents.{entry.name}")
    for entry in pkgutil.iter_modules(agents.__path__) if entry.ispkg)]
for package in packages:
    modules = {entry.name for entry in pkgutil.iter_modules(package.__path__)}
    for name in getattr(package, "__all__", ()):
        assert name not in modules, f"{package.__name__}.{name} is a module too"
        getattr(package, name)
        print(f"{package.__name__}.{name}")
"""
    exports = run(program).split()
    paper = {"agents.tools.BatchEnv", "agents.tools.InGraphBatchEnv"}
    assert paper | {"agents.tools.simulate"} <= set(exports)


def test_submodules_are_attributes_and_missing_names_are_not():
    program = """
from agents import tools
assert tools.spaces.spec
assert "spaces" in dir(tools)
assert not hasattr(tools, "missing")
"""
    run(program)


BUDGETS = {
    "a2c": (24, 3_400),
    "apex": (25, 4_000),
    "dqn": (24, 3_850),
    "impala": (26, 3_550),
    "ppo": (24, 3_570),
    "sac": (25, 3_650),
    "td3": (24, 3_750),
    "trpo": (24, 3_450),
    "vpg": (24, 3_400),
}
"""Files and lines that must be read to understand an algorithm: what it imports."""


def source_of(module):
    """File of a module, and whether it is a package; no file if it is neither."""
    path = ROOT.joinpath(*module.split("."))
    if path.is_dir():
        return path / "__init__.py", True
    return (
        path.with_suffix(".py") if path.with_suffix(".py").exists() else None
    ), False


def exports(file):
    """Names that a package exports lazily, to the modules that define them."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "lazy.attach":
            return ast.literal_eval(node.args[1])
    return {}


def declared(file):
    """Names that a package imports for type checkers, to the modules that define them."""
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            assert all(
                alias.asname == alias.name for x in node.body for alias in x.names
            )
            return {alias.name: x.module for x in node.body for alias in x.names}
    return {}


def test_type_checkers_see_what_packages_export():
    files = sorted((ROOT / "agents").rglob("__init__.py"))
    assert "Agent" in declared(ROOT / "agents" / "__init__.py")
    for file in files:
        package = ".".join(file.parent.relative_to(ROOT).parts)
        expected = {k: f"{package}.{module}" for k, module in exports(file).items()}
        assert declared(file) == expected, package
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    assert settings["setuptools"]["package-data"]["agents"] == ["py.typed"]
    assert (ROOT / "agents" / "py.typed").exists()


def test_type_checkers_find_the_installation(tmp_path):
    """They read the path, but not the hooks of an import, unlike Python."""
    program = "import importlib.machinery as m; print(m.PathFinder.find_spec('agents').origin)"
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    found = subprocess.check_output(
        [sys.executable, "-P", "-c", program], text=True, cwd=tmp_path, env=environ
    )
    assert pathlib.Path(found.strip()).with_name("py.typed").exists()


def module_of(name):
    """Module that a dotted name is or is defined in; none for a package."""
    module, *names = name.split(".")
    for part in names:
        file, is_package = source_of(module)
        if not is_package:
            return module
        inside = f"{module}.{part}"
        if source_of(inside)[0] is None:
            inside = f"{module}.{exports(file).get(part)}"
        if source_of(inside)[0] is None:
            return None
        module = inside
    return None if source_of(module)[1] else module


def needed(module):
    """Modules that a module imports, also in functions, or by way of a package."""
    source = source_of(module)[0].read_text()
    names, packages = set(imports(source, module, False)), {}
    for name in names:
        packages[name.rpartition(".")[2]] = name
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            head, _, rest = ast.unparse(node).partition(".")
            if head in packages:
                names.add(f"{packages[head]}.{rest}")
    return {module_of(name) for name in names} - {None}


def reading(module):
    """A module and all that it needs, directly or not."""
    seen, waiting = {module}, [module]
    while waiting:
        new = needed(waiting.pop()) - seen
        seen |= new
        waiting += new
    return seen


@pytest.mark.parametrize("name", BUDGETS)
def test_algorithms_need_little_reading(name):
    modules = reading(f"agents.algorithms.{name}")
    lines = sum(len(source_of(x)[0].read_text().splitlines()) for x in modules)
    found = len(modules), lines
    assert f"agents.algorithms.{name}" in modules
    assert "agents.tools.spaces" in modules  # What everything needs.
    over = [x for x, most in zip(found, BUDGETS[name], strict=True) if x > most]
    assert not over, f"{found}: {sorted(modules)}"
