"""What is wrong with one request, step or model is told to those concerned; everything else goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from puna.backends.base import Batch, BlockMemory, ModelLoadError
from puna.engine import EngineCore, EngineSettings, SamplingParams
from tests.engine.toy import (
    BLOCK_BYTES,
    POISON,
    VOCABULARY,
    ToyBackend,
    ToyModel,
    expected_tokens,
    run_all,
    toy_engine,
    toy_request,
    toy_source,
)

pytestmark = pytest.mark.native


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompt": []}, "the prompt is empty"),
        ({"prompt": [1, VOCABULARY]}, "outside of the vocabulary of 97"),
        ({"prompt": [-1]}, "outside of the vocabulary"),
        ({"prompt": [2**40]}, "outside of the vocabulary"),
        ({"prompt": [1] * 51}, "51 tokens, more than the context of 50"),
        ({"context_length": 2}, "3 tokens, more than the context of 2"),
        ({"prompt": [1] * 40}, "the prompt of 40 tokens needs 192 B of KV memory, the limits leave it 128 B"),
        ({"max_tokens": -1}, "max_tokens is -1"),
        ({"num_threads": 0}, "num_threads is 0"),
        ({"num_threads": 2**31}, "num_threads is 2147483648"),
        ({"model_id": "nobody"}, "model nobody is not loaded"),
        ({"sampling": SamplingParams(logit_bias={VOCABULARY: 1.0})}, "logit_bias has token 97"),
        ({"sampling": SamplingParams(top_k=2**70)}, "top_k is"),
        ({"sampling": SamplingParams(temperature=float("nan"))}, "temperature"),
    ],
)
def test_a_bad_request_is_refused_with_its_reason(fields: dict[str, Any], message: str):
    engine = toy_engine(ToyModel(context_length=50), num_blocks=2)
    engine.submit(toy_request("good", [1, 2], 5))
    engine.submit(toy_request("bad", **{"prompt": [1, 2, 3], **fields}))
    results = run_all(engine)
    assert results.last["bad"].finish_reason == "error"
    assert message in (results.last["bad"].error or "")
    assert results.tokens["good"] == expected_tokens([1, 2], 5)


def test_a_failing_step_fails_only_its_own_requests():
    engine = toy_engine()
    engine.attach_model("other", ToyModel(salt=1))
    engine.submit(toy_request("poisoned", [1, POISON], 5))
    engine.submit(toy_request("beside", [1, 2], 5))
    engine.submit(toy_request("elsewhere", [1, 2], 5, model_id="other"))
    results = run_all(engine)
    for name in ("poisoned", "beside"):
        assert results.last[name].finish_reason == "error"
        assert results.last[name].error == "the model failed to run: poisoned"
    assert results.tokens["elsewhere"] == expected_tokens([1, 2], 5, salt=1)
    engine.submit(toy_request("later", [1, 2], 5))
    assert run_all(engine).tokens["later"] == expected_tokens([1, 2], 5)


def test_logits_that_are_no_numbers_fail_the_step():
    class Broken(ToyModel):
        def logits(self, batch: Batch, kv: Sequence[BlockMemory]) -> NDArray[np.float32]:
            return super().logits(batch, kv) * np.float32(np.nan)

    engine = toy_engine(Broken())
    engine.submit(toy_request("r", [1], 5))
    assert run_all(engine).last["r"].finish_reason == "error"


def test_unloading_fails_the_requests_of_that_model_only():
    engine = toy_engine()
    other = ToyModel(salt=1)
    engine.attach_model("other", other)
    for name, model_id in (("a", "toy"), ("b", "other")):
        engine.submit(toy_request(name, [1], 20, model_id=model_id))
    engine.step(), engine.step()
    engine.unload_model("other")
    engine.unload_model("other")
    assert other.closed
    results = run_all(engine)
    assert results.last["b"].error == "the model was unloaded"
    assert results.last["a"].finish_reason == "length"
    assert [model.model_id for model in engine.stats().models] == ["toy"]


def test_a_model_that_cannot_be_loaded_leaves_nothing():
    engine = EngineCore(ToyBackend(), EngineSettings(kv_limit_bytes=BLOCK_BYTES))
    with pytest.raises(ModelLoadError, match="not a toy"):
        engine.load_model("m", toy_source("nonsense"))
    large = ToyModel(block_bytes=2 * BLOCK_BYTES)
    with pytest.raises(ModelLoadError, match="m needs 128 B of KV memory, the limit is 64 B"):
        engine.attach_model("m", large)
    assert large.closed
    assert engine.load_model("m", toy_source("3")).architecture == "toy"
    again = ToyModel()
    with pytest.raises(ModelLoadError, match="model m is already loaded"):
        engine.attach_model("m", again)
    assert again.closed
    engine.close()
    assert engine.stats().models == []


def test_closing_ends_everything():
    engine = toy_engine()
    engine.submit(toy_request("r", [1], None))
    engine.step()
    engine.close()
    assert [output.finish_reason for output in engine.step()] == ["error"]
    assert not engine.has_work
