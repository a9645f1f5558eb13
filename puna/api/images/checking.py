"""Which images may be shown to a model: what a decoder would do is known before one sees them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from puna.api.errors import ApiError
from puna.api.images.headers import Kind, read_header
from puna.api.images.png_data import check_png_data
from puna.daemon.images import ImageConverter
from puna.worker.images.messages import ImageError

_MOST_PIXELS = 1 << 26
"""Of one: decoded it takes three bytes for each."""
_MOST_PIXELS_TOGETHER = 1 << 27
_LONGEST_SIDE = 1 << 15
_MOST_BYTES = 48 << 20
"""Encoded, of all: a message to a worker takes no more."""
_MOST_PLACES = 64
"""In a prompt."""


async def prepared_images(images: Sequence[bytes], converter: ImageConverter) -> list[bytes]:
    """Those of a request, as llama.cpp reads them. ApiError (400)."""
    kinds = _check(images)
    await asyncio.to_thread(_check_pngs, images, kinds)
    prepared = list(images)
    webps = [number for number, kind in enumerate(kinds) if kind == "webp"]
    if webps:
        try:
            pngs = await converter.to_png([images[number] for number in webps])
        except ImageError as error:
            raise ApiError(400, f"invalid image input: a WebP: {error}") from error
        for number, png in zip(webps, pngs, strict=True):
            prepared[number] = png
    _check_bytes(sum(map(len, prepared)))
    return prepared


def check_places(images: Sequence[bytes], prompts: Iterable[Sequence[int]], num_choices: int) -> None:
    """prompts: the numbers of the images that stand in each. A prompt may show an image more than once, and
    is sent once for each choice: all of that counts. ApiError (400).
    """
    num_bytes = num_pixels = 0
    for numbers in prompts:
        if len(numbers) > _MOST_PLACES:
            raise ApiError(400, f"a prompt shows more than {_MOST_PLACES} images")
        if numbers and not 0 <= min(numbers) <= max(numbers) < len(images):
            raise ApiError(400, "a prompt shows an image that the request does not have")
        for number in numbers:
            _, width, height = read_header(images[number])
            num_bytes += len(images[number]) * num_choices
            num_pixels += width * height * num_choices
    _check_bytes(num_bytes)
    _check_pixels(num_pixels)


def _check_pngs(images: Sequence[bytes], kinds: Sequence[Kind]) -> None:
    for number, (image, kind) in enumerate(zip(images, kinds, strict=True)):
        if kind == "png":
            try:
                check_png_data(image)
            except ImageError as error:
                raise _invalid(number, error) from error


def _invalid(number: int, error: ImageError) -> ApiError:
    return ApiError(400, f"invalid image input: images[{number}]: {error}")


def _check_bytes(num_bytes: int) -> None:
    if num_bytes > _MOST_BYTES:
        raise ApiError(400, f"the images have more than {_MOST_BYTES >> 20} MiB together")


def _check_pixels(num_pixels: int) -> None:
    if num_pixels > _MOST_PIXELS_TOGETHER:
        raise ApiError(400, f"the images have more than {_MOST_PIXELS_TOGETHER >> 20} megapixels together")


def _check(images: Sequence[bytes]) -> list[Kind]:
    kinds, num_pixels = [], 0
    for number, image in enumerate(images):
        try:
            kind, width, height = read_header(image)
        except ImageError as error:
            raise _invalid(number, error) from error
        if max(width, height) > _LONGEST_SIDE or width * height > _MOST_PIXELS:
            most = f"{_MOST_PIXELS >> 20} megapixels, {_LONGEST_SIDE} on a side"
            raise ApiError(
                400, f"invalid image input: images[{number}]: {width} x {height} pixels are more than {most}"
            )
        num_pixels += width * height
        kinds.append(kind)
    _check_pixels(num_pixels)
    return kinds
