"""Directories of runs, written by hand."""

import json


def make_run(directory, name, scores, seconds=None, phase="evaluate"):
    """Run directory with scores by step, and seconds for the same steps."""
    run = directory / name
    run.mkdir(parents=True)
    rows = [
        {"phase": phase, "step": step, "score": score, "length": 200.0, "episodes": 20}
        for step, score in scores.items()
    ]
    write_rows(run / "metrics.jsonl", rows)
    if seconds is not None:
        pairs = zip(scores, seconds, strict=True)
        rows = [{"phase": phase, "step": a, "seconds": b} for a, b in pairs]
        write_rows(run / "timing.jsonl", rows)
    return run


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
