"""Other programs' directories are where those would look."""

from __future__ import annotations

from pathlib import Path

import pytest

from puna.config.local_models import find_local_models

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("environ", "cache"),
    [
        ({}, "home/.cache/huggingface/hub"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/huggingface/hub"),
        ({"HF_HOME": "~/hf", "XDG_CACHE_HOME": "/x"}, "home/hf/hub"),
        ({"HF_HUB_CACHE": "/c", "HF_HOME": "/hf"}, "/c"),
    ],
)
def test_cache_of_hugging_face(environ, cache):
    assert find_local_models(environ, Path("home"))[0] == Path(cache)


def test_directory_of_lm_studio(tmp_path):
    def directory():
        return find_local_models({}, tmp_path)[1]

    assert directory() == tmp_path / ".lmstudio" / "models"
    (tmp_path / ".cache" / "lm-studio").mkdir(parents=True)
    assert directory() == tmp_path / ".cache" / "lm-studio" / "models"
    (tmp_path / ".lmstudio-home-pointer").write_text(f"{tmp_path}/elsewhere\n")
    (tmp_path / "elsewhere").mkdir()
    assert directory() == tmp_path / "elsewhere" / "models"
