"""verifiers/code.py: tests that are written as asserts, as in HumanEval.

The text of such a check holds the expected values, so it never runs where the answer does. It runs in a worker of its
own (`referee`), where `candidate` only looks up what the answer returned for these arguments. What it does not find
there it reports, the answer is run on it, and the check runs again: twice in all, unless a call's arguments depend
on what another call returned.
"""

import ast
import builtins
import itertools
import json
import random
from collections.abc import Generator
from typing import Any, NamedTuple

from verifiers.jobs import Call, Outcome, Program, Test, decode, encode
from verifiers.verdict import shown

# Of a check whose calls depend on what earlier calls returned: each round finds out what is called next.
MAX_ROUNDS = 8
MAX_CALLS = 1_000


class Tally(NamedTuple):
    """How many of the tests passed, and how the runs of the answer ended (`Result.status`)."""

    passed: int
    total: int
    statuses: set[str]


def read_check(check: str, entry_point: str) -> list[tuple[ast.stmt, bool]]:
    """The statements of a check in order, each with whether it is a test: those with an assert in them are.

    The body of `def check(candidate)` is taken apart, so that each of its asserts counts; a call of `check` is left
    out, and functions named test_... without arguments are called. ValueError for a check that this cannot do.
    """
    try:
        tree = ast.parse(check)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"`assert_test` is not Python: {shown(str(error))}") from None
    statements: list[ast.stmt] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "check":
            for argument in node.args.args:
                statements += ast.parse(f"{argument.arg} = {entry_point}").body
            statements += node.body
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test") and not node.args.args:
            statements += [node, *ast.parse(f"{node.name}()").body]
        elif not _calls(node, "check") and not (isinstance(node, ast.ImportFrom) and node.module == "solution"):
            statements.append(node)
    functions = {node.name for node in statements if isinstance(node, ast.FunctionDef)}
    tests = [(node, _is_test(node, functions)) for node in statements]
    _refuse_check(statements, tests, entry_point)
    return tests


def _calls(node: ast.stmt, name: str) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == name


def _is_test(node: ast.stmt, functions: set[str]) -> bool:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return False
    return any(isinstance(part, ast.Assert) for part in ast.walk(node)) or any(_calls(node, name) for name in functions)


def _refuse_check(statements: list[ast.stmt], tests: list[tuple[ast.stmt, bool]], entry_point: str) -> None:
    if not any(is_test for _, is_test in tests):
        raise ValueError("`assert_test` asserts nothing: write asserts, alone or in `def check(candidate)`")
    parts = [part for node in statements for part in ast.walk(node)]
    if any(isinstance(node, ast.Return) for node in statements):
        raise ValueError("`assert_test` returns in the middle of its check: it cannot be taken apart into tests")
    if any(_hands_over_a_function(part, entry_point) for part in parts):
        raise ValueError("`assert_test` hands a function to the answer: only plain values reach its process")
    known = {entry_point, *dir(builtins), "__name__"}
    for part in parts:
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            known.add(part.id)
        elif isinstance(part, ast.FunctionDef | ast.ClassDef):
            known.add(part.name)
        elif isinstance(part, ast.arg):
            known.add(part.arg)
        elif isinstance(part, ast.ExceptHandler) and part.name:
            known.add(part.name)
        elif isinstance(part, ast.Import | ast.ImportFrom):
            known.update((alias.asname or alias.name).partition(".")[0] for alias in part.names)
    unknown = {part.id for part in parts if isinstance(part, ast.Name)} - known
    if unknown and "*" not in known:
        raise ValueError(
            f"`assert_test` uses {', '.join(sorted(unknown))}, which only the answer could define: then the answer "
            "would decide whether it is right. Write the definition into the check"
        )


def _hands_over_a_function(part: ast.AST, entry_point: str) -> bool:
    if not (isinstance(part, ast.Call) and isinstance(part.func, ast.Name)):
        return False
    named = part.func.id in (entry_point, "candidate")
    return named and any(isinstance(argument, ast.Lambda) for argument in part.args)


class _Unknown(BaseException):
    """A call that the answer has not been run on yet. Not an Exception: a check may catch those."""


class _Enough(BaseException):
    """More unknown calls than one round takes."""


def referee(check: str, entry_point: str, known: list[list]) -> dict[str, Any]:
    """Run a check against known results (arguments, [status, value as JSON]), in a worker. What it `needs` to know, or
    if that is nothing, how many of its tests passed. Each test stands alone: one that fails does not end the rest."""
    results, unknown_calls = dict(known), itertools.count(1)
    needs: dict[str, None] = {}

    def candidate(*args: Any, **kwargs: Any) -> Any:
        key = json.dumps([[encode(value) for value in args], {name: encode(value) for name, value in kwargs.items()}])
        if key not in results:
            needs[key] = None
            raise _Unknown if next(unknown_calls) < MAX_CALLS else _Enough
        status, value = results[key]
        if status == "ok":
            return decode(json.loads(value))
        error = getattr(builtins, value or "", None)
        raise error if isinstance(error, type) and issubclass(error, Exception) else Exception(value)

    names = {"__name__": "check", entry_point: candidate, "_Unknown": _Unknown, "_needs": needs}
    random.seed(0)
    passed = []
    for node, is_test in read_check(check, entry_point):
        # Only where something is still unknown are the asserts of a loop made to go on without it.
        ok = False
        try:
            module = ast.fix_missing_locations(ast.Module([_Patient().visit(node)], []))
            exec(compile(module, "check", "exec"), names)
            ok = True
        except _Enough:
            break
        except (Exception, _Unknown, SystemExit):
            pass
        if is_test:
            passed.append(ok)
    return {"passed": sum(passed), "total": len(passed), "needs": list(needs)}


# In a round with unknown values nothing counts but what it finds: neither do the exceptions that follow from them.
_PATIENT = """
try: ...
except _Unknown: pass
except Exception:
    if not _needs: raise
"""


class _Patient(ast.NodeTransformer):
    """Lets a block go on after a statement whose value is unknown, so that one round finds as many calls as it can."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                setattr(node, name, [self.wrap(statement) for statement in block])
        return node

    def wrap(self, statement: ast.stmt) -> ast.stmt:
        if not isinstance(statement, ast.Assert | ast.Assign | ast.Expr):
            return statement
        [patient] = ast.parse(_PATIENT).body
        assert isinstance(patient, ast.Try)
        patient.body = [statement]
        return patient


def converse_asserts(source: str, check: str, entry_point: str) -> Generator[Call | Program, Outcome, Tally]:
    """The rounds of one answer: the check says what it needs to know, the answer is run on that, the check again."""
    known: dict[str, list] = {}
    statuses: set[str] = set()
    for _ in range(MAX_ROUNDS):
        outcome = yield Call("verifiers.asserts:referee", [check, entry_point, list(known.items())], evaluates=True)
        if outcome.status != "ok":
            return Tally(0, 1, {outcome.status})
        needs = outcome.value["needs"]
        if not needs:
            return Tally(outcome.value["passed"], outcome.value["total"], statuses)
        if "timeout" in statuses:
            # Its time is up: what it has not been run on, it has not answered.
            known |= {need: ["timeout", None] for need in needs}
            continue
        calls = [dict(zip(("args", "kwargs"), json.loads(need), strict=True)) for need in needs]
        tests: list[Test] = [{"fn_name": entry_point} | call for call in calls]
        outcome = yield Program(source, tests, go_on=lambda tested: tested.status != "unparsed")
        if outcome.status != "ok":
            return Tally(0, 1, {outcome.status})
        statuses |= {tested.status for tested in outcome.value}
        if "unparsed" in statuses:
            return Tally(0, 1, {"unparsed"})
        known |= {need: list(tested) for need, tested in zip(needs, outcome.value, strict=True)}
    return Tally(0, 1, {"timeout"})
