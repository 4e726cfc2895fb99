"""Agent that serves actions to other processes: python examples/server.py

Clients own the environments and need no TensorFlow. They report the outcomes of
actions, and the agent learns from them. Start `examples/client.py` for each row of the
agent. Ctrl-C saves the agent. The next start continues with it, and frees the rows of
clients that died within episodes. The server listens on this machine only, because it
trusts everyone there except pages in browsers. A wrong request gets a one-line answer
and changes nothing.
"""

import argparse
import http.server
import json
import pathlib
import signal
import threading

import gymnasium
import numpy as np

import agents

OBSERVATIONS = gymnasium.spaces.Box(-np.inf, np.inf, (4,))  # Of CartPole-v1.
ACTIONS = gymnasium.spaces.Discrete(2)


FIRST = {"agent": (int,), "observation": (list,)}
NEXT = {**FIRST, "reward": (int, float), "terminated": (bool,), "truncated": (bool,)}
MAX_BYTES = 1 << 20  # Of a request.
SPARE_THREADS = 16  # For excess clients, which get an error as the answer.


class Refused(ValueError):
    """Request that is refused, with the status of the answer."""

    def __init__(self, status, reason):
        super().__init__(reason)
        self.status = status


def check(said):
    """Check a request and convert its numbers to arrays; raises ValueError."""
    keys = said.keys() if isinstance(said, dict) else {}
    if keys not in (FIRST.keys(), NEXT.keys()):
        raise ValueError(
            f"a request has {', '.join(FIRST)}, after an action {', '.join(NEXT)}."
        )
    for name, value in said.items():
        if type(value) not in NEXT[name]:
            raise ValueError(f"{name} must not be {json.dumps(value)[:50]}.")
    shapes = {"observation": OBSERVATIONS.shape, "reward": ()}
    for name in shapes.keys() & keys:
        array = np.asarray(said[name], float)
        if array.shape != shapes[name] or not (abs(array) < 1e38).all():
            raise ValueError(f"{name} must be finite, of the shape {shapes[name]}.")
        said[name] = array.astype(np.float32)
    return said


class Server(http.server.ThreadingHTTPServer):
    def __init__(self, port, agent):
        super().__init__(("127.0.0.1", port), Handler)
        self.agent, self.lock, self.episodes = agent, threading.Lock(), 0
        self.threads = threading.Semaphore(agent.num_agents + SPARE_THREADS)

    def verify_request(self, *_):
        """Whether a connection gets a thread; otherwise, it is closed."""
        return self.threads.acquire(blocking=False)

    def process_request_thread(self, *args):
        try:
            super().process_request_thread(*args)
        finally:
            self.threads.release()

    def answer(
        self, agent, observation, reward=None, terminated=False, truncated=False
    ):
        """Learn from the outcome of the last action, if any; return the next one."""
        if reward is not None:
            self.agent.observe(reward, terminated, truncated, agent, observation)
        if terminated or truncated:
            self.episodes += 1
            return None
        return np.asarray(self.agent.act(observation, agent)).tolist()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # Each client keeps its connection and thread.
    disable_nagle_algorithm = True
    timeout = 600  # Seconds for which a client may be silent.

    def do_POST(self):
        try:
            said = check(json.loads(self.read()))
            with self.server.lock:
                answer, status = self.server.answer(**said), 200
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            answer, status = str(error), getattr(error, "status", 400)
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if status not in (200, 400):  # The rest of the request is not read.
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def read(self):
        """Read the body of a request; raises Refused if it is not allowed."""
        own = f"http://127.0.0.1:{self.server.server_port}"
        if self.headers.get("Origin", own) != own:
            raise Refused(403, "pages of other sites must not ask.")
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            raise Refused(411, "a request tells its Content-Length.")
        if len(length) > 9 or int(length) > MAX_BYTES:
            raise Refused(413, f"a request has at most {MAX_BYTES} bytes.")
        return self.rfile.read(int(length))

    def log_message(self, *_):
        """Print nothing, because steps are too frequent."""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8000, help="0 for any that is free")
    parser.add_argument("--config", default="cartpole_dqn", help="name or file")
    parser.add_argument("--num_agents", type=int, default=4, help="most clients")
    parser.add_argument("--directory", default="served_agent", type=pathlib.Path)
    args = parser.parse_args()
    if args.directory.exists():
        agent = agents.Agent.load(args.directory)
    else:
        spaces = OBSERVATIONS, ACTIONS
        agent = agents.Agent.create(args.config, *spaces, args.num_agents)
    server = Server(args.port, agent)
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: threading.Thread(target=server.shutdown).start())
    print(f"Serving on 127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
    server.lock.acquire()  # Never released, so that nobody acts any more.
    agent.reset()
    agent.save(args.directory)
    print(f"Saved to {args.directory} after {server.episodes} episodes")


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError) as error:
        raise SystemExit(f"error: {error}") from None
