"""Random mistakes are answered in one line, in time; see `broken_input.py`."""

import broken_input
import pytest


@pytest.fixture
def runs(tmp_path):
    """Directory of runs that cases damage."""
    broken_input.prepare(tmp_path)
    return tmp_path


def test_some_mistakes(runs):
    wrong = []
    for index in range(200):
        with broken_input.files(7, index, runs) as case:
            answer = broken_input.call(case.arguments)
        result = broken_input.Result(index, case, answer.verdict(case.foreign), answer)
        if result.verdict in broken_input.BAD:
            wrong.append(broken_input.describe(result))
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_mistakes(capsys):
    results = broken_input.search(5000, seed=0)
    with capsys.disabled():
        print(f"\n{broken_input.table(results)}")
    wrong = [x for x in results if x.verdict in broken_input.BAD]
    assert not wrong, "\n".join(map(broken_input.describe, wrong))
