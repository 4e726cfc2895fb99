"""Environment steered by an agent in another process: python examples/client.py

It needs only Gymnasium and a running `examples/server.py`.
"""

import argparse
import http.client
import json

import gymnasium


def ask(connection, agent, observation, **followed):
    """Send an observation and the last action's outcome; return the next action."""
    said = {"agent": agent, "observation": observation.tolist(), **followed}
    connection.request("POST", "/", json.dumps(said))
    response = connection.getresponse()
    answer = json.load(response)
    if response.status != 200:
        raise SystemExit(f"error: {answer}")
    return answer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", default="127.0.0.1:8000")
    parser.add_argument("--agent", type=int, default=0, help="another for each client")
    parser.add_argument("--num_episodes", type=int, default=100)
    args = parser.parse_args()
    env, server = gymnasium.make("CartPole-v1"), http.client.HTTPConnection(args.server)
    for episode in range(args.num_episodes):
        observation, _ = env.reset()
        action, score = ask(server, args.agent, observation), 0.0
        while action is not None:
            observation, reward, terminated, truncated, _ = env.step(action)
            ends = {"terminated": terminated, "truncated": truncated}
            action = ask(server, args.agent, observation, reward=reward, **ends)
            score += reward
        print(f"episode {episode + 1}: return {score:.0f}", flush=True)


if __name__ == "__main__":
    try:
        main()
    except (OSError, http.client.HTTPException, json.JSONDecodeError) as error:
        raise SystemExit(f"error: the server does not answer: {error}") from None
