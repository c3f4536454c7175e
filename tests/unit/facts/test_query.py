"""Queries and their answers; sections of a script keep any content, another frame is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascendboot.errors import NotUnderstoodError, ToolError
from ascendboot.facts.parsers import base
from ascendboot.facts.parsers.base import ToolBusyError, ToolMissingError, ToolSilentError
from ascendboot.facts.query import (
    CLOCK_COMMAND,
    Answered,
    Clock,
    Fact,
    Lack,
    Sections,
    Unanswered,
    output_of,
    query,
    value_of,
)
from ascendboot.transport.api import HANGS, Command, Effect, Result
from tests.fake_transport import Answer, FakeTransport, framed

WHO = Command(argv=("whoami",), purpose="find out who we are", effect=Effect.READ)


def answering(who: str | Answer) -> FakeTransport:
    return FakeTransport(answers={WHO.argv: who, CLOCK_COMMAND.argv: "1000000000.000000000\n"})


def times(*seconds: float) -> Callable[[], float]:
    left: Iterator[float] = iter(seconds)
    return lambda: next(left)


def clocks(*texts: str) -> Callable[[Command], str | None]:
    """Answers `date` with one time after the other."""
    left = iter(texts)
    return lambda command: next(left) if command == CLOCK_COMMAND else None


def test_all_queries_are_one_execution_and_equal_commands_run_once() -> None:
    transport = FakeTransport(
        answers={("whoami",): "root\n"},
        rules=[clocks("1000000000.000000000\n", "1000000004.000000000\n")],
    )
    answers = query(
        transport,
        {"user": Fact(WHO, lambda r: r.text.strip()), "length": Fact(WHO, lambda r: len(r.text))},
        now=times(999_999_990.0, 999_999_996.0),
    )
    assert transport.executions == [(CLOCK_COMMAND, WHO, CLOCK_COMMAND)]
    assert answers == {
        "user": Answered("root"),
        "length": Answered(5),
        # 10 s ahead at most, by the first reading, and 8 s at least, by the last
        "clock": Answered(Clock(offset_s=9.0, uncertainty_s=1.0)),
    }


@pytest.mark.parametrize(
    "texts", [("soon\n", "1000000004.000000000\n"), ("1000000000.000000000\n", "soon\n")]
)
def test_a_clock_that_is_not_understood_leaves_the_other_answers(texts: tuple[str, str]) -> None:
    transport = FakeTransport(answers={("whoami",): "root\n"}, rules=[clocks(*texts)])
    answers = query(transport, {"user": Fact(WHO, output_of)})
    assert answers == {
        "user": Answered("root\n"),
        "clock": Unanswered(
            "not-understood",
            'could not read the clock: date +%s.%N: line 1 not understood: "soon"; '
            "expected SECONDS.NANOSECONDS",
        ),
    }


def raising(error: Exception) -> Callable[[Result], str]:
    def parse(_: Result) -> str:
        raise error

    return parse


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ToolMissingError("no x"), "missing"),
        (ToolSilentError("x: no answer"), "silent"),
        (ToolBusyError("busy"), "busy"),
        (ToolError("broken"), "failed"),
        (NotUnderstoodError("x", 3, "?", "!"), "not-understood"),
    ],
)
def test_each_known_error_is_an_answer_of_its_kind(error: Exception, kind: Lack) -> None:
    transport = answering("root\n")
    said = query(transport, {"a": Fact(WHO, output_of), "b": Fact(WHO, raising(error))})
    answer = Unanswered(kind, f"could not find out who we are: {error}")
    assert (said["a"], said["b"]) == (Answered("root\n"), answer)
    assert value_of(answer) is None
    assert answer.why == str(error)


def test_a_bug_in_a_parser_is_not_an_answer() -> None:
    with pytest.raises(ZeroDivisionError):
        query(answering("root\n"), {"a": Fact(WHO, raising(ZeroDivisionError()))})


def test_a_fact_may_have_its_own_purpose() -> None:
    transport = answering(Answer(exit_code=127, stderr="whoami: command not found\n"))
    said = query(transport, {"a": Fact(WHO, output_of, "tell the user")})
    assert said["a"] == Unanswered(
        "missing", "could not tell the user: whoami exited 127: whoami: command not found"
    )


def test_sections_of_a_failed_script_are_refused() -> None:
    with pytest.raises(ToolError, match=r"^whoami exited 1: killed$"):
        Sections(Answer(framed({}), "killed", exit_code=1).to(WHO))


PARTS = {
    "fine": (0, b"words"),
    "gone": (127, b"x is not there"),
    "late": (124, b""),
    "mute": (3, b""),
    "bad": (1, b"first\nlast words\n"),
}
NO_SECTION = (
    'the script to find out who we are: line 5 not understood: "lost"; expected a section lost'
)
SECTIONS = Sections(Answer(framed(PARTS)).to(WHO))


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("gone", ToolMissingError, "x is not there"),
        ("late", ToolSilentError, f"it gave no answer in time; {HANGS}"),
        ("mute", ToolError, "exited 3 and printed nothing"),
        ("bad", ToolError, "last words"),
        ("lost", NotUnderstoodError, NO_SECTION),
    ],
)
def test_a_section_without_text_is_an_error_of_its_kind(
    name: str, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind) as raised:
        SECTIONS.text(name)
    assert SECTIONS.text("fine") == "words"
    assert (type(raised.value), str(raised.value)) == (kind, message)


ANY_NAME = st.from_regex(r"[a-z0-9_./-]{1,9}", fullmatch=True).filter(lambda name: name != "end")
PARTS_OF_ANY = st.dictionaries(ANY_NAME, st.tuples(st.integers(0, 255), st.binary()))


@given(parts=PARTS_OF_ANY)
def test_sections_keep_any_content(parts: dict[str, tuple[int, bytes]]) -> None:
    expected = {name: base.Section(code, content) for name, (code, content) in parts.items()}
    assert base.split(framed(parts), "script") == expected


@given(parts=PARTS_OF_ANY, data=st.data())
def test_truncated_sections_are_refused(
    parts: dict[str, tuple[int, bytes]], data: st.DataObject
) -> None:
    whole = framed(parts)
    with pytest.raises(NotUnderstoodError):
        base.split(whole[: data.draw(st.integers(0, len(whole) - 1))], "script")


@given(parts=PARTS_OF_ANY, more=st.binary(min_size=1))
def test_output_after_the_last_section_is_refused(
    parts: dict[str, tuple[int, bytes]], more: bytes
) -> None:
    with pytest.raises(NotUnderstoodError):
        base.split(framed(parts) + more, "script")


def test_a_repeated_section_is_refused() -> None:
    with pytest.raises(NotUnderstoodError) as refused:
        base.split(b"@@ uid 0 1\n0\n@@ uid 0 1\n0\n@@ end 0 0\n\n", "the script")
    assert str(refused.value) == (
        'the script: line 3 not understood: "@@ uid 0 1"; '
        "expected @@ NAME EXIT_CODE BYTES and as many bytes"
    )


def test_bytes_that_are_not_utf_8_are_replaced() -> None:
    assert base.Section(0, b"a\xff").text == "a�"
