"""Memory of the machine that is free."""

import psutil
import pytest

from agents.tools import placement


@pytest.mark.parametrize(
    ("limit", "free"), [("3000000000", 2_100_000_000), ("max", None), (None, None)]
)
def test_limit_of_a_container_counts(limit, free, tmp_path):
    (tmp_path / "memory.current").write_text("1000000000\n")
    (tmp_path / "memory.stat").write_text("anon 5\ninactive_file 100000000\nslab 7\n")
    if limit:
        (tmp_path / "memory.max").write_text(f"{limit}\n")
    available = psutil.virtual_memory().available
    expected = available if free is None else min(free, available)
    found = placement.free_bytes(tmp_path)
    assert found == pytest.approx(expected, rel=0.05)
