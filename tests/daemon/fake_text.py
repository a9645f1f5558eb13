"""Text workers without processes: what they do is done here, in the test's."""

from __future__ import annotations

import os

from puna.backends.base import ModelSource
from puna.chat.model_record import ModelRecord
from puna.daemon.text_model import TextModel
from puna.gguf import read_metadata
from puna.tokenizer import Tokenizer, build_vocabulary
from puna.worker.text import memory_file
from puna.worker.text.messages import TextSide


class FakeTextPool:
    """Has the interface of TextPool, as far as models are loaded and unloaded."""

    def __init__(self) -> None:
        self.num_open = 0

    def start(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def inspect(self, source: ModelSource) -> ModelRecord:
        tensors = read_metadata(source.descriptors[0], source.name).tensors.values()
        return ModelRecord(weight_bytes=sum(tensor.num_bytes for tensor in tensors))

    async def open_model(self, source: ModelSource) -> TextModel:
        blob = build_vocabulary(read_metadata(source.descriptors[0], source.name))
        vocabulary = memory_file.create("vocabulary")
        os.write(vocabulary, blob)
        memory_file.seal(vocabulary)
        tokenizer = Tokenizer.from_descriptor(vocabulary)
        side = TextSide(
            vocab_size=tokenizer.vocab_size,
            end_of_generation=sorted(tokenizer.end_of_generation),
            template=None,
        )
        self.num_open += 1
        token_table = memory_file.create("token table")
        os.write(token_table, tokenizer.token_table())
        memory_file.seal(token_table)
        return TextModel(side, vocabulary, token_table)

    def close_model(self, model: TextModel) -> None:
        self.num_open -= not model.is_closed
        model.close()
