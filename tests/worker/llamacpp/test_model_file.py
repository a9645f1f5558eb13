"""Which file the server gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from puna.backends.base import ModelLoadError
from puna.worker.llamacpp.model_file import file_for_server
from tests.tiny.published import write_both

pytestmark = pytest.mark.native


def test_its_own_or_what_an_earlier_worker_did_not_finish_written_anew(tmp_path: Path):
    converted, published = write_both(tmp_path, "gptoss")
    with (tmp_path / "new").open("w+b") as empty:
        with converted.open("rb") as model:
            assert file_for_server(model.fileno(), empty.fileno(), "m") == model.fileno()
        assert not empty.seek(0, 2)
        with published.open("rb") as model:
            assert file_for_server(model.fileno(), empty.fileno(), "m") == empty.fileno()
            whole = Path(empty.name).read_bytes()
            empty.seek(len(whole) // 2)
            empty.write(b"x" * len(whole))
            empty.flush()
            file_for_server(model.fileno(), empty.fileno(), "m")
    assert Path(empty.name).read_bytes() == whole


def test_where_it_cannot_be_written_the_error_says_how_much_it_takes(tmp_path: Path):
    _, published = write_both(tmp_path, "gptoss")
    with (
        published.open("rb") as model,
        Path("/dev/full").open("wb") as full,
        pytest.raises(ModelLoadError, match=r"m has to be written anew .*, \d+ MiB on disk"),
    ):
        file_for_server(model.fileno(), full.fileno(), "m")
