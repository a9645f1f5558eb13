"""Ways to break a GGUF file: each makes one change to its content, or to its bytes."""

from __future__ import annotations

import copy
import random
import struct
from collections.abc import Callable, Sequence

from tests.gguf.encode import ARRAY, STRING, array, string, u32
from tests.hostile.gguf.content import (
    FIXED_SIZES,
    Content,
    Encoded,
    Value,
    encode,
    string_array,
    strings,
)

POWERS = [2**bits + change for bits in (7, 8, 15, 16, 24, 31, 32, 33, 61, 63, 64) for change in (-1, 0, 1)]
SMALL = [0, 1, 2, 3, 7, 8, 31, 33, 64, 255, 1000]
FLOATS = [0.0, -0.0, 1.0, -1.0, 1e-45, 1e-30, 1e38, -1e38, float("inf"), float("-inf"), float("nan")]
KEYS = [b"general.type", b"general.alignment", b"split.count"]
HYPERPARAMETERS = [
    b"attention.head_count_kv",
    b"attention.key_length",
    b"attention.scale",
    b"attention.sliding_window",
    b"expert_count",
    b"expert_gating_func",
    b"expert_group_count",
    b"expert_group_used_count",
    b"expert_used_count",
    b"expert_weights_scale",
    b"full_attention_interval",
    b"leading_dense_block_count",
    b"logit_scale",
    b"nextn_predict_layers",
    b"rope.scaling.attn_factor",
    b"rope.scaling.factor",
    b"rope.scaling.yarn_log_multiplier",
]
WORDS = [
    b"",
    b"\xff\xfe",
    b"\x00",
    "é🦙".encode(),
    b"adapter",
    b"clip",
    b"llama",
    b"gpt2",
    b"yarn",
    b"linear",
]


def mutant(random: random.Random, bases: Sequence[Content]) -> bytes:
    """A file with one to four changes."""
    content = copy.deepcopy(random.choice(bases))
    for _ in range(random.choice((0, 1, 1, 2, 3))):
        random.choice(CONTENT_MUTATIONS)(random, content)
    encoded = encode(content)
    for _ in range(random.choice((0, 0, 0, 0, 1, 2))):
        random.choice(BYTE_MUTATIONS)(random, encoded)
    if random.random() < 0.05:
        _splice(random, encoded, encode(random.choice(bases)))
    if random.random() < 0.05:
        random.choice((_truncation, _removal))(random, encoded)
    return bytes(encoded.file)


# --- content ---


def _number_of_value(random: random.Random, content: Content) -> None:
    """Hyperparameters, token ids and the like."""
    numbers = [value for value in content.values if value.type in FIXED_SIZES]
    if numbers:
        value = random.choice(numbers)
        value.data = number_bytes(random, value.type, len(value.data))


def _type_of_value(random: random.Random, content: Content) -> None:
    """Another type, with data of that type."""
    if not content.values:
        return
    value = random.choice(content.values)
    value.type = random.randrange(13)
    if value.type == STRING:
        value.data = string(_word(random))
    elif value.type == ARRAY:
        value.data = _random_array(random)
    else:
        value.data = number_bytes(random, value.type, FIXED_SIZES[value.type])


def _text_of_value(random: random.Random, content: Content) -> None:
    texts = [value for value in content.values if value.type == STRING]
    if texts:
        random.choice(texts).data = string(_word(random))


def _items_of_array(random: random.Random, content: Content) -> None:
    """Vocabularies and merges with tokens that are missing, doubled, odd or out of order."""
    arrays = [value for value in content.values if value.type == ARRAY]
    if not arrays:
        return
    value = random.choice(arrays)
    if value.data[:4] != u32(STRING):
        value.data = _random_array(random) if random.random() < 0.5 else _cut_array(random, value)
        return
    items = strings(value)
    for _ in range(random.choice((1, 1, 5, 50))):
        _change_items(random, items)
    value.data = string_array(items)


def _change_items(random: random.Random, items: list[bytes]) -> None:
    at = random.randrange(len(items) + 1)
    match random.randrange(4):
        case 0:
            items[at:at] = [_word(random)]
        case 1:
            del items[at : at + random.choice((1, 10, len(items)))]
        case 2 if items:
            items[at:at] = [random.choice(items)]
        case 3 if at < len(items):
            items[at] = _word(random)


def _keys(random: random.Random, content: Content) -> None:
    if not content.values:
        return
    at = random.randrange(len(content.values))
    match random.randrange(6):
        case 0:
            del content.values[at]
        case 1:
            content.values.append(copy.deepcopy(content.values[at]))
        case 2:
            content.values[at].key = _word(random)
        case 3:
            content.values.append(Value(random.choice(KEYS), 4, u32(random.choice(SMALL))))
        case 4:
            random.shuffle(content.values)
        case 5:
            _set_hyperparameter(random, content)


def _set_hyperparameter(random: random.Random, content: Content) -> None:
    """One that the file may lack; its key begins as one of the file does."""
    architecture = random.choice(content.values).key.split(b".")[0]
    key, kind = architecture + b"." + random.choice(HYPERPARAMETERS), random.choice((4, 6, 12))
    content.values[:] = [value for value in content.values if value.key != key]
    content.values.append(Value(key, kind, number_bytes(random, kind, FIXED_SIZES[kind])))


def _tensors(random: random.Random, content: Content) -> None:
    if not content.tensors:
        return
    at = random.randrange(len(content.tensors))
    tensor, other = content.tensors[at], random.choice(content.tensors)
    match random.randrange(8):
        case 0:
            del content.tensors[at]
        case 1:
            content.tensors.append(copy.deepcopy(tensor))
        case 2:
            tensor.name = random.choice((other.name, _word(random)))
        case 3:
            tensor.shape = [random.choice((*tensor.shape, *SMALL, *POWERS)) for _ in tensor.shape]
        case 4:
            tensor.shape = random.choice(
                (tensor.shape[::-1], [*tensor.shape, 1], tensor.shape[:-1], other.shape)
            )
        case 5:
            tensor.type = random.choice((random.randrange(45), other.type))
        case 6:
            tensor.offset = random.choice((other.offset, tensor.offset + 32, tensor.offset - 32))
        case 7:
            content.tensors[at] = other


def _counts(random: random.Random, content: Content) -> None:
    content.extra_values = random.choice((0, 0, 0, -1, 1, 1000))
    content.extra_tensors = random.choice((0, 0, -1, 1, 1000))


def _weights(random: random.Random, content: Content) -> None:
    """Numbers that are none, everywhere or here and there."""
    pattern = random.choice(
        (b"\xff", b"\x7f", b"\x00\x7c", b"\x00\xfc", b"\x00\x00\x80\x7f", b"\x00\x00\xc0\x7f")
    )
    data = bytearray(content.data)
    if random.random() < 0.3:
        content.data = (pattern * len(data))[: len(data)]
        return
    for _ in range(random.choice((1, 10, 100))):
        at = random.randrange(max(len(data) - 4, 1)) // 2 * 2
        data[at : at + len(pattern)] = pattern
    content.data = bytes(data)


CONTENT_MUTATIONS: list[Callable[[random.Random, Content], None]] = [
    _number_of_value,
    _number_of_value,
    _type_of_value,
    _text_of_value,
    _items_of_array,
    _items_of_array,
    _keys,
    _tensors,
    _counts,
    _weights,
    _weights,
]

# --- bytes ---


def _header_number(random: random.Random, encoded: Encoded) -> None:
    number = random.choice(encoded.numbers)
    old = int.from_bytes(encoded.file[number.at : number.at + number.size], "little")
    near = [old - 1, old + 1, old * 2, old // 2, -old]
    new = random.choice((*near, *near, *SMALL, *POWERS, len(encoded.file) - number.at))
    encoded.file[number.at : number.at + number.size] = (new % 256**number.size).to_bytes(
        number.size, "little"
    )


def _noise(random: random.Random, encoded: Encoded) -> None:
    end = encoded.header_size if random.random() < 0.8 else len(encoded.file)
    for _ in range(random.choice((1, 2, 8, 32))):
        encoded.file[random.randrange(end)] = random.randrange(256)


def _truncation(random: random.Random, encoded: Encoded) -> None:
    end = encoded.header_size if random.random() < 0.8 else len(encoded.file)
    del encoded.file[random.randrange(end) :]
    encoded.file += b"\x00"


def _removal(random: random.Random, encoded: Encoded) -> None:
    at = random.randrange(encoded.header_size)
    del encoded.file[at : at + random.choice((1, 4, 8, 32, 1000))]
    encoded.file += bytes(64)


def _splice(random: random.Random, encoded: Encoded, other: Encoded) -> None:
    """A piece of another file, over or between what is there."""
    begin = random.randrange(other.header_size)
    piece = other.file[begin : begin + random.choice((8, 64, 1000, other.header_size))]
    at = random.randrange(max(len(encoded.file), 1))
    encoded.file[at : at + random.choice((0, len(piece)))] = piece


BYTE_MUTATIONS: list[Callable[[random.Random, Encoded], None]] = [_header_number, _header_number, _noise]


def _word(random: random.Random) -> bytes:
    if random.random() < 0.8:
        return random.choice(WORDS)
    return random.randbytes(random.choice((1, 20, 70))) * random.choice((1, 1, 1, 2000))


def number_bytes(random: random.Random, kind: int, size: int) -> bytes:
    if kind == 6:
        return struct.pack("<f", random.choice(FLOATS))
    if kind == 12:
        return struct.pack("<d", random.choice((*FLOATS, 1e308, 5e-324)))
    return (random.choice((*SMALL, *POWERS, -1)) % 256**size).to_bytes(size, "little")


def _random_array(random: random.Random) -> bytes:
    kind = random.randrange(13)
    count = random.choice((0, 1, 5, 300))
    if kind == STRING:
        return string_array([_word(random) for _ in range(min(count, 5))])
    if kind == ARRAY:
        return array(ARRAY, 2, _random_array(random) * 2)
    return array(kind, count, b"".join(number_bytes(random, kind, FIXED_SIZES[kind]) for _ in range(count)))


def _cut_array(random: random.Random, value: Value) -> bytes:
    """Fewer items than there were."""
    kind, count = struct.unpack_from("<IQ", value.data)
    if kind not in FIXED_SIZES or count == 0:
        return value.data
    kept = random.randrange(count)
    return array(kind, kept, value.data[12 : 12 + kept * FIXED_SIZES[kind]])
