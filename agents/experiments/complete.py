"""Complete text of the named configs, which are printed without TensorFlow.

`python -m agents.experiments.complete` writes it again after configs or defaults have
changed.
"""

import io
import pathlib

from agents.experiments import named
from agents.tools import config_files, sections

FILE = pathlib.Path(__file__).with_suffix(".yaml")
"""File with all of them, one YAML document each."""


def text(name: str) -> str:
    """Return the complete config of a name as YAML."""
    documents = FILE.read_text().split("---\n")
    return next(x for x in documents if x.startswith(f"name: {name}\n"))


def made() -> str:
    """Make the content of the file."""
    stream = io.StringIO()
    for create in named.EXPERIMENTS.values():
        stream.write("---\n")
        config_files.dump(sections.to_dict(create()), stream)
    return stream.getvalue()


if __name__ == "__main__":
    FILE.write_text(made())
