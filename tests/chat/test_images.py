"""Where images stand in contents and in prompts."""

from __future__ import annotations

import pytest

from puna.chat.errors import PromptError
from puna.chat.images import IMAGE, joined, with_image_places
from puna.chat.messages import Message
from puna.tokenizer import load_tokenizer
from tests.chat.test_prompt import TOKENIZER, VOCABULARY, build, turn
from tests.tiny import byte_level_vocabulary

pytestmark = pytest.mark.unit


def test_parts_keep_their_order_and_texts_cannot_be_taken_for_images():
    assert joined(["a", "b", b"1", "c" + IMAGE, b"2", b"3", "d"], "\n") == (
        f"a\nb{IMAGE}c{IMAGE}{IMAGE}d",
        [b"1", b"2", b"3"],
    )
    assert joined(["a" + IMAGE, "b"], "\n") == (f"a{IMAGE}\nb", [])


@pytest.mark.parametrize(
    ("text", "content", "images"),
    [
        ("hi", f"{IMAGE}{IMAGE}hi", [b"1", b"2"]),
        ("a [img] b [img] c [img]", f"a {IMAGE} b {IMAGE} c [img]", [b"1", b"2"]),
        ("a [img]" + IMAGE, f"{IMAGE}a {IMAGE}", [b"2", b"1"]),
    ],
)
def test_images_take_the_places_that_ollama_gives_them(text: str, content: str, images: list[bytes]):
    assert with_image_places(text, [b"1", b"2"]) == (content, images)


def seen(role: str, content: str, num_images: int = 1) -> Message:
    """As a face makes it, without the images themselves."""
    return Message(role, content, images=[b""] * num_images)


def test_a_prompt_is_cut_where_images_stand_and_nowhere_else():
    messages = [
        Message("system", f"S{IMAGE}[img-0]"),
        seen("user", f"a{IMAGE}b{IMAGE}c", 2),
        Message("assistant", "d"),
        seen("user", f"{IMAGE}[img-1]"),
    ]
    prompt = build(messages=messages, context_length=4096)
    head = turn("system", f"S{IMAGE}[img-0]") + "<|im_start|>user\n"
    tail = "c<|im_end|>\n" + turn("assistant", "d") + "<|im_start|>user\n"
    end = "[img-1]<|im_end|>\n<|im_start|>assistant\n"
    assert prompt.cut == ([head + "a", "b", tail, end], [0, 1, 2])
    assert prompt.text == f"{head}a[img-0]b[img-1]{tail}[img-2]{end}"
    assert prompt.tokens == TOKENIZER.encode(head + "ab" + tail + end)
    assert not prompt.boundaries


def test_without_images_nothing_is_cut():
    assert build(messages=[Message("user", f"[img-0]{IMAGE}")]).cut is None


def test_images_count_for_the_context_and_go_with_their_messages():
    messages = [seen("user", f"{IMAGE}a"), Message("assistant", "b"), seen("user", f"{IMAGE}c")]
    kept = build(messages=messages, context_length=2000)
    assert kept.cut is not None
    assert kept.cut.images == [0, 1]
    cut = build(messages=messages, context_length=1500).cut
    assert cut == (
        ["<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\n", "c<|im_end|>\n<|im_start|>assistant\n"],
        [1],
    )
    with pytest.raises(PromptError, match="longer than the context length"):
        build(messages=[seen("user", f"{IMAGE}{'long ' * 100}")], context_length=64)


def test_a_prompt_and_what_it_continues():
    prompt = build(prompts=[f"a{IMAGE}b"], num_images=1, context=TOKENIZER.encode("before"))
    assert prompt.cut == (["before<|im_start|>user\na", "b<|im_end|>\n<|im_start|>assistant\n"], [0])
    assert TOKENIZER.decode(prompt.tokens).startswith("before<|im_start|>user\nab<|im_end|>")


@pytest.mark.parametrize(
    ("text", "pieces", "images"),
    [
        ("a[img-1]b[img-7][img-0]", ["a", "b[img-7]", ""], [1, 0]),
        ("a", ["", "", "a"], [0, 1]),
    ],
)
def test_raw_prompts_say_where_their_images_stand(text: str, pieces: list[str], images: list[int]):
    assert build(prompts=[text], num_images=2, raw=True).cut == (pieces, images)


def test_who_encodes_the_text_puts_bos_in_front_by_itself():
    tokens, _, _ = byte_level_vocabulary()
    bos = tokens.index("<|im_start|>")
    tokenizer = load_tokenizer(
        VOCABULARY | {"tokenizer.ggml.bos_token_id": bos, "tokenizer.ggml.add_bos_token": True}
    )
    prompt = build(tokenizer=tokenizer, messages=[seen("user", f"{IMAGE}a")])
    assert prompt.cut is not None
    assert prompt.cut.pieces[0] == "user\n"
    assert prompt.tokens[0] == bos != prompt.tokens[1]
