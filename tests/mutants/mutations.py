"""Small mistakes, one at a time: every way in which a function of a module could be a little wrong.

A mutant is one edit of one function's body: a comparison that includes its boundary or not, another
operator, a condition inverted or removed, a number one larger, a misspelt key, arguments swapped or
removed, a bound of a slice or a default removed, nothing returned, a statement removed. Edits that
cannot matter are not made: of log lines, error messages, docstrings, annotations and assertions
(those are claims about our own code that never fail).

A mutant's name does not depend on line numbers, so that accepted reasons stay valid.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

CHARACTERS_MAX: Final = 72
"""Maximum length of the expression around an edit that a name shows."""

_OTHER: Final[dict[type[ast.AST], type[ast.AST]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
    ast.Break: ast.Continue,
    ast.Continue: ast.Break,
}
_OTHER_FUNCTION: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
_WITH_DEFAULT: Final = {"get", "pop", "next", "getattr"}
_LOGGERS: Final = {"log", "logger", "logging"}
_LEFT_ALONE: Final = (ast.Assert, ast.JoinedStr, ast.arguments)
_FIELDS_LEFT_ALONE: Final = {"annotation", "returns", "decorator_list", "type_comment"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Mutant:
    module: str
    """Its path, like `storage/head/head.py`."""
    function: str
    """The outermost function around the edit, as `Class.method`."""
    change: str
    line: int
    number: int
    """The number of the edit within the module."""

    @property
    def name(self) -> str:
        return f"{self.function}: {self.change}"


@dataclass(frozen=True, slots=True)
class _Edit:
    """Another value for one field of a node of the tree."""

    node: ast.AST
    field: str
    value: Any
    label: str = ""
    """The name to show, where the expression around it would be too long."""

    def swap(self) -> "_Edit":
        """Make the edit, and return the one that reverts it."""
        back = _Edit(self.node, self.field, getattr(self.node, self.field))
        setattr(self.node, self.field, self.value)
        return back


@dataclass(frozen=True, slots=True)
class _Site:
    """A node, the fields that lead to it from its function, and the expressions around it."""

    node: ast.AST
    parent: ast.AST
    field: str
    index: int | None
    around: tuple[ast.AST, ...]

    def replaced(self, new: ast.AST) -> _Edit:
        ast.copy_location(new, self.node)
        if self.index is None:
            return _Edit(self.parent, self.field, new)
        siblings = list(getattr(self.parent, self.field))
        siblings[self.index] = new
        return _Edit(self.parent, self.field, siblings)


def functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """Yield the outermost functions, with the names that their code objects have."""
    pending: list[tuple[str, ast.AST]] = [("", node) for node in reversed(tree.body)]
    while pending:
        prefix, node = pending.pop()
        if isinstance(node, Function):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            pending += [(f"{prefix}{node.name}.", child) for child in reversed(node.body)]


def mutants(module: str, source: str) -> list[Mutant]:
    """Return every mutant of the module."""
    found: list[Mutant] = []
    names: Counter[str] = Counter()
    for number, (function, site, edit) in enumerate(_edits(ast.parse(source))):
        change = _change(site, edit)
        names[f"{function}: {change}"] += 1
        if (nth := names[f"{function}: {change}"]) > 1:
            change += f" ({nth})"
        line: int = getattr(site.node, "lineno", 0) or getattr(site.parent, "lineno", 0)
        found.append(Mutant(module, function, change, line, number))
    return found


def mutated(source: str, number: int) -> ast.Module:
    """Return the module with the edit of that number made."""
    tree = ast.parse(source)
    for position, (_, _, edit) in enumerate(_edits(tree)):
        if position == number:
            edit.swap()
            return ast.fix_missing_locations(tree)
    raise IndexError(number)


def _edits(tree: ast.Module) -> Iterator[tuple[str, _Site, _Edit]]:
    for name, function in functions(tree):
        for site in _sites(function):
            for edit in _of_expression(site):
                yield name, site, edit
            for edit in _of_statement(site):
                yield name, site, edit


def _sites(function: Function) -> Iterator[_Site]:
    """Yield the nodes of the function that can be edited, from top to end."""
    pending: list[tuple[ast.AST, tuple[ast.AST, ...]]] = [(function, ())]
    while pending:
        parent, around = pending.pop()
        below: list[tuple[ast.AST, tuple[ast.AST, ...]]] = []
        for field, index, node in _children(parent):
            if field in _FIELDS_LEFT_ALONE or isinstance(node, _LEFT_ALONE):
                continue
            if _is_log(node) or _is_claim(node):
                continue
            # An edit is shown within its statement; of a compound one, within its header.
            here = around if isinstance(node, ast.expr | ast.comprehension | ast.keyword) else ()
            yield _Site(node, parent, field, index, (*here, node))
            below.append((node, (*here, node)))
        pending += reversed(below)


def _children(node: ast.AST) -> Iterator[tuple[str, int | None, ast.AST]]:
    for field, value in ast.iter_fields(node):
        if isinstance(value, list):
            for index, child in enumerate(value):
                if isinstance(child, ast.AST):
                    yield field, index, child
        elif isinstance(value, ast.AST):
            yield field, None, value


def _is_log(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in _LOGGERS
    )


def _is_claim(node: ast.AST) -> bool:
    """Whether it asserts that two lists have the same length, as `zip` can."""
    return isinstance(node, ast.keyword) and node.arg == "strict"


def _of_expression(site: _Site) -> Iterator[_Edit]:
    node = site.node
    match node:
        case ast.Compare(ops=ops):
            for index, op in enumerate(ops):
                yield _Edit(node, "ops", [*ops[:index], _OTHER[type(op)](), *ops[index + 1 :]])
        case ast.BinOp(op=op, left=left, right=right):
            if not _is_text(left) and not _is_text(right) and type(op) in _OTHER:
                yield _Edit(node, "op", _OTHER[type(op)]())
        case ast.BoolOp(values=values):
            for index in range(len(values)):
                yield _one_less(site, node, index)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield site.replaced(operand)
        case ast.Constant():
            yield from _of_constant(site)
        case ast.Call():
            yield from _of_call(node)
    yield from _of_place(site)


def _of_place(site: _Site) -> Iterator[_Edit]:
    """Yield edits of bounds of slices and of conditions."""
    node = site.node
    if isinstance(site.parent, ast.Slice):
        yield _Edit(site.parent, site.field, None)
    stronger = ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant
    if _is_condition(site) and isinstance(node, ast.expr) and not isinstance(node, stronger):
        yield site.replaced(ast.UnaryOp(ast.Not(), node))


def _one_less(site: _Site, node: ast.BoolOp, index: int) -> _Edit:
    """Return the edit that removes one of several conditions."""
    others = node.values[:index] + node.values[index + 1 :]
    return _Edit(node, "values", others) if len(others) > 1 else site.replaced(others[0])


def _is_text(node: ast.AST) -> bool:
    """Whether `+` and `%` on it have nothing to do with arithmetic."""
    return isinstance(node, ast.JoinedStr | ast.List | ast.Tuple) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )


def _is_condition(site: _Site) -> bool:
    if isinstance(site.parent, ast.If | ast.While | ast.IfExp) and site.field == "test":
        return True
    return isinstance(site.parent, ast.comprehension) and site.field == "ifs"


def _of_constant(site: _Site) -> Iterator[_Edit]:
    assert isinstance(site.node, ast.Constant), site
    value = site.node.value
    if isinstance(value, bool):
        yield _Edit(site.node, "value", not value)
    elif isinstance(value, int | float):
        yield _Edit(site.node, "value", value + 1)
    elif isinstance(value, str) and _is_key(site):
        yield _Edit(site.node, "value", value + "!")


def _is_key(site: _Site) -> bool:
    return (isinstance(site.parent, ast.Subscript) and site.field == "slice") or (
        isinstance(site.parent, ast.Dict) and site.field == "keys"
    )


def _of_call(call: ast.Call) -> Iterator[_Edit]:
    called = call.func
    name = getattr(called, "id", getattr(called, "attr", ""))
    if isinstance(called, ast.Name) and name in _OTHER_FUNCTION:
        yield _Edit(called, "id", _OTHER_FUNCTION[name])
    elif len(call.args) > 1 and all(
        isinstance(arg, ast.Name | ast.Attribute) for arg in call.args[:2]
    ):
        first, second, *rest = call.args
        if ast.dump(first) != ast.dump(second):
            yield _Edit(call, "args", [second, first, *rest])
    if name in _WITH_DEFAULT and len(call.args) > 1:
        yield _Edit(call, "args", call.args[:-1])
    for index, keyword in enumerate(call.keywords):
        if keyword.arg is not None and not _is_claim(keyword):
            others = call.keywords[:index] + call.keywords[index + 1 :]
            label = f"`{_cut(_text(called))}(…)` without `{_cut(_text(keyword))}`"
            yield _Edit(call, "keywords", others, label)


def _of_statement(site: _Site) -> Iterator[_Edit]:
    node = site.node
    match node:
        case ast.Return(value=value) if value is not None and not isinstance(value, ast.Constant):
            yield _Edit(node, "value", None, f"without `{_cut(_text(node))}`")
        case ast.Break() | ast.Continue():
            other = _OTHER[type(node)]()
            yield site.replaced(other)
        case ast.Expr(value=ast.Call() | ast.Await()) if not _is_unlike_others(node):
            yield site.replaced(ast.Pass())
        case ast.AugAssign(op=op):
            yield site.replaced(ast.Pass())
            if type(op) in _OTHER and not _is_text(node.value):
                yield _Edit(node, "op", _OTHER[type(op)]())
        case ast.Raise() if not _is_impossible(node):
            yield site.replaced(ast.Pass())
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.Delete():
            yield site.replaced(ast.Pass())


def _is_impossible(statement: ast.Raise) -> bool:
    """Whether it marks unreachable code, as an assertion would."""
    raised = statement.exc.func if isinstance(statement.exc, ast.Call) else statement.exc
    return isinstance(raised, ast.Name) and raised.id in ("AssertionError", "NotImplementedError")


def _is_unlike_others(statement: ast.Expr) -> bool:
    """Whether it logs, or binds the function to its class."""
    called = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
    return any(
        _is_log(call) or (isinstance(call.func, ast.Name) and call.func.id == "super")
        for call in called
    )


def _change(site: _Site, edit: _Edit) -> str:
    """Describe the edit in the largest expression that is short enough to show."""
    if edit.label:
        return edit.label
    if isinstance(edit.value, list) and any(isinstance(value, ast.Pass) for value in edit.value):
        return f"without `{_cut(_text(site.node))}`"
    before, after = _text(site.node), ""
    for shown in reversed(site.around):
        if isinstance(shown, ast.comprehension | ast.keyword):
            continue
        wider = _text(shown)
        if after and len(wider) > CHARACTERS_MAX:
            break
        back = edit.swap()
        changed = _text(shown)
        back.swap()
        if changed != wider:
            before, after = wider, changed
    if not after:  # The node itself is replaced, within an expression too long to show.
        after = _text(edit.value if isinstance(edit.value, ast.AST) else edit.value[site.index])
    return f"`{_cut(before)}` → `{_cut(after)}`"


def _text(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())


def _cut(text: str) -> str:
    return text if len(text) <= CHARACTERS_MAX else text[: CHARACTERS_MAX - 1] + "…"
