"""All models that other programs, or the user, keep on this machine."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import puna
from puna.registry.local import hugging_face, linked, lm_studio
from puna.registry.local.local_directory import HeadedModel, LocalDirectory, SplitModel
from puna.registry.local.local_file import LocalFile, choose
from puna.registry.local.local_model import LocalModel, description_of, local_model
from puna.registry.name import ModelName
from puna.registry.store.blob_holds import unheld

_HEADERS = "headers"
_MIN_AGE_S = 3600.0


class LocalModels(NamedTuple):
    """Directories of other programs; None: there is no such program."""

    hugging_face: Path | None = None
    lm_studio: Path | None = None
    in_place: Path | None = None
    """Our own, for directories of safetensors and split files: links to them, and headers for their weights.
    None: they are not used in place.
    """

    @property
    def links(self) -> Path | None:
        return self.in_place and self.in_place / "links"

    def find(self, name: ModelName) -> LocalModel | None:
        """Looks into the directory of its repository alone."""
        for files in self._repositories(name):
            if file := choose(files, name):
                with suppress(OSError):
                    return self._model(file)
        return None

    def find_all(self) -> list[LocalModel]:
        """By name."""
        models = []
        for file in chain.from_iterable(self._repositories(None)):
            with suppress(OSError):  # gone meanwhile
                models.append(self._model(file))
        return sorted(models, key=lambda model: model.name.key)

    def forget(self, name: ModelName) -> bool:
        """Whether the name is that of a link, which is removed now, as its header is; its directory need not
        be there any more. Raises OSError.
        """
        link = self.links and linked.link_named(self.links, name)
        if link is None:
            return False
        model = self.find(name)
        link.unlink()
        if isinstance(model, HeadedModel):
            model.header.unlink(missing_ok=True)
        return True

    def remove_unused_headers(self) -> None:
        """What is left of directories that have changed or are gone. Another daemon may find directories that
        this one does not: what somebody has open stays, and what is younger than an hour. Raises OSError.
        """
        if self.in_place is None:
            return
        used = {model.header for model in self.find_all() if isinstance(model, HeadedModel)}
        for path in (self.in_place / _HEADERS).glob("*.gguf"):
            with suppress(FileNotFoundError):  # another daemon has just removed it
                if path in used or time.time() - path.stat().st_mtime < _MIN_AGE_S:
                    continue
                with unheld(path) as is_free:
                    if is_free:
                        path.unlink()

    def _model(self, file: LocalFile) -> LocalModel:
        if self.in_place is None or (file.directory is None and len(file.paths) == 1):
            return local_model(file)
        description = description_of(file)
        kind = SplitModel if file.directory is None else LocalDirectory
        header = f"{description['digest']}-{_makers_id()}.gguf"
        return kind(**description, header=self.in_place / _HEADERS / header)

    def _repositories(self, wanted: ModelName | None) -> Iterator[list[LocalFile]]:
        found = []
        if self.hugging_face:
            found.append(hugging_face.repositories(self.hugging_face, wanted))
        if self.lm_studio:
            found.append(lm_studio.repositories(self.lm_studio, wanted))
        if self.links:
            found.append(linked.repositories(self.links, wanted))
        for files in chain.from_iterable(found):
            yield [file for file in files if file.directory is None or self.in_place]


@cache
def _makers_id() -> str:
    """Of what makes headers, whatever it is called: what another build made may lack what this one reads."""
    package = Path(puna.__file__).parent
    sources = [*sorted((package / "convert").rglob("*.py")), package / "gguf" / "writer.py"]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
