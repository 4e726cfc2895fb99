"""Display of runs."""

import logging

from agents.experiments import display, named


def test_notes_are_shown_here_and_nowhere_else(tmp_path, capsys, caplog):
    config = named.load("debug")
    for quiet in (False, True):
        with display.Display(tmp_path, config, quiet):
            capsys.readouterr()
            logging.getLogger("agents.memories").info("a note")
        assert capsys.readouterr().out == ("" if quiet else "a note\n")
    assert caplog.records == []
    logging.getLogger("agents.memories").warning("afterwards")
    assert [record.message for record in caplog.records] == ["afterwards"]
