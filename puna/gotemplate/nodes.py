"""What a template consists of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(slots=True)
class Dot:
    """`.`"""


@dataclass(slots=True)
class Nil:
    """`nil`"""


@dataclass(slots=True)
class Constant:
    value: bool | int | float | str


@dataclass(slots=True)
class Field:
    """`.A.B`"""

    names: list[str]


@dataclass(slots=True)
class Variable:
    """`$x.A.B`; the name is without the dollar sign."""

    name: str
    names: list[str]


@dataclass(slots=True)
class Function:
    name: str


@dataclass(slots=True)
class Chain:
    """`(pipeline).A.B`"""

    operand: Operand
    names: list[str]


@dataclass(slots=True)
class Command:
    """A function with its arguments, or a value."""

    operands: list[Operand]


@dataclass(slots=True)
class Pipeline:
    """`$x := command | command`"""

    line: int
    commands: list[Command] = field(default_factory=list)
    variables: list[str] = field(default_factory=list)
    assigns: bool = False
    """`=` in place of `:=`."""


@dataclass(slots=True)
class Text:
    text: str


@dataclass(slots=True)
class Action:
    """`{{ pipeline }}`"""

    pipeline: Pipeline


@dataclass(slots=True)
class _Branch:
    pipeline: Pipeline
    body: Body
    otherwise: Body


@dataclass(slots=True)
class If(_Branch):
    pass


@dataclass(slots=True)
class With(_Branch):
    pass


@dataclass(slots=True)
class Range(_Branch):
    pass


@dataclass(slots=True)
class TemplateCall:
    """`{{ template "name" pipeline }}`"""

    name: str
    pipeline: Pipeline | None
    line: int


@dataclass(slots=True)
class Break:
    pass


@dataclass(slots=True)
class Continue:
    pass


Operand: TypeAlias = Dot | Nil | Constant | Field | Variable | Function | Chain | Pipeline
Node: TypeAlias = Text | Action | If | With | Range | TemplateCall | Break | Continue
Body: TypeAlias = list[Node]
