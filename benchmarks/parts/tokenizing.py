"""How long do loading a vocabulary and encoding text take? `python -m benchmarks.parts.tokenizing model.gguf`

Compares with the `tokenizers` library, which gets the same vocabulary and the same regular expressions.
Memory is what two processes that hold it as four models would take together, PSS more than without it: puna
maps four blocks that both share, the library has copies. Times are the best of several, of one thread.
"""

from __future__ import annotations

import argparse
import fcntl
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import models, pre_tokenizers

from puna.gguf import GgufFile
from puna.tokenizer import Tokenizer, build_vocabulary
from puna.tokenizer.kinds import Convention
from puna.tokenizer.pre_tokenizers import PRE_TOKENIZERS

LENGTHS = (1_000, 30_000, 1_000_000)
NUM_MODELS, NUM_PROCESSES = 4, 2
SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK

Metadata = dict[str, Any]


def by_library(metadata: Metadata) -> tokenizers.Tokenizer:
    """Only of byte-level BPE."""
    texts = metadata["tokenizer.ggml.tokens"]
    way = PRE_TOKENIZERS[metadata.get("tokenizer.ggml.pre", "default")]
    merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
    library = tokenizers.Tokenizer(
        models.BPE(
            {text: i for i, text in enumerate(texts)},
            merges,
            ignore_merges=Convention.WHOLE_WORDS in way.conventions,
        )
    )
    patterns = [pre_tokenizers.Split(tokenizers.Regex(p), behavior="isolated") for p in way.patterns]
    to_letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    library.pre_tokenizer = pre_tokenizers.Sequence([*patterns, to_letters])
    return library


def sealed(blob: bytes) -> int:
    fd = os.memfd_create("vocabulary", os.MFD_ALLOW_SEALING)
    with open(fd, "wb", closefd=False) as file:
        file.write(blob)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    return fd


def best_ms(do: Callable[[], object], rounds: int = 7) -> float:
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        do()
        best = min(best, time.perf_counter() - start)
    return best * 1000


def pss_mib() -> float:
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("smaps_rollup has no Pss")


def _hold(load: Callable[[], Any], text: str, ready: Connection) -> None:
    ready.recv()  # until all have started: what they have of their parent is shared by as many
    before = pss_mib()
    held = [load() for _ in range(NUM_MODELS)]
    for tokenizer in held:
        tokenizer.encode(text)
    ready.send(None)
    ready.recv()  # until the others have loaded, too
    ready.send(pss_mib() - before)
    ready.recv()
    del held


def memory_mib(loads: list[Callable[[], Any]], text: str) -> float:
    """What processes take together, each with NUM_MODELS tokenizers."""
    context = multiprocessing.get_context("fork")
    pipes = [context.Pipe() for _ in loads]
    children = [
        context.Process(target=_hold, args=(load, text, theirs))
        for load, (_, theirs) in zip(loads, pipes, strict=True)
    ]
    for child in children:
        child.start()

    def go_on() -> None:
        for ours, _ in pipes:
            ours.send(None)

    for _ in ("load", "measure"):
        go_on()
        answers = [ours.recv() for ours, _ in pipes]
    go_on()
    for child in children:
        child.join()
    return sum(answers)


def in_turn(fds: list[int]) -> Callable[[], Tokenizer]:
    turns = iter(fds * NUM_PROCESSES)
    return lambda: Tokenizer.from_descriptor(next(turns))


def measure(metadata: Metadata, text: str) -> Iterator[tuple[str, float, float | None]]:
    """(what, puna's figure, the library's)"""
    blob = build_vocabulary(metadata)
    fds = [sealed(blob) for _ in range(NUM_MODELS)]
    ours, library = Tokenizer.from_descriptor(fds[0]), by_library(metadata)
    yield "build, ms", best_ms(lambda: build_vocabulary(metadata)), best_ms(lambda: by_library(metadata), 3)
    yield "map what was built, ms", best_ms(lambda: Tokenizer.from_descriptor(fds[0])), None
    for length in LENGTHS:
        piece = text[:length]

        def encode(piece: str = piece) -> list[int]:
            return ours.encode(piece, add_special=False)

        def encode_by_library(piece: str = piece) -> list[int]:
            ids: list[int] = library.encode(piece, add_special_tokens=False).ids
            return ids

        if encode() != encode_by_library():
            raise RuntimeError("the library gives other tokens")
        yield f"encode {length:,} characters, ms", best_ms(encode), best_ms(encode_by_library)
    short = text[: LENGTHS[0]]
    shared = memory_mib([in_turn(fds) for _ in range(NUM_PROCESSES)], short)
    copied = memory_mib([lambda: by_library(metadata)] * NUM_PROCESSES, short)
    yield f"{NUM_MODELS} models in {NUM_PROCESSES} processes, MiB", shared, copied


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", type=Path, help="a GGUF file with a byte-level BPE vocabulary")
    parser.add_argument("--text", type=Path, nargs="*", default=sorted(Path("docs").glob("*.md")))
    arguments = parser.parse_args()
    text = "".join(path.read_text() for path in arguments.text)
    text *= LENGTHS[-1] // len(text) + 1
    with closing(GgufFile(arguments.model)) as file:
        metadata = {key: value for key, value in file.metadata.items() if key.startswith("tokenizer.ggml.")}
    print(
        f"| {len(metadata['tokenizer.ggml.tokens']):,} tokens | puna | tokenizers {tokenizers.__version__} |"
    )
    print("|---|---|---|")
    for name, own, other in measure(metadata, text):
        print(f"| {name} | {own:.2f} | {'' if other is None else f'{other:.2f}'} |")


if __name__ == "__main__":
    main()
