"""An agent that other processes ask for actions: python examples/server.py

They own the environments, need no TensorFlow, and tell what follows, from which the agent
learns: start `examples/client.py` for each of its rows. Ctrl-C saves the agent, and the
next start goes on with it; that also frees the rows of clients that died within episodes.
It listens on this machine only, since it trusts everyone.
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
from agents.agent import AgentError

OBSERVATIONS = gymnasium.spaces.Box(-np.inf, np.inf, (4,))  # Those of CartPole-v1.
ACTIONS = gymnasium.spaces.Discrete(2)


class Server(http.server.ThreadingHTTPServer):
    def __init__(self, port, agent):
        super().__init__(("127.0.0.1", port), Handler)
        self.agent, self.lock, self.episodes = agent, threading.Lock(), 0

    def answer(
        self, agent, observation, reward=None, terminated=False, truncated=False
    ):
        """Learn what followed the last action, if there was one; the next action."""
        if reward is not None:
            self.agent.observe(reward, terminated, truncated, agent, observation)
        if terminated or truncated:
            self.episodes += 1
            return None
        return np.asarray(self.agent.act(observation, agent)).tolist()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # A client keeps its connection, and has a thread.
    disable_nagle_algorithm = True

    def do_POST(self):
        said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            with self.server.lock:
                answer, status = self.server.answer(**said), 200
        except AgentError as error:
            answer, status = str(error), 400
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Steps are not worth a line each."""


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
    server, stop = Server(args.port, agent), threading.Event()
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"Serving on 127.0.0.1:{server.server_port}", flush=True)
    stop.wait()
    server.lock.acquire()  # For ever, so that nobody acts any more.
    agent.reset()
    agent.save(args.directory)
    print(f"Saved to {args.directory} after {server.episodes} episodes")


if __name__ == "__main__":
    main()
