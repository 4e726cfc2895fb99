"""The examples run as they are, and learn."""

import ast
import contextlib
import http.client
import json
import math
import os
import pathlib
import re
import runpy
import signal
import subprocess
import sys

import pytest

import agents

ROOT = pathlib.Path(__file__).parents[1]
REMOTE = {"server", "client"}
ROBOTS = {"swing_up": 300, "varied_cheetah": 1500}
"""Returns that examples of robots reach; their tests train by the configs."""
EXAMPLES = sorted(
    path
    for path in (ROOT / "examples").glob("*.py")
    if path.stem not in REMOTE | set(ROBOTS)
)

SLOW = {"ppo_evolutionary", "ppo_natural_gradient"}


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=[pytest.mark.slow] if path.stem in SLOW else [])
        for path in EXAMPLES
    ],
    ids=lambda path: path.stem,
)
def test_example_solves_cartpole(path, capsys):
    runpy.run_path(str(path), run_name="__main__")
    output = capsys.readouterr().out
    scores = [int(x) for x in re.findall(r"mean return (\d+)", output)]
    assert scores, output
    assert max(scores) >= 475


def test_new_algorithm_takes_less_than_sixty_lines():
    text = (ROOT / "examples/reinforce.py").read_text()
    lines = text.partition("\nclass ")[2].partition("\n\n\ndef main")[0].splitlines()
    assert len(lines) < 60


def train(name, directory, *settings):
    """Reports of the evaluations of an example's config."""
    arguments = ["--logdir", directory, "--timestamp", "1", "--quiet", *settings]
    result = subprocess.run(
        [sys.executable, "-m", "agents.scripts.train", *arguments]
        + ["--config", f"examples/{name}.yaml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout) == (0, ""), result.stderr
    lines = (directory / f"1-{name}" / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return [x for x in rows if x["phase"] == "evaluate"]


@pytest.mark.slow
def test_new_algorithm_learns_by_its_config(tmp_path):
    rows = train("reinforce", tmp_path, "--set", "train.steps=96000")
    assert max(x["score"] for x in rows) >= 475


@pytest.mark.quick("reinforce")
@pytest.mark.parametrize("name", ["reinforce", *ROBOTS])
def test_examples_are_trained_by_their_configs(tmp_path, name):
    steps = "--set", "train.steps=8192", "--set", "train.eval_every=8192"
    (row,) = train(name, tmp_path, *steps, "--set", "train.eval_episodes=2")
    assert math.isfinite(row["score"])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "score"), ROBOTS.items())
def test_robots_learn(tmp_path, name, score):
    assert train(name, tmp_path)[-1]["score"] >= score


def start(name, *args, path=str(ROOT)):
    """Process of an example whose output is read."""
    return subprocess.Popen(
        [sys.executable, str(ROOT / f"examples/{name}.py"), *map(str, args)],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def serve(tmp_path):
    """Function that starts a server of a small agent with two rows."""
    config = {"type": "dqn", "jit": False, "network": {"layers": [8]}}
    config |= {"capacity": 500, "start_size": 32, "batch_size": 16}
    (tmp_path / "config.json").write_text(json.dumps(config))
    processes = []

    def function():
        args = {"port": 0, "num_agents": 2, "config": tmp_path / "config.json"}
        args |= {"directory": tmp_path / "agent"}
        options = [x for key, value in args.items() for x in (f"--{key}", value)]
        processes.append(start("server", *options))
        address = re.search(r"on (127.0.0.1:\d+)", processes[-1].stdout.readline())
        assert address, processes[-1].communicate()[1]
        return processes[-1], address[1]

    yield function
    for process in processes:
        process.kill()
        process.communicate()


def play(address, agent, num_episodes):
    options = ["--server", address, "--agent", agent, "--num_episodes", num_episodes]
    return start("client", *options, path="")


@pytest.mark.slow
def test_agent_serves_other_processes(serve, tmp_path):
    server, address = serve()
    clients = [play(address, agent, 3) for agent in (0, 1)]
    steps = 0
    for client in clients:
        output, errors = client.communicate(timeout=300)
        assert client.returncode == 0, errors
        returns = re.findall(r"episode \d+: return (\d+)", output)
        assert len(returns) == 3
        steps += sum(map(int, returns))
    wrong = play(address, 2, 1)
    assert "error: agent_indices must be from 0 to 1" in wrong.communicate()[1]
    assert wrong.returncode == 1
    server.send_signal(signal.SIGINT)
    output, errors = server.communicate(timeout=300)
    assert server.returncode == 0, errors
    assert "after 6 episodes" in output
    agent = agents.Agent.load(tmp_path / "agent")
    assert int(agent.algorithm.steps) == steps
    assert int(agent.algorithm.updates) > 0


@pytest.mark.slow
def test_agent_learns_from_other_processes(tmp_path):
    server = start("server", "--port", 0, "--directory", tmp_path / "agent")
    try:
        (address,) = re.findall(r"on (127.0.0.1:\d+)", server.stdout.readline())
        output, errors = play(address, 0, 300).communicate()
        assert not errors
    finally:
        server.kill()
        server.communicate()
    returns = [int(x) for x in re.findall(r"return (\d+)", output)]
    windows = [sum(returns[x : x + 20]) / 20 for x in range(len(returns) - 20)]
    assert windows[0] < 50
    assert max(windows) >= 200


@pytest.mark.slow
def test_clients_that_die_cost_one_row_until_the_next_start(serve, tmp_path):
    server, address = serve()
    connection = http.client.HTTPConnection(address)
    connection.request("POST", "/", json.dumps({"agent": 0, "observation": [0.0] * 4}))
    assert json.load(connection.getresponse()) in (0, 1)
    connection.close()
    again, other = play(address, 0, 1), play(address, 1, 1)
    assert "error: agent 0 has acted already" in again.communicate(timeout=300)[1]
    steps = [int(other.communicate(timeout=300)[0].split()[-1])]
    server.send_signal(signal.SIGTERM)
    assert "after 1 episodes" in server.communicate(timeout=300)[0]
    server, address = serve()
    output, errors = play(address, 0, 1).communicate(timeout=300)
    assert not errors
    steps.append(int(output.split()[-1]))
    server.send_signal(signal.SIGTERM)
    server.communicate(timeout=300)
    assert server.returncode == 0
    agent = agents.Agent.load(tmp_path / "agent")
    assert int(agent.algorithm.steps) == sum(steps)
    late = play(address, 0, 1)
    assert "error: the server does not answer" in late.communicate()[1]
    assert late.returncode == 1


def post(address, body, **headers):
    """Status and answer of one request, whose body may be shorter than it says."""
    with contextlib.closing(http.client.HTTPConnection(address)) as connection:
        connection.putrequest("POST", "/")
        for name, value in {"Content_Length": len(body), **headers}.items():
            if value is not None:
                connection.putheader(name.replace("_", "-"), str(value))
        connection.endheaders(body)
        response = connection.getresponse()
        text = response.read()
    assert b"\n" not in text
    return response.status, json.loads(text)


def test_server_refuses_what_is_wrong_and_goes_on(serve, tmp_path):
    server, address = serve()
    first = {"agent": 0, "observation": [0.0] * 4}
    after = {**first, "reward": 1.0, "terminated": False, "truncated": False}
    assert post(address, json.dumps(first).encode())[1] in (0, 1)
    wrong = [
        *(b"", b"{", b"\xff", b"[" * 100_000, b"null", b"[]", b"{}"),
        *({"agent": 0}, {**after, "more": 1}, {**first, "terminated": True}),
        *({**after, "agent": x} for x in (2, -1, None, True, 10**30, [0, 1])),
        *({**after, "observation": x} for x in ([0.0] * 3, 0.0, [[0.0], 0.0, 0, 0])),
        *({**after, "observation": [x, 0, 0, 0]} for x in (math.nan, "a", {}, 10**400)),
        *({**after, "reward": x} for x in (math.nan, math.inf, 1e300, "1", None)),
        *({**after, "terminated": x} for x in (1, "false", None)),
        {**after, "agent": 1},  # It has not acted.
        first,  # It has.
    ]
    for said in wrong:
        body = said if isinstance(said, bytes) else json.dumps(said).encode()
        status, answer = post(address, body)
        assert (status, type(answer)) == (400, str), said
    body = json.dumps(after).encode()
    for status, headers in (
        *((411, {"Content_Length": x}) for x in (None, "-1", "many")),
        *((413, {"Content_Length": x}) for x in (2**20 + 1, 10**4000)),
        *((403, {"Origin": x}) for x in ("http://example.com", "null")),
    ):
        found, answer = post(address, b"" if status != 403 else body, **headers)
        assert (found, type(answer)) == (status, str)
    status, action = post(address, body, Origin=f"http://{address}")
    assert (status, action in (0, 1)) == (200, True)
    open_ = http.client.HTTPConnection(address)
    open_.request("POST", "/", b"{", {"Content-Length": "2"})  # The rest never comes.
    server.send_signal(signal.SIGTERM)
    output, errors = server.communicate(timeout=300)
    open_.close()
    assert (server.returncode, "Traceback" in errors) == (0, False), errors
    assert "after 0 episodes" in output
    assert int(agents.Agent.load(tmp_path / "agent").algorithm.steps) == 1


@pytest.mark.slow
def test_server_has_a_thread_for_so_many_connections(serve):
    server, address = serve()
    first = json.dumps({"agent": 5, "observation": [0.0] * 4})
    connections = [http.client.HTTPConnection(address) for _ in range(2 + 16)]
    for connection in connections:
        connection.request("POST", "/", first)
        assert connection.getresponse().read()  # It stays open.
    with pytest.raises(ConnectionError):
        post(address, first.encode())
    for connection in connections:
        connection.request("POST", "/", first, {"Connection": "close"})
        assert connection.getresponse().read()
        connection.close()
    server.send_signal(signal.SIGTERM)
    assert server.communicate(timeout=300)[0]
    assert server.returncode == 0


def test_client_needs_gymnasium_only():
    tree = ast.parse((ROOT / "examples/client.py").read_text())
    nodes = [x for x in ast.walk(tree) if isinstance(x, ast.Import | ast.ImportFrom)]
    names = {getattr(x, "module", None) or x.names[0].name for x in nodes}
    assert {name.partition(".")[0] for name in names} - sys.stdlib_module_names == {
        "gymnasium"
    }
