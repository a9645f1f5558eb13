"""Mutated model files, thousands of them: `python -m tests.hostile.gguf [--cases N] [--seed N] [--case N]`

Each must be used or refused with an error that says why: no crash, no other exception, no hang, no memory
that is out of proportion. With --contradictions their metadata and tensors contradict each other, and errors
name which. Prints how far they came.
"""

from __future__ import annotations

import argparse
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from tests.hostile.gguf.campaign import run_cases

CHUNK = 250


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, help="this one only")
    parser.add_argument("--contradictions", action="store_true", help="whole files of every architecture")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    begin, end = (0, given.cases) if given.case is None else (given.case, given.case + 1)
    module = f"tests.hostile.gguf.{'contradictions' if given.contradictions else 'campaign'}"
    chunks = [(given.seed, at, min(at + CHUNK, end), module) for at in range(begin, end, CHUNK)]
    outcomes: Counter[str] = Counter()
    with ThreadPoolExecutor(given.processes) as pool:
        for found in pool.map(lambda chunk: run_cases(*chunk), chunks):
            outcomes += found
    for outcome, count in outcomes.most_common():
        print(f"{count:6}  {outcome}")
    print(f"{outcomes.total():6}  in all, none failed")


if __name__ == "__main__":
    main()
