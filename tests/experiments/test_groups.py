"""Groups of runs and their labels."""

import pathlib

from agents.experiments import groups


def test_config_name():
    names = {
        "20250102T030405-pendulum": "pendulum",
        "2025-01-02-cheetah_clip": "cheetah_clip",
        "seed1-my-config": "my-config",
        "pendulum": "pendulum",
    }
    for directory, name in names.items():
        assert groups.config_name(pathlib.Path(directory)) == name


def test_values_in_labels():
    assert groups._value({"type": "linear", "from": 1e-3, "to": 0.0}) == "0.001 to 0"
    assert groups._value({"from": "A", "to": "B"}) == "A to B"


def test_labels_tell_all_curves_apart():
    base = {"name": "mine", "algorithm": dict.fromkeys("abcd", 0)}
    changed = [{**dict.fromkeys("abc", 1), "d": d} for d in (0, 1)]
    configs = [base, *({**base, "algorithm": x} for x in changed)]
    assert groups._labels(configs) == [
        "mine, a 0, b 0, c 0",
        "mine, a 1, b 1, c 1, d 0",
        "mine, a 1, b 1, c 1, d 1",
    ]


def test_keys_in_labels_may_have_dots_and_colons():
    pairs = ({"a.b": 1, "c:d": 2}, {"a.b": 3, "c:d": 4})
    configs = [{"name": "mine", "kwargs": {**x, "other": 0}} for x in pairs]
    assert groups._labels(configs) == ["mine, a.b 1, c:d 2", "mine, a.b 3, c:d 4"]


def test_equal_numbers_share_a_curve(tmp_path):
    runs = []
    for seed, gravity in enumerate(["10", "10.0", "1e1", "9.8"]):
        runs.append(tmp_path / f"{seed}-mine")
        runs[-1].mkdir()
        text = (
            f"name: mine\nseed: {seed}\nenvironment: {{kwargs: {{g: [{gravity}]}}}}\n"
        )
        (runs[-1] / "config.yaml").write_text(text)
    found = {x.label: x.runs for x in groups.group(runs)}
    assert found == {"mine, g [10]": tuple(runs[:3]), "mine, g [9.8]": (runs[3],)}


def test_devices_do_not_tell_runs_apart(tmp_path):
    runs = []
    for seed in range(2):
        runs.append(tmp_path / f"{seed}-mine")
        runs[-1].mkdir()
        text = f"name: mine\nseed: {seed}\ndevices: {{replicas: {seed + 1}}}\n"
        (runs[-1] / "config.yaml").write_text(text)
    (found,) = groups.group(runs)
    assert found.runs == tuple(runs)


def test_values_in_labels_are_cut_off_after_24_characters():
    assert groups._value("x" * 24) == "x" * 24
    assert groups._value("x" * 25) == "x" * 24 + "..."
