"""The mistakes that the mutation check makes: only those that matter, with stable names."""

import ast
from textwrap import dedent, indent

import pytest

from tests.mutants.mutations import mutants, mutated


def changes(body: str) -> list[str]:
    """Return the edits of a function with this body, except those that return nothing."""
    source = "def f(a, b):\n" + indent(dedent(body), "    ")
    return [
        mutant.change
        for mutant in mutants("m.py", source)
        if not mutant.change.startswith("without `return")
    ]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return a < b", ["`return a < b` → `return a <= b`"]),
        ("return a - b", ["`return a - b` → `return a + b`"]),
        ("return a and b", ["`return a and b` → `return b`", "`return a and b` → `return a`"]),
        ("return not a", ["`return not a` → `return a`"]),
        ("return a in b", ["`return a in b` → `return a not in b`"]),
        ("return True", ["`return True` → `return False`"]),
        ("return 41", ["`return 41` → `return 42`"]),
        ("return a['key']", ["`return a['key']` → `return a['key!']`"]),
        ("return a[:b]", ["`return a[:b]` → `return a[:]`"]),
        ("return f(a, b)", ["`return f(a, b)` → `return f(b, a)`"]),
        ("return min(a, b)", ["`return min(a, b)` → `return max(a, b)`"]),
        ("return a.get('x', b)", ["`return a.get('x', b)` → `return a.get('x')`"]),
        ("return f(one=a)", ["`f(…)` without `one=a`"]),
        ("return a if b else f", ["`return a if b else f` → `return a if not b else f`"]),
        ("a += b", ["without `a += b`", "`a += b` → `a -= b`"]),
        ("a.x = b", ["without `a.x = b`"]),
        ("del a[b]", ["without `del a[b]`"]),
        ("a.close()", ["without `a.close()`"]),
        ("raise ValueError(a)", ["without `raise ValueError(a)`"]),
        ("for a in b:\n    break", ["`break` → `continue`"]),
    ],
)
def test_each_kind_of_mistake_is_made(body: str, expected: list[str]) -> None:
    assert changes(body) == expected


@pytest.mark.parametrize(
    "body",
    [
        '"""A docstring."""',
        "assert a < b, a + 1",
        'log.info("it is %d", a + 1)',
        'return f"{a + 1} of {b}"',
        'return "no key"',
        "def g(c: a + 1 = 2) -> b + 1: ...",
        'raise NotImplementedError("elsewhere")',
        "super().__init__()",
        "a = [zip(*b, strict=True)]",
        'return "text" + a',
    ],
)
def test_code_that_cannot_matter_is_not_edited(body: str) -> None:
    assert changes(body) == []


def test_every_mutant_is_a_different_module_that_compiles() -> None:
    source = dedent('''
        class C:
            async def f(self, a, b):
                """Nothing here is changed."""
                await self.g(a, b=b + 1)
                return [x for x in a if x and x > 2]

            @property
            def g(self):
                return {"k": not self.h}
    ''')
    found = mutants("m.py", source)
    texts = [ast.unparse(mutated(source, mutant.number)) for mutant in found]

    assert {mutant.function for mutant in found} == {"C.f", "C.g"}
    assert len({*texts, ast.unparse(ast.parse(source))}) == len(found) + 1
    for text in texts:
        compile(text, "m.py", "exec")


def test_names_are_unique_and_do_not_depend_on_line_numbers() -> None:
    source = "def f(a):\n    a.go()\n    a.go()\n    return a + 1\n"

    names = [mutant.name for mutant in mutants("m.py", source)]
    moved = [mutant.name for mutant in mutants("m.py", "import x\n\n\n" + source)]

    assert moved == names
    assert len(set(names)) == len(names)
    assert "f: without `a.go()` (2)" in names


def test_a_mutant_number_out_of_range_raises_index_error() -> None:
    with pytest.raises(IndexError):
        mutated("def f():\n    return 1\n", 1)
