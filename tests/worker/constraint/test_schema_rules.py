"""Grammars that would hurt the engine are refused before it sees them."""

from __future__ import annotations

import pytest

from worker.schema_rules import ConstraintError, check_grammar


@pytest.mark.parametrize(
    "gbnf",
    [
        'root ::= "a"',
        'item ::= [0-9]{1,3} # a comment with ((((\nroot ::= item (", " item)*',
        'root ::= "((((" "\\"{99999}" [(\\]{] rest\nrest ::= "x"{2,}',
        "other ::= root\nroot::=[a-z]+",
    ],
)
def test_grammars_pass(gbnf: str) -> None:
    check_grammar(gbnf)


@pytest.mark.parametrize(
    ("gbnf", "reason"),
    [
        ("", "no rule named root"),
        ('start ::= "root ::= x"', "no rule named root"),
        ("# root ::= x", "no rule named root"),
        ("root ::= " + "(" * 100_000 + '"a"' + ")" * 100_000, "nested deeper|larger than"),
        ("root ::= " + "(" * 100 + '"a"' + ")" * 100, "nested deeper"),
        ('root ::= "a"{1,1000000000}', "more than"),
        ('root ::= "' + "a" * 300_000 + '"', "larger than"),
    ],
)
def test_grammars_that_hurt_are_refused(gbnf: str, reason: str) -> None:
    with pytest.raises(ConstraintError, match=reason):
        check_grammar(gbnf)
