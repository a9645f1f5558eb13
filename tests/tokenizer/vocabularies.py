"""Vocabularies made for tests: as metadata, and as GGUF files that llama.cpp loads (one layer of zeros)."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tests.tokenizer.char_maps import compiled

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
WIDTH = 32
# User-defined and control tokens, some inside others, some in the words around them.
SPECIAL = {
    "<|endoftext|>": CONTROL,
    "<|im_start|>": CONTROL,
    "<|im_end|>": CONTROL,
    "<|im": CONTROL,
    "end|><|": CONTROL,
    "<unk>": UNKNOWN,
    "<tool>": USER_DEFINED,
    "<tool><tool>": USER_DEFINED,
    "    ": USER_DEFINED,
    "ellow": USER_DEFINED,
    "ñandú": USER_DEFINED,
}


def byte_alphabet() -> list[str]:
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    rest = iter(range(256, 512))
    return [chr(b if b in printable else next(rest)) for b in range(256)]


def all_pairs_bpe(pre: str | None, **extra: Any) -> dict[str, Any]:
    """Byte-level BPE in which every two bytes that often meet merge, so that a wrong word boundary shows."""
    alphabet = byte_alphabet()
    ascii_bytes = [
        ord(c) for c in " \t\n\r\x0b'\"!.,$+<=>^~|`-_/#(){}[]@&*:;?%\\0123456789aestmdlrvEBSTRLDMVZ"
    ]
    lead, tail = range(0xC2, 0xF1), range(0x80, 0xC0)
    pairs = [
        *product(ascii_bytes, ascii_bytes),
        *product(lead, tail),
        *product(tail, tail),
        *product(tail, lead),
    ]
    pairs += [*product(ascii_bytes, lead), *product(tail, ascii_bytes)]
    # Ranks in no order of bytes, so that the choice between overlapping pairs matters.
    order = np.random.default_rng(0).permutation(len(pairs))
    merges = [(alphabet[pairs[i][0]], alphabet[pairs[i][1]]) for i in order]
    longer = [("0" + "1", "2"), ("'" + "s", "s"), ("Ġ" + "a", "t"), ("e" + "s", "t"), ("Ċ" + "Ċ", "Ċ")]
    merges += longer
    tokens = [*alphabet, *(left + right for left, right in merges)]
    metadata = bpe(tokens, [f"{left} {right}" for left, right in merges], **extra)
    if pre is not None:
        metadata["tokenizer.ggml.pre"] = pre
    return metadata


def bpe(tokens: list[str], merges: list[str], **extra: Any) -> dict[str, Any]:
    """`extra`: further tokenizer.ggml keys, without the prefix."""
    texts = [*tokens, *SPECIAL]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.token_type": np.array([NORMAL] * len(tokens) + list(SPECIAL.values()), np.int32),
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": texts.index("<|im_start|>"),
        "tokenizer.ggml.eos_token_id": texts.index("<|im_end|>"),
    } | {f"tokenizer.ggml.{key}": value for key, value in extra.items()}


_WORDS = """
▁ ▁▁ ▁▁▁▁ t h e th he the ▁t ▁th ▁the ▁a an ▁an and ▁and in ing ng ▁in i n g d a r s er ers o on or
l ll ell ▁h ▁he ▁hell H ▁H He ▁He ▁Hel lo llo ▁Hello w ▁w wo wor ld orld ▁world rld 1 2 3 12 23 123 ▁1
. , .▁ e▁ e▁t the▁ é ñ ü 日 本 日本 語 本語 🙂 👩 ' 's n't < > s> <s / </ _ x xx xxxx
"""


def sentencepiece(**extra: Any) -> dict[str, Any]:
    """SentencePiece BPE with byte fallback, ties among its scores, and tokens that reach over a space."""
    rng = np.random.default_rng(1)
    special = {"<unk>": UNKNOWN, "<s>": CONTROL, "</s>": CONTROL}
    texts = [*special, *(f"<0x{b:02X}>" for b in range(256)), *_WORDS.split(), "\n", "\n\n", "\t", *SPECIAL]
    texts = list(dict.fromkeys(texts))
    kinds = {**SPECIAL, **special, **{f"<0x{b:02X}>": BYTE for b in range(256)}}
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.token_type": np.array([kinds.get(text, NORMAL) for text in texts], np.int32),
        "tokenizer.ggml.scores": -rng.integers(0, 40, len(texts)).astype(np.float32),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    } | {f"tokenizer.ggml.{key}": value for key, value in extra.items()}


_PIECES = """
▁the ▁a ▁an ▁and ▁hello ▁world ▁un ▁Hello ▁e ▁é ▁x ▁1 ▁12 ▁123 ▁' ▁s ▁! ▁? ▁. ▁, ▁$ ▁+ ▁日 ▁本 ▁語 ▁가
the he llo wor ld s ing ed er a b c d e f h i j k l m n o r t u v w y z A E H é á 日 1 2 3 23 x xx xxxx ' !
▁ᄀ ▁á ▁ß ▁ﬁ ▁▁ 🙂 👩 ▁🙂 ▁µ ▁µm μ ▁i̇ i̇ ▁Ж ж ▁ж ▁ελ ▁λ λ ▁İ
"""


def word_pieces(**extra: Any) -> dict[str, Any]:
    """BERT's, with words of several pieces, capital letters and accents."""
    special = {"[PAD]": CONTROL, "[UNK]": UNKNOWN, "[CLS]": CONTROL, "[SEP]": CONTROL, "[MASK]": CONTROL}
    texts = list(dict.fromkeys([*special, *_PIECES.split(), *SPECIAL]))
    kinds = {**SPECIAL, **special}
    return {
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.token_type": np.array([kinds.get(text, NORMAL) for text in texts], np.int32),
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.seperator_token_id": 3,
        "tokenizer.ggml.unknown_token_id": 1,
    } | {f"tokenizer.ggml.{key}": value for key, value in extra.items()}


def unigram(**extra: Any) -> dict[str, Any]:
    """With ties among its scores, a map of characters, and kinds of tokens that are not found in text."""
    rng = np.random.default_rng(2)
    special = {"<pad>": CONTROL, "</s>": CONTROL, "<unk>": UNKNOWN, "<s>": CONTROL, "<mask>": USER_DEFINED}
    tail = {"<extra_id_0>": USER_DEFINED, "unused": UNUSED, "<0x41>": BYTE, "nothing": 0, "▁日本語": UNUSED}
    letters = "abcdefghijklmnoprstuvwxyzAEHVIé日本語株🙂👩.,!'123⁄"
    texts = list(dict.fromkeys([*special, *_WORDS.split(), *_PIECES.split(), *letters, *SPECIAL, *tail]))
    kinds = {**SPECIAL, "ñandú": NORMAL, **special, **tail}
    return {
        "tokenizer.ggml.model": "t5",
        "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.token_type": np.array([kinds.get(text, NORMAL) for text in texts], np.int32),
        "tokenizer.ggml.scores": -rng.integers(4, 40, len(texts)).astype(np.float32) / 4,
        "tokenizer.ggml.precompiled_charsmap": np.frombuffer(compiled(), np.uint8),
        "tokenizer.ggml.add_space_prefix": True,
        "tokenizer.ggml.remove_extra_whitespaces": True,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.unknown_token_id": 2,
        "tokenizer.ggml.bos_token_id": 3,
        "tokenizer.ggml.seperator_token_id": 1,
    } | {f"tokenizer.ggml.{key}": value for key, value in extra.items()}


def character_pairs(pre: str, model: str = "gpt2", **extra: Any) -> dict[str, Any]:
    """Byte pairs written in characters, as Gemma 4's, of which any two merge that often meet."""
    letters = "▁abcdehilmnorstuvw123.,'!<>_éñ日本語🙂👩"
    pairs = [left + " " + right for left in letters for right in letters]
    order = np.random.default_rng(3).permutation(len(pairs))
    merges = [pairs[i] for i in order] + ["th e", "▁t he", "he l", "▁▁ ▁▁", "lo ▁w", "日 本語"]
    unions = [merge.replace(" ", "") for merge in merges]
    texts = [*letters, *"\nABxyzgkpHEVTµ©", *(f"<0x{b:02X}>" for b in range(250)), *unions, "\n\n", "\n\n\n"]
    texts = list(dict.fromkeys([*texts, *SPECIAL]))
    kinds = {**SPECIAL, **{f"<0x{b:02X}>": BYTE for b in range(256)}}
    return {
        "tokenizer.ggml.model": model,
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.token_type": np.array([kinds.get(text, NORMAL) for text in texts], np.int32),
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": texts.index("<|im_start|>"),
        "tokenizer.ggml.eos_token_id": texts.index("<|im_end|>"),
    } | {f"tokenizer.ggml.{key}": value for key, value in extra.items()}


def write_model(path: Path, metadata: dict[str, Any]) -> Path:
    """A model with this vocabulary that llama.cpp loads."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(4096)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    for key, value in metadata.items():
        _add(writer, key, value)
    vocab_size = len(metadata["tokenizer.ggml.tokens"])
    matrix = np.zeros((WIDTH, WIDTH), np.float16)
    writer.add_tensor("token_embd.weight", np.zeros((vocab_size, WIDTH), np.float16))
    writer.add_tensor("output_norm.weight", np.zeros(WIDTH, np.float32))
    for name in ("attn_norm", "ffn_norm"):
        writer.add_tensor(f"blk.0.{name}.weight", np.zeros(WIDTH, np.float32))
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        writer.add_tensor(f"blk.0.{name}.weight", matrix)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, np.ndarray) and value.dtype == np.uint8:
        writer.add_key_value(key, value.tolist(), gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.UINT8)
    else:
        writer.add_array(key, list(value) if isinstance(value, list) else value.tolist())
