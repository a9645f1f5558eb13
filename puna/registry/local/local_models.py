"""All models that other programs keep on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from puna.registry.local import hugging_face, lm_studio
from puna.registry.local.local_file import LocalFile, choose
from puna.registry.local.local_model import LocalModel, local_model
from puna.registry.name import ModelName


class LocalModels(NamedTuple):
    """Directories of other programs; None: there is no such program."""

    hugging_face: Path | None = None
    lm_studio: Path | None = None

    def find(self, name: ModelName) -> LocalModel | None:
        """Looks into the directory of its repository alone."""
        for files in self._repositories(name):
            if file := choose(files, name):
                with suppress(OSError):
                    return local_model(file)
        return None

    def find_all(self) -> list[LocalModel]:
        """By name."""
        models = []
        for file in chain.from_iterable(self._repositories(None)):
            with suppress(OSError):  # gone meanwhile
                models.append(local_model(file))
        return sorted(models, key=lambda model: model.name.key)

    def _repositories(self, wanted: ModelName | None) -> Iterator[list[LocalFile]]:
        if self.hugging_face:
            yield from hugging_face.repositories(self.hugging_face, wanted)
        if self.lm_studio:
            yield from lm_studio.repositories(self.lm_studio, wanted)
