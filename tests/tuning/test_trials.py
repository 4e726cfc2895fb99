"""Tables and figures of trials."""

from matplotlib import image

from agents.tuning import space, trials

DIMENSIONS = {
    "algorithm.learning_rate": space.Range(1e-5, 1e-2, log=True),
    "algorithm.epochs": space.Range(1, 8, int=True),
    "algorithm.network": space.Choices(("small", {"layers": [8, 8]})),
}


def test_value_is_the_mean_of_the_last_third():
    assert trials.final_score([7.0]) == 7.0
    assert trials.final_score([1.0, 2.0, 6.0]) == 6.0
    assert trials.final_score([1.0, 2.0, 4.0, 6.0]) == 5.0


def test_figure_has_a_panel_per_parameter(tmp_path):
    states = [trials.COMPLETE, trials.PRUNED, trials.COMPLETE, trials.REFUSED]
    values = [1.0, 0.5, 3.0, None]
    chosen = [
        {"lr": 10.0**-i, "epochs": i, "network": choice, "discount": 0.9}
        for i, choice in enumerate(["small", {"layers": [8]}] * 2)
    ]
    found = [
        trials.Trial(i, "", states[i], values[i], 512, 1.0, "", chosen[i])
        for i in range(4)
    ]
    space_ = space.Space(
        {
            "lr": space.Range(1e-4, 1, log=True),
            "epochs": space.Range(0, 4, int=True),
            "network": space.Choices(("small", {"layers": [8]})),
            "discount": space.Range(0.5, 1),
        }
    )
    trials.draw(found, space_, tmp_path / "study.png")
    pixels = image.imread(tmp_path / "study.png")  # [height, width, 4]
    assert pixels.shape[0] > 800
    assert pixels.shape[1] > 1500
    assert not trials.draw(found[3:], space_, tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


def test_choices_are_shown_as_they_are_written(tmp_path):
    found = [trials.Trial(0, "", trials.COMPLETE, 1.0, 9, 1.0, "", {"id": "a $^$ b"})]
    space_ = space.Space({"id": space.Choices(("a $^$ b", "c"))})
    trials.draw(found, space_, tmp_path / "study.png")
    assert (tmp_path / "study.png").exists()


def test_short_names_can_be_told_apart():
    chosen = {"algorithm.epochs": 3, "a.rate": 0.0012345, "b.rate": [1]}
    assert trials.describe(chosen) == "epochs=3 a.rate=0.001234 b.rate=[1]"
    assert trials.describe({"algorithm.epsilon.to": 0.1}) == "epsilon.to=0.1"


def test_order_of_trials():
    order = [("complete", 2.0), ("complete", 1.0), ("pruned", 9.0), ("failed", None)]
    found = [
        trials.Trial(number, "", state, value, 512, 1.0, "", {})
        for number, (state, value) in enumerate(reversed(order))
    ]
    ranked = trials.ranked(found)
    assert [(trial.state, trial.value) for trial in ranked] == order
    assert trials.best(found) is ranked[0]
    assert trials.best(found[:2]) is None


def test_first_of_equal_trials_is_the_best():
    found = [trials.Trial(x, "", "complete", 1.0, 9, 1.0, "", {}) for x in (1, 0, 2)]
    assert [x.number for x in trials.ranked(found)] == [0, 1, 2]
    assert trials.best(found).number == 0
