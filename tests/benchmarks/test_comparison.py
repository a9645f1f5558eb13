"""How figures are taken and written down, without servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.comparison import Row, _alternate
from benchmarks.report import Results, quote_in_readme
from benchmarks.servers.prompts import Prompts
from benchmarks.servers.servers import Completion
from benchmarks.workloads import WORKLOADS, EndedEarly, Workload, shortened
from puna.gguf import GgufFile
from puna.tokenizer import load_tokenizer
from tests.tiny import TINY, write_tiny

pytestmark = pytest.mark.native


class FakeServer:
    """Takes 10 ms per prompt token and 100 ms per generated one; some answers end early."""

    def __init__(self, num_early: int = 0) -> None:
        self.prompts: list[str] = []
        self.num_early = num_early

    def complete(self, prompt: str, num_tokens: int, *, reuse: bool = False) -> Completion:
        assert reuse in (False, True)
        self.prompts.append(prompt)
        self.num_early -= 1
        generated = num_tokens - (self.num_early >= 0)
        return Completion(50, 0.5, generated, 0.1 * generated)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("bench") / "tiny.gguf", TINY["llama"])


def test_prompts_have_the_asked_length_and_begin_differently(tiny):
    prompts = Prompts(tiny)
    texts = [prompts.take(20) for _ in range(20)]
    with GgufFile(tiny) as file:
        tokenizer = load_tokenizer(file.metadata)
    encoded = [tokenizer.encode_prompt(text) for text in texts]
    assert {len(tokens) for tokens in encoded} == {20}
    assert len({tokens[0] for tokens in encoded}) == 20


def test_prefill_and_decode_are_rates_of_their_own_phase():
    assert Workload("prefill", 50, 1).run(FakeServer(), ["x"]) == pytest.approx(100)
    assert Workload("decode", 50, 8).run(FakeServer(), ["x"]) == pytest.approx(10)


def test_an_answer_that_ends_early_does_not_count():
    with pytest.raises(EndedEarly):
        Workload("clients", 50, 8, num_clients=4).run(FakeServer(num_early=1), list("abcd"))


def test_both_servers_get_the_same_new_prompts_in_each_round(tiny):
    ours, theirs, row = FakeServer(num_early=1), FakeServer(), Row("default")
    _alternate(Workload("decode", 10, 4), ours, theirs, Prompts(tiny), 3, row)
    assert len(row.puna) == len(row.llamacpp) == 3
    assert ours.prompts[1:] == theirs.prompts
    assert len(set(ours.prompts)) == 4


def test_the_prompt_stays_where_only_what_follows_is_timed(tiny):
    ours, theirs, row = FakeServer(), FakeServer(), Row("default")
    _alternate(Workload("depth", 10, 4, same_prompt=True), ours, theirs, Prompts(tiny), 3, row)
    assert len(set(ours.prompts)) == 1


@pytest.mark.parametrize("name", WORKLOADS)
def test_settings_are_compared_on_the_same_kind_of_work(name):
    for is_large in (False, True):
        short = shortened(name, is_large=is_large)
        assert short.num_clients == WORKLOADS[name].num_clients
        assert (short.new_tokens == 1) == (name == "prefill")


def test_the_report(tmp_path):
    results = Results("On a machine.")
    results.add(
        "A",
        "prefill",
        Row("default", "71% of the integer peak", [200.0, 300.0, 220.0], [100.0, 100.0, 110.0]),
    )
    results.add("B", "decode", Row("repacking off", "", [30.0], [20.0]))
    markdown = results.markdown()
    assert "| prefill, 512 tokens | **2.20** |  |" in markdown
    assert "| decode, 1 stream |  | **1.50** |" in markdown
    assert (
        "| prefill, 512 tokens | A | 220 | 100 | 2.00 to 3.00 | 71% of the integer peak | default |"
        in markdown
    )
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- benchmark: begin -->\nold\n<!-- benchmark: end -->\nafter\n")
    quote_in_readme(markdown, readme)
    assert readme.read_text() == (
        f"before\n<!-- benchmark: begin -->\n{markdown}<!-- benchmark: end -->\nafter\n"
    )
    with pytest.raises(SystemExit, match="no benchmark markers"):
        quote_in_readme(markdown, write(tmp_path / "other.md", "nothing"))


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path
