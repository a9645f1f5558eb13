"""What is measured: the rows of the table."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from benchmarks.servers.servers import Completion, Server


class EndedEarly(Exception):
    """The model had nothing more to say: such an answer is not comparable."""


@dataclass(frozen=True)
class Workload:
    """Prompts of prompt_tokens, each continued by new_tokens, by num_clients at once."""

    title: str
    prompt_tokens: int
    new_tokens: int
    num_clients: int = 1
    same_prompt: bool = False
    """The prompt may come from a cache, since only what follows is timed."""

    def run(self, server: Server, prompts: Sequence[str]) -> float:
        """Tokens per second: of the prompt where one token is asked for; of one client's generation; or all
        tokens that several clients get, from their first request to the last reply. Raises EndedEarly."""
        if self.num_clients > 1:
            return self._run_clients(server, prompts)
        completion = self._complete(server, prompts[0])
        if self.new_tokens == 1:
            return completion.prompt_tokens / completion.prompt_s
        return completion.generated_tokens / completion.generation_s

    def _run_clients(self, server: Server, prompts: Sequence[str]) -> float:
        start = time.perf_counter()
        with ThreadPoolExecutor(self.num_clients) as pool:
            done = list(pool.map(lambda prompt: self._complete(server, prompt), prompts))
        return sum(c.generated_tokens for c in done) / (time.perf_counter() - start)

    def _complete(self, server: Server, prompt: str) -> Completion:
        completion = server.complete(prompt, self.new_tokens, reuse=self.same_prompt)
        if completion.generated_tokens != self.new_tokens:
            raise EndedEarly
        return completion


WORKLOADS = {
    "prefill": Workload("prefill, 512 tokens", 512, 1),
    "decode": Workload("decode, 1 stream", 32, 128),
    "depth": Workload("decode at 2,048 tokens of context", 2048, 64, same_prompt=True),
    "clients": Workload("16 clients, 128 + 64 tokens each", 128, 64, num_clients=16),
}


def shortened(name: str, *, is_large: bool) -> Workload:
    """What suffices to compare llama.cpp's settings with each other."""
    prompt, new = {
        ("prefill", False): (512, 1),
        ("decode", False): (32, 64),
        ("depth", False): (2048, 32),
        ("clients", False): (128, 32),
        ("prefill", True): (256, 1),
        ("decode", True): (32, 24),
        ("depth", True): (1024, 16),
        ("clients", True): (32, 16),
    }[name, is_large]
    return replace(WORKLOADS[name], prompt_tokens=prompt, new_tokens=new)
