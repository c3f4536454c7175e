"""Verdict: all that is said of one file, as text and as JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ascendboot.errors import RankTableError
from ascendboot.ranktable import jsontext, source
from ascendboot.ranktable.against import against
from ascendboot.ranktable.rule import CALLED
from ascendboot.ranktable.rules import RULE_OF
from ascendboot.ranktable.validate import NAMED, PRODUCTS_OF, generation_of, table_in, validate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ascendboot.ranktable.against import ServerSeen
    from ascendboot.ranktable.problem import Problem
    from ascendboot.ranktable.rule import Job, Product
    from ascendboot.ranktable.validate import Generation

MOST_SHOWN = 8
"""Problems of one rule that are shown; JSON has all."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What is wrong with one file, or why it could not be judged."""

    file: str
    generation: Generation | None = None
    """None where it could not be judged."""
    product: Product | None = None
    """The product that it was judged for."""
    problems: tuple[Problem, ...] = ()
    lines: tuple[int, ...] = ()
    """The line of each problem."""
    message: str = ""
    """Why it could not be judged."""

    @property
    def word(self) -> Literal["valid", "refused", "unreadable"]:
        """The verdict in a word."""
        if self.generation is None:
            return "unreadable"
        return "refused" if any(p.level == "error" for p in self.problems) else "valid"

    @property
    def exit_code(self) -> int:
        """0 valid, warnings allowed; 1 refused; 2 unreadable, not JSON, not a rank table."""
        return {"valid": 0, "refused": 1, "unreadable": RankTableError.exit_code}[self.word]

    def told(self) -> Iterator[str]:
        """One line per problem, those of a rule at most eight, and the verdict last."""
        if self.generation is None:
            yield self.message
            return
        told: Counter[str] = Counter()
        total = Counter(problem.id for problem in self.problems)
        for problem, line in zip(self.problems, self.lines, strict=True):
            told[problem.id] += 1
            if told[problem.id] <= MOST_SHOWN:
                yield f"{self.file}:{line}: {sentence(problem)}"
            elif told[problem.id] == MOST_SHOWN + 1:
                more = total[problem.id] - MOST_SHOWN
                yield f"{self.file}: {more} more of {problem.id}; --json shows all"
        yield f"{self.file}: {self._summary()}"

    def to_json(self) -> dict[str, object]:
        """Everything, for programs."""
        return {
            "file": self.file,
            "verdict": self.word,
            "generation": self.generation,
            "product": self.product,
            "message": self.message,
            "problems": [
                {
                    "id": problem.id,
                    "level": problem.level,
                    "path": problem.where,
                    "line": line,
                    "text": problem.text,
                    "hccl": problem.hccl,
                    "remedy": problem.remedy,
                }
                for problem, line in zip(self.problems, self.lines, strict=True)
            ],
        }

    def _summary(self) -> str:
        levels = Counter(problem.level for problem in self.problems)
        parts = [
            f"{levels[level]} {level}{'' if levels[level] == 1 else 's'}"
            for level in ("error", "warning")
            if levels[level]
        ]
        generation = self.generation or "1.0"
        products: tuple[Product, ...] = (self.product,) if self.product else PRODUCTS_OF[generation]
        of = f"{NAMED[generation]}, judged for {_either(products)}"
        return f"{self.word}: {', '.join([of, *parts])}"


def judge_file(
    name: str,
    *,
    product: Product | None = None,
    job: Job | None = None,
    intra_roce: bool = False,
    servers: Mapping[str, ServerSeen] | None = None,
) -> Verdict:
    """The verdict on a file; with `servers` also against the devices that these have."""
    try:
        read = source.read(name)
        problems = validate(read, product=product, job=job, intra_roce=intra_roce)
        document = table_in(read)
        generation = generation_of(document)
        if servers is not None:
            stale = against(document, servers)
            problems = tuple(sorted((*problems, *stale), key=lambda problem: problem.level))
    except RankTableError as error:
        return Verdict(file=name, message=str(error))
    at = jsontext.lines_of(read.text, [problem.path for problem in problems]) if problems else {}
    return Verdict(
        file=name,
        generation=generation,
        product=product,
        problems=problems,
        lines=tuple(at[problem.path] for problem in problems),
    )


def sentence(problem: Problem) -> str:
    """A problem on one line: rule, place, what is wrong, HCCL's words, what to do."""
    said = f' HCCL: "{problem.hccl}".' if problem.hccl else ""
    remedy = RULE_OF[problem.id].remedy
    return f"{problem.level} {problem.id}: {problem.where}: {problem.text}.{said} {remedy}."


def _either(products: tuple[Product, ...]) -> str:
    *most, last = (CALLED[product] for product in products)
    return f"{', '.join(most)} or {last}" if most else last
