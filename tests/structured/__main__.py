"""All schemas with a real model: `python -m tests.structured [--most 300] [--tokens 1500]`

Replies are drawn at temperature 1.5. Status 1 if one that ended does not fit its schema, one that was cut
cannot become what does, or one of a schema that bounds its replies did not end.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from puna.registry import ModelName, Store
from puna.registry.creation.from_gguf import create_from_gguf
from tests.campaign.daemon import Daemon
from tests.conftest import smollm2_file
from tests.descriptions import SMOLLM2_WEIGHTS
from tests.structured.schemas import NUM_SCHEMAS, all_cases
from tests.structured.verdicts import Verdict, told, verdicts

_MODEL = "smollm2"
_AT_ONCE = 16


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--most", type=int, default=NUM_SCHEMAS)
    parser.add_argument("--tokens", type=int, default=1500)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="puna-schemas-") as directory:
        found = asyncio.run(_run(Path(directory), arguments))
    faults = [verdict for verdict in found if verdict.fault]
    for verdict in faults:
        print(told(verdict))
    return 1 if faults else 0


async def _run(directory: Path, arguments: argparse.Namespace) -> list[Verdict]:
    store = Store(directory / "models")
    with smollm2_file().open("rb") as file:
        digest = store.add_blob(iter(lambda: file.read(1 << 20), b""))
    create_from_gguf(store, ModelName.parse(_MODEL), digest, SMOLLM2_WEIGHTS)
    variables = {"PUNA_KV_DISK": "0", "OLLAMA_NUM_PARALLEL": str(_AT_ONCE), "OLLAMA_CONTEXT_LENGTH": "4096"}
    daemon = Daemon(directory / "home", store.root, variables)
    try:
        await daemon.start()
        begin_s = time.monotonic()
        cases = all_cases()[arguments.first :][: arguments.most]
        found = await verdicts(f"http://127.0.0.1:{daemon.port}", _MODEL, cases, arguments.tokens, _AT_ONCE)
        _print_table(found, time.monotonic() - begin_s)
        return found
    finally:
        daemon.end()


def _print_table(found: list[Verdict], seconds: float) -> None:
    counts = Counter((verdict.case.is_bounded, verdict.reason) for verdict in found)
    for (is_bounded, reason), count in sorted(counts.items()):
        print(f"{'bounded' if is_bounded else 'unbounded':10} {reason:8} {count:4}")
    num_tokens = sum(verdict.num_tokens for verdict in found)
    num_faults = sum(bool(verdict.fault) for verdict in found)
    print(f"{num_tokens} tokens in {seconds:.0f} s, {num_faults} faults")


if __name__ == "__main__":
    sys.exit(main())
